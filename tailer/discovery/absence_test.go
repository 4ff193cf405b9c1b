package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

func TestAStreamIsTakenForGoneOnlyWhereNobodyWasShownItAndLooksLeaveNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 30 * time.Second
		var a absence
		s := fsm.Stream{State: fsm.StreamAwaited, Stamp: 1}
		look := func() { a.say(true, s, 0, grace/2) }
		look()
		time.Sleep(40 * time.Second) // the store was away, and nobody asked
		if look(); a.lasts(grace) {
			t.Fatal("two words with nothing between them passed for an absence of the grace")
		}
		for range 6 {
			if a.lasts(grace) {
				t.Fatal("it lasts before its time")
			}
			time.Sleep(5 * time.Second)
			look()
		}
		if !a.lasts(grace) {
			t.Fatal("it does not last")
		}
		s.State, s.Stamp = fsm.StreamPresent, 2 // another replica has seen it
		if look(); a.lasts(grace) {
			t.Fatal("it lasts although the stream was there in between")
		}
		s = fsm.Stream{}
		for range 7 {
			s.Stamp++ // by deletions of other streams
			look()
			time.Sleep(5 * time.Second)
		}
		if !a.lasts(grace) {
			t.Fatal("deletions of other streams end it")
		}
		a.say(true, s, 1, grace/2)
		if a.lasts(grace) {
			t.Fatal("it lasts across an outage")
		}
	})
}
