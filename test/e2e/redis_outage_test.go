package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/test/harness"
)

// durableRedis starts a Redis that forgets nothing over a restart.
func durableRedis(t *testing.T) *database {
	return ownRedis(t, "--appendonly", "yes", "--appendfsync", "always")
}

func TestTheProgramStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, nil)
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	e.rev.Launch()
	harness.Eventually(t, soon, "it says that it lives and is not ready", func() error {
		return errors.Join(get(e.rev.Operator+"/healthz", 200, ""),
			get(e.rev.Operator+"/readyz", 503, "waiting for redis: "))
	})
	harness.Eventually(t, soon, "the API says so", func() error {
		return get(e.rev.URL+"/**?subscriptions", 503, "UNAVAILABLE")
	})
	e.streams.Append(path, `{"while":"Redis is away"}`)
	redis.Restart()
	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Operator+"/readyz", 200, "ready") })
	f.wake(path, 3)
	f.wakesOnAppend(path, e.streams.Tail(path))
	if at == e.streams.Tail(path) {
		t.Error("nothing was appended")
	}
}

// TestAPasswordThatChangesWhileTheProgramRuns holds that it says so, and goes on once it is let in again.
func TestAPasswordThatChangesWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	redis := ownRedis(t)
	allow := func(password string) {
		t.Helper()
		for _, server := range redis.servers {
			err := server.Client().Do(t.Context(), "ACL", "SETUSER", "reveille", "reset", "on", ">"+password, "~rv:*",
				"&*", "+@all").Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	allow("first")
	e := with(t, redis, map[string]string{"REVEILLE_REDIS_URL": redis.as("reveille:first")})
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	allow("second")
	for _, server := range redis.servers {
		if err := server.Client().ClientKillByFilter(t.Context(), "USER", "reveille").Err(); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, soon, "it says why it is not ready",
		func() error { return get(e.rev.Operator+"/readyz", 503, "WRONGPASS") })
	tail := e.streams.Append(path, `{"while":"locked out"}`)
	allow("first")
	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Operator+"/readyz", 200, "") })
	f.awaitIdle(path, tail)
	if n := len(f.wakes(path)); n < 3 || at == tail {
		t.Errorf("%d wakes, want one for the event while it was locked out", n)
	}
}

func TestRedisThatIsAway(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, nil)
	root := "/" + name(t)
	f := e.subscriber(root + "/idle")
	at := f.wakesOnAppend(root+"/idle", e.gateway.Create(root+"/idle"))
	g := e.liveSubscriber(root + "/live")
	tail := e.gateway.Create(root + "/live")
	live := g.wake(root+"/live", 1)
	harness.Eventually(t, soon,
		"its acceptance is stored: otherwise the wake is made again, after a restart as another", func() error {
			c, err := g.consumerOf(root + "/live")
			if err == nil && c.State != fsm.Live {
				err = fmt.Errorf("it is %s", c.State)
			}
			return err
		})
	n := len(f.wakes(root + "/idle"))

	redis.Kill()
	for what, res := range map[string]harness.Response{
		"a subscription": e.gateway.PutSubscription(root+"/*", "meanwhile",
			fmt.Sprintf(`{"webhook":%q}`, f.worker.URL)),
		"a callback":   e.gateway.Callback(live, live.Claim(false)).Response,
		"the operator": e.nameStreams(http.MethodPost, root+"/named"),
	} {
		if res.Status != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered %d %s with Retry-After %q, want 503 and a time", what, res.Status, res.Body,
				res.Header.Get("Retry-After"))
		}
	}
	harness.Eventually(t, soon, "it says that it lives and is not ready", func() error {
		return errors.Join(get(e.rev.Operator+"/healthz", 200, ""), get(e.rev.Operator+"/readyz", 503, ""))
	})
	e.streams.Append(root+"/idle", `{"straight":true}`)
	harness.Eventually(t, soon, "several of its tasks have met with that", harness.True(func() bool {
		found, _ := e.scrape(t)
		failed := func(script string) bool {
			return found[`reveille_redis_script_errors_total{kind="unavailable",script="`+script+`"}`] > 1
		}
		return failed("replica_set") && failed("next_due")
	}, "they have not"))
	// The stream server still has its writes, whatever Reveille can remember of them.
	e.gateway.Append(root+"/idle", `{"through":"the gateway"}`)
	redis.Restart()

	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Operator+"/readyz", 200, "ready") })
	if w := f.wake(root+"/idle", n+1); w.Offset(root+"/idle") != at {
		t.Errorf("woken at %s, want %s", w.Offset(root+"/idle"), at)
	}
	f.wakesOnAppend(root+"/idle", e.streams.Tail(root+"/idle"))
	a := e.gateway.Callback(live, live.Claim(true, harness.StreamOffset{Path: root + "/live", Offset: tail}))
	if a.Status != http.StatusOK {
		t.Errorf("done when Redis is back: %d %s", a.Status, a.Body)
	}
	if _, found := e.gateway.Subscription("meanwhile"); found {
		t.Error("the subscription that was refused is there")
	}
	if kindOfRedis == "cluster" {
		return // its nodes come back one by one
	}
	harness.Eventually(t, soon, "one line says that it is away, and one that it is back", func() error {
		log := e.rev.Log()
		away, back := strings.Count(log, `"redis does not answer`), strings.Count(log, `"redis answers again"`)
		if away != 1 || back != 1 {
			return fmt.Errorf("there are %d and %d", away, back)
		}
		return nil
	})
}

