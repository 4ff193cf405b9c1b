package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// TestACursorOfAnyGroupLeadsToTheEnd holds that a list goes on from the group that a cursor names, whatever somebody
// has written into it, and never back to a group before.
func TestACursorOfAnyGroupLeadsToTheEnd(t *testing.T) {
	h := ports.New(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		h.Store.DB.PutLogged(h.Subscribe(id, 0), fsm.LoggedAttempt{At: h.Clock(), Result: "done"})
	}
	s := &Service{View: NewView(h.Store, h.Rec)}
	ctx := asItself(t.Context())
	subs, err := s.Subscriptions(ctx, "")
	if err != nil || len(subs) != 4 {
		t.Fatal(subs, err)
	}
	for _, c := range []struct{ group, end, want string }{
		{"b", "c", "b c d"},
		{"bb", "cc", "c d"},
		{"b", "zz", "b c d"},
		{"b", "b", "b c d"},
		{"c", "a", "c d"},
		{"c", "", "c d"},
		{"zz", "a", ""},
		{"zz", "zzz", ""},
	} {
		var shown []string
		at := &paging.Place{Group: c.group, GroupEnd: c.end}
		for pages := 0; at != nil; pages++ {
			next, err := s.PageAttempts(ctx, subs, *at, time.Time{}, func(a fsm.LoggedAttempt) bool {
				shown = append(shown, a.Subscription)
				return true
			})
			if err != nil || pages > len(subs) {
				t.Fatalf("from %q to %q: page %d, %v", c.group, c.end, pages, err)
			}
			at = next
		}
		slices.Sort(shown)
		if got := strings.Join(shown, " "); got != c.want {
			t.Errorf("from %q to %q: %q, want %q", c.group, c.end, got, c.want)
		}
	}
}
