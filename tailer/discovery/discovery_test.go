package discovery

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec/memstore"
	"reveille/tailer/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a stream server that answers when it is let.
type server struct {
	answers chan struct{}
	asked   atomic.Int64
}

func (s *server) Look(ctx context.Context, path string) (fsm.StreamInfo, error) {
	s.asked.Add(1)
	select {
	case <-s.answers:
		return fsm.StreamInfo{Exists: true, Tail: "1"}, nil
	case <-ctx.Done():
		return fsm.StreamInfo{}, ctx.Err()
	}
}

func (s *server) LookNow(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return s.Look(ctx, path)
}

func (s *server) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return s.Look(ctx, path)
}
func (*server) Outages() int64 { return 0 }

func (*server) Registry(context.Context, string, fsm.Offset, bool, string) (*upstream.Answer, error) {
	return nil, upstream.ErrGone
}

// nobody watches, and delivers nothing.
type nobody struct{}

func (nobody) Watch(int, string) {}
func (nobody) Invalidate(string) {}
func (nobody) Knew(string) bool  { return false }
func (nobody) Deleted(string)    {}

func (nobody) Look(string)                                                  {}
func (nobody) Tell(context.Context, fsm.Sighting, bool, bool) (bool, error) { return true, nil }
func (nobody) Deliver([]fsm.Delivery)                                       {}
func (nobody) Idle([]string)                                                {}
func (nobody) Hidden(string)                                                {}

// noOutcomes acts on none.
func noOutcomes() *router.Router {
	r := router.New()
	r.Connect(nobody{}, nobody{})
	return r
}

func start(t *testing.T, db *memstore.DB, up Upstream, room int) *Discovery {
	t.Helper()
	d := build(t, Config{Store: db.Replica("a", 0), Upstream: up, Resync: 10 * time.Millisecond})
	d.queue.max = room
	run(t, d)
	return d
}

// build makes one that nobody follows.
func build(t *testing.T, cfg Config) *Discovery {
	t.Helper()
	cfg.Watcher, cfg.Outcomes, cfg.Logger = nobody{}, noOutcomes(), zap.NewNop()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run has it run until the test is over.
func run(t *testing.T, d *Discovery) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// work has a Discovery do what it is asked for, and nothing by itself: no scan comes in between, which would look at a
// stream again after it was forgotten, and find it.
func work(t *testing.T, d *Discovery) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.queue.work(ctx, &d.queue.urgent, urgentWorkers, d.tick)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about that %s", what)
		}
	}
}

func path(n int) string { return fmt.Sprint("/streams/", n) }

func TestStreamsThatWaitForUpstreamTakeABoundedPoolOfWorkers(t *testing.T) {
	const streams = 20_000
	up := &server{answers: make(chan struct{})}
	d := start(t, memstore.New(memstore.Options{}), up, queueMax)
	before := runtime.NumGoroutine()
	for n := range streams {
		d.Enqueue(path(n), Evidence{})
	}
	eventually(t, "every worker has a stream to ask for", func() bool { return up.asked.Load() == workers })
	const others = 20 // loops of its own
	if n := runtime.NumGoroutine() - before; n > workers+urgentWorkers+others {
		t.Errorf("%d streams that wait take %d goroutines", streams, n)
	}
	if n := d.Held()["paths"]; n != streams {
		t.Errorf("%d of %d streams are in the queue", n, streams)
	}
}

func TestAQueueThatIsFullLosesNoStream(t *testing.T) {
	const streams = 100
	db := memstore.New(memstore.Options{})
	db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
	up := &server{answers: make(chan struct{})}
	close(up.answers)
	d := start(t, db, up, 3)
	for n := range streams {
		if _, _, err := d.store.NoteStream(t.Context(), fsm.NewStream(path(n), ""), time.Hour); err != nil {
			t.Fatal(err)
		}
		d.Enqueue(path(n), Evidence{})
	}
	eventually(t, "every stream has its consumer", func() bool { return len(db.Consumers()) == streams })
	eventually(t, "nothing waits any more", func() bool { return d.Held()["paths"] == 0 })
}

