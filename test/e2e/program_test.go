package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// durableRedis starts a Redis that forgets nothing over a restart.
func durableRedis(t *testing.T) *database {
	return ownRedis(t, "--appendonly", "yes", "--appendfsync", "always")
}

// with is start on a Redis of the test's own.
func with(t *testing.T, r *database, settings map[string]string) *env {
	t.Helper()
	e := &env{t: t, redis: r, ref: harness.StartRefServer(t, harness.RefOptions{})}
	e.streams = harness.NewClient(t, e.ref.StreamRoot)
	e.rev = harness.StartReveille(t, e.settings(settings))
	e.gateway = harness.NewClient(t, e.rev.URL)
	return e
}

// settings of one more Reveille on the same servers.
func (e *env) settings(more map[string]string) map[string]string {
	s := map[string]string{"REVEILLE_UPSTREAM_URL": e.ref.StreamRoot, "REVEILLE_REDIS_URL": e.redis.URL}
	for _, m := range []map[string]string{fast, more} {
		for k, v := range m {
			s[k] = v
		}
	}
	return s
}

// get asks one of Reveille's ports, and says what is wrong unless the answer has a status and a text in it.
func get(url string, status int, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body := make([]byte, 4096)
	n, _ := res.Body.Read(body)
	if res.StatusCode != status || !strings.Contains(string(body[:n]), text) {
		return fmt.Errorf("GET %s: %d %s, want %d with %q", url, res.StatusCode, body[:n], status, text)
	}
	return nil
}

