package redisstore

import (
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

func TestAnOutcomeOfAVersionThatNotedLessIsRead(t *testing.T) {
	wake := func(more ...any) []any {
		return append([]any{"s:%2Fa", "s", "g", "/a", "7", "w_1", "2", []any{"/a", "-1", "5"}}, more...)
	}
	for _, tc := range []struct {
		name string
		wake []any
		woke time.Time
	}{
		{"without when the wake began", wake(), time.Time{}},
		{"with a time that nobody knows", wake("0"), time.Time{}},
		{"with when the wake began", wake("1790000000123"), time.UnixMilli(1_790_000_000_123)},
		{"with more than this version knows", wake("1790000000123", "news"), time.UnixMilli(1_790_000_000_123)},
	} {
		r := &reply{script: scriptAccept, items: []any{[]any{
			[]any{tc.wake},
			[]any{},
			[]any{},
			[]any{[]any{"s", "g", "s:%2Fa", "/a", "4", "given_up"}},
			[]any{},
		}}}
		o := r.outcome()
		if r.bad != nil || len(o.Wakes) != 1 || len(o.Gone) != 1 || o.Gone[0].Cause != fsm.GoneGivenUp {
			t.Errorf("%s: %+v, %v", tc.name, o, r.bad)
			continue
		}
		if w := o.Wakes[0]; w.Epoch != 7 || w.Attempt != 2 || len(w.Streams) != 1 || !w.WokeAt.Equal(tc.woke) {
			t.Errorf("%s: %+v, want it begun at %s", tc.name, w, tc.woke)
		}
	}
}

func TestACauseThatNobodyKnowsIsAnError(t *testing.T) {
	gone := []any{"s", "g", "s:%2Fa", "/a", "4", "boredom"}
	r := &reply{script: scriptAccept, items: []any{[]any{[]any{}, []any{}, []any{}, []any{gone}, []any{}}}}
	if r.outcome(); r.bad == nil || !strings.Contains(r.bad.Error(), "boredom") {
		t.Errorf("the reply is read: %v", r.bad)
	}
}
