package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

func TestLinkingAStreamKeepsWhenItWasNoted(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	s := fsm.NewStream("/a", "")
	l := fsm.Linking{Tail: "1", Version: 7, Look: time.Hour}
	first := LinkStream(s, l, 3, now)
	if first.Noted != 7 || first.Linked != 7 || first.Stamp != 3 || !first.Present() ||
		!first.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("at first %+v", first)
	}
	l.Version, l.Tail = 9, "2"
	if second := LinkStream(first, l, 4, now); second.Noted != 7 || second.Linked != 9 || second.Tail != "2" {
		t.Errorf("then %+v", second)
	}
}