// exits runs the program until it ends by itself and returns its exit status and what it wrote.
func exits(t *testing.T, settings map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	bin, err := harness.BuildReveille(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = harness.Environ(settings)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("it did not end by itself: %v\n%s%s", err, out.String(), errs.String())
	}
	secrets := harness.NewSecrets(settings)
	_, _ = secrets.Write([]byte(out.String() + errs.String()))
	for _, line := range secrets.Found() {
		t.Errorf("Reveille wrote a secret, %s", line)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// complaint is the one line that is not a log line; the test fails if there is not exactly one.
func complaint(t *testing.T, stderr string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%d lines of complaint, want one:\n%s", len(lines), stderr)
	}
	return lines[0]
}

func TestTheProgramsArguments(t *testing.T) {
	t.Parallel()

	t.Run("--help lists every setting and ends well", func(t *testing.T) {
		status, out, _ := exits(t, nil, "--help")
		if status != 0 {
			t.Errorf("exit status %d", status)
		}
		for _, want := range []string{
			"UPSTREAM_URL", "UPSTREAM_HEADERS", "UPSTREAM_NAME", "REDIS_URL", "REDIS_CA_FILE", "PARTITIONS", "PUBLIC_URL", "TOKEN_KEY", "LISTEN_ADDR", "ADMIN_ADDR", "GATEWAY",
			"STREAMS", "REGISTRY_STREAM", "TAIL_MODE", "TAIL_CHECK", "TAIL_MAX_LIVE", "TAIL_SWEEP_RATE", "STREAM_GONE_GRACE",
			"ALLOW_INSECURE_WEBHOOKS", "WEBHOOK_ALLOW_CIDRS", "WEBHOOK_PROXY_FROM_ENV", "WEBHOOK_TIMEOUT", "WAKING_TIMEOUT",
			"LIVENESS_TIMEOUT", "GC_AFTER", "MAX_IN_FLIGHT", "MAX_IN_FLIGHT_PER_SUBSCRIPTION", "MAX_QUEUED_WAKES",
			"MAX_STREAMS_PER_CONSUMER", "LOG_LEVEL", "PPROF",
		} {
			if !strings.Contains(out, "REVEILLE_"+want+" ") {
				t.Errorf("REVEILLE_%s is missing", want)
			}
		}
	})

	t.Run("an unknown argument ends it with status 2 and one line that names it", func(t *testing.T) {
		status, out, stderr := exits(t, nil, "--port=80")
		if status != 2 || out != "" || !strings.Contains(complaint(t, stderr), `"--port=80"`) {
			t.Errorf("exit status %d, %q, %q", status, out, stderr)
		}
	})

	t.Run("a missing setting ends it with status 1 and one line that names it", func(t *testing.T) {
		status, _, stderr := exits(t, nil)
		if status != 1 || !strings.Contains(complaint(t, stderr), "REVEILLE_UPSTREAM_URL") {
			t.Errorf("exit status %d, %q", status, stderr)
		}
	})
}

func TestTheProgramRefusesToStart(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	settings := func(more map[string]string) map[string]string {
		s := e.settings(map[string]string{
			"REVEILLE_TOKEN_KEY": harness.TokenKey, "REVEILLE_LISTEN_ADDR": "127.0.0.1:0", "REVEILLE_ADMIN_ADDR": "127.0.0.1:0",
		})
		for k, v := range more {
			s[k] = v
		}
		return s
	}
	for _, c := range []struct {
		name     string
		settings map[string]string
		want     []string
	}{
		{"on a Redis with another number of partitions", map[string]string{"REVEILLE_PARTITIONS": "32"}, []string{"REVEILLE_PARTITIONS=64", "32"}},
		{
			"when the API port is in use",
			map[string]string{"REVEILLE_LISTEN_ADDR": strings.TrimPrefix(e.rev.URL, "http://")},
			[]string{"REVEILLE_LISTEN_ADDR", strings.TrimPrefix(e.rev.URL, "http://"), "in use"},
		},
		{
			"when the operator port is in use",
			map[string]string{"REVEILLE_ADMIN_ADDR": strings.TrimPrefix(e.rev.Admin, "http://")},
			[]string{"REVEILLE_ADMIN_ADDR", strings.TrimPrefix(e.rev.Admin, "http://"), "in use"},
		},
		{
			"on a Redis that was set up for another stream server",
			map[string]string{"REVEILLE_UPSTREAM_URL": "http://127.0.0.1:1/v1/stream"},
			[]string{"REVEILLE_UPSTREAM_URL", "http://127.0.0.1:1/v1/stream", e.ref.StreamRoot, "redis-cli HSET"},
		},
		{"with a wrong password for Redis", map[string]string{"REVEILLE_REDIS_URL": e.redis.as("nobody:hunter2")}, []string{"REVEILLE_REDIS_URL", "password"}},
		{
			"with a URL for another kind of Redis",
			map[string]string{"REVEILLE_REDIS_URL": "redis+sentinel://" + e.redis.servers[0].Addr + "/main"},
			[]string{"REVEILLE_REDIS_URL", "not a sentinel"},
		},
		{
			"with an authority for Redis that cannot be read",
			map[string]string{"REVEILLE_REDIS_URL": "rediss://127.0.0.1:1", "REVEILLE_REDIS_CA_FILE": "/nonexistent/ca.pem"},
			[]string{"REVEILLE_REDIS_CA_FILE", "/nonexistent/ca.pem"},
		},
		{"with a Redis URL that is none", map[string]string{"REVEILLE_REDIS_URL": "http://user:hunter2@localhost"}, []string{"REVEILLE_REDIS_URL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, stderr := exits(t, settings(c.settings))
			line := complaint(t, stderr)
			if status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			for _, want := range c.want {
				if !strings.Contains(line, want) {
					t.Errorf("%q does not hold %q", line, want)
				}
			}
			if strings.Contains(stderr, "hunter2") {
				t.Errorf("it shows a password: %s", stderr)
			}
		})
	}
	if err := get(e.rev.Admin+"/readyz", 200, ""); err != nil {
		t.Errorf("the one that runs: %v", err)
	}
}

func TestTheProgramStartsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, nil)
	path := "/" + name(t) + "/a"
	f := e.follow(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	e.rev.Launch()
	harness.Eventually(t, soon, "it says that it lives and is not ready", func() error {
		return errors.Join(get(e.rev.Admin+"/healthz", 200, ""), get(e.rev.Admin+"/readyz", 503, "the start waits for redis: "))
	})
	if err := get(e.rev.URL+"/**?subscriptions", 503, "UNAVAILABLE"); err != nil {
		t.Errorf("the API: %v", err)
	}
	e.streams.Append(path, `{"while":"Redis is away"}`)
	redis.Restart()
	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Admin+"/readyz", 200, "ready") })
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
			if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "reveille", "reset", "on", ">"+password, "~rv:*", "&*", "+@all").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	allow("first")
	e := with(t, redis, map[string]string{"REVEILLE_REDIS_URL": redis.as("reveille:first")})
	path := "/" + name(t) + "/a"
	f := e.follow(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	allow("second")
	for _, server := range redis.servers {
		if err := server.Client().ClientKillByFilter(t.Context(), "USER", "reveille").Err(); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, soon, "it says why it is not ready", func() error { return get(e.rev.Admin+"/readyz", 503, "WRONGPASS") })
	tail := e.streams.Append(path, `{"while":"locked out"}`)
	allow("first")
	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Admin+"/readyz", 200, "") })
	f.idle(path, tail)
	if n := len(f.wakes(path)); n < 3 || at == tail {
		t.Errorf("%d wakes, want one for the event while it was locked out", n)
	}
}

