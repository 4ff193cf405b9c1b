package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"reveille/test/harness"
)

// The 201 of a PUT says that the stream is another one than before, although it is longer, and whoever ended the first.
func TestAStreamThatIsMadeAnewThroughTheGatewayIsWokenForFromItsStart(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	for how, end := range map[string]struct {
		header []string
		end    func(path string)
	}{
		"its time to live ended": {[]string{"Stream-TTL", "1"}, func(string) {}},
		"it was deleted past the gateway": {
			nil, func(path string) { e.streams.DeleteStream(path) },
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			root := "/" + name(t)
			path := root + "/x"
			put := func(body string, header ...string) (at string) {
				t.Helper()
				header = append(header, "Content-Type", "application/json")
				res := e.gateway.Do(http.MethodPut, path, body, header...)
				if res.Status != http.StatusCreated {
					t.Fatalf("PUT: %d %s", res.Status, res.Body)
				}
				return res.Header.Get("Stream-Next-Offset")
			}
			f := e.subscriber(root + "/*")
			f.awaitIdle(path, put(`[{"n":1},{"n":2}]`, end.header...))
			before := len(f.wakes(path))
			end.end(path)
			harness.Eventually(t, soon, "the stream server has it no more", func() error {
				if res := e.streams.Do(http.MethodHead, path, ""); res.Status != http.StatusNotFound {
					return fmt.Errorf("status %d", res.Status)
				}
				return nil
			})
			at := put(`[{"m":1},{"m":2},{"m":3}]`)
			harness.Eventually(t, soon, "a wake for all of it", func() error {
				for _, w := range f.wakes(path)[before:] {
					if w.Offset(path) == "-1" {
						return nil
					}
				}
				return errors.New("no such wake")
			})
			f.awaitIdle(path, at)
			f.wakesOnAppend(path, at)
		})
	}
}

// A closed stream that ends elsewhere by now, or is open, is another one: also if it is longer, and nobody saw it end.
func TestAStreamThatIsMadeAnewPastTheGatewayAfterItWasClosedIsWokenForFromItsStart(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_TAIL_CHECK": "100ms", "REVEILLE_CLOSED_CHECK": "1s"}})
	for how, pattern := range map[string]string{
		"its pattern has no wildcard": "", "its pattern has one": "/*",
	} {
		t.Run(how, func(t *testing.T) {
			root := "/" + name(t)
			path := root + "/x"
			if pattern == "" {
				pattern = "/x"
			}
			f := e.subscriber(root + pattern)
			e.gateway.Create(path)
			f.awaitIdle(path, e.streams.Append(path, `{"n":1}`))
			e.streams.CloseStream(path)
			harness.Eventually(t, soon, "it is left alone, for it is closed", func() error {
				if found, _ := e.scrape(t); found[`reveille_watched_streams{mode="live"}`] > 0 {
					return errors.New("it is still watched")
				}
				return nil
			})
			before := len(f.wakes(path))
			// Nobody looks between the two: the check that finds the new one may be any time after.
			e.streams.DeleteStream(path)
			e.streams.Create(path)
			var at string
			for range 3 {
				at = e.streams.Append(path, `{"m":1}`)
			}
			harness.Eventually(t, soon, "a wake for all of it", func() error {
				for _, w := range f.wakes(path)[before:] {
					if w.Offset(path) == "-1" {
						return nil
					}
				}
				return errors.New("no such wake")
			})
			f.awaitIdle(path, at)
			f.wakesOnAppend(path, at)
			e.streams.DeleteStream(path)
		})
	}
}

// A server in memory restarts, and clients make its streams anew past the gateway, each longer than it was, and more of
// them than before: the registry grows past where the former one was read up to.
func TestStreamsThatAreMadeAnewOnAServerThatRestartsArePushedWhole(t *testing.T) {
	t.Parallel()
	const streams = 12
	event := func(n, i int, word string) string {
		return fmt.Sprintf(`{"stream":%d,"event":%d,"word":%q}`, n, i, word)
	}
	for how, stopped := range map[string]bool{"while Reveille runs": false, "while Reveille is stopped": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := start(t, options{ref: harness.RefOptions{Registry: true}, settings: registry})
			p := e.pushes(t, nil)
			path := func(n int) string { return fmt.Sprintf("%s/%d", p.folder, n) }
			fill := func(streams, events int, word string) {
				for n := range streams {
					e.streams.Create(path(n))
					for i := range events {
						e.streams.Append(path(n), event(n, i, word))
					}
				}
			}
			pushed := func(streams, events int, word string) {
				t.Helper()
				harness.Eventually(t, soon, "each event is pushed", func() error {
					for n := range streams {
						_, taken := p.receiver.Taken(path(n))
						for i := range events {
							if want := event(n, i, word); !slices.Contains(taken, want) {
								return fmt.Errorf("%s is not among %d of its stream", want, len(taken))
							}
						}
					}
					return nil
				})
			}
			fill(streams, 2, "old")
			pushed(streams, 2, "old")
			readUpTo(t, e, e.streams.Tail("/__registry__"))
			if stopped {
				if err := e.rev.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			e.ref.Kill()
			e.ref.Restart()
			fill(streams+3, 3, "new")
			if stopped {
				e.rev.Start()
			}
			pushed(streams+3, 3, "new")
		})
	}
}
