package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestANetworkThatFailsWithoutAWord(t *testing.T) {
	t.Parallel()
	const streams = 20
	for _, c := range []struct {
		name   string
		settle time.Duration
		fail   func(l *link)
	}{
		{"everything is lost for a while", 5 * time.Second, (*link).lose},
		{"the server's side of every connection vanishes", 0, (*link).halfOpen},
		{
			"connections are half-open, and new ones hang for a while", 5 * time.Second,
			func(l *link) { l.halfOpen(); l.lose() },
		},
		{"answers trickle", 5 * time.Second, func(l *link) { l.slow(100 * time.Millisecond) }},
	} {
		for mode := range tailModes {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				e, l := behindLink(t, options{settings: map[string]string{
					"REVEILLE_TAIL_MODE": mode, "REVEILLE_TAIL_CHECK": "2s", "REVEILLE_STREAM_GONE_GRACE": "1s",
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
				time.Sleep(c.settle) // the outage
				l.mend()
				mended, longest := time.Now(), time.Duration(0)
				for path, acked := range at {
					w := f.wake(path, 3)
					if w.Offset(path) != acked {
						t.Errorf("%s: woken at %s, want %s", path, w.Offset(path), acked)
					}
					longest = max(longest, w.At.Sub(mended))
				}
				t.Logf("the last was woken %s after the end", longest)
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

// The flapping goes on for longer than the grace, and each time of it is far shorter.
func TestAnUpstreamThatFlapsRemovesNobody(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t,
		options{settings: map[string]string{"REVEILLE_STREAM_GONE_GRACE": "5s", "REVEILLE_TAIL_CHECK": "300ms"}})
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	at := map[string]string{}
	for n := range 10 {
		path := fmt.Sprintf("%s/%d", root, n)
		at[path] = f.wakesOnAppend(path, e.gateway.Create(path))
	}
	for round := range 40 {
		switch round % 4 {
		case 0, 2:
			p.breakDown(status(http.StatusNotFound))
		case 1:
			p.breakDown(status(http.StatusBadGateway))
		case 3:
			p.setFault(nil)
		}
		time.Sleep(time.Duration(100+50*(round%5)) * time.Millisecond) // how long each lasts
		if round%4 == 3 {
			for path := range at {
				if _, err := f.consumerOf(path); err != nil {
					t.Fatalf("round %d: the consumer of %s: %v", round, path, err)
				}
			}
		}
		path := fmt.Sprintf("%s/%d", root, round%10)
		e.streams.Append(path, `{"while":"it flaps"}`)
	}
	p.setFault(nil)
	for path := range at {
		tail := e.streams.Tail(path)
		f.awaitIdle(path, tail)
		f.wakesOnAppend(path, tail)
	}
}

func TestAStreamServerThatIsStartedAgainWithoutItsData(t *testing.T) {
	t.Parallel()
	const grace = 6 * time.Second
	e := start(t, options{settings: map[string]string{"REVEILLE_STREAM_GONE_GRACE": grace.String()}})
	root := "/" + name(t)
	f := e.subscriber(root + "/**")
	// Each has had three events.
	kinds := []string{"gateway", "gateway-same-length", "direct", "named", "never", "later"}
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
	restarted := time.Now()
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
			e.mustOperator(http.MethodPost, path)
		default:
			continue
		}
		harness.Eventually(t, soon, path+" is woken from its start", func() error {
			for _, w := range f.wakes(path)[n:] {
				if w.Offset(path) == "-1" && w.Epoch > epochs[path] {
					return nil
				}
			}
			return fmt.Errorf("there were %d wakes", len(f.wakes(path))-n)
		})
		f.wakesOnAppend(path, e.streams.Tail(path))
	}

	// Those that nobody made again are kept for the grace, and no longer.
	for path, gone := root+"/never", false; !gone; {
		_, err := f.consumerOf(path)
		switch gone = errors.Is(err, fsm.ErrNotFound); {
		case err != nil && !gone:
			t.Fatal(err)
		case gone && time.Since(restarted) < grace:
			t.Errorf("a consumer was removed after %s, within the grace", time.Since(restarted))
		case time.Since(restarted) > grace+soon:
			t.Fatal("the consumer of a stream that is gone stays")
		}
		time.Sleep(10 * time.Millisecond)
	}
	path := root + "/later"
	f.awaitRemoved(path, soon)
	n := len(f.wakes(path))
	f.awaitIdle(path, e.gateway.Create(path))
	if w := f.wake(path, n+1); w.Offset(path) != "-1" {
		t.Errorf("made again after the grace: woken at %s", w.Offset(path))
	}
	f.wakesOnAppend(path, e.streams.Tail(path))
}
