package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// following looks at the consumers of one subscription and at the wakes they got.
type following struct {
	*env
	sub    string
	worker *harness.Worker
	store  *redisstore.Store
}

// follow subscribes a new worker that is done as soon as it is woken.
func (e *env) follow(pattern string) *following {
	e.t.Helper()
	f := e.followUnanswered(pattern)
	f.worker.AnswerDone()
	return f
}

// followUnanswered is follow with a worker that answers with an empty 200, so that its consumers go live.
func (e *env) followUnanswered(pattern string) *following {
	e.t.Helper()
	f := &following{env: e, sub: fmt.Sprintf("s%d", names.Add(1)), worker: harness.NewWorker(e.t), store: storeOf(e.redis)}
	e.gateway.Subscribe(pattern, f.sub, f.worker)
	return f
}

// storeOf reads what Reveille keeps in a Redis.
func storeOf(r *database) *redisstore.Store {
	return redisstore.New(r.Client(), redisstore.Options{})
}

// consumer of a stream.
func (f *following) consumer(path string) (fsm.Consumer, error) {
	return f.store.Consumer(f.t.Context(), fsm.ConsumerID(f.sub, path), path)
}

// wakes of a stream's consumer, in the order of their arrival.
func (f *following) wakes(path string) []harness.Wake {
	var list []harness.Wake
	for _, w := range f.worker.Wakes() {
		if w.PrimaryStream == path {
			list = append(list, w)
		}
	}
	return list
}

// wake waits for the nth wake of a stream's consumer.
func (f *following) wake(path string, n int) harness.Wake {
	f.t.Helper()
	harness.Eventually(f.t, soon, fmt.Sprintf("wake %d of %s", n, path), func() error {
		if got := len(f.wakes(path)); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	})
	return f.wakes(path)[n-1]
}

// idle waits until the consumer of a stream is at rest with everything up to an offset acked.
func (f *following) idle(path, at string) {
	f.t.Helper()
	harness.Eventually(f.t, soon, "the consumer of "+path+" is idle at the tail", func() error {
		c, err := f.consumer(path)
		if err == nil && (c.State != fsm.Idle || string(c.Links[path].Acked) != at || string(c.Links[path].Tail) != at) {
			err = fmt.Errorf("it is %s with %+v, want %s", c.State, c.Links, at)
		}
		return err
	})
}

// gone waits until there is no consumer for a stream.
func (f *following) gone(path string) {
	f.t.Helper()
	harness.Eventually(f.t, soon, "the consumer of "+path+" is removed", func() error {
		switch _, err := f.consumer(path); {
		case err == nil:
			return errors.New("it is still there")
		case !errors.Is(err, fsm.ErrNotFound):
			return err
		}
		return nil
	})
}

// wakesOnAppend appends an event straight to the stream server and fails the test unless that wakes the consumer, which was at rest
// at an offset, exactly once.
func (f *following) wakesOnAppend(path, at string) (tail string) {
	f.t.Helper()
	f.idle(path, at)
	before := len(f.wakes(path))
	tail = f.streams.Append(path, `{"behind":"its back"}`)
	w := f.wake(path, before+1)
	if got := w.Offset(path); got != at {
		f.t.Errorf("the wake says that %s was acked up to %s, want %s", path, got, at)
	}
	if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != path {
		f.t.Errorf("the wake was triggered by %v, want %s", w.TriggeredBy, path)
	}
	f.idle(path, tail)
	if got := len(f.wakes(path)); got != before+1 {
		f.t.Errorf("one event led to %d wakes", got-before)
	}
	return tail
}

// never fails the test if a stream gets more wakes than n.
func (f *following) never(path string, n int) {
	f.t.Helper()
	harness.Never(f.t, quiet, fmt.Sprintf("wake %d of %s", n+1, path), func() error {
		if len(f.wakes(path)) > n {
			return nil
		}
		return errors.New("not yet")
	})
}

// operator asks the operator port to do something with streams.
func (e *env) operator(method string, paths ...string) harness.Response {
	e.t.Helper()
	body := `{"streams":["` + strings.Join(paths, `","`) + `"]}`
	return harness.NewClient(e.t, e.rev.Admin).Do(method, "/api/v1/streams", body, "Content-Type", "application/json")
}

func (e *env) mustOperator(method string, paths ...string) {
	e.t.Helper()
	if res := e.operator(method, paths...); res.Status != http.StatusOK {
		e.t.Fatalf("%s /api/v1/streams: status %d: %s", method, res.Status, res.Body)
	}
}

