package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// tailModes are the values of REVEILLE_TAIL_MODE, with what a live request of each has in its query. "auto", the
// default, is what all other tests have.
var tailModes = map[string]string{"long-poll": "live=long-poll", "sse": "live=sse", "auto": "live=sse"}

// appendAll appends n events straight to the stream server, several at a time.
func (e *env) appendAll(path string, n int) {
	e.t.Helper()
	const writers = 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				res, err := e.streams.Try(e.t.Context(), http.MethodPost, path, fmt.Sprintf(`{"n":%d}`, i),
					"Content-Type", "application/json")
				if err != nil || res.Status/100 != 2 {
					e.t.Errorf("append %d to %s: %d %v", i, path, res.Status, err)
				}
			}
		})
	}
	wg.Wait()
}

// eachTailMode runs a test for every way to tail. The short form has one of them: the tests of tailer/ hold the rule
// for both.
func eachTailMode(t *testing.T, short string, f func(t *testing.T, mode string)) {
	for mode := range tailModes {
		t.Run(mode, func(t *testing.T) {
			if mode != short {
				harness.Long(t)
			}
			t.Parallel()
			f(t, mode)
		})
	}
}

// liveAt waits until a live request of Reveille for a stream is open.
func (p *proxy) liveAt(path string) {
	p.t.Helper()
	harness.Eventually(p.t, soon, "a live request for "+path,
		harness.True(func() bool { return p.waiting(path) > 0 }, "none is open"))
}

func TestTailing(t *testing.T) {
	t.Parallel()
	for mode, query := range tailModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var p *proxy
			e := beside(t, options{
				upstream: func(url string) string { p = newProxy(t, url); return p.URL },
				// So rare a check that a wake can only come from the live request.
				settings: map[string]string{"REVEILLE_TAIL_MODE": mode, "REVEILLE_TAIL_CHECK": "10m"},
			})

			t.Run("an event appended behind its back wakes, each time", func(t *testing.T) {
				path := "/" + name(t) + "/a"
				f := e.subscriber(path)
				at := e.gateway.Create(path)
				for range 3 {
					f.awaitIdle(path, at)
					p.liveAt(path)
					at = f.wakesOnAppend(path, at)
				}
				if n := p.count(func(r seen) bool {
					return r.path == path &&
						strings.Contains(r.query, query)
				}); n == 0 {
					t.Errorf("no request with %s: %v", query, p.requests(path))
				}
			})

			t.Run("the append that closes a stream wakes, and after it the stream is left alone", func(t *testing.T) {
				path := "/" + name(t) + "/a"
				f := e.subscriber(path)
				at := e.gateway.Create(path)
				f.awaitIdle(path, at)
				p.liveAt(path)
				n := len(f.wakes(path))
				at = e.streams.Append(path, `{"last":true}`, "Stream-Closed", "true")
				f.wake(path, n+1)
				f.awaitIdle(path, at)
				leftAlone(f, p, path)
				f.wantWakes(path, n+1)
			})

			t.Run("a close without an event wakes nobody, and after it the stream is left alone", func(t *testing.T) {
				path := "/" + name(t) + "/a"
				f := e.subscriber(path)
				f.awaitIdle(path, e.gateway.Create(path))
				n := len(f.wakes(path))
				p.liveAt(path)
				e.streams.CloseStream(path)
				leftAlone(f, p, path)
				f.wantWakes(path, n)
			})

			t.Run("a secondary stream that exists brings new events alone", func(t *testing.T) {
				root := "/" + name(t)
				f := e.liveSubscriber(root + "/primary")
				e.streams.Create(root + "/second")
				at := e.streams.Append(root+"/second", `{"old":true}`)
				tail := e.gateway.Create(root + "/primary")
				w := f.wake(root+"/primary", 1)
				f.worker.AnswerDone()
				a := e.gateway.Callback(w, harness.Callback{
					Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{root + "/second"}, Done: true,
					Acks: []harness.StreamOffset{{Path: root + "/primary", Offset: tail}},
				})
				if a.Status != http.StatusOK || len(a.Streams) != 2 {
					t.Fatalf("callback: %d %s", a.Status, a.Body)
				}
				for _, s := range a.Streams {
					if s.Path == root+"/second" && s.Offset != at {
						t.Errorf("the secondary stream begins at %s, want its tail %s", s.Offset, at)
					}
				}
				p.liveAt(root + "/second")
				e.streams.Append(root+"/second", `{"new":true}`)
				w = f.wake(root+"/primary", 2)
				if got := w.Offset(root + "/second"); got != at {
					t.Errorf("woken with %s at %s, want %s", root+"/second", got, at)
				}
				if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != root+"/second" || w.Epoch != 2 {
					t.Errorf("triggered by %v in epoch %d, want the secondary stream in 2", w.TriggeredBy, w.Epoch)
				}
			})

			t.Run("while a consumer is live and events rush in nothing wakes it, "+
				"and after done nothing is lost", func(t *testing.T) {
				busyStream(t, e, p)
			})
		})
	}
}

