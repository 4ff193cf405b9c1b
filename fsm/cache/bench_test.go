package cache

import (
	"fmt"
	"testing"

	"reveille/fsm"
)

// BenchmarkCatalogMatch is what each newly heard of stream costs, among subscriptions with distinct
// patterns of which one matches.
func BenchmarkCatalogMatch(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			subs := make([]fsm.Subscription, n)
			for i := range subs {
				pattern := [...]string{"/x%d/*", "/*/x%d", "/**/x%d"}[i%3]
				subs[i] = fsm.Subscription{ID: fmt.Sprint(i), Pattern: fmt.Sprintf(pattern, i)}
			}
			c := NewCatalog()
			c.Replace(subs, 1)
			for b.Loop() {
				if len(c.Match("/x0/a-stream")) != 1 {
					b.Fatal("no match")
				}
			}
		})
	}
}

// BenchmarkCatalogChange is what each change of a subscription costs every replica.
func BenchmarkCatalogChange(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			subs := make([]fsm.Subscription, n)
			for i := range subs {
				subs[i] = fsm.Subscription{ID: fmt.Sprint(i), Pattern: fmt.Sprintf("/x%d/*", i)}
			}
			c := NewCatalog()
			c.Replace(subs, 1)
			for b.Loop() {
				c.Change(subs[:1], nil, 1)
			}
		})
	}
}

// BenchmarkCatalogReplace is what it costs where the changes are not known.
func BenchmarkCatalogReplace(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			subs := make([]fsm.Subscription, n)
			for i := range subs {
				subs[i] = fsm.Subscription{ID: fmt.Sprint(i), Pattern: fmt.Sprintf("/x%d/*", i)}
			}
			c := NewCatalog()
			for b.Loop() {
				c.Replace(subs, 1)
			}
		})
	}
}
