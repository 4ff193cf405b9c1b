package tailer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

const registryPath = "/__registry__"

func message(operation, path string, at time.Time) string {
	m := map[string]any{"type": "stream", "key": path, "headers": map[string]string{"operation": operation}}
	if operation != "delete" {
		m["value"] = map[string]any{"path": path, "contentType": "text/plain", "createdAt": at.UnixMilli()}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func withRegistry(c *Config) { c.Discovery.Registry = registryPath }

// moveRegistry has another replica read on, or the store lose how far one had read.
func (r *rig) moveRegistry(from, to fsm.Offset) (moved bool, err error) {
	r.t.Helper()
	p, err := r.store.RegistryPlace(r.t.Context())
	if err != nil || p.Offset != from {
		return false, err
	}
	return r.store.MoveRegistry(r.t.Context(), p, fsm.RegistryPlace{Offset: to, Mark: p.Mark}, false)
}

func (r *rig) registryRead() {
	r.t.Helper()
	r.until("the registry is read", func() bool { return r.up.waiters(registryPath) == 1 })
}

func TestTheRegistryTellsOfNewStreams(t *testing.T) {
	for _, operation := range []string{"insert", "upsert"} {
		r := newRig(t, withRegistry)
		r.up.create(registryPath)
		r.start()
		r.subscribe("s", "/**")
		r.registryRead()
		r.up.create("/a/1", "1")
		r.up.append(registryPath, message(operation, "a/1", time.Now()))
		if w := r.wake("/a/1", 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
		r.until("how far it was read is stored",
			func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(1) })
		r.stop()
	}
}

func TestWhatIsNoStreamIsNeverAskedFor(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		reserved := strings.Contains(req.URL.Path, "__ds") || strings.Contains(req.URL.Path, "..") ||
			strings.Contains(req.URL.Path, "//")
		if reserved {
			t.Errorf("upstream was asked for %s", req.RequestURI)
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return reserved
	})
	r.up.create(registryPath)
	r.start()
	r.registryRead()
	for _, name := range []string{"__ds/subscriptions/y", "a/__ds/z", "..%2ftenantB%2fx", "/a//b"} {
		r.up.append(registryPath, message("insert", name, time.Now()))
	}
	r.up.create("/a/1", "1")
	r.up.append(registryPath, message("insert", "a/1", time.Now()))
	r.until("the registry is read on", func() bool { known, _ := r.store.knows("/a/1"); return known })
	for _, path := range []string{"/__ds/subscriptions/y", "/a/__ds/z", "/..%2ftenantB%2fx", "/a//b"} {
		if known, _ := r.store.knows(path); known {
			t.Errorf("%s is known", path)
		}
	}
	r.subscribe("s", "/**")
	r.until("the backfill is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
	if !r.linkedNow("s", "/a/1") {
		t.Error("a stream was left out")
	}
}

func TestTheRegistryTellsOfDeletedStreams(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.registryRead()
	r.idle("/a")
	r.up.remove("/a")
	r.up.append(registryPath, message("delete", "a", time.Time{}))
	r.until("the consumer is gone", func() bool { return !r.linkedNow("s", "/a") })
}

func TestADeletionThatAnotherReplicaHasDealtWithCostsNoStreamItsConsumers(t *testing.T) {
	r := newRig(t, withRegistry, func(c *Config) { c.Check = time.Hour })
	r.up.create(registryPath)
	r.start()
	r.registryRead()
	r.idle("/a")
	// It was deleted and made anew, all of which the other has dealt with.
	r.until("its start is read",
		func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(0) })
	if moved, err := r.moveRegistry(offsetOf(0), offsetOf(1)); !moved || err != nil {
		t.Fatal(moved, err)
	}
	r.up.append(registryPath, message("delete", "a", time.Time{}))
	r.up.create("/b")
	r.up.append(registryPath, message("insert", "b", time.Now()))
	r.wake("/b", 1)
	if !r.linkedNow("s", "/a") || r.store.count("Deleted") > 0 {
		t.Error("it was dealt with again")
	}
}

func TestADeletionSeenByTheGatewayIsNotRepeatedForTheRegistry(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.registryRead()
	r.idle("/a")
	r.up.remove("/a")
	if err := r.discovery.Deleted(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	r.put("/a", "1")
	r.wake("/a", 2)
	r.up.append(registryPath, message("delete", "a", time.Time{}), message("insert", "a", time.Now()))
	r.until("the registry is read",
		func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(2) })
	if n := len(r.woken("/a")); n != 2 {
		t.Errorf("%d wakes", n)
	}
}

// What a stream holds may have landed after its subscription, however old the registry says that it is.
func TestAStreamThatTheRegistryTellsOfFirstBeginsAtItsStart(t *testing.T) {
	r := newRig(t, withRegistry)
	r.store.create(t, "s", "/**")
	r.up.create("/old", "1")
	r.up.create("/new", "1")
	r.up.create(registryPath, message("insert", "old", time.Now().Add(-time.Hour)),
		message("insert", "gone", time.Now().Add(-time.Hour)), message("insert", "new", time.Now()))
	r.start()
	r.wake("/old", 1)
	r.wake("/new", 1)
	r.nothingKept("/gone")
}

// Until the registry was read, and every stream in it was looked at, a subscription would begin at the start of each
// stream that is not known yet.
func TestNoSubscriptionIsMadeBeforeTheRegistryWasReadForTheFirstTime(t *testing.T) {
	r := newRig(t, withRegistry, func(c *Config) { c.Discovery.BackfillWait = time.Millisecond })
	r.up.create("/a", "1")
	r.up.create("/b", "1", "2")
	r.up.create(registryPath, message("insert", "a", time.Now()), message("insert", "b", time.Now()))
	held, release := make(chan struct{}, 100), make(chan struct{})
	r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/b" {
			held <- struct{}{}
			<-release
		}
		return false
	})
	r.start()
	<-held
	sub := newSubscription("s", "/**")
	if _, _, err := r.discovery.Subscribe(t.Context(), sub); !errors.Is(err, fsm.ErrStreamsUnknown) {
		t.Errorf("a subscription is made: %v", err)
	}
	if err := r.discovery.Ready(t.Context()); !errors.Is(err, fsm.ErrStreamsUnknown) {
		t.Errorf("it is ready: %v", err)
	}
	early := newSubscription("early", "/**")
	early.Start = fsm.Start // which it does whatever becomes known
	if _, created, err := r.discovery.Subscribe(t.Context(), early); !created || err != nil {
		t.Errorf("one that begins at the start of each stream is made: %v, %v", created, err)
	}
	close(release)
	r.until("it is ready", func() bool { return r.discovery.Ready(t.Context()) == nil })
	if _, created, err := r.discovery.Subscribe(t.Context(), sub); !created || err != nil {
		t.Fatal(created, err)
	}
	r.up.append("/b", "3")
	r.wake("/b", 2)
	for id, want := range map[string]fsm.Offset{"s": offsetOf(2), "early": fsm.Start} {
		if got := r.acked(id, "/b"); got != want {
			t.Errorf("%s begins at %s, want %s", id, got, want)
		}
	}
}

