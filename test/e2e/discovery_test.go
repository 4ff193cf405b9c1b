package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestDiscoveryByTheGateway(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("a PUT makes a stream known", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		at := e.gateway.Create(root + "/a")
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != "-1" {
			t.Errorf("the new stream's consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		at = f.wakesOnAppend(root+"/a", at)
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a POST to a stream that was not heard of links it at the tail before", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		tail := e.gateway.Append(root+"/a", `{"new":true}`)
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != at {
			t.Errorf("the consumer begins at %q, want %q", w.Offset(root+"/a"), at)
		}
		f.wakesOnAppend(root+"/a", tail)
	})

	t.Run("a PUT with events in it wakes from the start", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		res := e.gateway.Do(http.MethodPut, root+"/a", `[{"n":1},{"n":2}]`, "Content-Type", "application/json")
		if res.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", res.Status, res.Body)
		}
		w := f.wake(root+"/a", 1)
		if messages, _ := e.streams.Read(root+"/a", w.Offset(root+"/a")); len(messages) != 2 {
			t.Errorf("reading from the offset of the wake gives %s, want both events", messages)
		}
		f.wakesOnAppend(root+"/a", res.Header.Get("Stream-Next-Offset"))
	})

	t.Run("a stream known from before its subscription is idle until the next event", func(t *testing.T) {
		root := "/" + name(t)
		e.gateway.Create(root + "/a")
		at := e.gateway.Append(root+"/a", `{"old":true}`)
		f := e.subscriber(root + "/*")
		f.awaitIdle(root+"/a", at)
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", 1)
	})

	t.Run("a write that is refused wakes nobody", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		res := e.gateway.Do(http.MethodPost, root+"/a", `{}`, "Content-Type", "application/json")
		if res.Status != http.StatusNotFound {
			t.Fatalf("POST to a stream that is not there: %d", res.Status)
		}
		f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		f.wantWakes(root+"/a", 2)
		if w := f.wakes(root + "/a")[0]; w.Offset(root+"/a") != "-1" {
			t.Errorf("the first wake is %s at %s, want that of the stream's creation", w, w.Offset(root+"/a"))
		}
	})

	t.Run("a DELETE removes the consumers, and a stream of that name made later is a new one", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		f.awaitIdle(root+"/a", e.gateway.Create(root+"/a"))
		f.wakesOnAppend(root+"/a", e.streams.Tail(root+"/a"))
		last := f.wakes(root + "/a")[1]
		e.gateway.DeleteStream(root + "/a")
		if _, err := f.consumerOf(root + "/a"); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("after the answer to the DELETE the consumer is there: %v", err)
		}
		if a := e.gateway.Callback(last, last.Claim(true)); a.Status != http.StatusGone ||
			a.Error.Code != "CONSUMER_GONE" {
			t.Errorf("callback after the DELETE: %d %s, want 410 CONSUMER_GONE", a.Status, a.Body)
		}
		before := len(f.wakes(root + "/a"))
		at := e.gateway.Create(root + "/a")
		if w := f.wake(root+"/a", before+1); w.Offset(root+"/a") != "-1" {
			t.Errorf("the new stream's consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
	})
}

