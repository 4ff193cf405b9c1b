package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// refusal checks an error of the subscription API.
func refusal(t *testing.T, what string, res harness.Response, status int, code fsm.Code) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if res.Status != status || json.Unmarshal([]byte(res.Body), &body) != nil || body.Error.Code != string(code) || body.Error.Message == "" {
		t.Errorf("%s: the answer is %d %s, want %d with the code %s and a message", what, res.Status, res.Body, status, code)
	}
}

func TestDecisionsOnTheSubscriptionAPI(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: patient})
	api := e.gateway
	const hook, other = "http://127.0.0.1:9/hook", "http://127.0.0.1:9/other"
	body := func(webhook, description string) string {
		b, _ := json.Marshal(map[string]string{"webhook": webhook, "description": description})
		return string(b)
	}

	t.Run("D11: the same configuration again is 200 without the secret, any other under the same id is 409", func(t *testing.T) {
		created := api.PutSubscription("/d11/*", "same", body(hook, "text"))
		if created.Status != http.StatusCreated || !strings.Contains(created.Body, `"webhook_secret":"whsec_`) {
			t.Fatalf("the answer is %d %s, want 201 with a secret", created.Status, created.Body)
		}
		for _, pattern := range []string{"/d11/*", "/d11/%2A", "/d11/%2a"} {
			if res := api.PutSubscription(pattern, "same", body(hook, "text")); res.Status != http.StatusOK || strings.Contains(res.Body, "secret") {
				t.Errorf("the same again as %s: %d %s, want 200 without the secret", pattern, res.Status, res.Body)
			}
		}
		for what, res := range map[string]harness.Response{
			"another webhook":     api.PutSubscription("/d11/*", "same", body(other, "text")),
			"another description": api.PutSubscription("/d11/*", "same", body(hook, "")),
			"another pattern":     api.PutSubscription("/d11/**", "same", body(hook, "text")),
		} {
			refusal(t, what, res, http.StatusConflict, fsm.CodeSubscriptionConflict)
		}
		if sub, ok := api.Subscription("same"); !ok || sub.Webhook != hook || sub.Description != "text" || sub.Pattern != "/d11/*" {
			t.Errorf("after the refusals the subscription is %+v", sub)
		}
	})

	t.Run("D11: ids are 1 to 128 characters of A-Za-z0-9._~-", func(t *testing.T) {
		for _, id := range []string{"a", strings.Repeat("x", 128), "AZaz09._~-"} {
			if res := api.PutSubscription("/d11/ids", id, body(hook, "")); res.Status != http.StatusCreated {
				t.Errorf("id %q: %d %s, want 201", id, res.Status, res.Body)
			}
		}
		for _, id := range []string{"", strings.Repeat("x", 129), "a%20b", "a%2Fb", "a:b", "%C3%A4", "a+b", "a%00", "a*"} {
			for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
				res := api.Do(method, "/d11/ids?subscription="+id, body(hook, ""), "Content-Type", "application/json")
				refusal(t, method+" of id "+id, res, http.StatusBadRequest, fsm.CodeInvalidSubscriptionID)
			}
		}
	})

	t.Run("D11: GET and DELETE by id accept the subscription's own pattern or /**, and DELETE of an unknown id is 204", func(t *testing.T) {
		api.SubscribeURL("/d11/own/*", "own", hook)
		for _, pattern := range []string{"/d11/own/*", "/d11/own/%2A", "/**"} {
			if res := api.Do(http.MethodGet, pattern+"?subscription=own", ""); res.Status != http.StatusOK {
				t.Errorf("GET %s: %d %s, want 200", pattern, res.Status, res.Body)
			}
		}
		for _, pattern := range []string{"/d11/other/*", "/d11/**", "/d11/own/one"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				res := api.Do(method, pattern+"?subscription=own", "")
				refusal(t, method+" "+pattern, res, http.StatusNotFound, fsm.CodeSubscriptionNotFound)
			}
		}
		if _, ok := api.Subscription("own"); !ok {
			t.Error("a refused DELETE has deleted the subscription")
		}
		for _, pattern := range []string{"/d11/own/*", "/d11/own/*", "/**", "/anything"} {
			api.DeleteSubscription(pattern, "own")
		}
		refusal(t, "GET of a deleted one", api.Do(http.MethodGet, "/**?subscription=own", ""), http.StatusNotFound, fsm.CodeSubscriptionNotFound)
		api.SubscribeURL("/d11/own/*", "own", hook)
		api.DeleteSubscription("/**", "own")
		refusal(t, "GET of a deleted one", api.Do(http.MethodGet, "/d11/own/*?subscription=own", ""), http.StatusNotFound, fsm.CodeSubscriptionNotFound)
	})

	t.Run("D11: each cause of an error has a code of its own", func(t *testing.T) {
		for _, tc := range []struct {
			what, pattern, body string
			status              int
			code                fsm.Code
		}{
			{"an empty segment", "/d11//x", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"three stars", "/d11/***", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"a star amid a segment", "/d11/a*b", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"a body that is not JSON", "/d11/x", "{", 400, fsm.CodeInvalidRequest},
			{"a body that is no object", "/d11/x", "[]", 400, fsm.CodeInvalidRequest},
			{"no webhook", "/d11/x", "{}", 400, fsm.CodeInvalidRequest},
			{"a webhook of the wrong type", "/d11/x", `{"webhook":1}`, 400, fsm.CodeInvalidRequest},
			{"a webhook that may not be", "/d11/x", body("ftp://example.com", ""), 400, fsm.CodeInvalidWebhook},
			{"a body of more than 1 MiB", "/d11/x", body(hook, strings.Repeat("x", 1<<20)), 413, fsm.CodeBodyTooLarge},
		} {
			refusal(t, tc.what, api.PutSubscription(tc.pattern, "wrong", tc.body), tc.status, tc.code)
		}
		if sub, ok := api.Subscription("wrong"); ok {
			t.Errorf("a refused request created %+v", sub)
		}
	})

	t.Run("D11: consumer_id encodes the path as encodeURIComponent does", func(t *testing.T) {
		for path, want := range map[string]string{
			"/plain/stream":       "%2Fplain%2Fstream",
			"/-_.!~'()/$&+,;=:@":  "%2F-_.!~'()%2F%24%26%2B%2C%3B%3D%3A%40",
			"/with%20space%2Fand": "%2Fwith%2520space%252Fand",
			"/%C3%A4":             "%2F%25C3%25A4",
		} {
			s := e.trial(t)
			s.path = s.folder + path
			deep := harness.NewWorker(t)
			id := s.sub.ID + "-d"
			s.gateway.Subscribe(s.folder+"/**", id, deep)
			tail := s.begin()
			w := deep.Wake(1)
			if want := id + ":%2F" + s.folder[1:] + want; w.ConsumerID != want || !strings.HasSuffix(w.Callback, "/callback/"+want) {
				t.Errorf("%s: the consumer is %s with the callback %s, want %s", s.path, w.ConsumerID, w.Callback, want)
			}
			s.ok(w, w.Claim(true, s.ack(tail)))
			s.gateway.DeleteSubscription("/**", id)
		}
	})
}