func TestARegistryMessageThatIsNotJSONIsSkipped(t *testing.T) {
	for name, bad := range map[string]string{
		"not JSON":            "{nonsense",
		"another shape":       `{"headers":7}`,
		"no object":           `"text"`,
		"no path":             `{"type":"stream","headers":{"operation":"insert"}}`,
		"no path of a stream": message("insert", "a?b", time.Now()),
		"too long":            fmt.Sprintf(`"%0*d"`, 128<<10, 0),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withRegistry)
			r.up.create(registryPath)
			r.start()
			r.subscribe("s", "/**")
			r.registryRead()
			r.up.append(registryPath, bad)
			r.until("reading goes on",
				func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(1) })
			r.up.create("/a", "1")
			r.up.append(registryPath, message("insert", "a", time.Now()))
			r.wake("/a", 1)
		})
	}
}

func TestARegistryThatComesLaterIsRead(t *testing.T) {
	r := newRig(t, withRegistry).start()
	r.subscribe("s", "/**")
	r.until("it is asked for", func() bool { return r.up.count(r.up.heads, registryPath) > 1 })
	r.up.create("/a", "1")
	r.up.create(registryPath, message("insert", "a", time.Now()))
	r.wake("/a", 1)
}

func TestARegistryThatWasMadeAnewIsReadFromItsStart(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath, message("insert", "x", time.Now()), message("insert", "y", time.Now()))
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	r.up.create("/a", "1")
	r.up.create(registryPath, message("insert", "a", time.Now()))
	r.wake("/a", 1)
}

