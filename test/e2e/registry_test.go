package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestDiscoveryByTheRegistryStream(t *testing.T) {
	t.Parallel()
	e := start(t, options{ref: harness.RefOptions{Registry: true}, settings: registry})

	t.Run("a stream created on the stream server is found and woken for", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/**")
		at := e.streams.Create(root + "/a")
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != "-1" {
			t.Errorf("its consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
		f.wakesOnAppend(root+"/b/c", e.streams.Create(root+"/b/c"))
	})

	t.Run("a stream known from before its subscription is idle until the next event", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		f := e.subscriber(root + "/*") // the registry is read so far before the answer
		f.awaitIdle(root+"/a", at)
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", 1)
	})

	t.Run("D8: a stream deleted on the stream server loses its consumers long before the grace", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		f.wakesOnAppend(root+"/a", e.streams.Create(root+"/a"))
		last := f.wakes(root + "/a")[1]
		e.streams.DeleteStream(root + "/a")
		f.awaitRemoved(root+"/a", soon)
		f.refused(last, last.Claim(true), fsm.CodeConsumerGone)
		before := len(f.wakes(root + "/a"))
		at := e.streams.Create(root + "/a")
		if w := f.wake(root+"/a", before+1); w.Offset(root+"/a") != "-1" {
			t.Errorf("made again, its consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a stream deleted through the gateway and made again at once stays", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		e.gateway.DeleteStream(root + "/a")
		at := e.gateway.Create(root + "/a")
		f.awaitIdle(root+"/a", at)
		// By the time that this one is found, the registry's account of the deletion was read too.
		f.awaitIdle(root+"/b", e.streams.Create(root+"/b"))
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("streams created and deleted while Reveille was down are found when it is back", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		f.wakesOnAppend(root+"/deleted", e.streams.Create(root+"/deleted"))
		f.wakesOnAppend(root+"/remade", e.streams.Create(root+"/remade"))
		remade := len(f.wakes(root + "/remade"))
		if err := e.rev.Stop(); err != nil {
			t.Fatal(err)
		}
		e.streams.Create(root + "/created")
		e.streams.Append(root+"/created", `{"while":"down"}`)
		created := e.streams.Append(root+"/created", `{"while":"down"}`)
		e.streams.DeleteStream(root + "/deleted")
		e.streams.DeleteStream(root + "/remade")
		e.streams.Create(root + "/remade")
		at := e.streams.Append(root+"/remade", `{"after":"it was made again"}`)
		e.rev.Start()

		w := f.wake(root+"/created", 1)
		if messages, _ := e.streams.Read(root+"/created", w.Offset(root+"/created")); len(messages) != 2 {
			t.Errorf("reading from the offset of the wake gives %s, want both events", messages)
		}
		f.wakesOnAppend(root+"/created", created)
		f.awaitRemoved(root+"/deleted", soon)
		// Until the deletion is read, the old consumer may be woken for what lies beyond its offset in the new stream.
		harness.Eventually(t, soon, "the stream that was made again is woken for from its start", func() error {
			for _, w := range f.wakes(root + "/remade")[remade:] {
				if w.Offset(root+"/remade") == "-1" {
					return nil
				}
			}
			return errors.New("no such wake")
		})
		f.wakesOnAppend(root+"/remade", at)
	})
}

// The usual first deployment, and the registry that is switched on later.
func TestTheFirstReadingOfTheRegistryLosesNoEvent(t *testing.T) {
	t.Parallel()
	// A PUT is answered long before its subscription is linked to 300 streams. 1,500 are half as many again as a
	// reading has looks under way (registryLooks): the kill below comes when a third of them was looked at, others wait
	// for their looks, and the registry has not come to the last third. More streams reach no other bound before the
	// 10,000 of REVEILLE_TAIL_MAX_LIVE, and cost time.
	streams := 300
	if !testing.Short() {
		streams = 1500
	}
	// The calm settings check each watched stream with HEAD every three seconds. With so many of them the checks took
	// all that a busy machine gives to the stream server, and the streams still to be linked queued behind them.
	settings := map[string]string{"REVEILLE_TAIL_CHECK": "30s"}
	maps.Copy(settings, registry)
	fill := func(t *testing.T, streams int) (e *env, path func(n int) string) {
		t.Helper()
		e = &env{t: t, redis: startRedis(t), ref: refServer(t, harness.RefOptions{Registry: true})}
		root := "/" + name(t)
		path = func(n int) string { return fmt.Sprintf("%s/%d", root, n) }
		at := harness.NewClient(t, e.ref.StreamRoot)
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for n := worker; n < streams; n += 8 {
					at.Create(path(n))
					at.Append(path(n), `{"before":"Reveille"}`)
				}
			})
		}
		wg.Wait()
		return e, path
	}
	// next has some of the streams get an event, most likely before they are linked, and nobody else is woken.
	next := func(t *testing.T, e *env, path func(n int) string) {
		t.Helper()
		f := e.subscriber(strings.TrimSuffix(path(0), "/0") + "/*")
		before := map[string]string{}
		for _, n := range []int{streams - 1, 0, streams / 2} {
			before[path(n)] = e.streams.Tail(path(n))
			e.streams.Append(path(n), `{"after":"the answer"}`)
		}
		harness.Progress(t, "the streams are linked", func() (int, error) {
			under, err := storeOf(e.redis).Backfills(t.Context())
			b, unfinished := under[f.sub.ID]
			switch {
			case !unfinished:
				return 0, err
			case b.Total == 0: // they are not counted yet
				return streams, err
			}
			return b.Total - b.Done, err
		})
		for p, tail := range before {
			if w := f.wake(p, 1); w.Offset(p) != tail {
				t.Errorf("the wake begins at %s, want %s", w.Offset(p), tail)
			}
		}
		for _, w := range f.worker.Wakes() {
			if w.Offset(w.PrimaryStream) == "-1" {
				t.Errorf("%s was woken from its start", w.PrimaryStream)
			}
		}
	}

	t.Run("a subscription made at once is woken for the next event of each stream", func(t *testing.T) {
		e, path := fill(t, streams)
		e.run(options{settings: settings})
		next(t, e, path)
	})

	t.Run("a kill in the middle of it makes no stream begin at its start", func(t *testing.T) {
		e, path := fill(t, streams)
		h, turns := &hop{}, make(chan struct{}, streams/3)
		e.prepare(options{settings: settings, upstream: h.before(t)})
		for range cap(turns) {
			turns <- struct{}{}
		}
		h.do(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead && !strings.HasSuffix(r.URL.Path, "/__registry__") {
				select {
				case <-turns:
				case <-r.Context().Done():
				}
			}
			return false
		})
		e.rev.Launch()
		harness.Progress(t, "a third of the streams was looked at", func() (int, error) { return len(turns), nil })
		if read, err := storeOf(e.redis).RegistryRead(t.Context()); read || err != nil {
			t.Fatalf("the registry was read to its end: %v, %v", read, err)
		}
		e.rev.Kill()
		h.do(nil)
		e.rev.Start()
		next(t, e, path)
	})

	t.Run("a subscription that is older than the first reading begins at the starts", func(t *testing.T) {
		e, path := fill(t, 20) // it is woken for each of them
		e.run(options{})
		f := e.subscriber(path(7))
		g := e.subscriber(strings.TrimSuffix(path(0), "/0") + "/*")
		f.awaitIdle(path(7), e.streams.Tail(path(7)))
		e.streams.Append(path(9), `{"in":"a stream that nobody has heard of"}`)
		if err := e.rev.Stop(); err != nil {
			t.Fatal(err)
		}
		e.run(options{settings: registry})
		if w := g.wake(path(9), 1); w.Offset(path(9)) != "-1" {
			t.Errorf("the wake begins at %s", w.Offset(path(9)))
		}
	})
}

// A Redis that has lost what it knew of streams, and how far the registry was read, but not the subscriptions: nobody
// can tell what was acked, so every stream is woken for from its start.
func TestARedisThatHasLostAllButItsSubscriptionsLosesNoEvent(t *testing.T) {
	t.Parallel()
	for what, running := range map[string]bool{"while Reveille is down": false, "while Reveille runs": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := start(t, options{ref: harness.RefOptions{Registry: true}, settings: registry})
			root := "/" + name(t)
			f := e.subscriber(root + "/*")
			woken := map[string]int{}
			for n := range 6 {
				path := fmt.Sprintf("%s/%d", root, n)
				f.wakesOnAppend(path, e.streams.Create(path))
				woken[path] = len(f.wakes(path))
			}
			readUpTo(t, e, e.streams.Tail("/__registry__"))
			if !running {
				if err := e.rev.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			e.redis.loseStreams()
			for path := range woken {
				e.streams.Append(path, `{"after":"the loss"}`)
			}
			if !running {
				e.rev.Start()
			}
			for path, n := range woken {
				harness.Eventually(t, soon, path+" is woken for from its start", func() error {
					for _, w := range f.wakes(path)[n:] {
						if w.Offset(path) == "-1" {
							return nil
						}
					}
					return errors.New("no such wake")
				})
				f.awaitIdle(path, e.streams.Tail(path))
			}
		})
	}
}

func TestARegistryStreamWithJunkInIt(t *testing.T) {
	t.Parallel()
	insert := func(path string) string {
		return fmt.Sprintf(`{"type":"stream","key":%q,"value":{"path":%q,"contentType":"application/json",`+
			`"createdAt":%d},"headers":{"operation":"insert"}}`,
			strings.TrimPrefix(path, "/"), strings.TrimPrefix(path, "/"), time.Now().UnixMilli())
	}
	for _, c := range []struct {
		name, contentType string
		junk              []string
		// message is how a change is written to a stream of that type.
		message string
	}{
		{"JSON of other shapes", "application/json", []string{
			`7`, `null`, `"text"`, `[[]]`, `{}`, `{"type":7}`, `{"headers":"insert"}`,
			`{"key":"","headers":{"operation":"insert"}}`,
			`{"type":"stream","key":"no/such/stream","value":{},"headers":{"operation":"insert"}}`,
			`{"type":"stream","key":"a","headers":{"operation":"upside-down"}}`,
			`{"type":"stream","key":"` + strings.Repeat("x", 5000) + `","headers":{"operation":"insert"}}`,
			`{"type":"stream","key":"../%2F..//","headers":{"operation":"insert"}}`,
		}, "%s"},
		{
			"text that is not JSON", "text/plain",
			[]string{"this is no JSON at all", "{{{{", `[{"type":`, "\x00\xff"},
			"[%s]",
		},
	} {
		t.Run(c.name+": later messages still work", func(t *testing.T) {
			t.Parallel()
			root := "/" + name(t)
			registry := root + "-changes"
			e := beside(t, options{settings: map[string]string{"REVEILLE_REGISTRY_STREAM": registry}})
			f := e.subscriber(root + "/*")
			write := func(method, body string) {
				t.Helper()
				if res := e.streams.Do(method, registry, body, "Content-Type", c.contentType); res.Status/100 != 2 {
					t.Fatalf("%s %s: %d %s", method, registry, res.Status, res.Body)
				}
			}
			write(http.MethodPut, "")
			paths := []string{}
			for n, junk := range c.junk {
				write(http.MethodPost, junk)
				path := fmt.Sprintf("%s/%d", root, n)
				at := e.streams.Create(path)
				paths = append(paths, path)
				// The junk was read by itself if the registry is read up to its end before the next message comes.
				readUpTo(t, e, e.streams.Tail(registry))
				write(http.MethodPost, fmt.Sprintf(c.message, insert(path)))
				f.awaitIdle(path, at)
			}
			for _, path := range paths {
				f.wakesOnAppend(path, e.streams.Tail(path))
			}
		})
	}
}

// readUpTo waits until Reveille has read its registry stream up to an offset.
func readUpTo(t *testing.T, e *env, offset string) {
	t.Helper()
	store := storeOf(e.redis)
	harness.Eventually(t, soon, "the registry is read", func() error {
		got, err := store.RegistryPlace(t.Context())
		if err == nil && string(got.Offset) != offset {
			err = fmt.Errorf("up to %s, want %s", got.Offset, offset)
		}
		return err
	})
}