func TestDecisionsOnExistingStreams(t *testing.T) {
	t.Parallel()
	const streams = 300
	h := &hop{}
	e := start(t, options{upstream: h.before(t), settings: patient})
	path := func(i int) string { return fmt.Sprintf("/existing/s%d", i) }
	// inParallel does something to every stream, some at a time.
	inParallel := func(do func(i int)) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < streams; i += 8 {
					do(i)
				}
			})
		}
		wg.Wait()
	}
	tails := make([]string, streams)
	inParallel(func(i int) {
		e.gateway.Create(path(i))
		tails[i] = e.gateway.Append(path(i), `"old"`)
	})
	store := redisstore.New(e.redis.Client(), redisstore.Options{})
	inParallel(func(i int) {
		harness.Eventually(t, soon, "stream known", func() error {
			if k, ok, err := store.Known(t.Context(), path(i)); err != nil || !ok || k.Awaited {
				return fmt.Errorf("known %v, awaited %v: %w", ok, k.Awaited, err)
			}
			return nil
		})
	})

	t.Run("D12: the backfill of many streams goes on behind the 201, shows its progress, and survives a kill", func(t *testing.T) {
		w := harness.NewWorker(t)
		w.AnswerDone()
		// Ten HEADs a second are more than half a minute for all of them; the second half is let go at full speed.
		turn := make(chan struct{}, streams)
		slow := time.NewTicker(100 * time.Millisecond)
		defer slow.Stop()
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-slow.C:
					turn <- struct{}{}
				case <-stop:
					return
				}
			}
		}()
		h.do(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				select {
				case <-turn:
				case <-r.Context().Done():
				}
			}
			return false
		})
		began := time.Now()
		e.gateway.Subscribe("/existing/*", "existing", w)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the 201 took %s, want at once", took)
		}
		var shown harness.Subscription
		harness.Eventually(t, soon, "some of the work done", func() error {
			if shown, _ = e.gateway.Subscription("existing"); shown.Backfill == nil || shown.Backfill.Done == 0 {
				return fmt.Errorf("it shows %+v", shown.Backfill)
			}
			return nil
		})
		if b := shown.Backfill; b.Total != streams || b.Done >= streams {
			t.Errorf("in the middle of it the backfill shows %+v, want a total of %d", *b, streams)
		}
		e.rev.Kill()
		close(stop)
		h.do(nil)
		e.rev.Start()
		harness.Eventually(t, 2*soon, "backfill over", func() error {
			if sub, ok := e.gateway.Subscription("existing"); !ok || sub.Backfill != nil {
				return fmt.Errorf("it shows %+v", sub.Backfill)
			}
			return nil
		})
		for i := range streams {
			c, err := store.Consumer(t.Context(), fsm.ConsumerID("existing", path(i)), path(i))
			if err != nil || c.State != fsm.Idle || string(c.Links[path(i)].Acked) != tails[i] {
				t.Fatalf("the consumer of %s is %+v (%v), want idle at %s", path(i), c, err, tails[i])
			}
		}
		harness.Never(t, quiet, "a wake for an old event", harness.True(func() bool { return len(w.Wakes()) > 0 }, "none"))
		inParallel(func(i int) { e.streams.Append(path(i), `"new"`) })
		harness.Eventually(t, 2*soon, "a wake of every consumer", func() error {
			if n := len(w.Wakes()); n < streams {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		woken := map[string]bool{}
		for _, wake := range w.Wakes() {
			var i int
			if _, err := fmt.Sscanf(wake.PrimaryStream, "/existing/s%d", &i); err != nil {
				t.Fatal(err)
			}
			woken[wake.PrimaryStream] = true
			if wake.Epoch == 1 && wake.Offset(wake.PrimaryStream) != tails[i] {
				t.Errorf("the wake of %s begins at %q, want %q", wake.PrimaryStream, wake.Offset(wake.PrimaryStream), tails[i])
			}
		}
		if len(woken) != streams {
			t.Errorf("%d consumers were woken, want %d", len(woken), streams)
		}
	})

	t.Run("D12: a stream first heard of through an append is linked at the tail before that append", func(t *testing.T) {
		s := e.trial(t)
		s.streams.Create(s.path)
		before := s.streams.Append(s.path, `"nobody told Reveille"`)
		if c, err := s.consumer(); !errors.Is(err, fsm.ErrNotFound) {
			t.Fatalf("Reveille has heard of the stream already: %+v", c)
		}
		s.gateway.Append(s.path, `"first heard of"`)
		s.woken(s.worker.Wake(1), 1, before)
	})
}
