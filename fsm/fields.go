package fsm

import (
	"maps"
	"slices"
	"time"
)

// Field is a field of a subscription that the body of a request can set.
type Field struct {
	// Name is its name in the API.
	Name string
	// Value is what a subscription has in the field.
	Value func(*Subscription) any
	// Same says whether two subscriptions have the same in the field.
	Same func(a, b *Subscription) bool
	// fill sets an empty field to its default.
	fill func(*Subscription)
}

// Fields are all of them, in the order in which requests are read and answers show them: the mode comes before the
// fields that depend on it. Each has the default of ModeWake, then that of ModePush. A new one also needs an entry in
// httpapi/fields/table.go, which reads and shows it, and one in the record of package redisstore. Tests fail until it
// has them, and a row in httpapi/native/SUBSCRIPTIONS.md.
var Fields = []Field{
	field("webhook", func(s *Subscription) *string { return &s.Webhook }, equal, "", ""),
	field("description", func(s *Subscription) *string { return &s.Description }, equal, "", ""),
	field("signature", func(s *Subscription) *Signature { return &s.Signature }, equal,
		SignatureHMAC, SignatureStandardWebhooks),
	field("start", func(s *Subscription) *Offset { return &s.Start }, equal, "", ""),
	field("mode", func(s *Subscription) *Mode { return &s.Mode }, equal, ModeWake, ModePush),
	field("format", func(s *Subscription) *Format { return &s.Format }, equal, FormatWake, FormatJSON),
	field("batch", func(s *Subscription) *int { return &s.Batch }, equal, 0, 1),
	field("events", func(s *Subscription) *[]string { return &s.Filter.Events }, slices.Equal, nil, nil),
	field("type_path", func(s *Subscription) *string { return &s.Filter.TypePath }, equal, "", ""),
	field("filter", func(s *Subscription) *map[string][]Value { return &s.Filter.Values }, sameValues, nil, nil),
	field("ordering", func(s *Subscription) *Ordering { return &s.Ordering }, equal, "", OrderingStream),
	field("timeout", func(s *Subscription) *time.Duration { return &s.Timeout }, equal, 0, PushTimeout),
	field("retry", func(s *Subscription) *[]time.Duration { return &s.Retry }, slices.Equal, nil, PushRetry),
	field("disable_after", func(s *Subscription) *time.Duration { return &s.DisableAfter }, equal, 0, 0),
	field("rate", func(s *Subscription) *int { return &s.Rate }, equal, 0, 0),
	field("headers", func(s *Subscription) *map[string]string { return &s.Headers }, maps.Equal, nil, nil),
	field("authorization", func(s *Subscription) *Authorization { return &s.Authorization }, equal,
		Authorization{}, Authorization{}),
	field("metadata", func(s *Subscription) *map[string]string { return &s.Metadata }, maps.Equal, nil, nil),
}

func field[T any](name string, at func(*Subscription) *T, same func(a, b T) bool, wake, push T) Field {
	return Field{
		Name:  name,
		Value: func(s *Subscription) any { return *at(s) },
		Same:  func(a, b *Subscription) bool { return same(*at(a), *at(b)) },
		fill: func(s *Subscription) {
			var empty T
			switch {
			case !same(*at(s), empty):
			case s.Mode == ModePush:
				*at(s) = push
			default:
				*at(s) = wake
			}
		},
	}
}

func equal[T comparable](a, b T) bool { return a == b }

// WithDefaults fills in the empty fields that say how the subscription is delivered. Stores call it for what they
// store.
func (s Subscription) WithDefaults() Subscription {
	for _, f := range Fields {
		f.fill(&s)
	}
	return s
}

// SameConfig says whether a PUT of o under s's ID asks for what is stored.
func (s Subscription) SameConfig(o Subscription) bool { return len(s.differs(o)) == 0 }

// differs names what a PUT of o under s's ID would change, as the API names it.
func (s Subscription) differs(o Subscription) (names []string) {
	if s.Pattern != o.Pattern {
		names = append(names, "pattern")
	}
	for _, f := range Fields {
		if !f.Same(&s, &o) {
			names = append(names, f.Name)
		}
	}
	return names
}
