package discovery

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"reveille/fsm"
	"reveille/fsm/memstore"
)

func TestADeletionGoesAsFarAsThePartitionsAnswer(t *testing.T) {
	const stream = "/gone"
	for name, method := range map[string]string{
		"one partition cannot be reached":     "Deleted",
		"it is not known where it is watched": "WatchedIn",
	} {
		t.Run(name, func(t *testing.T) {
			db := memstore.New(memstore.Options{Partitions: 3})
			db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
			up := &server{answers: make(chan struct{})}
			close(up.answers)
			d := start(t, db, up, queueMax)
			// readers has for each of the other partitions a consumer of another stream that reads this one, too.
			home, readers := d.store.PartitionOf(stream), map[int]string{}
			for n := 0; len(readers) < 2; n++ {
				if p := d.store.PartitionOf(path(n)); p != home {
					readers[p] = fsm.ConsumerID("s", path(n))
				}
				d.Enqueue(path(n), Evidence{})
			}
			d.Enqueue(stream, Evidence{})
			own := fsm.ConsumerID("s", stream)
			broken := slices.Min(slices.Collect(maps.Keys(readers)))
			for partition, id := range readers {
				eventually(t, "the stream has a reader", func() bool { _, there := db.Consumer(id); return there })
				db.ChangeConsumer(id, func(c *fsm.Consumer) { c.Links[stream] = fsm.Link{Acked: "1"} })
				if c, _ := db.Consumer(id); c.Links[stream].Acked != "1" {
					t.Fatalf("nobody reads it in partition %d", partition)
				}
			}
			eventually(t, "the stream has its consumer", func() bool { _, there := db.Consumer(own); return there })
			db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
				if c.Method == method && (method == "WatchedIn" || c.Args[0] == broken) {
					return fsm.ErrUnavailable
				}
				return nil
			}})
			if err := d.Forget(t.Context(), []string{stream}); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
			if _, there := db.Consumer(own); there || db.Records()[stream].Found() {
				t.Error("the stream is still there in its own partition")
			}
			for partition, id := range readers {
				c, _ := db.Consumer(id)
				if over := c.Links[stream].Acked == fsm.Start; over != (method == "Deleted" && partition != broken) {
					t.Errorf("the reader in partition %d begins at %s", partition, c.Links[stream].Acked)
				}
			}
			db.SetHooks(memstore.Hooks{})
			if err := d.Forget(t.Context(), []string{stream}); err != nil {
				t.Error(err)
			}
			for partition, id := range readers {
				if c, _ := db.Consumer(id); c.Links[stream].Acked != fsm.Start {
					t.Errorf("the reader in partition %d begins at %s", partition, c.Links[stream].Acked)
				}
			}
		})
	}
}
