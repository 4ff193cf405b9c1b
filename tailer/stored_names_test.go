package tailer

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// A stream that an earlier version has stored as its clients spelled it goes on, under that name.
func TestAStreamThatIsStoredUnderAnotherSpellingKeepsItsConsumers(t *testing.T) {
	for _, path := range []string{"/e/%7ebob", "/e/%61", "/%65/%c3%bc"} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t)
			r.up.create(path, "1")
			sub := r.store.create(t, "s", "/e/*")
			r.store.db.PutRecord(fsm.Stream{
				Path: path, State: fsm.StreamPresent, First: time.Now(), Until: time.Now().Add(time.Hour), Stamp: 1,
				Noted: sub.Version, Linked: sub.Version, Begin: fsm.Start, Tail: offsetOf(1),
			})
			r.store.db.PutConsumer(spec.NewConsumer(sub, path, offsetOf(1), 1))
			r.start()
			r.watchedLive(path)
			r.up.append(path, "2")
			r.done(r.wake(path, 1))
		})
	}
}