func TestAnAnswerAboutTheRegistryThatIsLostIsMadeUpFor(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	r.up.set(func() { r.up.deaf = true })
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "a", time.Now()))
	r.wake("/a", 1)
}

func TestARegistryIsReadAgainFromWhereAStoreThatHasLostSomethingHasIt(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "a", time.Now()))
	r.wake("/a", 1)
	r.until("the registry is read", func() bool {
		p, _ := r.store.RegistryPlace(t.Context())
		return p.Offset == offsetOf(1)
	})
	r.store.forgetStream("/a")
	if moved, err := r.moveRegistry(offsetOf(1), offsetOf(0)); !moved || err != nil {
		t.Fatal(moved, err)
	}
	r.until("it is on record again", func() bool { known, _ := r.store.knows("/a"); return known })
}

func TestOnlyTheOwnerOfItsPartitionReadsTheRegistry(t *testing.T) {
	r := newRig(t, withRegistry, func(c *Config) { c.Check = 20 * time.Millisecond })
	r.up.create(registryPath)
	r.store.own()
	r.start()
	r.store.create(t, "s", "/**")
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "a", time.Now()))
	r.put("/b")
	r.wake("/b", 1)
	if n := r.up.count(r.up.gets, registryPath); n != 0 {
		t.Errorf("%d reads", n)
	}
	r.store.own(r.store.PartitionOf(registryPath))
	r.wake("/a", 1)
	r.store.own()
	r.until("nobody reads it any more", func() bool {
		reads := r.up.count(r.up.gets, registryPath)
		time.Sleep(100 * time.Millisecond) // what is counted is a rate
		return r.up.count(r.up.gets, registryPath) == reads
	})
}

func TestAStreamThatSeemsGoneWhenTheRegistryTellsOfItIsFoundAllTheSame(t *testing.T) {
	r := newRig(t, withRegistry, func(c *Config) {
		// Upstream takes no longer to have it again, however slow the machine is.
		c.Check, c.Discovery.WriteFor = 20*time.Millisecond, time.Minute
	})
	r.up.create(registryPath)
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	// From the moment that the stream is asked for, upstream has nothing, and then everything again.
	var words atomic.Int32
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if n := words.Load(); req.URL.Path != "/a" && (n == 0 || n > 4) || words.Add(1) > 4 {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "a", time.Now()))
	r.wake("/a", 1)
}

func TestAStreamThatTheRegistryTellsOfAndThatIsGoneHoldsNothingUp(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "gone", time.Now()), message("insert", "a", time.Now()))
	r.wake("/a", 1)
	r.nothingKept("/gone")
}

// nothingKept waits until a stream is not on record.
func (r *rig) nothingKept(path string) {
	r.t.Helper()
	r.until("nothing is kept of it", func() bool { known, awaited := r.store.knows(path); return !known && !awaited })
}

func TestABrokenStreamDoesNotHoldUpTheRegistry(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.subscribe("s", "/**")
	r.registryRead()
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/broken" {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	r.up.create("/broken", "1")
	r.up.create("/a", "1")
	r.up.append(registryPath, message("insert", "broken", time.Now()), message("insert", "a", time.Now()))
	r.wake("/a", 1)
	r.up.setFault(nil)
	r.wake("/broken", 1)
}

