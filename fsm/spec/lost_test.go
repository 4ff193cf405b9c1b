package spec

import (
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
)

// TestWhatGoesWithAStreamLeavesALetter holds who leaves one, and what it tells.
func TestWhatGoesWithAStreamLeavesALetter(t *testing.T) {
	push := fsm.Subscription{ID: "s", Generation: "g", Mode: fsm.ModePush}.WithDefaults()
	since := t0.Add(-time.Hour)
	// pending has delivered up to 3 of 5, and has failed twice since.
	pending := func() fsm.Consumer {
		return fsm.Consumer{
			ID: "s:%2Fa", Subscription: "s", Generation: "g", Primary: "/a", Profile: push.Profile(),
			Born: 4, Links: map[string]fsm.Link{"/a": {Acked: "3", Tail: "5"}},
			Lease:    fsm.Lease{Epoch: 7, State: fsm.Waking},
			Attempts: fsm.Attempts{Attempt: 2, FirstFailure: since, LastError: "status 500"},
		}
	}
	letter := fsm.DeadLetter{
		Subscription: "s", Generation: "g", Consumer: "s:%2Fa", Stream: "/a", Born: 4, From: "3", To: "5", Within: "5",
		Attempts: 2, Class: "stream_deleted", Reason: "the stream was deleted", FirstFailure: since,
	}
	aside := letter
	aside.Reason = "status 500"
	anew := letter
	anew.Class, anew.Reason = "stream_recreated", "the stream was made anew under its name"
	missing := letter
	missing.Class, missing.Reason = "stream_gone", "the stream server has no such stream any more"
	for name, tt := range map[string]struct {
		cause  fsm.RemovalCause
		change func(*fsm.Consumer)
		want   *fsm.DeadLetter
	}{
		"what is yet to be pushed": {
			fsm.RemovedStreamDeleted, func(*fsm.Consumer) {}, &letter,
		},
		"what is yet to be pushed of a stream that is made anew": {
			fsm.RemovedStreamRecreated, func(*fsm.Consumer) {}, &anew,
		},
		"what is yet to be pushed of a stream that is missing": {
			fsm.RemovedStreamGone, func(*fsm.Consumer) {}, &missing,
		},
		"what is aside": {fsm.RemovedStreamDeleted, func(c *fsm.Consumer) { c.ID, c.Owner = "s:%2Fa:7", c.ID }, &aside},
		"what is aside of a letter leaves none, for that stays": {
			fsm.RemovedStreamDeleted, func(c *fsm.Consumer) { c.ID, c.Owner, c.Replay = "s:%2Fa:7", c.ID, 17 }, nil,
		},
		"nor does what is delivered": {
			fsm.RemovedStreamDeleted,
			func(c *fsm.Consumer) { c.Links = map[string]fsm.Link{"/a": {Acked: "5", Tail: "5"}} }, nil,
		},
		"nor a stream that the consumer has left": {
			fsm.RemovedStreamDeleted,
			func(c *fsm.Consumer) { c.Links = map[string]fsm.Link{"/b": {Acked: "3", Tail: "5"}} }, nil,
		},
		"nor a wake, whose worker reads the stream itself": {
			fsm.RemovedStreamDeleted, func(c *fsm.Consumer) { c.Profile = fsm.Profile{} }, nil,
		},
		"nor a consumer that has left one as it was given up": {
			fsm.RemovedStreamDeleted, func(c *fsm.Consumer) { c.State, c.Letter = fsm.GivenUp, 17 }, nil,
		},
		"nor a subscription that is deleted": {fsm.RemovedSubscriptionDeleted, func(*fsm.Consumer) {}, nil},
		"nor a worker that unsubscribes":     {fsm.RemovedUnsubscribed, func(*fsm.Consumer) {}, nil},
	} {
		c := pending()
		tt.change(&c)
		if e := Remove(c, tt.cause); !reflect.DeepEqual(e.Dead, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, e.Dead, tt.want)
		}
	}
	for _, l := range []fsm.DeadLetter{letter, anew, missing} {
		if c := pending(); Replays(c, l) {
			t.Errorf("%s: it is replayed", l.Class)
		}
	}
}