func TestDiscoveryByTheGateway(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("a PUT makes a stream known", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		at := e.gateway.Create(root + "/a")
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != "-1" {
			t.Errorf("the new stream's consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		at = f.wakesOnAppend(root+"/a", at)
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a POST to a stream that was not heard of links it at the tail before", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		f.never(root+"/a", 0)
		tail := e.gateway.Append(root+"/a", `{"new":true}`)
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != at {
			t.Errorf("the consumer begins at %q, want %q", w.Offset(root+"/a"), at)
		}
		f.wakesOnAppend(root+"/a", tail)
	})

	t.Run("a PUT with events in it wakes from the start", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
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
		f := e.follow(root + "/*")
		f.idle(root+"/a", at)
		f.never(root+"/a", 0)
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a write that is refused makes no stream known", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		if res := e.gateway.Do(http.MethodPost, root+"/a", `{}`, "Content-Type", "application/json"); res.Status != http.StatusNotFound {
			t.Fatalf("POST to a stream that is not there: %d", res.Status)
		}
		f.never(root+"/a", 0)
		f.gone(root + "/a")
	})

	t.Run("a DELETE removes the consumers, and a stream of that name made later is a new one", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		f.idle(root+"/a", e.gateway.Create(root+"/a"))
		f.wakesOnAppend(root+"/a", e.streams.Tail(root+"/a"))
		last := f.wakes(root + "/a")[1]
		e.gateway.DeleteStream(root + "/a")
		if _, err := f.consumer(root + "/a"); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("after the answer to the DELETE the consumer is there: %v", err)
		}
		if a := e.gateway.Callback(last, last.Claim(true)); a.Status != http.StatusGone || a.Error.Code != "CONSUMER_GONE" {
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

func TestDiscoveryByTheRegistryStream(t *testing.T) {
	t.Parallel()
	e := start(t, options{ref: harness.RefOptions{Registry: true}, settings: map[string]string{
		"REVEILLE_REGISTRY_STREAM": "/__registry__",
		// Long enough for nothing but the registry to remove a consumer.
		"REVEILLE_STREAM_GONE_GRACE": "10m",
		"REVEILLE_TAIL_CHECK":        "1s",
	}})

	t.Run("a stream created on the stream server is found and woken for", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/**")
		at := e.streams.Create(root + "/a")
		if w := f.wake(root+"/a", 1); w.Offset(root+"/a") != "-1" {
			t.Errorf("its consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
		f.wakesOnAppend(root+"/b/c", e.streams.Create(root+"/b/c"))
	})

	t.Run("a stream known from before its subscription is idle until the next event", func(t *testing.T) {
		root := "/" + name(t)
		marker := e.follow(root + "/b")
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		marker.idle(root+"/b", e.streams.Create(root+"/b")) // the registry has been read so far
		f := e.follow(root + "/*")
		f.idle(root+"/a", at)
		f.never(root+"/a", 0)
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a stream deleted on the stream server loses its consumers long before the grace", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		f.wakesOnAppend(root+"/a", e.streams.Create(root+"/a"))
		last := f.wakes(root + "/a")[1]
		e.streams.DeleteStream(root + "/a")
		f.gone(root + "/a")
		if a := e.gateway.Callback(last, last.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback after the deletion: %d, want 410", a.Status)
		}
		before := len(f.wakes(root + "/a"))
		at := e.streams.Create(root + "/a")
		if w := f.wake(root+"/a", before+1); w.Offset(root+"/a") != "-1" {
			t.Errorf("made again, its consumer begins at %q, want -1", w.Offset(root+"/a"))
		}
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a stream deleted through the gateway and made again at once stays", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		e.gateway.DeleteStream(root + "/a")
		at := e.gateway.Create(root + "/a")
		f.idle(root+"/a", at)
		// By the time that this one is found, the registry's account of the deletion was read too.
		f.idle(root+"/b", e.streams.Create(root+"/b"))
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("streams created and deleted while Reveille was down are found when it is back", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
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
		f.gone(root + "/deleted")
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

func TestDiscoveryByTheOperator(t *testing.T) {
	t.Parallel()
	e := start(t, options{})

	t.Run("POST makes a stream known that exists", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		f := e.follow(root + "/*")
		f.never(root+"/a", 0)
		e.mustOperator(http.MethodPost, root+"/a")
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("a stream named before its subscription is idle until the next event", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		at := e.streams.Append(root+"/a", `{"old":true}`)
		e.mustOperator(http.MethodPost, root+"/a")
		f := e.follow(root + "/*")
		f.idle(root+"/a", at)
		f.never(root+"/a", 0)
		f.wakesOnAppend(root+"/a", at)
	})

	t.Run("POST has streams waited for that do not exist yet", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		e.mustOperator(http.MethodPost, root+"/a", root+"/b")
		f.never(root+"/a", 0)
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
		f := e.follow(root + "/*")
		at := f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		before := len(f.wakes(root + "/a"))
		e.mustOperator(http.MethodPost, root+"/a")
		f.never(root+"/a", before)
		f.idle(root+"/a", at)
	})

	t.Run("DELETE removes its consumers, and no event of it wakes any more", func(t *testing.T) {
		root := "/" + name(t)
		f := e.follow(root + "/*")
		f.wakesOnAppend(root+"/a", e.gateway.Create(root+"/a"))
		before := f.wakes(root + "/a")
		e.mustOperator(http.MethodDelete, root+"/a")
		last := before[len(before)-1]
		if a := e.gateway.Callback(last, last.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback after the DELETE: %d, want 410", a.Status)
		}
		e.streams.Append(root+"/a", `{"nobody":"cares"}`)
		f.never(root+"/a", len(before))
	})

	t.Run("one wrong path refuses the whole request and names the field", func(t *testing.T) {
		root := "/" + name(t)
		e.streams.Create(root + "/a")
		f := e.follow(root + "/*")
		res := e.operator(http.MethodPost, root+"/a", "no-slash")
		if res.Status != http.StatusBadRequest || !strings.Contains(res.Body, "streams[1]") {
			t.Errorf("answer %d %s, want a 400 that names streams[1]", res.Status, res.Body)
		}
		f.never(root+"/a", 0)
		f.gone(root + "/a")
	})
}

func TestDiscoveryBySettings(t *testing.T) {
	t.Parallel()
	there, later := "/"+name(t)+"/there", "/"+name(t)+"/later"
	var at string
	e := start(t, options{
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
			if _, found, err := storeOf(e.redis).Known(t.Context(), path); err != nil || !found {
				return fmt.Errorf("%s: found %t, %w", path, found, err)
			}
		}
		return nil
	})

	t.Run("a stream of REVEILLE_STREAMS that exists is woken for", func(t *testing.T) {
		f := e.follow(strings.TrimSuffix(there, "there") + "*")
		f.idle(there, at)
		f.never(there, 0)
		f.wakesOnAppend(there, at)
	})

	t.Run("one that does not exist yet is woken for once it does, and again after it was deleted and made anew", func(t *testing.T) {
		f := e.follow(strings.TrimSuffix(later, "later") + "*")
		f.never(later, 0)
		f.wakesOnAppend(later, e.streams.Create(later))
		e.gateway.DeleteStream(later)
		f.gone(later)
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
	e := start(t, options{})

	t.Run("a stream that exists is idle until the next event", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		e.streams.Create(path)
		at := e.streams.Append(path, `{"old":true}`)
		f := e.follow(path)
		f.idle(path, at)
		f.never(path, 0)
		f.wakesOnAppend(path, at)
	})

	t.Run("a stream that does not exist yet is woken for from its start", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.follow(path)
		f.never(path, 0)
		e.streams.Create(path)
		at := e.streams.Append(path, `{"first":true}`)
		w := f.wake(path, 1)
		if messages, _ := e.streams.Read(path, w.Offset(path)); len(messages) != 1 {
			t.Errorf("reading from the offset of the wake gives %s, want the first event", messages)
		}
		f.wakesOnAppend(path, at)
	})

	t.Run("a stream that is gone behind our back loses its consumer after the grace, and a new one of that name wakes", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.follow(path)
		f.wakesOnAppend(path, e.streams.Create(path))
		e.streams.DeleteStream(path)
		f.gone(path)
		before := len(f.wakes(path))
		at := e.streams.Create(path)
		if w := f.wake(path, before+1); w.Offset(path) != "-1" {
			t.Errorf("made anew, its consumer begins at %q, want -1", w.Offset(path))
		}
		f.wakesOnAppend(path, at)
	})

	t.Run("a stream that is named before a crash is still waited for after it", func(t *testing.T) {
		path := "/" + name(t) + "/a"
		f := e.follow(path)
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
