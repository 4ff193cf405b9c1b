package dispatcher

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"reveille/fsm"
)

// filter says whether a subscription gets an event. Its cost is bounded by the length of the event, times the number of
// paths and of names in them.
//
// If an object has a name twice, the last one counts, as for most readers of JSON. So the receiver finds the same type
// that the filter found.
type filter struct {
	// types are the Events of fsm.Filter; nil if all types are taken. typePath is the path of an event's own type.
	types      []string
	typePath   []string
	conditions []condition
}

// condition demands one of some values at a path of the event.
type condition struct {
	path   []string
	values []value
}

// value is a string, a number or a boolean: equal values are the same by ==. For any other JSON value, it only has the
// type.
type value struct {
	kind gjson.Type
	text string
}

// newFilter returns the filter of a subscription. The error names what only a later version knows.
func newFilter(f fsm.Filter) (*filter, error) {
	made := &filter{}
	path := f.TypePath
	if path == "" {
		path = fsm.DefaultTypePath
	}
	var err error
	if made.typePath, err = fsm.SplitFilterPath(path); err != nil {
		return nil, fmt.Errorf("type_path %w", err)
	}
	if !slices.Contains(f.Events, fsm.AnyType) {
		made.types = f.Events
	}
	for path, values := range f.Values {
		c := condition{}
		if c.path, err = fsm.SplitFilterPath(path); err != nil {
			return nil, fmt.Errorf("filter has a path that %w", err)
		}
		for _, v := range values {
			c.values = append(c.values, valueOf(gjson.Parse(string(v))))
		}
		made.conditions = append(made.conditions, c)
	}
	return made, nil
}

// matches says whether an event, which is valid JSON, passes the filter.
func (f *filter) matches(event []byte) bool {
	e := gjson.ParseBytes(event)
	return f.takesType(e) && !slices.ContainsFunc(f.conditions, func(c condition) bool { return !c.holds(e) })
}

func (f *filter) takesType(e gjson.Result) bool {
	if len(f.types) == 0 {
		return true
	}
	own := at(e, f.typePath)
	text := textOf(own)
	return own.Type == gjson.String && slices.ContainsFunc(f.types, func(t string) bool {
		prefix, wildcard := strings.CutSuffix(t, "*")
		return text == t || wildcard && strings.HasPrefix(text, prefix)
	})
}

// holds says whether an allowed value is at the path. A null, an array or an object is never allowed.
func (c condition) holds(e gjson.Result) bool {
	return slices.Contains(c.values, valueOf(at(e, c.path)))
}

// valueOf is called once for each path of an event, however many values are allowed: its time may grow with the event.
func valueOf(v gjson.Result) value {
	switch v.Type {
	case gjson.String:
		return value{v.Type, textOf(v)}
	case gjson.Number:
		return value{v.Type, fsm.Decimal(v.Raw)}
	case gjson.Null, gjson.False, gjson.True, gjson.JSON:
	}
	return value{kind: v.Type}
}

// at returns the value at a path of member names. Without one, it returns a value that does not exist, of type null.
func at(v gjson.Result, path []string) gjson.Result {
	for _, name := range path {
		if !v.IsObject() {
			return gjson.Result{}
		}
		var found gjson.Result
		v.ForEach(func(key, value gjson.Result) bool {
			if textOf(key) == name {
				found = value
			}
			return true
		})
		v = found
	}
	return v
}

// textOf returns a string as a receiver's JSON reader does. That includes strings with half of a surrogate pair, or
// with invalid UTF-8.
func textOf(v gjson.Result) (text string) {
	if v.Type != gjson.String || strings.IndexByte(v.Raw, '\\') < 0 && utf8.ValidString(v.Str) {
		return v.Str
	}
	_ = json.Unmarshal([]byte(v.Raw), &text) // the event is valid JSON
	return text
}
