package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestTheFirstWakeAndPushAreSeenFromTheShell has subscriptions made and requests received by the program's own
// commands, without a worker: both come verified, the wake's events are acked, and it is done.
func TestTheFirstWakeAndPushAreSeenFromTheShell(t *testing.T) {
	t.Parallel()
	e := shared(t)
	s, port := e.fixture(t, name(t), nil), harness.FreePort(t)
	id, webhook := s.sub.ID, fmt.Sprintf("http://127.0.0.1:%d", port)
	var secrets []string
	subscribe := func(args ...string) {
		t.Helper()
		args = append([]string{"subscribe", s.folder + "/*", webhook, "--api", e.rev.URL}, args...)
		status, out, errs := e.rev.Ask("", args...)
		secret := regexp.MustCompile(`webhook secret  (whsec_\S+)`).FindStringSubmatch(out)
		if status != 0 || secret == nil {
			t.Fatalf("%q: exit status %d, %s", args, status, errs)
		}
		secrets = append(secrets, secret[1])
	}
	subscribe()
	subscribe("--push")
	t.Cleanup(func() { s.gateway.DeleteSubscription("/**", id+"-push") })

	bin, err := harness.BuildReveille(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := &harness.Output{}
	harness.KeepOnFailure(t, "listen", out.String)
	cmd := exec.Command(bin, "listen", "--port", fmt.Sprint(port))
	cmd.Env = harness.Environ(map[string]string{"REVEILLE_LISTEN_SECRET": strings.Join(secrets, ",")})
	listen, err := harness.Start("reveille listen", out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listen.Kill)
	shows := func(pattern string) {
		t.Helper()
		harness.Eventually(t, soon, "it shows "+pattern, harness.True(func() bool {
			return regexp.MustCompile("(?m)^" + pattern).MatchString(out.String())
		}, "not yet"))
	}
	shows(`Listening on ` + webhook)

	s.gateway.Create(s.path)
	tail := s.gateway.Append(s.path, `{"hello":"world"}`)
	shows(`\d\d:\d\d:\d\d  wake, subscription ` + id + `, epoch \d+, w_\w+: verified \(hmac\)
          1 event of ` + s.path + `, up to offset ` + tail + `
            \{"hello":"world"\}
          claimed, read, acked and done
          answered 204 No Content
`)
	shows(`\d\d:\d\d:\d\d  push, 1 event of ` + s.path + `, json, evt_\w+: verified \(standard-webhooks\)
            \{"hello":"world"\}
          answered 204 No Content
`)
	s.await("it is idle, and has acked the event", func(c fsm.Consumer) bool {
		return c.State == fsm.Idle && string(c.Links[s.path].Acked) == tail
	})
	for subscription, pattern := range map[string]string{id: "hmac", id + "-push": "standard-webhooks"} {
		if status, _, errs := e.rev.Ask("", "test", subscription); status != 0 {
			t.Errorf("reveille test %s: exit status %d, %s", subscription, status, errs)
		}
		shows(`\d\d:\d\d:\d\d  test, json, test_\w+: verified \(` + pattern + `\)`)
	}

	listen.Signal(os.Interrupt)
	if err := listen.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if text := out.String(); strings.Contains(text, "whsec_") || strings.Contains(text, "\x1b") {
		t.Errorf("there is a secret or a colour in what it printed")
	}
	if status, said, errs := e.rev.Ask("", "unsubscribe", id, "--api", e.rev.URL); status != 0 {
		t.Errorf("unsubscribe: exit status %d, %s%s", status, said, errs)
	}
	if res := s.gateway.Do(http.MethodGet, "/**?subscription="+id, ""); res.Status != http.StatusNotFound {
		t.Errorf("after unsubscribe it is still there: %d", res.Status)
	}
}
