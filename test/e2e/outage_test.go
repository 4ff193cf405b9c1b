package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/test/harness"
)

func TestANetworkThatFailsWithoutAWord(t *testing.T) {
	t.Parallel()
	streams := 20
	if testing.Short() {
		streams = 6
	}
	modes := slices.Sorted(maps.Keys(tailModes))
	for i, c := range []struct {
		name string
		fail func(l *link)
		// met says whether messages meet with the fault: it goes on until those of all streams have.
		met bool
	}{
		{"everything is lost for a while", (*link).lose, true},
		{"the server's side of every connection vanishes", (*link).halfOpen, false},
		{"connections are half-open, and new ones hang for a while", func(l *link) { l.halfOpen(); l.lose() }, true},
		{"answers trickle", func(l *link) { l.slow(100 * time.Millisecond) }, true},
	} {
		for j, mode := range modes {
			if testing.Short() && j != i%len(modes) {
				continue // each of both in one mode
			}
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				e, l := behindLink(t, options{settings: map[string]string{
					"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": "1s",
				}})
				root := "/" + name(t)
				f := e.subscriber(root + "/*")
				at := map[string]string{}
				for n := range streams {
					path := fmt.Sprintf("%s/%d", root, n)
					at[path] = e.gateway.Create(path)
				}
				for path, tail := range at {
					at[path] = f.wakesOnAppend(path, tail)
				}

				c.fail(l)
				for path := range at {
					e.streams.Append(path, `{"while":"nobody knows"}`)
				}
				if c.met {
					l.untilMet(streams)
				}
				l.mend()
				for path, acked := range at {
					if w := f.wake(path, 3); w.Offset(path) != acked {
						t.Errorf("%s: woken at %s, want %s", path, w.Offset(path), acked)
					}
				}
				for path := range at {
					tail := e.streams.Tail(path)
					f.awaitIdle(path, tail)
					f.wakesOnAppend(path, tail)
				}
				// Each stream has its live request and, now and then, a HEAD.
				harness.Eventually(t, soon, "no connection is left over", func() error {
					if n := l.open(); n > 2*streams {
						return fmt.Errorf("%d are open for %d streams", n, streams)
					}
					return nil
				})
			})
		}
	}
}

// TestAnUpstreamThatFlaps has the built program meet with what the tests of package tailer hold over minutes: the
// streams of an upstream that flaps go on where they were.
func TestAnUpstreamThatFlaps(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t, options{})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range 4 {
		path := fmt.Sprintf("%s/%d", root, n)
		at[path] = f.wakesOnAppend(path, e.gateway.Create(path))
	}
	for range 2 {
		for _, fault := range []fault{status(http.StatusNotFound), status(http.StatusBadGateway), nil} {
			asked := p.count(func(seen) bool { return true })
			p.breakDown(fault)
			for path := range at {
				e.streams.Append(path, `{"while":"it flaps"}`)
			}
			harness.Eventually(t, soon, "it is asked", harness.True(func() bool {
				return p.count(func(seen) bool { return true }) > asked
			}, "not yet"))
		}
	}
	for path := range at {
		tail := e.streams.Tail(path)
		f.awaitIdle(path, tail)
		f.wakesOnAppend(path, tail)
	}
}

func TestAStreamServerThatIsStartedAgainWithoutItsData(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	root := "/" + name(t)
	f := e.subscriber(root + "/**")
	// Each has had three events.
	kinds := []string{"gateway", "gateway-same-length", "direct", "named"}
	epochs := map[string]int64{}
	for _, kind := range kinds {
		path := root + "/" + kind
		at := e.gateway.Create(path)
		for range 3 {
			at = f.wakesOnAppend(path, at)
		}
		list := f.wakes(path)
		epochs[path] = list[len(list)-1].Epoch
	}
	e.ref.Kill()
	e.ref.Restart()

	for _, kind := range kinds {
		path := root + "/" + kind
		n := len(f.wakes(path))
		switch kind {
		case "gateway", "gateway-same-length":
			e.gateway.Create(path)
			e.gateway.Append(path, `{"behind":"its back"}`)
			if kind == "gateway-same-length" {
				e.gateway.Append(path, `{"behind":"its back"}`)
				e.gateway.Append(path, `{"behind":"its back"}`)
			}
		case "direct":
			e.streams.Create(path)
			e.streams.Append(path, `{"new":1}`)
		case "named":
			e.streams.Create(path)
			e.streams.Append(path, `{"new":1}`)
			e.mustNameStreams(http.MethodPost, path)
		}
		harness.Eventually(t, soon, path+" is woken from its start", func() error {
			for _, w := range f.wakes(path)[n:] {
				if w.Offset(path) == "-1" && w.Epoch > epochs[path] {
					return nil
				}
			}
			return fmt.Errorf("there were %d wakes", len(f.wakes(path))-n)
		})
		if withRegistry { // it was made anew as well, so what it announces begins once more
			readUpTo(t, e, e.streams.Tail(registry["REVEILLE_REGISTRY_STREAM"]))
		}
		f.wakesOnAppend(path, e.streams.Tail(path))
	}
}