// leftAlone waits until Reveille has taken note that a stream is closed and at its end, and fails the test if it reads
// on then, before another stream has woken its consumer.
func leftAlone(f *fixture, p *proxy, path string) {
	f.t.Helper()
	harness.Eventually(f.t, soon, path+" is not watched", func() error {
		found, _ := f.scrape(f.t)
		watched, open := found[`reveille_watched_streams{mode="live"}`], p.watched()
		if p.waiting(path) > 0 || watched != float64(open) {
			return fmt.Errorf("%g streams are, for %d there are requests", watched, open)
		}
		return nil
	})
	reads := func() int { return p.count(func(r seen) bool { return r.path == path && r.method == http.MethodGet }) }
	n := reads()
	g, other := f.env.subscriber(path+"/other"), path+"/other"
	g.wakesOnAppend(other, f.gateway.Create(other))
	if more := reads() - n; more > 0 {
		f.t.Errorf("%s was read %d times after it was left", path, more)
	}
}

func busyStream(t *testing.T, e *env, p *proxy) {
	const events = 200
	path := "/" + name(t) + "/a"
	f := e.liveSubscriber(path)
	first := e.gateway.Create(path)
	w := f.wake(path, 1)
	harness.Eventually(t, soon, "the consumer is live", func() error {
		c, err := f.consumerOf(path)
		if err == nil && c.State != fsm.Live {
			err = errors.New("it is " + string(c.State))
		}
		return err
	})
	p.liveAt(path)

	e.appendAll(path, events)

	// A consumer that is done with nothing of it read is woken again at once, and finds all of it.
	messages, _ := e.streams.Read(path, first)
	if len(messages) != events {
		t.Fatalf("%d events on the server, want %d", len(messages), events)
	}
	a := e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: first}))
	if a.Status != http.StatusOK {
		t.Fatalf("done: %d %s", a.Status, a.Body)
	}
	w = f.wake(path, 2)
	if w.Offset(path) != first || w.Epoch != 2 {
		t.Errorf("woken for epoch %d at %s, want 2 at %s", w.Epoch, w.Offset(path), first)
	}
	_, tail := e.streams.Read(path, w.Offset(path))

	// More rushes in while the consumer says that it is done with what it has read, and is done at once from then on.
	f.worker.AnswerDone()
	rush := make(chan struct{})
	go func() { defer close(rush); e.appendAll(path, events/4) }()
	a = e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: tail}))
	if a.Status != http.StatusOK {
		t.Fatalf("done: %d %s", a.Status, a.Body)
	}
	<-rush
	f.wake(path, 3)
	at := e.streams.Tail(path)
	f.awaitIdle(path, at)
	f.wakesOnAppend(path, at)
}

func TestTailingAServerWhoseLongPollsAreShort(t *testing.T) {
	t.Parallel()
	var p *proxy
	e := start(t, options{
		ref:      harness.RefOptions{LongPoll: 100 * time.Millisecond},
		upstream: func(url string) string { p = newProxy(t, url); return p.URL },
		settings: map[string]string{"REVEILLE_TAIL_CHECK": "10m", "REVEILLE_TAIL_MODE": "long-poll"},
	})
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := e.gateway.Create(path)
	f.awaitIdle(path, at)
	polls := func() int { return p.count(func(r seen) bool { return r.path == path && r.method == http.MethodGet }) }
	was := polls()
	harness.Eventually(t, soon, "the server's wait has run out three times",
		harness.True(func() bool { return polls() >= was+3 }, "it has not"))
	f.wakesOnAppend(path, at)
	f.wantWakes(path, 2)
}

