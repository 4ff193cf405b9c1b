package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// secretPatterns match secrets that have a form of their own. A line without any of the hints has none, and the hints
// are much quicker to check.
var secretPatterns = []struct {
	what    string
	hints   []string
	pattern *regexp.Regexp
}{
	{"a token", []string{"eyJ"}, regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}`)},
	{"a webhook's secret", []string{"whsec_"}, regexp.MustCompile(`whsec_[\w+/-]{16,}`)},
	{"a user's URL", []string{"://"}, regexp.MustCompile(`://[^/\s"@\[]*:[^/\s"@]+@`)},
	{"an Authorization", []string{"earer ", "asic "}, regexp.MustCompile(`\b([Bb]earer|[Bb]asic) [\w.~+/=-]{12,}`)},
	{
		"a webhook's signature",
		[]string{"sha256=", "v1,"},
		regexp.MustCompile(`sha256=[0-9a-f]{64}|v1,[A-Za-z0-9+/]{43}=`),
	},
	{
		"a setting with its key",
		[]string{"_TOKEN_KEY=", "_REDIS_URL=", "_REDIS_PASSWORD=", "_UPSTREAM_HEADERS=", "ADMIN_TOKEN=", "READ_TOKEN="},
		regexp.MustCompile(`(TOKEN_KEY|REDIS_URL|REDIS_PASSWORD|UPSTREAM_HEADERS|ADMIN_TOKEN|READ_TOKEN)=[^\s"(\\]`),
	},
}

// leastSecret is the least length, in bytes, of a text that is searched for as it stands: a test's password may be a
// common word.
const leastSecret = 8

// Secrets finds secrets in what a Reveille writes. It is an io.Writer that never fails, safe for concurrent use.
type Secrets struct {
	known map[string]string // text -> what it is
	// events is true for what may show events.
	events bool

	mu    sync.Mutex
	line  []byte // the last one, which has not ended
	found []string
}

// maxFound bounds how many secrets are reported, maxLine a line in bytes.
const maxFound, maxLine = 5, 1 << 20

// NewSecrets returns Secrets that know the secrets in a program's settings, and all secrets with a form of their own.
func NewSecrets(settings map[string]string) *Secrets {
	s := &Secrets{known: map[string]string{}}
	for key := range strings.SplitSeq(settings["REVEILLE_TOKEN_KEY"], ",") {
		s.learn("a token key", key)
	}
	for pair := range strings.SplitSeq(settings["REVEILLE_UPSTREAM_HEADERS"], ",") {
		_, value, _ := strings.Cut(pair, "=")
		s.learn("a header for upstream", strings.TrimSpace(value))
	}
	s.learn("a token of the operator port", settings["REVEILLE_ADMIN_TOKEN"])
	s.learn("a token of the operator port", settings["REVEILLE_READ_TOKEN"])
	s.learn("a password of Redis", settings["REVEILLE_REDIS_PASSWORD"])
	if before, _, found := strings.Cut(settings["REVEILLE_REDIS_URL"], "@"); found {
		_, password, _ := strings.Cut(before[strings.Index(before, "://")+len("://"):], ":")
		s.learn("a password of Redis", password)
	}
	return s
}

// SearchFor returns Secrets for something that a Reveille has sent elsewhere, with the token key of tests. The test
// fails at its end if they found a secret.
func SearchFor(t testing.TB, sent string) *Secrets {
	t.Helper()
	s := NewSecrets(map[string]string{"REVEILLE_TOKEN_KEY": TokenKey})
	t.Cleanup(func() {
		for _, line := range s.Found() {
			t.Errorf("%s has a secret, %q", sent, line)
		}
	})
	return s
}

func (s *Secrets) learn(what, text string) {
	if len(text) >= leastSecret {
		s.known[text] = what
	}
}

// Write implements io.Writer.
func (s *Secrets) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, p...)
	for {
		i := bytes.IndexByte(s.line, '\n')
		if i < 0 && len(s.line) < maxLine {
			return len(p), nil
		}
		if i < 0 {
			i = len(s.line) - 1
		}
		s.look(string(s.line[:i+1]))
		s.line = s.line[i+1:]
	}
}

func (s *Secrets) look(line string) {
	report := func(what string) {
		if len(s.found) < maxFound {
			s.found = append(s.found, fmt.Sprintf("%s: %s", what, strings.TrimSpace(line)))
		}
	}
	for _, p := range secretPatterns {
		if slices.ContainsFunc(p.hints, func(hint string) bool { return strings.Contains(line, hint) }) &&
			p.pattern.MatchString(line) {
			report(p.what)
		}
	}
	for text, what := range s.known {
		if strings.Contains(line, text) {
			report(what)
		}
	}
	for _, canary := range canaries.all() {
		if (canary.what != anEvent || !s.events) && strings.Contains(line, canary.text) {
			report(canary.what)
		}
	}
}

// Found returns the lines with secrets so far, each with what is in it.
func (s *Secrets) Found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.line) > 0 {
		s.look(string(s.line))
		s.line = nil
	}
	return slices.Clone(s.found)
}

// canaries are texts of this process's tests that no Reveille may show. They are the queries of webhooks, which may
// hold keys, the headers and credentials of subscriptions, and events.
var canaries texts

// maxCanaries bounds the canaries of each kind: each line is searched for all of them.
const maxCanaries = 100

type canary struct{ what, text string }

const anEvent = "an event"

type texts struct {
	mu   sync.RWMutex
	list []canary
}

func (t *texts) add(what, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.list {
		if c.text == text {
			return
		}
		if c.what == what {
			n++
		}
	}
	if len(text) >= leastSecret && n < maxCanaries {
		t.list = append(slices.Clip(t.list), canary{what, text})
	}
}

func (t *texts) all() []canary {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list
}

// learn adds the canaries in a request to a Reveille.
func (t *texts) learn(body string) {
	if !slices.ContainsFunc([]string{`"webhook"`, `"target_url"`, `"headers"`, `"authorization"`},
		func(field string) bool { return strings.Contains(body, field) }) {
		return
	}
	var asked struct {
		Webhook       string            `json:"webhook"`
		Target        string            `json:"target_url"`
		Payload       json.RawMessage   `json:"payload"`
		Headers       map[string]string `json:"headers"`
		Authorization any               `json:"authorization"`
	}
	if json.Unmarshal([]byte(body), &asked) != nil {
		return
	}
	for _, webhook := range []string{asked.Webhook, asked.Target} {
		if _, query, found := strings.Cut(webhook, "?"); found {
			t.add("the query of a webhook", query)
		}
	}
	if len(asked.Payload) >= leastEvent {
		t.add(anEvent, string(asked.Payload))
	}
	for _, value := range asked.Headers {
		t.add("a header of a subscription", value)
	}
	switch by := asked.Authorization.(type) {
	case string:
		_, credentials, _ := strings.Cut(by, " ")
		t.add("an authorization of a subscription", credentials)
	case map[string]any:
		token, _ := by["token"].(string)
		t.add("an authorization of a subscription", token)
		t.add("an authorization of a subscription", strings.ReplaceAll(url.QueryEscape(token), "+", "%20"))
	}
}
