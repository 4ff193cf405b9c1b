package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// behindProxy starts an env with a proxy in front of its stream server.
func behindProxy(t *testing.T, o options) (*env, *proxy) {
	t.Helper()
	var p *proxy
	o.upstream = func(url string) string { p = newProxy(t, url); return p.URL }
	return beside(t, o), p
}

func TestAnUpstreamThatMissesAWaiterStillLeadsToAWake(t *testing.T) {
	t.Parallel()
	const streams = 5
	e, p := behindProxy(t, options{})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	p.setFault(loseAnswers)
	paths := make([]string, streams)
	for n := range paths {
		paths[n] = fmt.Sprintf("%s/%d", root, n)
		f.awaitIdle(paths[n], e.gateway.Create(paths[n]))
	}
	for _, path := range paths {
		p.liveAt(path)
	}
	for _, path := range paths {
		e.streams.Append(path, `{"lost":"on the way"}`)
	}
	for _, path := range paths {
		f.wake(path, 2)
	}
}

func TestA404ForEverythingForATimeRemovesNobody(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t, options{})
	root := "/" + name(t)
	f := e.subscriber(root + "/idle/*")
	at := map[string]string{}
	for n := range 5 {
		path := fmt.Sprintf("%s/idle/%d", root, n)
		at[path] = f.wakesOnAppend(path, e.gateway.Create(path))
	}
	g := e.liveSubscriber(root + "/live")
	e.gateway.Create(root + "/live")
	live := g.wake(root+"/live", 1)
	if a := e.gateway.Callback(live, live.Claim(false)); a.Status != http.StatusOK {
		t.Fatalf("claim: %d %s", a.Status, a.Body)
	}
	epochs := map[string]int64{}
	for path := range at {
		list := f.wakes(path)
		epochs[path] = list[len(list)-1].Epoch
	}

	p.breakDown(status(http.StatusNotFound))
	for path := range at {
		e.streams.Append(path, `{"during":"the outage"}`)
		f.awaitOf(path, "the consumer is hidden", func(c fsm.Consumer) bool { return !c.HiddenAt.IsZero() })
	}
	if a := e.gateway.Callback(live, harness.Callback{Epoch: live.Epoch}); a.Status != http.StatusGone {
		t.Errorf("callback while the stream seems to be gone: %d, want 410", a.Status)
	}
	for path := range at {
		asked := len(p.requests(path))
		harness.Eventually(t, soon, path+" is asked for again",
			harness.True(func() bool { return len(p.requests(path)) >= asked+2 }, "it was not"))
		if c, err := f.consumerOf(path); err != nil || c.HiddenAt.IsZero() {
			t.Errorf("the consumer of %s is %+v (%v), want it there and hidden", path, c, err)
		}
	}
	p.setFault(nil)

	for path, acked := range at {
		w := f.wake(path, int(epochs[path])+1)
		if w.Offset(path) != acked || w.Epoch != epochs[path]+1 {
			t.Errorf("%s: woken at %s in epoch %d, want %s and %d", path, w.Offset(path), w.Epoch, acked,
				epochs[path]+1)
		}
		f.wakesOnAppend(path, e.streams.Tail(path))
	}
	harness.Eventually(t, soon, "the live consumer carries on", func() error {
		if a := e.gateway.Callback(live, harness.Callback{Epoch: live.Epoch}); a.Status != http.StatusOK {
			return fmt.Errorf("callback: %d %s", a.Status, a.Body)
		}
		return nil
	})
}

func TestBadUpstreams(t *testing.T) {
	t.Parallel()
	eachTailMode(t, "long-poll", badUpstreams)
}