func TestDiscoveryByTheOperator(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("POST makes a stream known that exists", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		f := e.subscriber(root + "/*")
		e.mustNameStreams(http.MethodPost, root+"/a")
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", 2) // the first is for what was there
	})

	t.Run("a stream named before its subscription is idle until the next event", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		e.mustNameStreams(http.MethodPost, root+"/a")
		f := e.subscriber(root + "/*")
		f.awaitIdle(root+"/a", at)
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", 1)
	})

	t.Run("POST has streams waited for that do not exist yet", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		e.mustNameStreams(http.MethodPost, root+"/a", root+"/b")
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"first":true}`)
		w := f.wake(root+"/a", 1)
		if messages, _ := e.streams.Read(root+"/a", w.Offset(root+"/a")); len(messages) != 1 {
			t.Errorf("reading from the offset of the wake gives %s, want the first event", messages)
		}
		f.wakesOnAppend(root+"/a", at)
		f.wakesOnAppend(root+"/b", e.streams.Create(root+"/b"))
	})

	t.Run("naming a stream again changes nothing", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		at := f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		before := len(f.wakes(root + "/a"))
		e.mustNameStreams(http.MethodPost, root+"/a")
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", before+1)
	})

	t.Run("DELETE removes its consumers, and no event of it wakes any more", func(t *testing.T) {
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		before := f.wakes(root + "/a")
		e.mustNameStreams(http.MethodDelete, root+"/a")
		last := before[len(before)-1]
		if a := e.gateway.Callback(last, last.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback after the DELETE: %d, want 410", a.Status)
		}
		at := e.streams.Append(root+"/a", `{"nobody":"cares"}`)
		// Named again, it is a new stream, and the next wake is its first.
		e.mustNameStreams(http.MethodPost, root+"/a")
		if w := f.wake(root+"/a", len(before)+1); w.Offset(root+"/a") != "-1" {
			t.Errorf("the wake after the DELETE is %s at %s, want the start", w, w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
		f.wantWakes(root+"/a", len(before)+2)
	})

	t.Run("one wrong path refuses the whole request and names the field", func(t *testing.T) {
		root := "/" + name(t)
		at := e.streams.Create(root + "/a")
		f := e.subscriber(root + "/*")
		res := e.nameStreams(http.MethodPost, root+"/a", "no-slash")
		if res.Status != http.StatusBadRequest || !strings.Contains(res.Body, "streams[1]") {
			t.Errorf("answer %d %s, want a 400 that names streams[1]", res.Status, res.Body)
		}
		if s, err := f.store.Stream(t.Context(), root+"/a"); err != nil || s.Found() {
			t.Errorf("the right path is on record: %+v (%v)", s, err)
		}
		e.mustNameStreams(http.MethodPost, root+"/a")
		f.awaitIdle(root+"/a", at)
	})
}

func TestDiscoveryBySettings(t *testing.T) {
	t.Parallel()
	there, later := "/"+name(t)+"/there", "/"+name(t)+"/later"
	var at string
	e := beside(t, options{
		settings: map[string]string{"REVEILLE_STREAMS": there + ", " + later},
		upstream: func(url string) string {
			c := harness.NewClient(t, url)
			c.Create(there)
			at = c.Append(there, `{"old":true}`)
			return url
		},
	})
	harness.Eventually(t, soon, "the streams of the setting are known", func() error {
		for _, path := range []string{there, later} {
			if s, err := storeOf(e.redis).Stream(t.Context(), path); err != nil || !s.Found() {
				return fmt.Errorf("%s: %+v, %w", path, s, err)
			}
		}
		return nil
	})

	t.Run("a stream of REVEILLE_STREAMS that exists is woken for", func(t *testing.T) {
		f := e.subscriber(strings.TrimSuffix(there, "there") + "*")
		f.awaitIdle(there, at)
		f.wakesOnAppend(there, at)
		f.wantWakes(there, 1)
	})

	t.Run("one that does not exist yet is woken for once it does, "+
		"and again after it was deleted and made anew", func(t *testing.T) {
		f := e.subscriber(strings.TrimSuffix(later, "later") + "*")
		f.wakesOnAppend(later, e.streams.Create(later))
		e.gateway.DeleteStream(later)
		f.awaitRemoved(later, soon)
		before := len(f.wakes(later))
		at := e.streams.Create(later)
		if w := f.wake(later, before+1); w.Offset(later) != "-1" {
			t.Errorf("made anew, its consumer begins at %q, want -1", w.Offset(later))
		}
		f.wakesOnAppend(later, at)
	})
}

func TestDiscoveryByALiteralPattern(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("a stream that exists is idle until the next event", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		e.streams.Create(path)
		at := e.streams.Append(path, `{"old":true}`)
		f := e.subscriber(path)
		f.awaitIdle(path, at)
		f.wakesOnAppend(path, at)
		f.wantWakes(path, 1)
	})

	t.Run("a stream that does not exist yet is woken for from its start", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.subscriber(path)
		e.streams.Create(path)
		at := e.streams.Append(path, `{"first":true}`)
		w := f.wake(path, 1)
		if messages, _ := e.streams.Read(path, w.Offset(path)); len(messages) != 1 {
			t.Errorf("reading from the offset of the wake gives %s, want the first event", messages)
		}
		f.wakesOnAppend(path, at)
	})

	e = beside(t, options{settings: map[string]string{"REVEILLE_STREAM_GONE_GRACE": "1s"}})
	t.Run("a stream that is gone behind our back loses its consumer after the grace, "+
		"and a new one of that name wakes", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.subscriber(path)
		f.wakesOnAppend(path, e.streams.Create(path))
		e.streams.DeleteStream(path)
		f.awaitRemoved(path, soon)
		before := len(f.wakes(path))
		at := e.streams.Create(path)
		if w := f.wake(path, before+1); w.Offset(path) != "-1" {
			t.Errorf("made anew, its consumer begins at %q, want -1", w.Offset(path))
		}
		f.wakesOnAppend(path, at)
	})

	t.Run("a stream that is named before a crash is still waited for after it", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.subscriber(path)
		e.rev.Kill()
		e.streams.Create(path)
		at := e.streams.Append(path, `{"while":"down"}`)
		e.rev.Start()
		if w := f.wake(path, 1); w.Offset(path) != "-1" {
			t.Errorf("its consumer begins at %q, want -1", w.Offset(path))
		}
		f.wakesOnAppend(path, at)
	})
}