func TestTailingSecondaryStreamsThatDoNotExistYet(t *testing.T) {
	t.Parallel()
	e := shared(t)
	root := "/" + name(t)
	f := e.liveSubscriber(root + "/primary")
	tail := e.gateway.Create(root + "/primary")
	w := f.wake(root+"/primary", 1)
	first := w.Epoch
	f.worker.AnswerDone()
	a := e.gateway.Callback(w, harness.Callback{
		Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{root + "/later"}, Done: true,
		Acks: []harness.StreamOffset{{Path: root + "/primary", Offset: tail}},
	})
	if a.Status != http.StatusOK {
		t.Fatalf("callback: %d %s", a.Status, a.Body)
	}
	e.streams.Create(root + "/later")
	at := e.streams.Append(root+"/later", `{"first":true}`)
	w = f.wake(root+"/primary", 2)
	if got := w.Offset(root + "/later"); got != "-1" || w.Epoch != first+1 {
		t.Errorf("woken in epoch %d with %s at %s, want %d and its start, -1", w.Epoch, root+"/later", got, first+1)
	}
	harness.Eventually(t, soon, "the first event is acked", func() error {
		c, err := f.consumerOf(root + "/primary")
		if err == nil && (c.State != fsm.Idle || string(c.Links[root+"/later"].Acked) != at) {
			err = fmt.Errorf("it is %s with %+v", c.State, c.Links)
		}
		return err
	})
	n := len(f.wakes(root + "/primary"))
	e.streams.Append(root+"/later", `{"second":true}`)
	f.wake(root+"/primary", n+1)
}

func TestTailingStreamsWithATimeToLive(t *testing.T) {
	t.Parallel()
	eachTailMode(t, "long-poll", func(t *testing.T, mode string) {
		var p *proxy
		const life, grace = time.Second, time.Second
		e := beside(t, options{
			upstream: func(url string) string { p = newProxy(t, url); return p.URL },
			settings: map[string]string{"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": grace.String()},
		})
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		created := time.Now()
		e.gateway.Create(root+"/short", "Stream-TTL", fmt.Sprint(life.Seconds()))
		long := e.gateway.Create(root+"/long", "Stream-TTL", "6000")

		t.Run("its events wake although it is never read", func(t *testing.T) {
			long = f.wakesOnAppend(root+"/long", long)
			f.wakesOnAppend(root+"/long", long)
		})
		t.Run("it expires although it is subscribed, and its consumer is removed", func(t *testing.T) {
			e.awaitMetrics(t, map[string]float64{`reveille_consumers_removed_total{cause="stream_gone"}`: 1})
			if age := time.Since(created); age < life+grace-grace/40 {
				t.Errorf("its consumer was gone after %s, before the %s to live and the %s of grace were over", age,
					life, grace)
			}
			f.awaitRemoved(root+"/short", soon)
			for _, w := range f.wakes(root + "/short") {
				if a := e.gateway.Callback(w, w.Claim(true)); a.Status != http.StatusGone {
					t.Errorf("callback: %d, want 410", a.Status)
				}
			}
		})
		t.Run("no GET of it was ever made", func(t *testing.T) {
			if n := p.count(func(r seen) bool {
				return r.method == http.MethodGet && strings.HasPrefix(r.path, root)
			}); n > 0 {
				t.Errorf("%d GETs", n)
			}
		})
	})
}

func TestTailingMoreStreamsThanLiveRequestsAreAllowed(t *testing.T) {
	t.Parallel()
	var p *proxy
	e := beside(t, options{
		upstream: func(url string) string { p = newProxy(t, url); return p.URL },
		settings: map[string]string{"REVEILLE_TAIL_MAX_LIVE": "2"},
	})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range 6 {
		path := fmt.Sprintf("%s/%d", root, n)
		at[path] = e.gateway.Create(path)
	}
	for path, tail := range at {
		f.awaitIdle(path, tail)
	}
	for path := range at {
		at[path] = e.streams.Append(path, `{"behind":"its back"}`)
	}
	for path, tail := range at {
		f.wake(path, 2)
		f.awaitIdle(path, tail)
		f.wantWakes(path, 2)
	}
	// Those that were displaced may be seen to end after the ones that took their places began.
	harness.Eventually(t, soon, "two live requests are left", func() error {
		n := 0
		for path := range at {
			n += p.waiting(path)
		}
		return harness.True(func() bool { return n == 2 }, "there are %d", n)()
	})
}

func TestTailingAStreamThatIsDeletedBehindItsBack(t *testing.T) {
	t.Parallel()
	// That of long-polls is among those of discovery by a literal pattern.
	eachTailMode(t, "sse", func(t *testing.T, mode string) {
		e := beside(t, options{settings: map[string]string{
			"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": brief["REVEILLE_STREAM_GONE_GRACE"],
		}})
		path := "/" + name(t) + "/a"
		f := e.subscriber(path)
		f.wakesOnAppend(path, e.gateway.Create(path))
		w := f.wakes(path)[1]
		e.streams.DeleteStream(path)
		harness.Eventually(t, soon, "the consumer is hidden", func() error {
			c, err := f.consumerOf(path)
			if errors.Is(err, fsm.ErrNotFound) || err == nil && !c.HiddenAt.IsZero() {
				return nil
			}
			return errors.Join(errors.New("it is in sight"), err)
		})
		if a := e.gateway.Callback(w, w.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback: %d, want 410", a.Status)
		}
		f.awaitRemoved(path, soon)
	})
}