// TestAConsumerThatIsGivenUpLeavesALetter holds what it tells.
func TestAConsumerThatIsGivenUpLeavesALetter(t *testing.T) {
	since := t0.Add(-timing.GCAfter - time.Hour)
	letter := fsm.DeadLetter{
		Subscription: "sub", Generation: "g", Consumer: "sub:%2Fb", Stream: "/b", From: "3", To: "5", Within: "5",
		Attempts: 4, Class: "given_up", Reason: "status 500", FirstFailure: since,
	}
	other := letter
	other.Stream, other.From, other.To, other.Within = "/a", "1", "2", "2"
	last := other
	last.Stream = "/c"
	done := fsm.Link{Acked: "5", Tail: "5"}
	first, second := fsm.Link{Acked: "1", Tail: "2"}, fsm.Link{Acked: "3", Tail: "5"}
	for name, tt := range map[string]struct {
		links map[string]fsm.Link
		want  *fsm.DeadLetter
	}{
		"of its primary stream": {map[string]fsm.Link{"/a": first, "/b": second}, &letter},
		"of the first other one if nothing is pending there": {
			map[string]fsm.Link{"/a": first, "/b": done, "/c": first}, &other,
		},
		"of one that is pending":      {map[string]fsm.Link{"/a": done, "/c": first}, &last},
		"of none if nothing is there": {map[string]fsm.Link{"/a": done, "/b": done}, nil},
	} {
		c := fsm.Consumer{
			ID: "sub:%2Fb", Subscription: "sub", Generation: "g", Primary: "/b", Links: tt.links,
			Lease:    fsm.Lease{Epoch: 7, WakeID: "w_7", State: fsm.Waking, Deadline: t0.Add(timing.Waking)},
			Attempts: fsm.Attempts{Sent: true, Attempt: 4, FirstFailure: since},
		}
		c, e := Fail(c, at(0), ref(c), fsm.Failure{Reason: "status 500"})
		if c.State != fsm.GivenUp || e.Removal == nil || !reflect.DeepEqual(e.Dead, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, e.Dead, tt.want)
		}
	}
}

// TestALetterStandsAsLongAsNobodyIsWoken holds that whatever makes a consumer again that was given up drops its letter.
func TestALetterStandsAsLongAsNobodyIsWoken(t *testing.T) {
	for name, tt := range map[string]struct {
		does func(fsm.Consumer) (fsm.Consumer, Effects)
		want int64
	}{
		"an event": {func(c fsm.Consumer) (fsm.Consumer, Effects) { return Observe(c, at(0), "/a", "6") }, 17},
		"an event that is no news": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) { return Observe(c, at(0), "/a", "5") }, 0,
		},
		"a resumption": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) {
				c, e, _ := Resume(c, at(0))
				return c, e
			}, 17,
		},
		"a replay": {func(c fsm.Consumer) (fsm.Consumer, Effects) { return Revive(c, at(0)) }, 17},
		"another stream that is made anew": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) { return Restart(c, at(0), "/b", "1") }, 17,
		},
		"a rewind": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) {
				c, e, _ := Rewind(c, at(0), "/b", fsm.Start)
				return c, e
			}, 17,
		},
		"another stream that is deleted": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) { return Restart(c, at(0), "/b", "") }, 0,
		},
		"the stream is deleted": {
			func(c fsm.Consumer) (fsm.Consumer, Effects) { return c, Remove(c, fsm.RemovedStreamDeleted) }, 0,
		},
	} {
		c := idling("3", "5")
		c.State, c.Letter = fsm.GivenUp, 17
		c.Links = map[string]fsm.Link{
			"/a": {Acked: "3", Tail: "5", Past: "5"},
			"/b": {Acked: "1", Tail: "1", Past: "1"},
		}
		l := fsm.DeadLetter{ID: fsm.LetterID{Number: 17}, Class: "given_up"}
		if !Replays(c, l) {
			t.Errorf("%s: the letter is not replayed by its consumer", name)
		}
		got, e := tt.does(c)
		if e.Revived != tt.want || (got.Letter == 0) != (tt.want != 0) || (e.Delivery == nil) != (tt.want == 0) {
			t.Errorf("%s: %+v, %+v", name, got, e)
		}
		if revived := tt.want != 0; Replays(got, l) == revived {
			t.Errorf("%s: the letter is replayed by another: %+v", name, got)
		}
	}
}
