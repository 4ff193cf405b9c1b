package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// maxNamedFields bounds how many unknown fields a refusal names.
const maxNamedFields = 5

// Object is a JSON object, field by field. Names match exactly, unlike in a Go struct. If a name comes twice, the last
// one counts.
type Object map[string]json.RawMessage

func parseObject(body []byte) (Object, error) {
	switch {
	case !utf8.Valid(body) || !json.Valid(body):
		return nil, refusal.New(fsm.CodeInvalidRequest, "the body is not JSON")
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{':
		return nil, refusal.New(fsm.CodeInvalidRequest, "the body is not a JSON object")
	}
	var o Object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, refusal.New(fsm.CodeInvalidRequest, "the body is not a JSON object")
	}
	return o, nil
}

// Value decodes one JSON value of a body. It refuses null for every type.
func Value[T any](raw json.RawMessage, name, want string) (T, error) {
	var v T
	if IsNull(raw) || json.Unmarshal(raw, &v) != nil {
		return v, refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	return v, nil
}

// Optional decodes a field. If the field is absent or null, ok is false.
func Optional[T any](o Object, name, want string) (v T, ok bool, err error) {
	raw, found := o[name]
	if !found || IsNull(raw) {
		return v, false, nil
	}
	v, err = Value[T](raw, name, want)
	return v, err == nil, err
}

// Required decodes a field that must be there.
func Required[T any](o Object, name, want string) (T, error) {
	v, ok, err := Optional[T](o, name, want)
	if err == nil && !ok {
		err = refusal.New(fsm.CodeInvalidRequest, "%s is missing: it must be %s", name, want)
	}
	return v, err
}

// Under names the fields of an object by their place in the body, such as retry.max. A null field stands for the
// default and is left out.
func (o Object) Under(name string) Object {
	named := make(Object, len(o))
	for field, raw := range o {
		if !IsNull(raw) {
			named[name+"."+field] = raw
		}
	}
	return named
}

// Only refuses an object with unknown fields. Otherwise a misspelt field would be ignored silently.
func (o Object) Only(known ...string) error {
	var unknown []string
	for name := range o {
		if !slices.Contains(known, name) {
			unknown = append(unknown, strconv.Quote(refusal.Clipped(name)))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	if more := len(unknown) - maxNamedFields; more > 0 {
		unknown = append(unknown[:maxNamedFields], fmt.Sprintf("and %d more", more))
	}
	allowed := "known are " + strings.Join(known, ", ")
	if len(known) == 0 {
		allowed = "this request has none"
	}
	return refusal.New(fsm.CodeInvalidRequest, "unknown field %s; %s", strings.Join(unknown, ", "), allowed)
}

// IsNull says whether a value is null.
func IsNull(raw json.RawMessage) bool { return string(raw) == "null" }

// Members are the members of an object in an answer, in their order.
type Members []member

type member struct {
	name  string
	value any
}

// With returns the members and one more.
func (ms Members) With(name string, value any) Members { return append(ms, member{name, value}) }

// MarshalJSON implements json.Marshaler.
func (ms Members) MarshalJSON() ([]byte, error) {
	text := bytes.NewBufferString("{")
	for i, m := range ms {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(text, "%q:", m.name)
		if err := encode(text, m.value); err != nil {
			return nil, err
		}
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