func badUpstreams(t *testing.T, mode string) {
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_TAIL_MODE": mode}})
	for _, c := range []struct {
		name string
		down func()
		up   func()
		// long cases are left out of the short form: the tests of tailer/ hold that they lead to no wake and lose none.
		long bool
	}{
		{"it answers 500", func() { p.breakDown(status(500)) }, func() { p.setFault(nil) }, false},
		{"it answers 503 with a long Retry-After", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			})
		}, func() { p.setFault(nil) }, true},
		{"it redirects", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(http.StatusFound)
			})
		}, func() { p.setFault(nil) }, true},
		{"it takes connections and never answers", func() { p.breakDown(hang) }, func() { p.setFault(nil) }, true},
		{"it refuses connections", p.refuse, p.listen, false},
		{"it answers 200 without an offset", func() { p.breakDown(status(200)) }, func() { p.setFault(nil) }, true},
		{"it answers with offsets that are none", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Stream-Next-Offset", "-1")
				w.Header().Set("Stream-Up-To-Date", "true")
				w.WriteHeader(http.StatusOK)
			})
		}, func() { p.setFault(nil) }, true},
	} {
		t.Run(c.name+": callbacks work meanwhile, and wakes resume when it is back", func(t *testing.T) {
			if c.long {
				harness.Long(t)
			}
			root := "/" + name(t)
			f := e.subscriber(root + "/idle")
			at := f.wakesOnAppend(root+"/idle", e.gateway.Create(root+"/idle"))
			n := len(f.wakes(root + "/idle"))
			g := e.liveSubscriber(root + "/live")
			tail := e.gateway.Create(root + "/live")
			live := g.wake(root+"/live", 1)

			c.down()
			e.streams.Append(root+"/idle", `{"while":"it is down"}`)
			a := e.gateway.Callback(live, live.Claim(false, harness.StreamOffset{Path: root + "/live", Offset: tail}))
			if a.Status != http.StatusOK || len(a.Streams) != 1 || a.Streams[0].Offset != tail {
				t.Errorf("callback while upstream is down: %d %s, want 200 with the ack", a.Status, a.Body)
			}
			f.wantWakes(root+"/idle", n)
			c.up()

			w := f.wake(root+"/idle", n+1)
			if w.Offset(root+"/idle") != at {
				t.Errorf("woken at %s, want %s", w.Offset(root+"/idle"), at)
			}
			f.wakesOnAppend(root+"/idle", e.streams.Tail(root+"/idle"))
			if a := e.gateway.Callback(live, live.Claim(true)); a.Status != http.StatusOK {
				t.Errorf("done when upstream is back: %d %s", a.Status, a.Body)
			}
			g.wakesOnAppendUnanswered(root + "/live")
		})
	}
}

func TestAStreamServerThatIsStartedAgainWithItsData(t *testing.T) {
	t.Parallel()
	e := start(t, options{ref: harness.RefOptions{DataDir: t.TempDir()}})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range 5 {
		path := fmt.Sprintf("%s/%d", root, n)
		at[path] = f.wakesOnAppend(path, e.gateway.Create(path))
	}
	if err := e.ref.Stop(); err != nil {
		t.Fatalf("stop the stream server: %v", err)
	}
	if res := e.gateway.Do(http.MethodHead, root+"/0", ""); res.Status != http.StatusBadGateway {
		t.Errorf("the gateway answers %d while the stream server is down, want 502", res.Status)
	}
	harness.Eventually(t, soon, "upstream counts as down",
		harness.True(func() bool { return strings.Contains(e.rev.Log(), "upstream is down") }, "not yet"))
	e.ref.Restart()
	for path := range at {
		e.streams.Append(path, `{"right":"after"}`)
	}
	for path, acked := range at {
		w := f.wake(path, 3)
		if w.Offset(path) != acked {
			t.Errorf("%s: woken at %s, want %s: its consumer has not carried on", path, w.Offset(path), acked)
		}
	}
	for path := range at {
		f.wakesOnAppend(path, e.streams.Tail(path))
	}
}

func TestAStreamServerOfHTTP2TakesFewConnectionsForManyStreams(t *testing.T) {
	t.Parallel()
	eachTailMode(t, "sse", func(t *testing.T, mode string) {
		var p *proxy
		e := beside(t, options{
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
		for path := range tails {
			tails[path] = e.streams.Append(path, `{"behind":"its back"}`)
		}
		for path, tail := range tails {
			f.awaitIdle(path, tail)
			f.wantWakes(path, 2)
		}
		if n := p.connections.Load(); n > streams/3 {
			t.Errorf("%d connections for %d streams", n, streams)
		}
		if n := p.count(func(r seen) bool { return r.protocol != "HTTP/2.0" }); n > 0 {
			t.Errorf("%d requests by another protocol", n)
		}
	})
}
