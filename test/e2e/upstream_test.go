package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// behindProxy starts an env with a proxy in front of its stream server.
func behindProxy(t *testing.T, o options) (*env, *proxy) {
	t.Helper()
	var p *proxy
	o.upstream = func(url string) string { p = newProxy(t, url); return p.URL }
	return start(t, o), p
}

func TestAnUpstreamThatMissesAWaiterStillLeadsToAWakeWithinSixSeconds(t *testing.T) {
	t.Parallel()
	const streams = 20
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_TAIL_CHECK": "3s"}})
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
	appended := map[string]time.Time{}
	for _, path := range paths {
		e.streams.Append(path, `{"lost":"on the way"}`)
		appended[path] = time.Now()
	}
	for _, path := range paths {
		if took := f.wake(path, 2).At.Sub(appended[path]); took > 6*time.Second {
			t.Errorf("%s was woken for %s after the event", path, took)
		}
	}
}

func TestA404ForEverythingForATimeRemovesNobody(t *testing.T) {
	t.Parallel()
	// The times stand to each other as the ten seconds do to the default of thirty.
	const grace, outage = 6 * time.Second, 2 * time.Second
	e, p := behindProxy(t, options{settings: map[string]string{
		"REVEILLE_STREAM_GONE_GRACE": grace.String(), "REVEILLE_LIVENESS_TIMEOUT": "1m",
	}})
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
		harness.Eventually(t, soon, "the consumer is hidden", func() error {
			c, err := f.consumerOf(path)
			if err == nil && c.HiddenAt.IsZero() {
				err = errors.New("it is not")
			}
			return err
		})
	}
	if a := e.gateway.Callback(live, harness.Callback{Epoch: live.Epoch}); a.Status != http.StatusGone {
		t.Errorf("callback while the stream seems to be gone: %d, want 410", a.Status)
	}
	harness.Never(t, outage, "a consumer is removed", func() error {
		for path := range at {
			if _, err := f.consumerOf(path); errors.Is(err, fsm.ErrNotFound) {
				return nil
			}
		}
		return errors.New("all are there")
	})
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
	for mode := range tailModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			badUpstreams(t, mode)
		})
	}
}

func badUpstreams(t *testing.T, mode string) {
	e, p := behindProxy(t,
		options{settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": "1m", "REVEILLE_TAIL_MODE": mode}})
	for _, c := range []struct {
		name string
		down func()
		up   func()
	}{
		{"it answers 500", func() { p.breakDown(status(500)) }, func() { p.setFault(nil) }},
		{"it answers 503 with a long Retry-After", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			})
		}, func() { p.setFault(nil) }},
		{"it redirects", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(http.StatusFound)
			})
		}, func() { p.setFault(nil) }},
		{"it takes connections and never answers", func() { p.breakDown(hang) }, func() { p.setFault(nil) }},
		{"it refuses connections", p.refuse, p.listen},
		{"it answers 200 without an offset", func() { p.breakDown(status(200)) }, func() { p.setFault(nil) }},
		{"it answers with offsets that are none", func() {
			p.breakDown(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.Header().Set("Stream-Next-Offset", "-1")
				w.Header().Set("Stream-Up-To-Date", "true")
				w.WriteHeader(http.StatusOK)
			})
		}, func() { p.setFault(nil) }},
	} {
		t.Run(c.name+": callbacks work meanwhile, and wakes resume when it is back", func(t *testing.T) {
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
			f.noWakeOf(root+"/idle", n)
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

func TestOneBrokenStreamSlowsNoOther(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t, options{})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	f.awaitIdle(root+"/broken", e.gateway.Create(root+"/broken"))
	at := e.gateway.Create(root + "/fine")
	f.awaitIdle(root+"/fine", at)
	p.breakDown(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/broken") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(w, r)
	})
	n := len(f.wakes(root + "/broken"))
	e.streams.Append(root+"/broken", `{"while":"broken"}`)
	for range 3 {
		at = f.wakesOnAppend(root+"/fine", at)
	}
	f.noWakeOf(root+"/broken", n)
	p.setFault(nil)
	f.wake(root+"/broken", n+1)
}

func TestAnUpstreamThatReturnsIsNotStormed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		down func(p *proxy)
		up   func(p *proxy)
	}{
		{
			"after it answered 503", func(p *proxy) { p.breakDown(status(http.StatusServiceUnavailable)) },
			func(p *proxy) { p.setFault(nil) },
		},
		{
			"after it took connections and never answered", func(p *proxy) { p.breakDown(hang) },
			func(p *proxy) { p.breakDown(nil) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			notStormed(t, c.down, c.up)
		})
	}
}

