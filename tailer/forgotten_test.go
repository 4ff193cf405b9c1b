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
	w := r.BeforeWrite(t.Context(), "/a", true)
	r.up.remove("/a")
	if _, err := r.store.other.Deleted(t.Context(), r.store.PartitionOf("/a"), "/a", fsm.Deletion{}); err != nil {
		t.Fatal(err)
	}
	r.Hinted(fsm.Hint{Kind: fsm.HintRemoved, Path: "/a"})
	r.until("it is awaited", func() bool { _, awaited := r.store.knows("/a"); return awaited })
	r.up.create("/a", "1")
	r.Refused(w)
	r.until("it is known again", func() bool { known, _ := r.store.knows("/a"); return known })
	r.until("nothing is kept in mind", func() bool { return r.Held()["writes"] == 0 })
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
		if r.Linked("/a") {
			t.Error("it is remembered as linked")
		}
	})
	t.Run("because nobody was subscribed to it", func(t *testing.T) {
		r := newRig(t).start()
		r.put("/a", "1")
		r.until("it is remembered", func() bool { return r.Linked("/a") })
		r.up.remove("/a")
		r.Enqueue("/a", discovery.Evidence{})
		r.until("the others are told", func() bool { return r.store.hinted(forgotten) })
	})
	t.Run("by another replica", func(t *testing.T) {
		r := newRig(t).start()
		r.put("/a", "1")
		r.until("it is remembered", func() bool { return r.Linked("/a") })
		r.Hinted(forgotten)
		if r.Linked("/a") {
			t.Error("it is remembered as linked")
		}
	})
}
