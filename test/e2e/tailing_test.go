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

// tailModes are the values of REVEILLE_TAIL_MODE, with what a live request of each has in its query.
var tailModes = map[string]string{"long-poll": "live=long-poll", "sse": "live=sse"}

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
			e := start(t, options{
				upstream: func(url string) string { p = newProxy(t, url); return p.URL },
				// So rare a check that a wake can only come from the live request.
				settings: map[string]string{
					"REVEILLE_TAIL_MODE": mode, "REVEILLE_TAIL_CHECK": "10m", "REVEILLE_LIVENESS_TIMEOUT": "1m",
				},
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
				leftAlone(t, p, path)
				f.noWakeOf(path, n+1)
			})

			t.Run("a close without an event wakes nobody, and after it the stream is left alone", func(t *testing.T) {
				path := "/" + name(t) + "/a"
				f := e.subscriber(path)
				f.awaitIdle(path, e.gateway.Create(path))
				n := len(f.wakes(path))
				p.liveAt(path)
				e.streams.CloseStream(path)
				leftAlone(t, p, path)
				f.noWakeOf(path, n)
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
				f.noWakeOf(root+"/primary", 1)
				e.streams.Append(root+"/second", `{"new":true}`)
				w = f.wake(root+"/primary", 2)
				if got := w.Offset(root + "/second"); got != at {
					t.Errorf("woken with %s at %s, want %s", root+"/second", got, at)
				}
				if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != root+"/second" {
					t.Errorf("triggered by %v, want the secondary stream", w.TriggeredBy)
				}
			})

			t.Run("while a consumer is live and events rush in, requests are paced, "+
				"and after done nothing is lost", func(t *testing.T) {
				busyStream(t, e, p)
			})
		})
	}
}

// leftAlone waits until a stream has no live request any more and fails the test if it gets another.
func leftAlone(t *testing.T, p *proxy, path string) {
	t.Helper()
	harness.Eventually(t, soon, path+" is not watched", harness.True(func() bool {
		return p.waiting(path) == 0 && p.quietFor(path) > quiet
	}, "it is"))
	reads := func() int { return p.count(func(r seen) bool { return r.path == path && r.method == http.MethodGet }) }
	n := reads()
	harness.Never(t, quiet, path+" is watched again", harness.True(func() bool { return reads() > n }, "not yet"))
}

func busyStream(t *testing.T, e *env, p *proxy) {
	const events = 2000
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

	before, began := len(p.requests(path)), time.Now()
	e.appendAll(path, events)
	took := time.Since(began)
	// About 20 a second at first, then fewer; a pause is over with one HEAD.
	if n, most := len(p.requests(path))-before, 10+int(20*took.Seconds()); n > most {
		t.Errorf("%d requests for a busy stream in %s, want at most %d", n, took, most)
	}
	f.noWakeOf(path, 1)

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
		ref:      harness.RefOptions{LongPoll: 300 * time.Millisecond},
		upstream: func(url string) string { p = newProxy(t, url); return p.URL },
		settings: map[string]string{"REVEILLE_TAIL_CHECK": "10m"},
	})
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := e.gateway.Create(path)
	f.awaitIdle(path, at)
	polls := func() int { return p.count(func(r seen) bool { return r.path == path && r.method == http.MethodGet }) }
	was := polls()
	harness.Eventually(t, soon, "the server's wait has run out three times",
		harness.True(func() bool { return polls() >= was+3 }, "it has not"))
	if waits := time.Duration(polls()-was) * 300 * time.Millisecond; waits > soon {
		t.Errorf("%d long-polls: they are not waited for", polls()-was)
	}
	f.noWakeOf(path, len(f.wakes(path)))
	f.wakesOnAppend(path, at)
}

