package ojs

import (
	"reveille/fsm"
	"reveille/httpapi/fields"
	"reveille/httpapi/web"
)

// filterBody says which events a subscription gets (OJS Webhook Delivery 5.2).
type filterBody struct {
	Events []string               `json:"events"`
	Filter map[string][]fsm.Value `json:"filter,omitempty"`
}

// filterOf shows a filter by the names of the spec. Paths without such a name were set by the other API.
func filterOf(sub fsm.Subscription) filterBody {
	b := filterBody{Events: sub.Filter.Events}
	if len(b.Events) == 0 {
		b.Events = []string{fsm.AnyType}
	}
	if len(sub.Filter.Values) == 0 {
		return b
	}
	b.Filter = map[string][]fsm.Value{}
	for path, values := range sub.Filter.Values {
		b.Filter[path] = values
	}
	for name, path := range fields.ShortPaths {
		if values, set := b.Filter[path]; set {
			delete(b.Filter, path)
			b.Filter[name] = values
		}
	}
	return b
}

// onlyKnownFilter refuses names that the spec does not have: a misspelt name would be a path that no event has.
func onlyKnownFilter(o web.Object) error {
	const name = "filter"
	fields, _, err := web.Optional[web.Object](o, name, "an object of lists")
	if err != nil {
		return err
	}
	named := web.Object{}
	for field, raw := range fields {
		named[name+"."+field] = raw
	}
	return named.Only("filter.queues", "filter.job_types")
}
