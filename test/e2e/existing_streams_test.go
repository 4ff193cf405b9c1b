package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// D12: the backfill of many streams goes on behind the 201, shows its progress, and survives a kill.
func TestABackfillOfManyStreamsGoesOnBehindThe201(t *testing.T) {
	t.Parallel()
	streams := 300
	if testing.Short() {
		streams = 60
	}
	h := &hop{}
	e := beside(t, options{upstream: h.before(t)})
	id := name(t)
	path := func(i int) string { return fmt.Sprintf("/%s/s%d", id, i) }
	// inParallel does something to every stream, some at a time.
	inParallel := func(do func(i int)) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < streams; i += 8 {
					do(i)
				}
			})
		}
		wg.Wait()
	}
	tails := make([]string, streams)
	inParallel(func(i int) {
		e.gateway.Create(path(i))
		tails[i] = e.gateway.Append(path(i), `"old"`)
	})
	store := redisstore.New(e.redis.Client(), redisstore.Options{})
	inParallel(func(i int) {
		harness.Eventually(t, soon, "stream known", func() error {
			if s, err := store.Stream(t.Context(), path(i)); err != nil || !s.Present() {
				return fmt.Errorf("%+v: %w", s, err)
			}
			return nil
		})
	})

	w := harness.NewWorker(t)
	w.AnswerDone()
	// No HEAD is answered before the 201, and then not as many as there are streams.
	turn := make(chan struct{}, streams)
	h.do(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			select {
			case <-turn:
			case <-r.Context().Done():
			}
		}
		return false
	})
	e.gateway.Subscribe("/"+id+"/*", id, w)
	for range streams * 2 / 3 {
		turn <- struct{}{}
	}
	var shown harness.Subscription
	harness.Eventually(t, soon, "some of the work done", func() error {
		if shown, _ = e.gateway.Subscription(id); shown.Backfill == nil || shown.Backfill.Done == 0 {
			return fmt.Errorf("it shows %+v", shown.Backfill)
		}
		return nil
	})
	if b := shown.Backfill; b.Total != streams || b.Done >= streams {
		t.Errorf("in the middle of it the backfill shows %+v, want a total of %d", *b, streams)
	}
	e.rev.Kill()
	h.do(nil)
	e.rev.Start()
	harness.Eventually(t, 2*soon, "backfill over", func() error {
		if sub, ok := e.gateway.Subscription(id); !ok || sub.Backfill != nil {
			return fmt.Errorf("it shows %+v", sub.Backfill)
		}
		return nil
	})
	for i := range streams {
		c, err := store.Consumer(t.Context(), fsm.RefOf(id, path(i)))
		if err != nil || c.State != fsm.Idle || string(c.Links[path(i)].Acked) != tails[i] || c.Epoch != 0 {
			t.Fatalf("the consumer of %s is %+v (%v), want idle at %s and never woken", path(i), c, err, tails[i])
		}
	}
	inParallel(func(i int) { e.streams.Append(path(i), `"new"`) })
	harness.Eventually(t, 2*soon, "a wake of every consumer", func() error {
		if n := len(w.Wakes()); n < streams {
			return fmt.Errorf("there were %d", n)
		}
		return nil
	})
	woken := map[string]bool{}
	for _, wake := range w.Wakes() {
		i, err := strconv.Atoi(strings.TrimPrefix(wake.PrimaryStream, "/"+id+"/s"))
		if err != nil {
			t.Fatal(err)
		}
		woken[wake.PrimaryStream] = true
		if wake.Epoch == 1 && wake.Offset(wake.PrimaryStream) != tails[i] {
			t.Errorf("the wake of %s begins at %q, want %q", wake.PrimaryStream, wake.Offset(wake.PrimaryStream),
				tails[i])
		}
	}
	if len(woken) != streams {
		t.Errorf("%d consumers were woken, want %d", len(woken), streams)
	}
}