// TestAttemptsCountOnAfterRedisWasRestarted has an endpoint refuse a push before and after it. Redis may have lost its
// latest changes then, for all that Reveille knows.
func TestAttemptsCountOnAfterRedisWasRestarted(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, nil)
	const failures = 5
	p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": slices.Repeat([]string{"1s"}, 30)}})
	// From the second attempt on, the endpoint waits until Redis is back.
	back, asked := make(chan struct{}), make(chan struct{}, 100)
	letGo := sync.OnceFunc(func() { close(back) })
	t.Cleanup(letGo)
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n > 2 {
			asked <- struct{}{}
			<-back
		}
		if n <= failures {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	events := p.add(p.path, 0, 1)
	<-asked
	redis.Kill()
	redis.Restart()
	letGo()
	p.want(p.path, events)

	var attempts []int
	harness.Eventually(t, harness.Wait, "all attempts are in the delivery log", func() error {
		status, out, errs := e.rev.Ask("", "deliveries", p.sub.ID, "--output", "json")
		var body struct {
			Deliveries []struct {
				DeliveryID string `json:"delivery_id"`
				Attempt    int
			}
		}
		if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil {
			return fmt.Errorf("status %d, %w, %s", status, err, errs)
		}
		attempts = nil
		for _, d := range body.Deliveries {
			if d.DeliveryID != body.Deliveries[0].DeliveryID {
				t.Fatalf("there are several deliveries: %+v", body.Deliveries)
			}
			attempts = append(attempts, d.Attempt)
		}
		if len(attempts) < failures+1 {
			return fmt.Errorf("they are %v", attempts)
		}
		return nil
	})
	slices.Reverse(attempts) // the latest was the first
	// One whose failure was not stored may come twice.
	if last := attempts[len(attempts)-1]; !slices.IsSorted(attempts) || last < failures {
		t.Errorf("the attempts are %v", attempts)
	}
}

