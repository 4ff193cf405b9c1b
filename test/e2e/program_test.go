package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"reveille/test/harness"
)

// get asks one of Reveille's ports, and says what is wrong unless the answer has a status and a text in it.
func get(url string, status int, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
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

// complaint is why a start has failed: the last of its lines, all of which are JSON.
func complaint(t *testing.T, stderr string) string {
	t.Helper()
	var line struct{ Level, Error string }
	failed := 0
	for text := range strings.Lines(stderr) {
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("it wrote a line that is not JSON: %q", text)
		}
		if line.Level == "error" {
			failed++
		}
	}
	if line.Level != "error" || failed != 1 {
		t.Fatalf("%d lines of complaint, want one, at the end:\n%s", failed, stderr)
	}
	return line.Error
}

func TestTheProgramsArguments(t *testing.T) {
	t.Parallel()

	t.Run("--help lists every setting and ends well", func(t *testing.T) {
		status, out, _ := exits(t, nil, "--help")
		if status != 0 {
			t.Errorf("exit status %d", status)
		}
		for _, want := range []string{
			"UPSTREAM_URL", "UPSTREAM_HEADERS", "UPSTREAM_NAME", "REDIS_URL", "REDIS_CA_FILE", "PARTITIONS",
			"PUBLIC_URL", "TOKEN_KEY", "LISTEN_ADDR", "OPERATOR_ADDR", "GATEWAY",
			"STREAMS", "REGISTRY_STREAM", "TAIL_MODE", "TAIL_CHECK", "CLOSED_CHECK", "TAIL_MAX_LIVE", "TAIL_SWEEP_RATE",
			"STREAM_GONE_GRACE",
			"ALLOW_INSECURE_WEBHOOKS", "WEBHOOK_ALLOW_CIDRS", "WEBHOOK_PROXY_FROM_ENV",
			"WEBHOOK_CONNECTION_AGE", "WEBHOOK_TIMEOUT", "WAKING_TIMEOUT",
			"LIVENESS_TIMEOUT", "GC_AFTER", "MAX_IN_FLIGHT", "MAX_IN_FLIGHT_PER_SUBSCRIPTION", "MAX_QUEUED_WAKES",
			"MAX_STREAMS_PER_CONSUMER", "LOG_LEVEL", "PPROF",
		} {
			if !strings.Contains(out, "REVEILLE_"+want+" ") {
				t.Errorf("REVEILLE_%s is missing", want)
			}
		}
	})

	t.Run("an unknown argument ends it with status 2 and one line of text that names it", func(t *testing.T) {
		status, out, stderr := exits(t, nil, "--port=80")
		if status != 2 || out != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.HasPrefix(stderr, "reveille: ") || !strings.Contains(stderr, `"--port=80"`) {
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
	e := beside(t, options{})
	settings := func(more map[string]string) map[string]string {
		s := e.settings(map[string]string{
			"REVEILLE_TOKEN_KEY": harness.TokenKey, "REVEILLE_LISTEN_ADDR": "127.0.0.1:0",
			"REVEILLE_OPERATOR_ADDR": "127.0.0.1:0",
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
		{
			"on a Redis with another number of partitions",
			map[string]string{"REVEILLE_PARTITIONS": "32"},
			[]string{`REVEILLE_PARTITIONS="32": the database has REVEILLE_PARTITIONS=64`},
		},
		{
			"when the API port is in use",
			map[string]string{"REVEILLE_LISTEN_ADDR": strings.TrimPrefix(e.rev.URL, "http://")},
			[]string{"REVEILLE_LISTEN_ADDR", strings.TrimPrefix(e.rev.URL, "http://"), "in use"},
		},
		{
			"when the operator port is in use",
			map[string]string{"REVEILLE_OPERATOR_ADDR": strings.TrimPrefix(e.rev.Operator, "http://")},
			[]string{"REVEILLE_OPERATOR_ADDR", strings.TrimPrefix(e.rev.Operator, "http://"), "in use"},
		},
		{
			"on a Redis that belongs to another stream server",
			map[string]string{"REVEILLE_UPSTREAM_URL": "http://127.0.0.1:1/v1/stream"},
			[]string{
				`REVEILLE_UPSTREAM_URL="http://127.0.0.1:1/v1/stream": the database`,
				e.ref.StreamRoot, "redis-cli HSET",
			},
		},
		{
			"on the Redis of a replica that has none of its token keys",
			map[string]string{"REVEILLE_TOKEN_KEY": "another key of at least thirty-two bytes that nobody else has"},
			[]string{"REVEILLE_TOKEN_KEY=(hidden): the other replicas have different token keys"},
		},
		{
			"with a wrong password for Redis",
			map[string]string{"REVEILLE_REDIS_URL": e.redis.as("nobody:hunter2")},
			[]string{"REVEILLE_REDIS_URL=(hidden): Redis rejects the user or the password"},
		},
		{
			"with a wrong password for Redis in a setting of its own",
			map[string]string{"REVEILLE_REDIS_URL": e.redis.as("nobody"), "REVEILLE_REDIS_PASSWORD": "hunter2"},
			[]string{"REVEILLE_REDIS_PASSWORD=(hidden): Redis rejects the user or the password"},
		},
		{
			"with two passwords for Redis",
			map[string]string{"REVEILLE_REDIS_URL": e.redis.as("a:hunter3"), "REVEILLE_REDIS_PASSWORD": "hunter2"},
			[]string{"REVEILLE_REDIS_PASSWORD=(hidden): expected no value, because REVEILLE_REDIS_URL has a password"},
		},
		{
			"with a URL for another kind of Redis",
			map[string]string{"REVEILLE_REDIS_URL": "redis+sentinel://" + e.redis.servers[0].Addr + "/main"},
			[]string{"REVEILLE_REDIS_URL", "not a sentinel"},
		},
		{
			"with an authority for Redis that cannot be read",
			map[string]string{
				"REVEILLE_REDIS_URL":     "rediss://127.0.0.1:1",
				"REVEILLE_REDIS_CA_FILE": "/nonexistent/ca.pem",
			},
			[]string{"REVEILLE_REDIS_CA_FILE", "/nonexistent/ca.pem"},
		},
		{
			"with a Redis URL that is none",
			map[string]string{"REVEILLE_REDIS_URL": "http://user:hunter2@localhost"},
			[]string{"REVEILLE_REDIS_URL"},
		},
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
	if err := get(e.rev.Operator+"/readyz", 200, ""); err != nil {
		t.Errorf("the one that runs: %v", err)
	}
}

func TestWithoutTheGateway(t *testing.T) {
	t.Parallel()
	e := beside(t, options{settings: map[string]string{"REVEILLE_GATEWAY": "false"}})
	path := "/" + name(t) + "/a"

	t.Run("requests for streams are answered 404 and reach no stream", func(t *testing.T) {
		for _, method := range []string{
			http.MethodPut, http.MethodPost, http.MethodGet, http.MethodHead,
			http.MethodDelete,
		} {
			if res := e.gateway.Do(method, path, ""); res.Status != http.StatusNotFound {
				t.Errorf("%s: %d, want 404", method, res.Status)
			}
		}
		if tail := e.streams.Tail(path); tail != "" {
			t.Errorf("the stream was made, its tail is %s", tail)
		}
	})

	t.Run("subscriptions, wakes and callbacks work", func(t *testing.T) {
		f := e.liveSubscriber(path)
		at := e.streams.Create(path)
		w := f.wake(path, 1)
		f.worker.AnswerDone()
		a := e.gateway.Callback(w, w.Claim(true, harness.StreamOffset{Path: path, Offset: at}))
		if a.Status != http.StatusOK {
			t.Errorf("callback: %d %s", a.Status, a.Body)
		}
		f.wakesOnAppend(path, at)
		if _, found := e.gateway.Subscription(f.sub.ID); !found {
			t.Error("the subscription is not shown")
		}
		e.gateway.DeleteSubscription(path, f.sub.ID)
		if a := e.gateway.Callback(w, w.Claim(true)); a.Status != http.StatusGone {
			t.Errorf("callback after the subscription was deleted: %d, want 410", a.Status)
		}
	})
}
