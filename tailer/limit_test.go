package tailer

import "testing"

func TestAConsumerThatCameToRestWhileItsStreamAskedForASlotCounts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxLive = 2 })
	silent, rested, another := newWatch(r.Tailer, "/a"), newWatch(r.Tailer, "/b"), newWatch(r.Tailer, "/c")
	if !r.slots.take(silent, true) {
		t.Fatal("a free slot was refused")
	}
	rested.step(&input{kind: inputRested}) // it has asked already
	if !r.slots.take(rested, false) || !r.slots.take(another, true) {
		t.Fatal("a slot was refused")
	}
	if silent.slot != nil || rested.slot == nil {
		t.Error("the slot was not taken from the stream that has been silent longest")
	}
}
