package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestOperatorsCommandLine has consumers in every state and looks at them with the program itself.
func TestOperatorsCommandLine(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	root := "/" + name(t)
	worker := harness.NewWorker(t)
	worker.Answer(func(w http.ResponseWriter, _ *http.Request, wake harness.Wake) {
		switch strings.TrimPrefix(wake.PrimaryStream, root) {
		case "/desk/live":
		case "/desk/failing", "/crew/17":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/shut/retired":
			w.WriteHeader(http.StatusGone)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"done":true}`)
		}
	})
	secret := e.gateway.SubscribeURL(root+"/desk/*", "desk", worker.URL+"/hook?key=key-of-the-desk").Secret
	worker.Trust("desk", secret)
	e.gateway.Subscribe(root+"/shut/*", "shut", worker)
	e.gateway.Subscribe(root+"/crew/*", "crew", worker)
	f := e.fixture(t, "desk", worker)
	tails := map[string]string{}
	for _, path := range []string{"/desk/idle", "/desk/live", "/desk/failing", "/desk/hidden", "/shut/retired"} {
		tails[path] = e.gateway.Create(root + path)
	}
	for i := range 40 { // in most of the partitions
		e.gateway.Create(fmt.Sprint(root, "/crew/", i))
	}
	f.awaitIdle(root+"/desk/hidden", tails["/desk/hidden"])
	e.streams.DeleteStream(root + "/desk/hidden")

	call := func(stdin string, args ...string) (status int, stdout, stderr string) {
		t.Helper()
		return e.rev.Ask(stdin, args...)
	}
	// must returns what a command that goes well prints.
	must := func(args ...string) string {
		t.Helper()
		status, out, stderr := call("", args...)
		if status != 0 || stderr != "" {
			t.Errorf("reveille %s: exit status %d, %s", strings.Join(args, " "), status, stderr)
		}
		return out
	}
	// row is what a table says of a stream or a subscription, with single spaces.
	row := func(table, of string) string {
		for line := range strings.Lines(table) {
			if fields := strings.Fields(line); strings.Contains(line, of) && len(fields) > 0 {
				return strings.Join(fields, " ")
			}
		}
		return ""
	}

	for path, want := range map[string]string{
		"/desk/idle": "idle 1", "/desk/live": "live 1 in ", "/desk/failing": "waking, failing 1",
		"/desk/hidden":  "idle, hidden 1 in ",
		"/shut/retired": "waking, retired 1 1 ",
	} {
		harness.Eventually(t, soon, path+" is listed as "+want, func() error {
			if got := row(must("consumers"), root+path); !strings.HasPrefix(got, path[1:5]+" "+root+path+" "+want) {
				return errors.New(got)
			}
			return nil
		})
	}
	table := must("consumers")
	for path, want := range map[string]string{"/desk/failing": "status 503", "/shut/retired": "status 410"} {
		if got := row(table, root+path); !strings.HasSuffix(got, want) {
			t.Errorf("%s is listed as %q, want it to end in %q", path, got, want)
		}
	}

	t.Run("subscriptions", func(t *testing.T) {
		harness.Eventually(t, soon, "one of 40 consumers is counted as failing", func() error {
			if got := row(must("subscriptions"), "crew"); !strings.Contains(got, " 40 1 1 failing ") ||
				!strings.HasSuffix(got, " ago status 503") {
				return errors.New(got)
			}
			return nil
		})
		if one := must("subscriptions", "crew"); row(one, "states") != "states 39 idle, 1 waking, 1 failing" ||
			row(one, "condition") != "condition 1 failing" || row(one, "last error") != "last error status 503" ||
			!strings.HasPrefix(row(one, "failing since"), "failing since 2") {
			t.Errorf("the one that fails is shown as\n%s", one)
		}
		table := must("subscriptions")
		host := strings.TrimPrefix(worker.URL, "http://")
		for id, want := range map[string]string{"desk": "4 2 1 failing", "shut": "1 1 retired"} {
			listed := fmt.Sprintf("%s %s/%s/* wake %s %s ", id, root, id, host, want)
			status := map[string]string{"desk": "status 503", "shut": "status 410"}[id]
			if got := row(table, id); !strings.HasPrefix(got, listed) || !strings.HasSuffix(got, " ago "+status) {
				t.Errorf("%s is listed as %q, want %q", id, got, want)
			}
		}
		if one := must("subscriptions", "desk"); row(one,
			"states") != "states 2 idle, 1 waking, 1 live, 1 failing, 1 hidden" {
			t.Errorf("one of them is shown as\n%s", one)
		}
	})

	t.Run("consumers by subscription and state, page by page", func(t *testing.T) {
		out := must("consumers", "--subscription", "desk", "--state", "failing")
		if row(out, root+"/desk/failing") == "" || strings.Count(out, "\n") != 2 {
			t.Errorf("those that fail:\n%s", out)
		}
		args, seen := []string{"consumers", "--subscription", "desk", "--limit", "1"}, map[string]bool{}
		for range 10 {
			lines := strings.Split(strings.TrimSpace(must(args...)), "\n")
			if len(lines) > 1 {
				seen[strings.Fields(lines[1])[1]] = true
			}
			_, next, more := strings.Cut(lines[len(lines)-1], "There is more: reveille ")
			if !more {
				break
			}
			args = strings.Fields(next)
		}
		if len(seen) != 4 {
			t.Errorf("page by page there are %v, want 4", seen)
		}
	})

	t.Run("one consumer", func(t *testing.T) {
		wake := f.wake(root+"/desk/live", 1)
		out := must("consumer", "desk", root+"/desk/live")
		for _, want := range []string{
			"consumer " + wake.ConsumerID, "state live", fmt.Sprint("epoch ", wake.Epoch), "wake id " + wake.WakeID,
			root + "/desk/live -1 " + tails["/desk/live"] + " yes",
		} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
		var body struct {
			LastError string `json:"last_error"`
			Attempt   int    `json:"attempt"`
			Streams   []struct{ Path, Acked, Tail string }
		}
		text := must("consumer", "--output", "json", "desk", root+"/desk/failing")
		if err := json.Unmarshal([]byte(text), &body); err != nil || body.LastError != "status 503" ||
			body.Attempt < 1 || len(body.Streams) != 1 {
			t.Errorf("--output json: %s (%v)", text, err)
		}
		status, out, stderr := call("", "consumer", "desk", root+"/desk/nothing")
		if status != 1 || out != "" || !strings.Contains(stderr, "NOT_FOUND: there is no consumer") {
			t.Errorf("one that is not there: exit status %d, %q, %q", status, out, stderr)
		}
	})

	t.Run("streams are named, listed and forgotten", func(t *testing.T) {
		named := root + "/desk/named"
		must("streams", "name", named)
		if got := row(must("streams", "--limit", "1000"), named); !strings.Contains(got, "awaited") {
			t.Errorf("it is listed as %q", got)
		}
		if got := row(must("streams", "--watched"), root+"/desk/idle"); !strings.Contains(got,
			" "+tails["/desk/idle"]+" ") {
			t.Errorf("one that is watched is listed as %q", got)
		}
		must("streams", "forget", named)
		if got := row(must("streams", "--limit", "1000"), named); got != "" {
			t.Errorf("forgotten, it is listed as %q", got)
		}
	})

	t.Run("a subscription is resumed", func(t *testing.T) {
		n := len(worker.Wakes())
		must("resume", "shut")
		harness.Eventually(t, soon, "it is delivered to", func() error {
			for _, w := range worker.Wakes()[n:] {
				if w.PrimaryStream == root+"/shut/retired" {
					return nil
				}
			}
			return errors.New("not yet")
		})
	})

	t.Run("the log level is changed while it runs", func(t *testing.T) {
		if out := must("log-level", "error") + must("log-level"); out != "error\nerror\n" {
			t.Errorf("it says %q", out)
		}
		must("log-level", "debug")
		status, _, stderr := call("", "log-level", "loud")
		if status != 1 || !strings.Contains(stderr, "INVALID_REQUEST: level must be debug, info, warn or error") {
			t.Errorf("a level that is none: exit status %d, %q", status, stderr)
		}
	})

	t.Run("direct deliveries need a setting", func(t *testing.T) {
		for _, args := range [][]string{
			{"send", worker.URL, "--type", "e", "--data", "1"}, {"events"}, {"events", "whe_1_1"}, {"events", "stats"},
		} {
			if status, out, stderr := call("", args...); status != 1 || out != "" ||
				!strings.Contains(stderr, "(direct deliveries need REVEILLE_OUTBOX on all replicas)") {
				t.Errorf("reveille %s: exit status %d, %q, %q", args[0], status, out, stderr)
			}
		}
	})

	t.Run("the signature of a wake is checked", func(t *testing.T) {
		w := f.wake(root+"/desk/live", 1)
		args := []string{
			"verify", "--secret", secret, "--signature", w.Header.Get("Webhook-Signature"), "--tolerance", "24h",
		}
		if status, out, _ := call(string(w.Body), args...); status != 0 ||
			!strings.Contains(out, "The signature is valid.") {
			t.Errorf("exit status %d, %s", status, out)
		}
		if status, out, _ := call(string(w.Body)+" ", args...); status != 1 || !strings.Contains(out, "HMAC  wrong") {
			t.Errorf("of another body: exit status %d, %s", status, out)
		}
		if status, _, stderr := call("", "verify"); status != 2 ||
			!strings.Contains(stderr, "REVEILLE_WEBHOOK_SECRET") {
			t.Errorf("without a secret: exit status %d, %s", status, stderr)
		}
	})
}
