package fsm

import (
	"testing"
	"time"
)

func TestWhereASubscriptionBeginsInAStream(t *testing.T) {
	const tail = Offset("30")
	noted := Stream{State: StreamPresent, Noted: 100, Linked: 100, Begin: Start, Tail: "20"}
	heard := noted
	heard.Begin = "10"
	fresh := NewStream("/a", "10")
	lost := fresh
	lost.Lost = 90
	awaited := Stream{State: StreamAwaited, Noted: 100, Linked: 100, Begin: Start}
	for name, tt := range map[string]struct {
		version    int64
		stream     Stream
		tail, seen Offset
		want       Offset
		rule       StartRule
	}{
		"it was looked at before the creator was told: there": {101, noted, tail, "25", "25", StartSeen},
		"it was looked at before the creator was told: not there": {
			101, noted, tail, Start, Start, StartSeen,
		},
		"what was seen then is of an older stream of that name": {101, noted, tail, "40", "20", StartLater},
		"looked at in time, whatever may have been lost":        {80, lost, tail, "25", "25", StartSeen},
		"the record may have been lost since":                   {90, lost, tail, "", Start, StartLost},
		"it was created after the loss":                         {91, lost, tail, "", "10", StartEarlier},
		"it came earlier than the stream":                       {100, noted, tail, "", Start, StartEarlier},
		"the stream was first heard of through an append":       {100, heard, tail, "", "10", StartEarlier},
		"nobody can tell yet which came first":                  {1 << 50, fresh, tail, "", "10", StartEarlier},
		"where it was first heard of is beyond its end":         {100, heard, "05", "", Start, StartBack},
		"it came later, and nobody has seen the stream before":  {101, awaited, tail, "", Start, StartUnseen},
		"it came later, and the tail has moved back":            {101, noted, "05", "", Start, StartBack},
		"it came later": {101, noted, tail, "", "20", StartLater},
		"it came later, and nothing has happened since": {101, noted, "20", "", "20", StartLater},
	} {
		t.Run(name, func(t *testing.T) {
			got, rule := StartOffset(Subscription{Version: tt.version}, tt.stream, tt.tail, tt.seen)
			if got != tt.want || rule != tt.rule {
				t.Errorf("it begins at %q, because %q; want %q, because %q", got, rule, tt.want, tt.rule)
			}
		})
	}
}

func TestLinkingAStreamKeepsWhenItWasNoted(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	s := NewStream("/a", "")
	l := Linking{Tail: "1", Version: 7, Look: time.Hour}
	first := s.Link(l, 3, now)
	if first.Noted != 7 || first.Linked != 7 || first.Stamp != 3 || !first.Present() ||
		!first.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("at first %+v", first)
	}
	l.Version, l.Tail = 9, "2"
	if second := first.Link(l, 4, now); second.Noted != 7 || second.Linked != 9 || second.Tail != "2" {
		t.Errorf("then %+v", second)
	}
}
