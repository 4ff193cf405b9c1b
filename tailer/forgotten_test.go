package tailer

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/discovery"
)

func TestAWriteThatMakesAStreamKeepsItOnRecordThoughAnotherReplicaDeletesIt(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Discovery.WriteFor = time.Hour }).start()
	r.put("/a", "1")
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
	w := r.discovery.BeforeWrite(t.Context(), "/a", true)
	r.up.remove("/a")
	if _, err := r.store.other.Deleted(t.Context(), r.store.PartitionOf("/a"), "/a", fsm.Deletion{}); err != nil {
		t.Fatal(err)
	}
	r.Hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"})
	r.until("it is awaited", func() bool { _, awaited := r.store.knows("/a"); return awaited })
	r.up.create("/a", "1")
	r.discovery.Refused(w)
	r.until("it is known again", func() bool { known, _ := r.store.knows("/a"); return known })
	r.until("nothing is kept in mind", func() bool { return r.discovery.Held()["writes"] == 0 })
}

// What is remembered of a stream that another replica has forgotten is old news until its hint comes. An event that was
// on its way meanwhile is older than where the next record's consumers begin.
func TestAWriteThatWasOnItsWayWhileItsStreamWasForgottenIsNotLost(t *testing.T) {
	for what, answered := range map[string]bool{"with an answer": true, "whose answer is lost": false} {
		t.Run(what, func(t *testing.T) {
			never := func(c *Config) { c.WatchEvery, c.Resync, c.Check = time.Hour, time.Hour, time.Hour }
			r := newRig(t, never).start()
			r.idle("/a")
			r.up.set(func() { r.up.deaf = true }) // nobody but the gateway shows the event
			ctx, other, home := t.Context(), r.store.other, r.store.PartitionOf("/a")
			w := r.discovery.BeforeWrite(ctx, "/a", false)
			if _, err := other.Deleted(ctx, home, "/a", fsm.Deletion{}); err != nil {
				t.Fatal(err)
			}
			tail := r.up.append("/a", "on its way")
			s, err := other.Stream(ctx, "/a")
			if err != nil {
				t.Fatal(err)
			}
			heard := fsm.NewStream("/a", tail) // through the next write, at the other replica
			heard.Stamp = s.Stamp
			if _, noted, err := other.NoteStream(ctx, heard, time.Hour); !noted || err != nil {
				t.Fatal(noted, err)
			}
			if answered {
				r.discovery.Written(w, tail, false)
			} else {
				r.Hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"})
				r.discovery.Refused(w)
			}
			if got := r.wake("/a", 2).Streams[0]; got.Acked != fsm.Start || got.Tail != tail {
				t.Errorf("woken for %s to %s, want all up to %s", got.Acked, got.Tail, tail)
			}
		})
	}
}

func TestNobodyRemembersAStreamThatWasTakenOffTheRecord(t *testing.T) {
	forgotten := fsm.Hint{Kind: fsm.HintForgotten, Path: "/a"}
	t.Run("with its consumers, for its grace is over", func(t *testing.T) {
		r := newRig(t).start()
		r.store.setGrace(300 * time.Millisecond)
		r.idle("/a")
		r.up.remove("/a")
		r.until("its consumer is removed", func() bool { return !r.linkedNow("s", "/a") })
		r.until("the others are told", func() bool { return r.store.hinted(forgotten) })
		if r.discovery.Linked("/a") {
			t.Error("it is remembered as linked")
		}
	})
	t.Run("because nobody was subscribed to it", func(t *testing.T) {
		r := newRig(t).start()
		r.put("/a", "1")
		r.until("it is remembered", func() bool { return r.discovery.Linked("/a") })
		r.up.remove("/a")
		r.discovery.Enqueue("/a", discovery.Evidence{})
		r.until("the others are told", func() bool { return r.store.hinted(forgotten) })
	})
	t.Run("by another replica", func(t *testing.T) {
		r := newRig(t).start()
		r.put("/a", "1")
		r.until("it is remembered", func() bool { return r.discovery.Linked("/a") })
		r.Hinted(forgotten)
		if r.discovery.Linked("/a") {
			t.Error("it is remembered as linked")
		}
	})
}