// D12: a stream that is first heard of through an append begins at the tail before it. The replicas must not have died
// meanwhile: for an hour after that, nobody can tell which writes one that is gone has passed on, and streams that are
// heard of then begin at their start.
func TestAStreamFirstHeardOfThroughAnAppendBeginsBeforeIt(t *testing.T) {
	t.Parallel()
	e := shared(t)
	// If the stream server does not answer Reveille in time, the consumer begins earlier: on a slow machine that may
	// happen now and then.
	for tries := 5; ; tries-- {
		s := e.subscribed(t)
		s.streams.Create(s.path)
		before := s.streams.Append(s.path, `"nobody told Reveille"`)
		if c, err := s.consumerOf(s.path); !errors.Is(err, fsm.ErrNotFound) {
			t.Fatalf("Reveille has heard of the stream already: %+v", c)
		}
		s.gateway.Append(s.path, `"first heard of"`)
		w := s.worker.Wake(1)
		if w.Offset(s.path) == "-1" && tries > 1 {
			continue
		}
		s.woken(w, 1, before)
		return
	}
}

// TestExistingStreams is about streams that are there before their subscription (webhook spec, Existing Streams).
func TestExistingStreams(t *testing.T) {
	t.Parallel()
	e := shared(t)
	s := e.empty(t)
	paths := []string{s.folder + "/one", s.folder + "/two", s.folder + "/three"}
	tails := map[string]string{}
	for _, p := range paths {
		s.gateway.Create(p)
		tails[p] = s.gateway.Append(p, `{"event":"handled by a previous subscription"}`)
	}
	elsewhere := s.folder + "-elsewhere/one"
	s.gateway.Create(elsewhere)
	s.subscribe(s.folder + "/*")

	t.Run("consumer instances are created in IDLE state", func(t *testing.T) {
		for _, p := range paths {
			harness.Eventually(t, soon, "a consumer of "+p, func() error { _, err := s.consumerOf(p); return err })
			if c, err := s.consumerOf(p); err != nil || c.State != fsm.Idle || c.WakeID != "" {
				t.Errorf("%+v (%v)", c, err)
			}
		}
		if _, err := s.consumerOf(elsewhere); err == nil {
			t.Error("a stream that does not match got a consumer")
		}
	})
	t.Run("they wake only when new events arrive, not immediately", func(t *testing.T) {
		s.gateway.Append(paths[1], `{"event":"new"}`)
		if wake := s.worker.Wake(1); wake.PrimaryStream != paths[1] {
			t.Errorf("%s was woken by an event of %s", wake, paths[1])
		}
		for i, p := range paths {
			s.wantWakes(p, i%2)
		}
	})
	t.Run("what was there before counts as handled", func(t *testing.T) {
		wake := s.worker.Wake(1)
		if wake.Offset(paths[1]) != tails[paths[1]] {
			t.Errorf("the wake is from %s, want %s", wake.Offset(paths[1]), tails[paths[1]])
		}
		messages, next := s.streams.Read(paths[1], wake.Offset(paths[1]))
		if len(messages) != 1 || string(messages[0]) != `{"event":"new"}` {
			t.Errorf("the wake leads to %s", messages)
		}
		a := s.callback(wake, wake.Claim(true, at(paths[1], next)))
		s.wantStreams(a, at(paths[1], next))
		// Each is woken by an event of its own, for the first time or once more.
		s.worker.AnswerDone()
		for p, wakes := range map[string]int{paths[0]: 1, paths[1]: 2, paths[2]: 1} {
			acked := tails[p]
			if p == paths[1] {
				acked = next
			}
			s.wakesOnAppend(p, acked)
			s.wantWakes(p, wakes)
		}
	})

	t.Run("an event that was answered right before the subscription was "+
		"made counts as handled too", func(t *testing.T) {
		rounds := 20
		if testing.Short() {
			rounds = 5
		}
		for range rounds {
			s := e.empty(t)
			s.gateway.Create(s.path)
			for range 3 {
				s.tail = s.append()
			}
			s.subscribe(s.folder + "/*")
			c := s.await("its consumer is there", func(fsm.Consumer) bool { return true })
			if acked := c.Links[s.path].Acked.Value(); c.State != fsm.Idle || acked != s.tail {
				t.Errorf("the consumer is %s and begins at %s, want idle at %s", c.State, acked, s.tail)
			}
		}
	})
}