func TestTailingSecondaryStreamsThatDoNotExistYet(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	root := "/" + name(t)
	f := e.liveSubscriber(root + "/primary")
	tail := e.gateway.Create(root + "/primary")
	w := f.wake(root+"/primary", 1)
	f.worker.AnswerDone()
	a := e.gateway.Callback(w, harness.Callback{
		Epoch: w.Epoch, WakeID: w.WakeID, Subscribe: []string{root + "/later"}, Done: true,
		Acks: []harness.StreamOffset{{Path: root + "/primary", Offset: tail}},
	})
	if a.Status != http.StatusOK {
		t.Fatalf("callback: %d %s", a.Status, a.Body)
	}
	f.noWakeOf(root+"/primary", 1)
	e.streams.Create(root + "/later")
	at := e.streams.Append(root+"/later", `{"first":true}`)
	w = f.wake(root+"/primary", 2)
	if got := w.Offset(root + "/later"); got != "-1" {
		t.Errorf("woken with %s at %s, want its start, -1", root+"/later", got)
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
	for mode := range tailModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var p *proxy
			e := start(t, options{
				upstream: func(url string) string { p = newProxy(t, url); return p.URL },
				settings: map[string]string{"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": "1s"},
			})
			root := "/" + name(t)
			f := e.subscriber(root + "/*")
			created := time.Now()
			f.awaitIdle(root+"/short", e.gateway.Create(root+"/short", "Stream-TTL", "2"))
			long := e.gateway.Create(root+"/long", "Stream-TTL", "600")

			t.Run("its events wake although it is never read", func(t *testing.T) {
				long = f.wakesOnAppend(root+"/long", long)
				f.wakesOnAppend(root+"/long", long)
			})
			t.Run("it expires although it is subscribed, and its consumer is removed", func(t *testing.T) {
				f.awaitRemoved(root+"/short", soon)
				if age := time.Since(created); age < 3*time.Second {
					t.Errorf("its consumer was gone after %s, before the 2 s to live and the 1 s of grace were over",
						age)
				}
				w := f.wakes(root + "/short")[0]
				if a := e.gateway.Callback(w, w.Claim(true)); a.Status != http.StatusGone {
					t.Errorf("callback: %d, want 410", a.Status)
				}
			})
			t.Run("no GET of it was ever made", func(t *testing.T) {
				if n := p.count(func(r seen) bool {
					return r.method == http.MethodGet &&
						strings.HasPrefix(r.path, root)
				}); n > 0 {
					t.Errorf("%d GETs", n)
				}
			})
		})
	}
}

func TestTailingMoreStreamsThanLiveRequestsAreAllowed(t *testing.T) {
	t.Parallel()
	var p *proxy
	e := start(t, options{
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
	for range 2 {
		for path := range at {
			at[path] = f.wakesOnAppend(path, at[path])
		}
	}
	// Those that were displaced may be seen to end a moment after the ones that took their places began.
	if most := p.mostWaiting(); most > 4 {
		t.Errorf("%d live requests at once, want 2", most)
	}
}

func TestTailingAStreamThatIsDeletedBehindItsBack(t *testing.T) {
	t.Parallel()
	for mode := range tailModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := start(t,
				options{settings: map[string]string{"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": "1s"}})
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
}

func TestAStreamServerOfHTTP2TakesFewConnectionsForManyStreams(t *testing.T) {
	t.Parallel()
	for mode := range tailModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var p *proxy
			e := start(t, options{
				upstream: func(url string) string {
					p = unstartedProxy(t, url)
					p.h2c = true
					p.listen()
					return p.URL
				},
				settings: map[string]string{
					"REVEILLE_UPSTREAM_H2C": "true", "REVEILLE_TAIL_MODE": mode,
					"REVEILLE_TAIL_CHECK": "10m",
				},
			})
			const streams = 30
			root := "/" + name(t)
			f := e.subscriber(root + "/*")
			tails := map[string]string{}
			for i := range streams {
				path := fmt.Sprintf("%s/%d", root, i)
				tails[path] = e.gateway.Create(path)
			}
			for path, tail := range tails {
				f.awaitIdle(path, tail)
				p.liveAt(path)
			}
			for path, tail := range tails {
				f.wakesOnAppend(path, tail)
			}
			if n := p.connections.Load(); n > streams/3 {
				t.Errorf("%d connections for %d streams", n, streams)
			}
			if n := p.count(func(r seen) bool { return r.protocol != "HTTP/2.0" }); n > 0 {
				t.Errorf("%d requests by another protocol", n)
			}
		})
	}
}
