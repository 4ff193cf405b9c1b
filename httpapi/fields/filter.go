package fields

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// ShortPaths are the short names of some filter paths (OJS webhook delivery, 5.2).
var ShortPaths = map[string]string{"queues": "data.queue", "job_types": "data.job_type"}

func (Reader) readEvents(o web.Object) (setting, error) {
	const name = "events"
	want := fmt.Sprintf("a list of 1 to %d types of events", fsm.MaxFilterTypes)
	list, named, err := web.Optional[[]json.RawMessage](o, name, want)
	if named && (len(list) < 1 || len(list) > fsm.MaxFilterTypes) {
		err = refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	if err != nil {
		return nil, err
	}
	var types []string
	for i, raw := range list {
		of := fmt.Sprintf("%s[%d]", name, i)
		text, err := web.Value[string](raw, of, "a string")
		if err != nil {
			return nil, err
		}
		if err := fsm.CheckEventType(text); err != nil {
			return nil, refusal.New(fsm.CodeInvalidRequest, "%s %v", of, err)
		}
		types = append(types, text)
	}
	return always(func(sub *fsm.Subscription) { sub.Filter.Events = types }), nil
}

func (Reader) readTypePath(o web.Object) (setting, error) {
	const name = "type_path"
	path, named, err := web.Optional[string](o, name, "a path such as data.kind")
	if err != nil {
		return nil, err
	}
	if named {
		if _, err := fsm.SplitFilterPath(path); err != nil {
			return nil, refusal.New(fsm.CodeInvalidRequest, "%s %v", name, err)
		}
	}
	if path == fsm.DefaultTypePath {
		path = ""
	}
	return always(func(sub *fsm.Subscription) { sub.Filter.TypePath = path }), nil
}

// readFilter reads a merge patch (RFC 7396) of the allowed values by path: null removes a path.
func (Reader) readFilter(o web.Object) (setting, error) {
	const name = "filter"
	fields, named, err := web.Optional[web.Object](o, name, "an object of lists")
	if err != nil {
		return nil, err
	}
	patch := map[string][]fsm.Value{}
	for _, written := range slices.Sorted(maps.Keys(fields)) {
		path := written
		if long, short := ShortPaths[written]; short {
			path = long
		}
		if _, err := fsm.SplitFilterPath(path); err != nil {
			return nil, refusal.New(fsm.CodeInvalidRequest,
				"%s has the path %q, which %v", name, refusal.Clipped(written), err)
		}
		if _, twice := patch[path]; twice {
			return nil, refusal.New(fsm.CodeInvalidRequest, "%s has %s in two spellings", name, path)
		}
		if patch[path], err = readValues(fields[written], name+"."+refusal.Clipped(written)); err != nil {
			return nil, err
		}
	}
	return func(sub *fsm.Subscription) error {
		var merged map[string][]fsm.Value
		if named {
			merged = maps.Clone(patch)
			for path, values := range sub.Filter.Values {
				if _, set := merged[path]; !set {
					merged[path] = values
				}
			}
			maps.DeleteFunc(merged, func(_ string, values []fsm.Value) bool { return values == nil })
		}
		if len(merged) > fsm.MaxFilterPaths {
			return refusal.New(fsm.CodeInvalidRequest, "%s must have at most %d paths", name, fsm.MaxFilterPaths)
		}
		sub.Filter.Values = merged
		return nil
	}, nil
}

// readValues reads the allowed values of a path; nil for null.
func readValues(raw json.RawMessage, name string) (values []fsm.Value, err error) {
	if web.IsNull(raw) {
		return nil, nil
	}
	want := fmt.Sprintf("a list of 1 to %d strings, numbers or booleans", fsm.MaxFilterValues)
	list, err := web.Value[[]json.RawMessage](raw, name, want)
	if err != nil {
		return nil, err
	}
	if len(list) < 1 || len(list) > fsm.MaxFilterValues {
		return nil, refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	for i, raw := range list {
		v, err := fsm.NewValue(raw)
		if err != nil {
			return nil, refusal.New(fsm.CodeInvalidRequest, "%s[%d] %v", name, i, err)
		}
		values = append(values, v)
	}
	return values, nil
}

// checkFilter refuses a filter that is too large as a whole.
func checkFilter(sub fsm.Subscription) error {
	if sub.Filter.Size() > fsm.MaxFilterBytes {
		return refusal.New(fsm.CodeInvalidRequest, "events, type_path and filter must have at most %d bytes together",
			fsm.MaxFilterBytes)
	}
	return nil
}