func notStormed(t *testing.T, down, up func(p *proxy)) {
	// More than may be looked at at a time.
	const streams = 400
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_TAIL_CHECK": "5s"}})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range streams {
		path := fmt.Sprintf("%s/%d", root, n)
		at[path] = e.gateway.Create(path)
	}
	for path, tail := range at {
		f.awaitIdle(path, tail)
		p.liveAt(path)
	}
	fell := time.Now()
	down(p)
	harness.Eventually(t, soon, "upstream counts as down", func() error {
		if !strings.Contains(e.rev.Log(), "upstream is down") {
			return errors.New("it does not yet")
		}
		return nil
	})
	// Each stream is looked at once at most, with the few tries that a HEAD has, before it counts as down.
	total := func() int { return p.count(func(r seen) bool { return r.at.After(fell) }) }
	if n := total(); n > 5*streams {
		t.Errorf("%d requests until it counted as down, for %d streams", n, streams)
	}
	// From then on one probe at a time asks for it. What was under way is over when a HEAD's time is.
	var settled time.Time
	harness.Eventually(t, soon, "the requests under way are over", func() error {
		before := total()
		err := harness.Poll(4*time.Second, harness.True(func() bool { return total() > before+20 }, "few requests"))
		if err == nil {
			return errors.New("many requests")
		}
		settled = time.Now()
		return nil
	})
	harness.Never(t, 4*time.Second, "it is asked by many",
		harness.True(func() bool { return p.busiest(settled, time.Second) > 20 }, "few ask"))
	for path := range at {
		at[path] = e.streams.Append(path, `{"while":"down"}`)
	}
	back := time.Now()
	up(p)
	for path, tail := range at {
		f.awaitIdle(path, tail)
		p.liveAt(path)
	}
	// Each stream is looked at with HEAD and then has a live request; deliveries make none. They come spread over a
	// second.
	if most := p.busiest(back, time.Second); most > 5*streams {
		t.Errorf("%d requests in a second for %d streams", most, streams)
	}
	if most := p.busiest(back, 100*time.Millisecond); most > streams*4/5 {
		t.Errorf("%d requests within 100 ms for %d streams: they are not spread", most, streams)
	}
}

func TestAStreamServerThatIsStartedAgainWithItsData(t *testing.T) {
	t.Parallel()
	e := start(t, options{ref: harness.RefOptions{DataDir: t.TempDir()}})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range 20 {
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
	began, longest := time.Now(), time.Duration(0)
	for path := range at {
		e.streams.Append(path, `{"right":"after"}`)
	}
	for path, acked := range at {
		w := f.wake(path, 3)
		if w.Offset(path) != acked {
			t.Errorf("%s: woken at %s, want %s: its consumer has not carried on", path, w.Offset(path), acked)
		}
		longest = max(longest, w.At.Sub(began))
	}
	t.Logf("the last was woken %s after the restart", longest)
	for path := range at {
		f.wakesOnAppend(path, e.streams.Tail(path))
	}
}

func TestSSEThatIsCutInTheMiddleOfAFrame(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_TAIL_MODE": "sse"}})
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	for _, half := range []string{
		"event: control\ndata: {\"streamNextOff",
		"event: control\ndata: {\"streamNextOffset\":\"zzzz\"}", // never ended, so never sent
		"event: data\ndata: [{\"n\":1}]\n\nevent: con",
		": comment",
		"",
	} {
		t.Run(fmt.Sprintf("after %q", half), func(t *testing.T) {
			var cuts atomic.Int64
			var once sync.Once
			third := make(chan struct{})
			p.breakDown(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
				if r.URL.Query().Get("live") != "sse" || cuts.Add(1) > 3 {
					forward.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusOK)
				_, _ = io.WriteString(w, half)
				_ = http.NewResponseController(w).Flush()
				if cuts.Load() == 3 {
					once.Do(func() { close(third) })
				}
				panic(http.ErrAbortHandler)
			})
			select {
			case <-third:
			case <-time.After(soon):
				t.Fatal("it did not connect again")
			}
			at = f.wakesOnAppend(path, at)
		})
	}
	p.setFault(nil)
	f.wakesOnAppend(path, at)
}