func TestAWriteIsNotHeldUpByALookThatIsUnderWay(t *testing.T) {
	db := memstore.New(memstore.Options{})
	db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
	up := &server{answers: make(chan struct{})}
	d := start(t, db, up, queueMax)
	note, _, err := d.store.NoteStream(t.Context(), fsm.NewStream("/a", ""), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	d.Enqueue("/a", Evidence{})
	eventually(t, "upstream is asked", func() bool { return up.asked.Load() > 0 })
	if err := d.Do(t.Context(), "/a", Evidence{Tail: "1", First: note.First}); err != nil {
		t.Fatal(err)
	}
	if n := len(db.Consumers()); n != 1 {
		t.Errorf("there are %d consumers", n)
	}
}

func TestWritesToOneStreamThatWaitTogetherBecomeOne(t *testing.T) {
	d := build(t, Config{Store: memstore.New(memstore.Options{}).Replica("a", 0), Upstream: &server{}})
	w := fsm.Write{Path: "/a", First: time.Now()}
	d.Written(w, "1", true)
	d.Written(w, "3", false)
	d.Written(w, "2", false)
	if seen := d.queue.items["/a"].evidence; seen.Tail != "3" || !seen.onlyWrites || d.queue.len() != 1 {
		t.Errorf("got %+v", seen)
	}
}

func TestNobodyWaitsForAQueueThatHasEnded(t *testing.T) {
	q, ended := newQueue(1), make(chan error, 1)
	go func() { ended <- q.do(t.Context(), "/a", Evidence{}) }()
	eventually(t, "somebody waits", func() bool { return q.len() == 1 })
	if err := q.do(t.Context(), "/b", Evidence{}); !errors.Is(err, errNotQueued) {
		t.Errorf("a queue that is full takes another: %v", err)
	}
	q.close()
	if err := <-ended; !errors.Is(err, errNotQueued) {
		t.Errorf("who waited is told %v", err)
	}
	if err := q.do(t.Context(), "/a", Evidence{}); !errors.Is(err, errNotQueued) || q.len() != 0 {
		t.Errorf("a queue that has ended takes another: %v", err)
	}
}

func TestWhatIsSeenOfAStreamMergesWhateverComesFirst(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for name, tt := range map[string]struct{ a, b, want Evidence }{
		"the higher tail counts, and when the first was seen": {
			Evidence{Tail: "1", First: early, Seen: fsm.Sighting{At: early, Path: "a"}},
			Evidence{Tail: "2", First: early, Seen: fsm.Sighting{At: late, Path: "b"}},
			Evidence{Tail: "2", First: early, Seen: fsm.Sighting{At: early, Path: "b"}},
		},
		"one that was made anew is the newer one, and the other write is not forgotten": {
			Evidence{Tail: "9", First: early},
			Evidence{Tail: "1", First: late},
			Evidence{Tail: "1", First: late, Stray: true},
		},
		"nor is it if its answer is lost": {
			Evidence{First: early, confirm: true},
			Evidence{Tail: "1", First: late},
			Evidence{Tail: "1", First: late, Stray: true},
		},
		"one that was to no record is no stray: others know of it": {
			Evidence{Tail: "1"}, Evidence{Tail: "2", First: late}, Evidence{Tail: "2", First: late},
		},
		"what is no write makes none stray": {
			Evidence{deleted: late}, Evidence{First: early}, Evidence{First: early, deleted: late},
		},
		"of two deletions the one that is believed sooner counts": {
			Evidence{deleted: late}, Evidence{deleted: early}, Evidence{deleted: early},
		},
		"only what all say is there need not be looked at": {
			Evidence{confirm: true, known: true},
			Evidence{Await: time.Hour, urgent: true},
			Evidence{Await: time.Hour, urgent: true, known: true},
		},
	} {
		if got := tt.a.Merge(tt.b); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
		if got := tt.b.Merge(tt.a); got != tt.want {
			t.Errorf("%s, the other way round: %+v", name, got)
		}
	}
}

func TestWhatTheStoreSaidBeforeARemovalIsNotRemembered(t *testing.T) {
	d := build(t, Config{Store: memstore.New(memstore.Options{Partitions: 1}).Replica("a", 0), Upstream: &server{}})
	s := fsm.NewStream("/a", "1")
	for what, meanwhile := range map[string]func(){
		"nothing":                    func() {},
		"it was removed":             func() { _ = d.Forget(t.Context(), []string{"/a"}) },
		"another replica removed it": func() { d.RemovedElsewhere("/a") },
	} {
		asked := d.memory.asks("/a")
		meanwhile()
		d.memory.put(s, asked)
		if got := d.Linked("/a"); got != (what == "nothing") {
			t.Errorf("after %s it is remembered: %v", what, got)
		}
		d.memory.remove("/a")
	}
}

// 0 stands for a stream that is linked through no version.
func TestAListThatHasLostItsSubscriptionsHasAVersion(t *testing.T) {
	db := memstore.New(memstore.Options{Partitions: 1})
	empty := db.Snapshot()
	db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
	d := build(t, Config{Store: db.Replica("a", 0), Upstream: &server{}})
	for _, lost := range []bool{false, true} {
		if lost {
			db.Lose(empty)
		}
		if version, err := d.version(t.Context()); version < 1 || err != nil {
			t.Errorf("lost %v: version %d, %v", lost, version, err)
		}
	}
}