func TestRedisThatIsAwayForTwoSeconds(t *testing.T) {
	t.Parallel()
	redis := durableRedis(t)
	e := with(t, redis, map[string]string{"REVEILLE_LIVENESS_TIMEOUT": "1m"})
	root := "/" + name(t)
	f := e.follow(root + "/idle")
	at := f.wakesOnAppend(root+"/idle", e.gateway.Create(root+"/idle"))
	g := e.followUnanswered(root + "/live")
	tail := e.gateway.Create(root + "/live")
	live := g.wake(root+"/live", 1)
	harness.Eventually(t, soon, "its acceptance is stored: otherwise the wake is made again, after a restart as another", func() error {
		c, err := g.consumer(root + "/live")
		if err == nil && c.State != fsm.Live {
			err = fmt.Errorf("it is %s", c.State)
		}
		return err
	})
	n := len(f.wakes(root + "/idle"))

	redis.Kill()
	away := time.Now()
	for what, res := range map[string]harness.Response{
		"a subscription": e.gateway.PutSubscription(root+"/*", "meanwhile", fmt.Sprintf(`{"webhook":%q}`, f.worker.URL)),
		"a callback":     e.gateway.Callback(live, live.Claim(false)).Response,
		"the operator":   e.operator(http.MethodPost, root+"/named"),
	} {
		if res.Status != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered %d %s with Retry-After %q, want 503 and a time", what, res.Status, res.Body, res.Header.Get("Retry-After"))
		}
	}
	if took := time.Since(away); took > soon {
		t.Errorf("it took %s to answer that Redis is away", took)
	}
	if err := errors.Join(get(e.rev.Admin+"/healthz", 200, ""), get(e.rev.Admin+"/readyz", 503, "")); err != nil {
		t.Error(err)
	}
	e.streams.Append(root+"/idle", `{"straight":true}`)
	// The stream server still has its writes, whatever Reveille can remember of them.
	e.gateway.Append(root+"/idle", `{"through":"the gateway"}`)
	harness.Never(t, max(0, 2*time.Second-time.Since(away)), "it ends", func() error {
		select {
		case <-e.rev.Done():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	redis.Restart()

	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Admin+"/readyz", 200, "ready") })
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
}

func TestScriptFlushChangesNothing(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": "60s"}})
	path := "/" + name(t) + "/a"
	f := e.follow(path)
	at := f.wakesOnAppend(path, e.gateway.Create(path))
	flush := func() {
		for _, server := range e.redis.servers {
			if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil {
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
	if a := e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: tail})); a.Status != http.StatusOK {
		t.Errorf("callback after SCRIPT FLUSH: %d %s", a.Status, a.Body)
	}
	f.idle(path, tail)
}

