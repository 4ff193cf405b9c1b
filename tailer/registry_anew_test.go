package tailer

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/discovery"
)

// twelve are the streams of a server in memory, and what its registry tells of them. More streams were made before
// them the longer the registry is to be.
func (r *rig) twelve(made time.Time, more int, events ...string) (paths []string) {
	var registry []string
	for n := range 12 {
		path := fmt.Sprint("/t/", n)
		r.up.create(path, events...)
		registry = append(registry, message("insert", path[1:], made))
		paths = append(paths, path)
	}
	for n := range more {
		registry = append(registry, message("insert", fmt.Sprint("other/", n), made.Add(time.Minute)))
	}
	r.up.create(registryPath, registry...)
	return paths
}

// readToEnd waits until the registry was read up to its end, in the incarnation that it has now.
func (r *rig) readToEnd(n int) {
	r.t.Helper()
	r.until("the registry is read", func() bool {
		p, _ := r.store.RegistryPlace(r.t.Context())
		return p.Offset == offsetOf(n)
	})
}

// A server in memory restarts, and clients make the streams anew, whatever the new registry is long: the position that
// was read up to says nothing of what it is by then.
func TestStreamsThatAreMadeAnewWithTheirRegistryBeginAtTheirStarts(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	anew := map[string]struct {
		between func(r *rig) (back func())
		made    time.Time
	}{
		"while Reveille runs": {func(r *rig) func() {
			r.up.set(func() { clear(r.up.streams) })
			r.up.CloseClientConnections()
			return func() {}
		}, old.Add(2 * time.Hour)},
		"while it is stopped": {func(r *rig) func() {
			r.stop()
			return func() {
				r.build(withRegistry)
				r.start()
			}
		}, old.Add(2 * time.Hour)},
		"within a live request": {func(*rig) func() { return func() {} }, old.Add(2 * time.Hour)},
		"and it tells no times": {func(*rig) func() { return func() {} }, time.UnixMilli(0)},
	}
	for name, c := range anew {
		for what, more := range map[string]int{"shorter": -1, "as long": 0, "longer": 5} {
			t.Run(name+", "+what, func(t *testing.T) {
				quick := func(c *Config) {
					c.Discovery.RegistryProof, c.Discovery.RegistryCheck = time.Millisecond, 20*time.Millisecond
				}
				r := newRig(t, withRegistry, quick)
				before := r.twelve(old, 0, "1", "2")
				if more < 0 {
					r.up.append(registryPath, message("insert", "other", old))
				}
				r.start()
				r.until("it is ready", func() bool { return r.discovery.Ready(t.Context()) == nil })
				r.subscribe("s", "/t/*")
				for _, path := range before {
					r.post(path, "3")
					r.done(r.wake(path, 1))
					r.watchedLive(path)
				}
				back := c.between(r)
				// Each is as long as it was.
				made := r.twelve(c.made, max(more, 0), "1", "2", "3")
				back()
				for _, path := range made {
					r.until(path+" is woken for from its start", func() bool {
						for _, w := range r.woken(path)[1:] {
							if w.Streams[0].Acked == fsm.Start && w.Streams[0].Tail == offsetOf(3) {
								return true
							}
						}
						return false
					})
				}
				r.readToEnd(12 + max(more, 0))
			})
		}
	}
}

// A registry that is written anew tells of streams that are no others: they stay where they are.
func TestAStreamStaysThatARegistryWhichWasMadeAnewTellsOf(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	deletion := message("delete", "t/0", time.Time{})
	for name, anew := range map[string]func(r *rig, was fsm.RegistryPlace){
		"another one took its place": func(r *rig, _ fsm.RegistryPlace) {
			r.up.create(registryPath, message("upsert", "t/1", old), deletion, message("upsert", "t/0", old), deletion)
		},
		"it is not known which one was read": func(r *rig, was fsm.RegistryPlace) {
			if moved, err := r.store.MoveRegistry(r.t.Context(), was,
				fsm.RegistryPlace{Offset: was.Offset}, false); !moved || err != nil {
				r.t.Fatal(moved, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withRegistry)
			r.up.create("/t/0", "1")
			r.up.create("/t/1", "1")
			r.up.create(registryPath, deletion, message("insert", "t/0", old), message("insert", "t/1", old.Add(1)))
			r.start()
			r.until("it is ready", func() bool { return r.discovery.Ready(t.Context()) == nil })
			r.subscribe("s", "/t/*")
			r.post("/t/0", "2")
			r.done(r.wake("/t/0", 1))
			r.readToEnd(3)
			was, err := r.store.RegistryPlace(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.stop()
			deletions := r.store.count("Deleted")
			anew(r, was)
			r.build(withRegistry)
			r.start()
			r.until("it is read from its start", func() bool {
				now, err := r.store.RegistryPlace(t.Context())
				return err == nil && now.Mark != "" && now.Since.IsZero() == (name != "another one took its place") &&
					now.Offset.After(offsetOf(2))
			})
			r.up.create("/t/2", "1")
			r.up.append(registryPath, message("insert", "t/2", time.Now()))
			r.wake("/t/2", 1)
			if n := r.store.count("Deleted"); n != deletions || len(r.woken("/t/0")) != 1 || len(r.woken("/t/1")) != 0 {
				t.Errorf("%d deletions, woken %v %v", n-deletions, r.woken("/t/0"), r.woken("/t/1"))
			}
		})
	}
}

// What identifies a registry moves on with it, so that its proof stays short; and a part that is not kept is no sign of
// another one.
func TestTheProofOfARegistryMovesOnWithIt(t *testing.T) {
	r := newRig(t, withRegistry, func(c *Config) {
		c.Discovery = discovery.Config{
			Registry: registryPath, RegistryProof: time.Nanosecond, RegistryCheck: 5 * time.Millisecond,
		}
	})
	r.up.create(registryPath, message("insert", "gone", time.Now()))
	r.start()
	var first fsm.RegistryPlace
	for n := 1; ; n++ {
		r.readToEnd(n)
		p, err := r.store.RegistryPlace(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case !p.Since.IsZero():
			t.Fatalf("it passes for another one after %d messages", n)
		case n == 1:
			first = p
		case n > 100 && pieceOf(t, p) != pieceOf(t, first):
			return
		case n > 10_000:
			t.Fatalf("after %d messages the piece is still %s", n, pieceOf(t, p))
		}
		r.up.append(registryPath, message("insert", "gone", time.Now().Add(time.Duration(n)*time.Second)))
	}
}

// pieceOf is the part of a mark that identifies the registry.
func pieceOf(t *testing.T, p fsm.RegistryPlace) string {
	t.Helper()
	var mark struct{ Piece json.RawMessage }
	if err := json.Unmarshal([]byte(p.Mark), &mark); err != nil {
		t.Fatalf("%q: %v", p.Mark, err)
	}
	return string(mark.Piece)
}
