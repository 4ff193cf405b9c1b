package harness

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const whole = "whsec_0123456789abcdefABCDEF-_0123456789"

var secretSettings = map[string]string{
	"REVEILLE_TOKEN_KEY":        TokenKey + ",an older key of at least thirty-two bytes",
	"REVEILLE_UPSTREAM_HEADERS": "X-Api-Key=upstream-key,Other=short",
	"REVEILLE_REDIS_URL":        "redis://reveille:password-of-redis@127.0.0.1:6379",
}

func TestSecretsAreFoundInWhatAProgramWrites(t *testing.T) {
	canaries.learn(`{"webhook":"http://127.0.0.1/hook?planted=key-in-a-query","headers":{"X-Key":"planted-header"},` +
		`"authorization":"Token planted-credentials"}`)
	canaries.learn(`{"authorization":{"query":"access_token","token":"planted token/of a query"}}`)
	canaries.learn(`{"target_url":"http://127.0.0.1/hook?planted=key-of-a-target",` +
		`"payload":{"event":"planted in a hand-over"}}`)
	canaries.add("an event", `{"event":"planted in a stream"}`)
	for _, c := range []struct{ name, line, want string }{
		{"a token key", `{"msg":"` + TokenKey + `"}`, "a token key"},
		{"an older token key", `the key is an older key of at least thirty-two bytes`, "a token key"},
		{"a webhook's secret", `{"secret":"` + whole + `"}`, "a webhook's secret"},
		{
			"the secret of a push", `{"secret":"whsec_C2FVsBQ/hrscChlQIMV+b5sSYspob7oD"}`, "a webhook's secret",
		},
		{"a callback's token", `{"token":"eyJhbGciOiJIUzI1NiIs.eyJjb25zdW1lciI6InMi.abcdefghijkl-_"}`, "a token"},
		{"an Authorization", `Authorization: Bearer abcdefghijklmnop`, "an Authorization"},
		{
			"a signature", `"t=1,sha256=0111810328deec840138711f28bf06ec7865d5978292ad6729cfbc017056ab7a"`,
			"a webhook's signature",
		},
		{
			"a signature of Standard Webhooks", `"v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="`,
			"a webhook's signature",
		},
		{"a header for upstream", `{"headers":{"X-Api-Key":["upstream-key"]}}`, "a header for upstream"},
		{"the password of Redis", `dial redis: AUTH password-of-redis`, "a password of Redis"},
		{"a URL with a user", `GET http://user:hunter2@example.com/hook`, "a user's URL"},
		{"a URL with a password only", `redis://:hunter2@127.0.0.1:6379`, "a user's URL"},
		{"the query of a webhook", `POST http://127.0.0.1/hook?planted=key-in-a-query`, "the query of a webhook"},
		{"the query of a target", `POST http://127.0.0.1/hook?planted=key-of-a-target`, "the query of a webhook"},
		{"what was handed over", `starting with "{"event":"planted in a hand-over"}"`, "an event"},
		{"a header of a subscription", `X-Key: planted-header`, "a header of a subscription"},
		{"an authorization", `got planted-credentials`, "an authorization of a subscription"},
		{"a token of a query", `got planted token/of a query`, "an authorization of a subscription"},
		{
			"a token in a query", `POST /hook?a=b&access_token=planted%20token%2Fof%20a%20query`,
			"an authorization of a subscription",
		},
		{"an event", `starting with "{"event":"planted in a stream"}"`, "an event"},
		{"a setting", `REVEILLE_REDIS_URL=redis://127.0.0.1`, "a setting with its key"},
		{"a password in a setting", `REVEILLE_REDIS_PASSWORD=short`, "a setting with its key"},
		{
			"what is no secret",
			`{"level":"info","time":"2026-01-02T03:04:05Z","msg":"webhook delivery failed","host":"127.0.0.1:80",` +
				`"wake_id":"w_05d8ac1a58638763ca95"}`, "",
		},
		{
			"what a setting should be",
			`REVEILLE_REDIS_URL=(hidden): expected redis://[user:password@]host:port[/database]`, "",
		},
		{"a short value of a setting", `short`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSecrets(secretSettings)
			// The secret comes in pieces, between other lines.
			text := "first\n" + c.line + "\nlast"
			for i := 0; i < len(text); i += 7 {
				_, _ = s.Write([]byte(text[i:min(i+7, len(text))]))
			}
			found := s.Found()
			if c.want == "" && len(found) == 0 {
				return
			}
			if len(found) != 1 || c.want == "" || !strings.HasPrefix(found[0], c.want+": ") ||
				!strings.Contains(found[0], c.line) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
	t.Run("a secret on a last line without an end", func(t *testing.T) {
		s := NewSecrets(nil)
		_, _ = s.Write([]byte("first\n" + whole))
		if found := s.Found(); len(found) != 1 {
			t.Errorf("found %q", found)
		}
	})
}

// TestASecretThatIsSentElsewhereFailsTheTest has the secret within bytes that are no text, as in a trace.
func TestASecretThatIsSentElsewhereFailsTheTest(t *testing.T) {
	canaries.add("an event", `{"event":"planted in a trace"}`)
	for text, fails := range map[string]bool{
		`{"event":"planted in a trace"}`: true, TokenKey: true, whole: true, "the name of a span": false,
	} {
		v := &verdict{TB: t}
		s := SearchFor(v, "a trace")
		_, _ = s.Write([]byte("\x0a\x92\x01\x0a" + text + "\x12\xff\n"))
		for _, end := range v.cleanups {
			end()
		}
		if failed := strings.HasPrefix(strings.Join(v.errors, ""), "a trace has a secret, "); failed != fails {
			t.Errorf("with %q in it, errors are %q", text, v.errors)
		}
	}
}

// verdict is a test that another test judges.
type verdict struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (v *verdict) Errorf(format string, args ...any) {
	v.errors = append(v.errors, fmt.Sprintf(format, args...))
}
func (v *verdict) Error(args ...any) { v.errors = append(v.errors, fmt.Sprint(args...)) }
func (v *verdict) Cleanup(f func())  { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Failed() bool      { return false }
func (*verdict) Helper()             {}

// TestASecretInTheLogFailsTheTest puts a secret into a program that stands for Reveille.
func TestASecretInTheLogFailsTheTest(t *testing.T) {
	for what, c := range map[string]struct {
		script string
		fails  bool
	}{
		"early, with more behind it than is kept": {
			`echo "$REVEILLE_TOKEN_KEY" >&2; head -c 3000000 /dev/zero | tr '\0' '.'`, true,
		},
		"in its second run": {`[ -e "$0.ran" ] && echo ` + whole + `; touch "$0.ran"`, true},
		"none":              {`echo started`, false},
	} {
		t.Run(what, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(bin, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			v := &verdict{TB: t}
			r := NewReveilleOf(v, bin, nil)
			for range 2 {
				r.Launch()
				<-r.Done()
			}
			for i := len(v.cleanups) - 1; i >= 0; i-- {
				v.cleanups[i]()
			}
			if failed := strings.Contains(strings.Join(v.errors, "\n"), "wrote a secret"); failed != c.fails {
				t.Errorf("errors %q, want one that says so: %t", v.errors, c.fails)
			}
		})
	}
}

// TestASecretOnAPageFailsTheTest puts a secret on each page in turn of a server that stands for the operator port.
func TestASecretOnAPageFailsTheTest(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(bin, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for page, fails := range map[string]bool{
		"/metrics": true, "/api/v1/dead-letters": true, "/api/v1/subscriptions/s/deliveries": true, "/none": false,
	} {
		t.Run(page, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case page:
					_, _ = io.WriteString(w, whole)
				case "/api/v1/subscriptions":
					_, _ = io.WriteString(w, `{"subscriptions":[{"subscription_id":"s"}]}`)
				}
			}))
			t.Cleanup(server.Close)
			v := &verdict{TB: t}
			r := NewReveilleOf(v, bin, nil)
			r.Operator, r.pagesWithin = server.URL, Wait
			r.Launch()
			for i := len(v.cleanups) - 1; i >= 0; i-- {
				v.cleanups[i]()
			}
			if failed := strings.Contains(strings.Join(v.errors, "\n"), "wrote a secret"); failed != fails {
				t.Errorf("errors %q, want one that says so: %t", v.errors, fails)
			}
		})
	}
}