func TestSIGTERM(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": "20s"}})
	root := "/" + name(t)
	f := e.followUnanswered(root + "/*")
	release := make(chan struct{})
	f.worker.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"done":true}`))
	})
	at := e.gateway.Create(root + "/a")
	w := f.wake(root+"/a", 1)

	began := time.Now()
	e.rev.Signal(syscall.SIGTERM)
	harness.Eventually(t, soon, "it says that it is not ready any more", func() error { return get(e.rev.Admin+"/readyz", 503, "stopping") })
	t.Run("while it stops, workers can still call back", func(t *testing.T) {
		if a := e.gateway.Callback(w, w.Claim(false)); a.Status != http.StatusOK {
			t.Errorf("callback: %d %s", a.Status, a.Body)
		}
	})
	t.Run("the delivery in flight is not cut", func(t *testing.T) {
		harness.Never(t, quiet, "it ends with a delivery in flight", func() error {
			select {
			case <-e.rev.Done():
				return nil
			default:
				return errors.New("it runs")
			}
		})
	})
	close(release)
	t.Run("it ends with status 0 within 30 s", func(t *testing.T) {
		select {
		case <-e.rev.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("it runs")
		}
		if err := e.rev.Err(); err != nil {
			t.Errorf("it ended with %v after %s", err, time.Since(began))
		}
	})
	t.Run("the result of the delivery was kept", func(t *testing.T) { f.idle(root+"/a", at) })
	t.Run("nothing is lost when it is started again", func(t *testing.T) {
		e.streams.Append(root+"/a", `{"while":"down"}`)
		e.rev.Start()
		next := f.wake(root+"/a", 2)
		if next.Epoch != w.Epoch+1 || next.Offset(root+"/a") != at {
			t.Errorf("woken for epoch %d at %s, want %d at %s", next.Epoch, next.Offset(root+"/a"), w.Epoch+1, at)
		}
		f.wakesOnAppend(root+"/a", e.streams.Tail(root+"/a"))
		if n := len(f.wakes(root + "/a")); n != 3 {
			t.Errorf("%d wakes, want 3", n)
		}
	})
}

func TestSIGTERMEndsADeliveryThatHasNoEnd(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": "2s"}})
	path := "/" + name(t) + "/a"
	f := e.followUnanswered(path)
	f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
	e.gateway.Create(path)
	w := f.wake(path, 1)
	// A read through the gateway that waits for events has no end of its own either.
	go func() { _, _ = e.gateway.Try(t.Context(), http.MethodGet, path+"?offset=now&live=sse", "") }()
	began := time.Now()
	if err := e.rev.Stop(); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("it ended with %v after %s", err, time.Since(began))
	}
	f.worker.AnswerDone()
	n := len(f.wakes(path))
	e.rev.Start()
	if again := f.wake(path, n+1); again.WakeID != w.WakeID || again.Epoch != w.Epoch {
		t.Errorf("started again it delivers %s, want %s", again, w)
	}
	f.wakesOnAppend(path, e.streams.Tail(path))
}

func TestKillInTheMiddleOfADelivery(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	path := "/" + name(t) + "/a"
	f := e.followUnanswered(path)
	f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
	e.gateway.Create(path)
	w := f.wake(path, 1)
	e.rev.Kill()
	e.streams.Append(path, `{"while":"dead"}`)
	f.worker.AnswerDone()
	n := len(f.wakes(path))
	e.rev.Start()
	again := f.wake(path, n+1)
	if again.WakeID != w.WakeID || again.Epoch != w.Epoch {
		t.Errorf("delivered again as %s, want %s", again, w)
	}
	if again.Offset(path) != w.Offset(path) {
		t.Errorf("delivered again at %s, want %s", again.Offset(path), w.Offset(path))
	}
	at := e.streams.Tail(path)
	f.idle(path, at)
	f.wakesOnAppend(path, at)
}

func TestTwoReplicasOnOneRedis(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	second := harness.StartReveille(t, e.settings(nil))
	other := harness.NewClient(t, second.URL)
	root := "/" + name(t)

	t.Run("a subscription made at one is acted on by the other within 5 s", func(t *testing.T) {
		f := e.follow(root + "/one/*")
		began := time.Now()
		other.Create(root + "/one/a")
		if took := f.wake(root+"/one/a", 1).At.Sub(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if _, found := other.Subscription(f.sub); !found {
			t.Error("the other does not show it")
		}
	})

	t.Run("a subscription deleted at one is acted on by the other within 5 s", func(t *testing.T) {
		f := e.follow(root + "/two/*")
		other.Create(root + "/two/a")
		w := f.wake(root+"/two/a", 1)
		e.gateway.DeleteSubscription(root+"/two/*", f.sub)
		if a := other.RawCallback(second.URL+"/callback/"+w.ConsumerID, w.Token, fmt.Sprintf(`{"epoch":%d}`, w.Epoch)); a.Status != http.StatusGone {
			t.Errorf("callback at the other: %d %s, want 410", a.Status, a.Body)
		}
		harness.Eventually(t, 5*time.Second, "the other does not show it", harness.True(func() bool {
			_, found := other.Subscription(f.sub)
			return !found
		}, "it does"))
	})

	t.Run("a wake of one can be answered at the other", func(t *testing.T) {
		f := e.followUnanswered(root + "/three/*")
		tail := e.gateway.Create(root + "/three/a")
		w := f.wake(root+"/three/a", 1)
		done := fmt.Sprintf(`{"epoch":%d,"wake_id":%q,"acks":[{"path":%q,"offset":%q}],"done":true}`, w.Epoch, w.WakeID, root+"/three/a", tail)
		for n, origin := range []string{second.URL, e.rev.URL, second.URL} {
			if a := other.RawCallback(origin+"/callback/"+w.ConsumerID, w.Token, done); a.Status != http.StatusOK {
				t.Errorf("callback %d: %d %s", n, a.Status, a.Body)
			}
		}
		f.idle(root+"/three/a", tail)
		f.wakesOnAppendUnanswered(root + "/three/a")
	})

	t.Run("events through both and behind their backs: none is lost, and epochs strictly increase", func(t *testing.T) {
		f := e.follow(root + "/four/*")
		paths := []string{root + "/four/a", root + "/four/b", root + "/four/c"}
		for n, path := range paths {
			[]*harness.Client{e.gateway, other}[n%2].Create(path)
		}
		for n := range 30 {
			for _, path := range paths {
				[]*harness.Client{e.gateway, other, e.streams}[n%3].Append(path, fmt.Sprintf(`{"n":%d}`, n))
			}
		}
		for _, path := range paths {
			f.idle(path, e.streams.Tail(path))
			assertEpochs(t, f, path)
		}
	})

	t.Run("one is killed: the other goes on, with the wake that was in flight too", func(t *testing.T) {
		f := e.followUnanswered(root + "/five/*")
		f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
		path := root + "/five/a"
		other.Create(path)
		w := f.wake(path, 1)
		second.Kill()
		f.worker.AnswerDone()
		e.streams.Append(path, `{"while":"one is dead"}`)
		harness.Eventually(t, soon, "the consumer is idle at the tail", func() error {
			c, err := f.consumer(path)
			if err == nil && (c.State != fsm.Idle || string(c.Links[path].Acked) != e.streams.Tail(path)) {
				err = fmt.Errorf("it is %s with %+v", c.State, c.Links)
			}
			return err
		})
		if again := f.wakes(path)[1]; again.WakeID != w.WakeID || again.Epoch != w.Epoch {
			t.Errorf("delivered again as %s, want %s", again, w)
		}
		f.wakesOnAppend(path, e.streams.Tail(path))
		assertEpochs(t, f, path)
	})
}

// assertEpochs fails the test unless each new epoch is higher than the ones before and has a wake ID of its own.
func assertEpochs(t *testing.T, f *following, path string) {
	t.Helper()
	var last harness.Wake
	ids := map[string]int64{}
	for _, w := range f.wakes(path) {
		if epoch, used := ids[w.WakeID]; used && epoch != w.Epoch {
			t.Errorf("wake ID %s was used for the epochs %d and %d", w.WakeID, epoch, w.Epoch)
		}
		if w.Epoch < last.Epoch || w.Epoch == last.Epoch && w.WakeID != last.WakeID {
			t.Errorf("%s came after %s", w, last)
		}
		ids[w.WakeID], last = w.Epoch, w
	}
}

func TestWithoutTheGateway(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_GATEWAY": "false", "REVEILLE_LIVENESS_TIMEOUT": "60s"}})
	path := "/" + name(t) + "/a"

	t.Run("requests for streams are answered 404 and reach no stream", func(t *testing.T) {
		for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodGet, http.MethodHead, http.MethodDelete} {
			if res := e.gateway.Do(method, path, ""); res.Status != http.StatusNotFound {
				t.Errorf("%s: %d, want 404", method, res.Status)
			}
		}
		if tail := e.streams.Tail(path); tail != "" {
			t.Errorf("the stream was made, its tail is %s", tail)
		}
	})

	t.Run("subscriptions, wakes and callbacks work", func(t *testing.T) {
		f := e.followUnanswered(path)
		at := e.streams.Create(path)
		w := f.wake(path, 1)
		f.worker.AnswerDone()
		if a := e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: at})); a.Status != http.StatusOK {
			t.Errorf("callback: %d %s", a.Status, a.Body)
		}
		f.wakesOnAppend(path, at)
		if _, found := e.gateway.Subscription(f.sub); !found {
			t.Error("the subscription is not shown")
		}
		e.gateway.DeleteSubscription(path, f.sub)
		if a := e.gateway.Callback(w, w.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback after the subscription was deleted: %d, want 410", a.Status)
		}
	})
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	const header = "a-secret-of-upstream"
	e := start(t, options{settings: map[string]string{"REVEILLE_UPSTREAM_HEADERS": "Authorization=" + header}})
	path := "/" + name(t) + "/a"
	f := &following{env: e, sub: "quiet", worker: harness.NewWorker(t), store: storeOf(e.redis)}
	secret := e.gateway.SubscribeURL(path, f.sub, f.worker.URL+"/hook?key=webhook-key").Secret
	f.worker.AnswerStatus(http.StatusInternalServerError)
	e.gateway.Create(path)
	w := f.wake(path, 2)
	e.gateway.RawCallback(w.Callback, w.Token+"x", `{"epoch":1}`)
	f.worker.AnswerDone()
	f.idle(path, e.streams.Tail(path))
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	log := e.rev.Log()
	if !strings.Contains(log, "quiet") {
		t.Errorf("the log, at debug, does not name the subscription:\n%s", log)
	}
	for what, text := range map[string]string{
		"the token key": harness.TokenKey, "a webhook's secret": secret, "a callback's token": w.Token, "a header for upstream": header,
		"the query of a webhook": "webhook-key",
	} {
		if strings.Contains(log, text) {
			t.Errorf("the log holds %s", what)
		}
	}
}
