package discovery

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAStreamIsTakenForGoneOnlyWhereLooksFollowEachOtherWithoutAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 30 * time.Second
		var a absence
		look := func() { a.say(true, 0, grace/2) }
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
		a.say(true, 1, grace/2)
		if a.lasts(grace) {
			t.Fatal("it lasts across an outage")
		}
	})
}