func TestAMessageThatWasDealtWithIsNotDealtWithAgain(t *testing.T) {
	r := newRig(t, withRegistry)
	r.up.create(registryPath)
	r.start()
	r.registryRead()
	r.idle("/a")
	r.up.create("/a", "1")
	r.up.create("/b", "1")
	// The deletion of /a and its return are dealt with; the store fails for the message after them.
	var broken atomic.Bool
	r.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == "NoteStream" && c.Args[0].(fsm.Stream).Path == "/b" && broken.CompareAndSwap(false, true) {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	r.up.append(registryPath, message("delete", "a", time.Time{}), message("insert", "a", time.Now()),
		message("insert", "b", time.Now()))
	r.wake("/b", 1)
	r.wake("/a", 2)
	if n := r.store.count("Deleted"); !broken.Load() || n != 1 {
		t.Errorf("%d deletions", n)
	}
}

// holdRegistry has reads of the registry fail until it is released.
func (r *rig) holdRegistry() (release func()) {
	r.t.Helper()
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != registryPath {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	r.up.CloseClientConnections()
	return func() { r.up.setFault(nil) }
}

// A deletion may be of before the stream that is there. Where nobody can tell, its consumers begin at the start, once
// more if need be; only the first reading ever is all of before.
func TestWhichStreamADeletionIsOf(t *testing.T) {
	history := []string{
		message("insert", "a", time.Now().Add(-time.Hour)), message("delete", "a", time.Time{}),
		message("insert", "a", time.Now().Add(-time.Minute)),
	}
	for name, from := range map[string]fsm.Offset{
		"what a registry tells that is read for the first time is all old": fsm.Start,
		"whichever replica goes on with that":                              offsetOf(1), // one has died there
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).start()
			r.idle("/a")
			r.stop()
			r.build(withRegistry)
			r.up.create(registryPath, history...)
			if moved, err := r.moveRegistry(fsm.Start, from); !moved || err != nil {
				t.Fatal(moved, err)
			}
			deletions, before := r.store.count("Deleted"), r.acked("s", "/a")
			r.start()
			r.until("the registry is read",
				func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(len(history)) })
			if got := r.acked("s", "/a"); !r.linkedNow("s", "/a") || got != before {
				t.Errorf("its consumer stands at %q, was at %s", got, before)
			}
			if n := r.store.count("Deleted"); n != deletions {
				t.Errorf("%d deletions", n-deletions)
			}
		})
	}
	// It may be of the stream that the watcher has found, or of the one before.
	t.Run("what a registry tells later is of whatever is there", func(t *testing.T) {
		r := newRig(t, withRegistry)
		r.up.create(registryPath)
		r.start()
		r.registryRead()
		r.idle("/a")
		r.post("/a", "1", "2")
		r.done(r.wake("/a", 2))
		release := r.holdRegistry()
		r.up.create("/a", "1")
		r.done(r.wake("/a", 3))
		r.up.append(registryPath, history[1:]...)
		release()
		if w := r.wake("/a", 4); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken at %q", w.Streams[0].Acked)
		}
	})
	t.Run("what is told up to an end that was seen is of before a stream that was renewed since", func(t *testing.T) {
		r := newRig(t, withRegistry)
		r.up.create(registryPath)
		r.start()
		r.registryRead()
		r.idle("/a")
		r.stop()
		r.up.append(registryPath, slices.Repeat(history[1:], 3)...)
		r.build(withRegistry)
		r.start()
		r.wake("/a", 2)
		r.until("the registry is read",
			func() bool { p, _ := r.store.RegistryPlace(t.Context()); return p.Offset == offsetOf(6) })
		if n := r.store.count("Deleted"); n != 1 {
			t.Errorf("%d deletions", n)
		}
	})
}