func TestAStreamThatNobodyMakesAgainIsKeptForTheGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_STREAM_GONE_GRACE": grace.String()}})
	path := "/" + name(t) + "/later"
	f := e.subscriber(path[:len(path)-len("/later")] + "/**")
	f.awaitIdle(path, e.gateway.Create(path))
	e.ref.Kill()
	restarted := time.Now()
	e.ref.Restart()
	f.awaitRemoved(path, soon)
	if kept := time.Since(restarted); kept < grace {
		t.Errorf("the consumer was removed after %s, within the grace", kept)
	}
	n := len(f.wakes(path))
	f.awaitIdle(path, e.gateway.Create(path))
	if w := f.wake(path, n+1); w.Offset(path) != "-1" {
		t.Errorf("made again after the grace: woken at %s", w.Offset(path))
	}
	f.awaitIdle(path, e.streams.Append(path, `{"new":1}`))
}

// A server that denies a stream for too long costs its consumer the offset. If the stream is named, here by a pattern
// without a wildcard, that costs no event: neither one from meanwhile nor one from afterwards.
func TestA404ForLongerThanTheGraceLosesNoEventOfANamedStream(t *testing.T) {
	t.Parallel()
	eachTailMode(t, "sse", func(t *testing.T, mode string) {
		e, p := behindProxy(t, options{settings: map[string]string{
			"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": "1s",
		}})
		path := "/" + name(t)
		f := e.subscriber(path)
		f.wakesOnAppend(path, e.gateway.Create(path))
		p.breakDown(status(http.StatusNotFound))
		e.streams.Append(path, `{"while":"it is denied"}`)
		f.awaitRemoved(path, soon)
		n := len(f.wakes(path))
		p.setFault(nil)
		if w := f.wake(path, n+1); w.Offset(path) != "-1" {
			t.Errorf("woken at %s, want -1", w.Offset(path))
		}
		f.wakesOnAppend(path, e.streams.Tail(path))
	})
}

// Two minutes are longer than any time-out that a stream server which is away could run into here.
func TestAStreamServerThatIsAwayForTwoMinutes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	eachTailMode(t, "sse", func(t *testing.T, mode string) {
		e, p := behindProxy(t, options{settings: map[string]string{
			"REVEILLE_TAIL_MODE": mode, "REVEILLE_STREAM_GONE_GRACE": "10s",
		}})
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		acked := map[string]string{}
		for n := range 8 {
			path := fmt.Sprintf("%s/%d", root, n)
			acked[path] = f.wakesOnAppend(path, e.gateway.Create(path))
		}
		p.refuse()
		for path := range acked {
			e.streams.Append(path, `{"while":"it is away"}`)
		}
		if res := e.gateway.Do(http.MethodPut, root+"/new", ""); res.Status != http.StatusBadGateway {
			t.Errorf("PUT while it is away: %d, want 502", res.Status)
		}
		time.Sleep(2 * time.Minute)
		p.listen()
		for path, at := range acked {
			if w := f.wake(path, 3); w.Offset(path) != at {
				t.Errorf("%s: woken at %s, want %s", path, w.Offset(path), at)
			}
			f.wakesOnAppend(path, e.streams.Tail(path))
		}
		f.wakesOnAppend(root+"/new", e.gateway.Create(root+"/new"))
	})
}
