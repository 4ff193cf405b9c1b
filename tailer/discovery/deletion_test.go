package discovery

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

const goneStream = "/gone"

// withReaders links a stream to its own consumer, and to one in each of the other partitions whose primary stream is
// another. Then the store fails: at one of those partitions, or where it tells which there are.
func withReaders(t *testing.T, method string) (
	d *Discovery, db *memstore.DB, own string, readers map[int]string, broken int,
) {
	t.Helper()
	db = memstore.New(memstore.Options{Partitions: 3})
	db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
	up := &server{answers: make(chan struct{})}
	close(up.answers)
	d = build(t, Config{Store: db.Replica("a", 0), Upstream: up})
	work(t, d)
	look := func(path string) {
		t.Helper()
		if err := d.Do(t.Context(), path, Evidence{}); err != nil {
			t.Fatal(err)
		}
	}
	// readers has for each of the other partitions a consumer of another stream that reads this one, too.
	home := d.store.PartitionOf(goneStream)
	readers = map[int]string{}
	for n := 0; len(readers) < 2; n++ {
		if p := d.store.PartitionOf(path(n)); p != home {
			readers[p] = fsm.ConsumerID("s", path(n))
		}
		look(path(n))
	}
	look(goneStream)
	own = fsm.ConsumerID("s", goneStream)
	broken = slices.Min(slices.Collect(maps.Keys(readers)))
	for partition, id := range readers {
		db.ChangeConsumer(id, func(c *fsm.Consumer) { c.Links[goneStream] = fsm.Link{Acked: "1"} })
		if c, _ := db.Consumer(id); c.Links[goneStream].Acked != "1" {
			t.Fatalf("nobody reads it in partition %d", partition)
		}
	}
	if _, there := db.Consumer(own); !there {
		t.Fatal("the stream has no consumer")
	}
	db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == method && (method == "WatchedIn" || c.Args[0] == broken) {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	return d, db, own, readers, broken
}

func TestADeletionGoesAsFarAsThePartitionsAnswer(t *testing.T) {
	for name, method := range map[string]string{
		"one partition cannot be reached":     "Deleted",
		"it is not known where it is watched": "WatchedIn",
	} {
		t.Run(name, func(t *testing.T) {
			const stream = goneStream
			d, db, own, readers, broken := withReaders(t, method)
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

// The record of the stream that was there before tells that this is still to be done.
func TestAStreamIsReplacedOnceAllItsConsumersAre(t *testing.T) {
	for name, method := range map[string]string{
		"one partition cannot be reached":     "Deleted",
		"it is not known where it is watched": "WatchedIn",
	} {
		t.Run(name, func(t *testing.T) {
			d, db, own, readers, _ := withReaders(t, method)
			first := db.Records()[goneStream].First
			made := fsm.Write{Path: goneStream, First: first, Present: true}
			if err := d.replaceBefore(t.Context(), made); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("the error is %v", err)
			}
			if _, there := db.Consumer(own); !there || !db.Records()[goneStream].First.Equal(first) {
				t.Error("the stream that was there before is off the record")
			}
			db.SetHooks(memstore.Hooks{})
			if err := d.replaceBefore(t.Context(), made); err != nil {
				t.Error(err)
			}
			if db.Records()[goneStream].First.Equal(first) {
				t.Error("the stream that was there before is on record")
			}
			for partition, id := range readers {
				if c, _ := db.Consumer(id); c.Links[goneStream].Acked != fsm.Start {
					t.Errorf("the reader in partition %d begins at %s", partition, c.Links[goneStream].Acked)
				}
			}
		})
	}
}
