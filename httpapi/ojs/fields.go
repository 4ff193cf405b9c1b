package ojs

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/fields"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// subscriptionBody is a subscription as Open Job Spec shows it (OJS Webhook Delivery 5.1).
type subscriptionBody struct {
	ID  string `json:"id"`
	URL string `json:"url"`
	filterBody
	Active bool `json:"active"`
	// Secret is only in the answer to the request that has made it (6.1).
	Secret    string            `json:"secret,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
}

func bodyOf(sub fsm.Subscription) subscriptionBody {
	return subscriptionBody{
		ID: sub.ID, URL: sub.Webhook, filterBody: filterOf(sub), Active: !sub.Stopped(), Metadata: sub.Metadata,
		CreatedAt: sub.CreatedAt.UTC(),
	}
}

// request is what the body of a POST or a PATCH asks for.
type request struct {
	fields.Asked
	// resume is true if the subscription should be active.
	resume bool
}

// read reads the body of a POST (all), or of a PATCH, which may lack any field. The fields have the same meaning and
// the same checks as in a PUT, under other names.
func (f *Face) read(c echo.Context, all bool) (asked request, err error) {
	o, err := f.Bodies.JSON(c)
	if err != nil {
		return asked, err
	}
	if err := o.Only("url", "events", "filter", "active", "metadata"); err != nil {
		return asked, err
	}
	if _, said := o["events"]; said || all {
		if _, err := web.Required[[]json.RawMessage](o, "events", "a list of types of events"); err != nil {
			return asked, err
		}
	}
	if err := onlyKnownFilter(o); err != nil {
		return asked, err
	}
	fields := web.Object{}
	if all { // the delays between attempts, and the time that each has, are the defaults (7.2, 7.3)
		fields = web.Object{"mode": []byte(`"push"`), "format": []byte(`"ojs"`), "ordering": []byte(`"none"`)}
	}
	for name, raw := range o {
		if ours, known := fieldNames[name]; known {
			fields[ours] = raw
		}
	}
	if asked.Asked, err = f.Fields.Read(c.Request().Context(), fields, all); err != nil {
		return asked, byName(err)
	}
	active, named, err := web.Optional[bool](o, "active", "true or false")
	if _, said := o["active"]; said && err == nil {
		asked.resume = active || !named
		resume := asked.resume
		asked.Add(func(sub *fsm.Subscription) error {
			sub.Paused = sub.Paused || !resume
			return nil
		})
	}
	return asked, err
}

// fieldNames are the fields of Open Job Spec that a PUT has as well, and their names there.
var fieldNames = map[string]string{"url": "webhook", "metadata": "metadata", "events": "events", "filter": "filter"}

// byName makes a refusal name the URL as the client does.
func byName(err error) error {
	var r *refusal.Error
	if !errors.As(err, &r) {
		return err
	}
	if rest, about := strings.CutPrefix(r.Message, "webhook "); about {
		return refusal.New(r.Code, "url %s", rest)
	}
	return err
}

// filterBody says which events a subscription gets (OJS Webhook Delivery 5.2).
type filterBody struct {
	Events []string               `json:"events"`
	Filter map[string][]fsm.Value `json:"filter,omitempty"`
}

// filterOf shows a filter by the names of the spec. Paths without such a name were set by the other API.
func filterOf(sub fsm.Subscription) filterBody {
	b := filterBody{Events: sub.Filter.Events, Filter: maps.Clone(sub.Filter.Values)}
	if len(b.Events) == 0 {
		b.Events = []string{fsm.AnyType}
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
