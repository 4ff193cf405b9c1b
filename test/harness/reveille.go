package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TokenKey is the REVEILLE_TOKEN_KEY of every Reveille that a test starts. So several of them are replicas of one.
const TokenKey = "a key for tests of at least thirty-two bytes"

// pagesTimeout bounds the search through the pages of a Reveille, once its test is over.
const pagesTimeout = 2 * time.Second

// pagesOf is how many subscriptions are searched.
const pagesOf = 3

// Reveille is a running Reveille of a test's own.
type Reveille struct {
	*Process
	// URL is the origin of the API port, Operator the origin of the operator port.
	URL      string
	Operator string

	t       testing.TB
	bin     string
	env     []string
	secrets *Secrets
	// token is what the operator port asks for.
	token string
	// pagesWithin is pagesTimeout, but for tests of the search.
	pagesWithin time.Duration
}

// StartReveille starts Reveille and waits until it is ready. The environment variables in settings go on top of the
// ones that every test needs. These are the ports, the public URL, the token key, and leave for webhooks to this
// machine. The caller sets REVEILLE_UPSTREAM_URL and REVEILLE_REDIS_URL. The test fails if the race detector finds
// something in the process, or if the process writes a secret, even at debug level.
func StartReveille(t testing.TB, settings map[string]string) *Reveille {
	t.Helper()
	r := NewReveille(t, settings)
	r.Start()
	return r
}

// NewReveille prepares a Reveille and does not start it, for tests with their own conditions for the start.
func NewReveille(t testing.TB, settings map[string]string) *Reveille {
	t.Helper()
	return newReveille(t, BuildReveille, settings)
}

// NewPlainReveille is NewReveille with a binary that is built without the race detector, however the caller was built.
func NewPlainReveille(t testing.TB, settings map[string]string) *Reveille {
	t.Helper()
	return newReveille(t, BuildPlainReveille, settings)
}

func newReveille(t testing.TB, build func(context.Context) (string, error), settings map[string]string) *Reveille {
	t.Helper()
	bin, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return NewReveilleOf(t, bin, settings)
}

// NewReveilleOf is NewReveille for a binary that the caller has built.
func NewReveilleOf(t testing.TB, bin string, settings map[string]string) *Reveille {
	t.Helper()
	api, operator := loopback(FreePort(t)), loopback(FreePort(t))
	r := &Reveille{URL: "http://" + api, Operator: "http://" + operator, t: t, bin: bin, pagesWithin: pagesTimeout}
	env := map[string]string{
		"REVEILLE_LISTEN_ADDR":             api,
		"REVEILLE_OPERATOR_ADDR":           operator,
		"REVEILLE_PUBLIC_URL":              r.URL,
		"REVEILLE_TOKEN_KEY":               TokenKey,
		"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "true",
		"REVEILLE_LOG_LEVEL":               "debug",
	}
	maps.Copy(env, settings)
	r.env, r.secrets, r.token = Environ(env), NewSecrets(env), env["REVEILLE_ADMIN_TOKEN"]
	return r
}

// Environ returns the environment of this process, but replaces all settings of Reveille and of OpenTelemetry by the
// given ones.
func Environ(settings map[string]string) []string {
	env := slices.DeleteFunc(os.Environ(),
		func(kv string) bool { return strings.HasPrefix(kv, "REVEILLE_") || strings.HasPrefix(kv, "OTEL_") })
	for k, v := range settings {
		env = append(env, k+"="+v)
	}
	return env
}

// Start starts the process, again after a Kill or a Stop, and waits until it is ready.
func (r *Reveille) Start() {
	r.t.Helper()
	r.Launch()
	ready(r.t, r.Process, r.Ready)
}

// Launch starts the process and does not wait until it is ready.
func (r *Reveille) Launch() {
	r.t.Helper()
	var out *Output
	if r.Process == nil {
		out = testOutput(r.t, "Reveille at "+r.URL)
		out.Tee = r.secrets
		r.t.Cleanup(func() {
			r.lookAtPages()
			r.Kill()
			for _, line := range r.secrets.Found() {
				r.t.Errorf("Reveille wrote a secret, %s", line)
			}
			if strings.Contains(r.Log(), "DATA RACE") {
				// .ci/test knows a data race by these words, and does not run the test again.
				r.t.Error("WARNING: DATA RACE in Reveille, see its output")
			}
		})
	} else {
		<-r.Done()
		out = r.output
	}
	cmd := exec.Command(r.bin)
	cmd.Env = r.env
	p, err := Start("Reveille", out, cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Process = p
}

// lookAtPages looks for secrets in what the process shows, its metrics and lists, if it still runs. It waits
// pagesWithin at most.
func (r *Reveille) lookAtPages() {
	ctx, cancel := context.WithTimeout(context.Background(), r.pagesWithin)
	defer cancel()
	look := func(url string) (body []byte) {
		select {
		case <-r.Done():
			return nil
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil
		}
		req.Header.Set("Authorization", "Bearer "+r.token)
		res, err := oneShot.Do(req)
		if err != nil {
			return nil
		}
		defer func() { _ = res.Body.Close() }()
		body, _ = io.ReadAll(io.LimitReader(res.Body, maxLine))
		_, _ = r.secrets.Write(append(body, '\n'))
		return body
	}
	look(r.Operator + "/metrics")
	look(r.Operator + "/api/v1/dead-letters")
	var list struct {
		Subscriptions []struct {
			ID string `json:"subscription_id"`
		}
	}
	if json.Unmarshal(look(r.Operator+"/api/v1/subscriptions"), &list) == nil {
		for _, sub := range list.Subscriptions[:min(len(list.Subscriptions), pagesOf)] {
			look(r.Operator + "/api/v1/subscriptions/" + sub.ID + "/deliveries")
		}
	}
	if slices.Contains(r.env, "REVEILLE_OJS=true") {
		look(r.URL + "/ojs/v1/webhooks/subscriptions")
		look(r.URL + "/ojs/v1/webhooks/deliveries")
	}
}

// Ask runs an operator's command of the same program against this one. It returns the exit status and the output.
func (r *Reveille) Ask(stdin string, args ...string) (status int, stdout, stderr string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Env = Environ(map[string]string{
		"REVEILLE_OPERATOR_ADDR": r.Operator, "REVEILLE_API_ADDR": r.URL, "REVEILLE_ADMIN_TOKEN": r.token,
	})
	cmd.Stdin = strings.NewReader(stdin)
	// with the race detector, a program waits for a second at its end
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	var out, errs strings.Builder
	shown := r.secrets
	if slices.Contains(args, "--request") { // it shows events, and nothing else
		shown = &Secrets{known: shown.known, events: true}
		defer func() {
			for _, line := range shown.Found() {
				r.t.Errorf("reveille %s shows a secret, %s", strings.Join(args, " "), line)
			}
		}()
	}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, shown), io.MultiWriter(&errs, r.secrets)
	if args[0] == "rotate-secret" || args[0] == "subscribe" { // they are for showing one
		cmd.Stdout = &out
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		r.t.Fatalf("reveille %s did not end by itself: %v", strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Ready returns nil if the process says that it is ready.
func (r *Reveille) Ready(ctx context.Context) error { return CheckReady(ctx, r.Operator) }

// CheckReady asks the operator port of a Reveille whether it is ready.
func CheckReady(ctx context.Context, operator string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, operator+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := oneShot.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /readyz: %s", res.Status)
	}
	return nil
}

// oneShot is a client that leaves no connection behind and ignores the proxies of the environment.
var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
