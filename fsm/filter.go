package fsm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Filter says which events of its streams a subscription of ModePush gets. An event must have one of the types, and an
// allowed value at each path. The zero Filter takes all events. It is immutable, and so are its maps and lists.
type Filter struct {
	// Events are types of events: a whole type, or the beginning of a type and "*" (AnyType, "job.*"). If there are
	// none, all types are taken.
	Events []string
	// TypePath is where an event has its type; empty for DefaultTypePath.
	TypePath string
	// Values are the allowed values by path.
	Values map[string][]Value
}

const (
	// AnyType matches all events, also events without a type.
	AnyType = "*"
	// DefaultTypePath is used if Filter.TypePath is empty.
	DefaultTypePath = "type"
)

// The bounds of a filter. Texts are counted in bytes, values as JSON.
const (
	MaxFilterTypes  = 100
	MaxFilterPaths  = 20
	MaxFilterValues = 100
	MaxFilterText   = 256
	// MaxFilterNames is how many names a path may have.
	MaxFilterNames = 16
	// MaxFilterBytes bounds all texts of a filter together: every replica has it in memory.
	MaxFilterBytes = 16 << 10
)

// IsZero says whether the filter takes all events, so that no event needs a look.
func (f Filter) IsZero() bool {
	return len(f.Values) == 0 && (len(f.Events) == 0 || slices.Contains(f.Events, AnyType))
}

// Equal says whether f and o are the same.
func (f Filter) Equal(o Filter) bool {
	return slices.Equal(f.Events, o.Events) && f.TypePath == o.TypePath && sameValues(f.Values, o.Values)
}

func sameValues(a, b map[string][]Value) bool {
	return maps.EqualFunc(a, b, func(a, b []Value) bool { return slices.EqualFunc(a, b, Value.Equal) })
}

// Size is the number of bytes of the filter's texts.
func (f Filter) Size() int {
	n := len(f.TypePath)
	for _, t := range f.Events {
		n += len(t)
	}
	for path, values := range f.Values {
		n += len(path)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// CheckEventType returns an error that says why a text cannot be one of Filter.Events, behind the name of its field.
func CheckEventType(text string) error {
	star := strings.IndexByte(text, '*')
	switch {
	case text == "" || len(text) > MaxFilterText:
		return fmt.Errorf("must have 1 to %d bytes", MaxFilterText)
	case star >= 0 && text != AnyType && (star < len(text)-1 || star < 2 || text[star-1] != '.'):
		return errors.New(`can have "*" only by itself, or at its end behind a dot, as in "job.*"`)
	}
	return nil
}

// SplitFilterPath returns the names of members that a path is made of, with dots between them. A dot or backslash that
// is part of a name has a backslash before it. The error continues a sentence that began with the path.
//
// The syntax is a path of github.com/tidwall/gjson without wildcards, queries, modifiers and positions in arrays. A
// filter is data, and its cost has a bound.
func SplitFilterPath(path string) (names []string, err error) {
	if path == "" || len(path) > MaxFilterText {
		return nil, fmt.Errorf("must have 1 to %d bytes", MaxFilterText)
	}
	name, escaped := []byte{}, false
	for i := range len(path) {
		switch c := path[i]; {
		case escaped && c != '.' && c != '\\':
			return nil, fmt.Errorf(`has a backslash before %q: only "\." and "\\" are known`, path[i:i+1])
		case escaped:
			name, escaped = append(name, c), false
		case c == '\\':
			escaped = true
		case c == '.':
			names, name = append(names, string(name)), nil
		case c == '*' || c == '?' || c == '#' || c == '|' || c == '!':
			return nil, fmt.Errorf("has %q: a path is the names of members with dots between them, and nothing else",
				path[i:i+1])
		default:
			name = append(name, c)
		}
	}
	names = append(names, string(name))
	switch {
	case escaped:
		return nil, errors.New("ends in a backslash")
	case slices.Contains(names, ""):
		return nil, errors.New("has an empty name: between dots there is at least one character")
	case len(names) > MaxFilterNames:
		return nil, fmt.Errorf("has more than %d names", MaxFilterNames)
	}
	return names, nil
}

// Value is a string, a number or a boolean as its JSON. A string has only one spelling; a number is as the client wrote
// it.
type Value string

// errValue is the error of NewValue.
var errValue = fmt.Errorf("must be a string, a number or a boolean of at most %d bytes", MaxFilterText)

// NewValue reads a value. The error continues a sentence that began with its name.
func NewValue(raw json.RawMessage) (Value, error) {
	raw = bytes.TrimSpace(raw)
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", errValue
	}
	text := string(raw)
	switch v := v.(type) {
	case string:
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return "", errValue
		}
		text = strings.TrimSuffix(b.String(), "\n")
	case json.Number:
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return "", errors.New("is a number beyond what most readers of JSON take")
		}
	case bool:
	default:
		return "", errValue
	}
	if len(text) > MaxFilterText {
		return "", errValue
	}
	return Value(text), nil
}

// Equal says whether v and o are the same: 1 and 1.0 are.
func (v Value) Equal(o Value) bool {
	return v == o || v.number() && o.number() && Decimal(string(v)) == Decimal(string(o))
}

func (v Value) number() bool { return v != "" && strings.IndexByte("-0123456789", v[0]) >= 0 }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(v), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(raw []byte) (err error) {
	*v, err = NewValue(raw)
	return err
}

// maxExponent is the largest exponent that Decimal calculates with.
const maxExponent = 1 << 40

// Decimal returns a JSON number in one spelling: 1, 1.0 and 10e-1 are the same. Numbers that differ in any digit stay
// different, which floats would not guarantee.
func Decimal(text string) string {
	digits, negative := strings.CutPrefix(text, "-")
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		var err error
		// An exponent that is out of range becomes the largest or the smallest int.
		exponent, err = strconv.Atoi(strings.TrimPrefix(digits[i+1:], "+"))
		digits = digits[:i]
		if err != nil || max(exponent, -exponent) > maxExponent {
			exponent = maxExponent // the exponent of a zero has no meaning
		}
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	switch {
	case short == "":
		return "0"
	case exponent == maxExponent:
		return text
	}
	sign := ""
	if negative {
		sign = "-"
	}
	return sign + short + "e" + strconv.Itoa(exponent-len(fraction)+len(digits)-len(short))
}