func TestSubscriptionsThatRedisHasLostAreSaidToBeGone(t *testing.T) {
	t.Parallel()
	redis := ownRedis(t)
	e := with(t, redis, nil)
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	f.wakesOnAppend(path, e.gateway.Create(path))
	for _, server := range redis.servers {
		err := server.Client().FlushAll(t.Context()).Err()
		if err != nil && !strings.Contains(err.Error(), "READONLY") {
			t.Fatal(err)
		}
	}
	e.awaitMetrics(t, map[string]float64{"reveille_subscriptions_lost_total": 1})
	harness.Eventually(t, soon, "the log names it", func() error {
		for line := range strings.Lines(e.rev.Log()) {
			if strings.Contains(line, "redis has lost subscriptions") && strings.Contains(line, f.sub.ID) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// While Redis stands still, no replica can be told of a stream that is made through another one. What comes through it
// later must not make those events pass for ones from before.
func TestEventsFromWhenRedisStoodStillAreNotTakenForOldOnes(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, nil)
	second := harness.StartReveille(t, e.settings(nil))
	other := harness.NewClient(t, second.URL)
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	for _, s := range redis.servers {
		s.Pause()
		t.Cleanup(s.Resume)
	}
	paths := []string{root + "/0", root + "/1", root + "/2", root + "/3"}
	var writes sync.WaitGroup
	for _, path := range paths {
		writes.Go(func() {
			e.gateway.Create(path)
			e.gateway.Append(path, `{"n":1}`)
		})
	}
	writes.Wait()
	e.rev.Pause() // it is to tell nobody
	t.Cleanup(e.rev.Resume)
	for _, s := range redis.servers {
		s.Resume()
	}
	for _, path := range paths {
		other.Append(path, `{"n":2}`)
	}
	for _, path := range paths {
		if w := f.wake(path, 1); w.Offset(path) != "-1" {
			t.Errorf("woken at %s", w.Offset(path))
		}
	}
}

func TestScriptFlushChangesNothing(t *testing.T) {
	t.Parallel()
	e := shared(t)
	path := "/" + name(t) + "/a"
	f := e.subscriber(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	flush := func() {
		for _, server := range e.redis.servers {
			if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			err := server.Client().FunctionFlush(t.Context()).Err()
			if err != nil && !goredis.IsReadOnlyError(err) { // a Redis replica follows its master
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		flush()
		at = f.wakesOnAppend(path, at)
	}
	f.worker.Answer(func(http.ResponseWriter, *http.Request, harness.Wake) {})
	n := len(f.wakes(path))
	tail := e.gateway.Append(path, `{}`)
	w := f.wake(path, n+1)
	flush()
	a := e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: tail}))
	if a.Status != http.StatusOK {
		t.Errorf("callback after SCRIPT FLUSH: %d %s", a.Status, a.Body)
	}
	f.awaitIdle(path, tail)
}

// TestWakesThatWaitWhileRedisStandsStillGoOutOnceItIsBack has many subscriptions wait for a slot while Redis neither
// answers nor hangs up. The deadline of an attempt is over a minute off: no wake waits for it.
func TestWakesThatWaitWhileRedisStandsStillGoOutOnceItIsBack(t *testing.T) {
	t.Parallel()
	if kindOfRedis == "cluster" {
		t.Skip("the nodes of a cluster that stand still take each other for dead")
	}
	redis := ownRedis(t)
	e := with(t, redis, map[string]string{"REVEILLE_WAKING_TIMEOUT": "2s"})
	const crowd, deadline = 150, 75 * time.Second
	root := "/" + name(t)
	e.gateway.Create(root + "/a")
	hold, held := make(chan struct{}), make(chan struct{}, crowd)
	let := sync.OnceFunc(func() { close(hold) })
	r := harness.NewReceiver(t)
	t.Cleanup(let)
	r.Answer(func(int, harness.Push) int {
		held <- struct{}{}
		<-hold
		return http.StatusNoContent
	})
	for n := range crowd {
		body := fmt.Sprintf(`{"mode":"push","webhook":%q,"timeout":"60s"}`, r.URL)
		if a := e.gateway.PutSubscription(root+"/*", fmt.Sprintf("%s-%d", name(t), n), body); a.Status != 201 {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
	}
	e.gateway.Append(root+"/a", `{"n":1}`)
	for range 50 { // the others wait for memory, or for their turn
		<-held
	}
	redis.servers[0].Pause()
	let()
	time.Sleep(6 * time.Second) // that long: calls are given up after five
	redis.servers[0].Resume()
	back := time.Now()
	r.Await(root+"/a", crowd)
	late := 0
	for _, p := range r.Pushes() {
		if p.At.Sub(back) > deadline-20*time.Second {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d pushes have waited for their deadlines", late)
	}
}
