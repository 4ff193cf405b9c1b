package redisstore

import (
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

func TestAnOutcomeIsRead(t *testing.T) {
	r := &reply{script: scriptAccept, told: []any{
		[]any{
			"delivery", "s:%2Fa", "s", "g", "/a", "7", "w_1", "2",
			"1790000000123", int64(6), int64(45000), int64(3), int64(4), int64(1), int64(1), "o",
			"/a", "-1", "5",
		},
		[]any{"removed", "s", "g", "s:%2Fa", "/a", "4", "given_up"},
		[]any{"left", "s", "/a", "stream_deleted", int64(3)},
		[]any{"quarantined", "s:%2Fb", "its field handed is missing"},
		[]any{"idle", "/b"},
		[]any{"idle", "/c"},
		[]any{"hidden", "/d"},
	}}
	o := r.outcome()
	if r.bad != nil || len(o.Deliveries) != 1 || len(o.Removed) != 1 || o.Removed[0].Cause != fsm.RemovedGivenUp {
		t.Fatalf("%+v, %v", o, r.bad)
	}
	left := fsm.Left{Subscription: "s", Stream: "/a", Cause: fsm.RemovedStreamDeleted, Letters: 3}
	if len(o.Left) != 1 || o.Left[0] != left {
		t.Errorf("what is left is %+v", o.Left)
	}
	apart := fsm.Quarantined{Consumer: "s:%2Fb", Reason: "its field handed is missing"}
	if len(o.Quarantined) != 1 || o.Quarantined[0] != apart {
		t.Errorf("in quarantine are %+v", o.Quarantined)
	}
	if !slices.Equal(o.Idle, []string{"/b", "/c"}) || !slices.Equal(o.Hidden, []string{"/d"}) {
		t.Errorf("idle are %q, hidden %q", o.Idle, o.Hidden)
	}
	if w := o.Deliveries[0]; w.Epoch != 7 || w.Attempt != 2 || w.Handed != 4 || w.Born != 6 || len(w.Streams) != 1 ||
		w.Patience != 45*time.Second || w.Span != 3 || !w.Nudged || !w.Replay || w.Owner != "o" ||
		!w.WokeAt.Equal(time.UnixMilli(1_790_000_000_123)) {
		t.Errorf("the wake is %+v", w)
	}
}

func TestAnOutcomeThatNobodyKnowsIsAnError(t *testing.T) {
	for what, item := range map[string]any{
		"a cause": []any{"removed", "s", "g", "s:%2Fa", "/a", "4", "boredom"},
		"a kind":  []any{"boredom", "/a"},
		"a link": []any{
			"delivery", "s:%2Fa", "s", "g", "/a", "7", "w_1", "2", "0", "0", "0", "0", "0", "0", "0", "",
			"boredom", "1",
		},
		"no item": "boredom",
	} {
		r := &reply{script: scriptAccept, told: []any{item}}
		if r.outcome(); r.bad == nil {
			t.Errorf("%s is read", what)
		}
	}
}

// TestAnAsideInQuarantineIsShownAsOne holds that its owner is told by its id, because its record cannot be read.
func TestAnAsideInQuarantineIsShownAsOne(t *testing.T) {
	id := fsm.ConsumerID("s", "/a")
	for _, tt := range []struct{ id, owner string }{{id, ""}, {fsm.AsideID(id, 7), id}} {
		c := quarantined(tt.id, "boredom")
		if c.Owner != tt.owner || c.ID != tt.id || c.Subscription != "s" || c.Primary != "/a" {
			t.Errorf("%s is shown as %+v", tt.id, c)
		}
	}
}
