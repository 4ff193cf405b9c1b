package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// pushed is a subscription whose events are pushed, and who gets them. Its stream has an event from before it.
type pushed struct {
	*fixture
	receiver *harness.Receiver
}

// pushes subscribes a receiver to the folder of a fixture of its own. fields are the settings beside mode and webhook.
func (e *env) pushes(t *testing.T, fields map[string]any) *pushed {
	t.Helper()
	p := &pushed{fixture: e.empty(t), receiver: harness.NewReceiver(t)}
	p.gateway.Create(p.path)
	p.gateway.Append(p.path, `{"before":"the subscription"}`)
	body := map[string]any{"mode": "push", "webhook": p.receiver.URL}
	for name, value := range fields {
		body[name] = value
	}
	a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID, jsonOf(t, body))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	a.Decode(t, &p.sub)
	return p
}

// add appends events that are told apart by their numbers, at once, and returns them.
func (p *pushed) add(path string, from, to int) (events []string) {
	p.t.Helper()
	for n := from; n < to; n++ {
		events = append(events, fmt.Sprintf(`{"n":%d,"text":"a \"quoted\" ]}"}`, n))
	}
	p.gateway.Append(path, "["+strings.Join(events, ",")+"]")
	return events
}

// letters holds what the dead letters of the subscription point to, by their reasons, as an operator sees it, and that
// they can be discarded.
func (p *pushed) letters(want map[string]string) {
	p.t.Helper()
	ask := func(args ...string) string {
		status, out, errs := p.rev.Ask("", append([]string{"dead-letters", "--subscription", p.sub.ID}, args...)...)
		if status != 0 {
			p.t.Fatalf("reveille dead-letters: %s", errs)
		}
		return out
	}
	var body struct {
		Letters []struct {
			ID, Stream, From, Reason string
			Skip, Events, Attempts   int
			StatusCode               int `json:"status_code"`
		} `json:"dead_letters"`
	}
	if err := json.Unmarshal([]byte(ask("--output", "json")), &body); err != nil {
		p.t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range body.Letters {
		var events []json.RawMessage
		p.gateway.Do(http.MethodGet, l.Stream+"?offset="+url.QueryEscape(l.From), "").Decode(p.t, &events)
		got[l.Reason] = fmt.Sprintf("%s %d attempts", events[l.Skip], l.Attempts)
		if l.Stream != p.path || l.Events != 1 || l.Reason != fmt.Sprint("status ", l.StatusCode) {
			p.t.Errorf("a letter is %+v", l)
		}
	}
	if !maps.Equal(got, want) {
		p.t.Errorf("the dead letters point to %q, want %q", got, want)
	}
	if out := ask("discard"); out != fmt.Sprintf("%d discarded\n", len(want)) {
		p.t.Errorf("discard prints %q", out)
	}
	if n := strings.Count(ask(), "\n"); n != 1 {
		p.t.Errorf("%d lines are left", n-1)
	}
}

// want waits until the receiver has taken the events of a stream. They must have come in their order, each once and
// under an id of its own. It returns the ids.
func (p *pushed) want(path string, events []string) []string {
	p.t.Helper()
	ids, got := p.receiver.Await(path, len(events))
	if !slices.Equal(got, events) {
		p.t.Errorf("%s: the receiver took %d events, want %d: %.500q", path, len(got), len(events), got)
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != len(ids) {
		p.t.Errorf("%s: %d events have %d ids", path, len(ids), n)
	}
	return ids
}

func TestPush(t *testing.T) {
	t.Parallel()
	e := shared(t)
	soonAgain := map[string]any{"schedule": []string{"1s", "1s"}}

	t.Run("each event comes by itself, in order and signed, from the subscription on", func(t *testing.T) {
		p := e.pushes(t, nil)
		events := append(p.add(p.path, 0, 7), p.add(p.path, 7, 9)...)
		p.want(p.path, events)
		for _, push := range p.receiver.Pushes() {
			if err := harness.VerifyStandard(p.sub.Secret, push.Header, push.Body, push.At); err != nil {
				t.Errorf("push %s: %v", push.ID, err)
			}
			if kind := push.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("push %s has the content type %q", push.ID, kind)
			}
		}
	})

	t.Run("a batch comes as an array, and another stream has ids of its own", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"batch": 100, "headers": map[string]string{"X-Team": "blue"}})
		ids := p.want(p.path, p.add(p.path, 0, 1234))
		other := p.folder + "/other"
		p.gateway.Create(other)
		for _, id := range p.want(other, p.add(other, 0, 3)) {
			if slices.Contains(ids, id) {
				t.Errorf("both streams have an event %s", id)
			}
		}
		for _, push := range p.receiver.Pushes() {
			if !bytes.HasPrefix(push.Body, []byte("[")) || push.Header.Get("X-Team") != "blue" {
				t.Errorf("push %s is %.40s…, with %v", push.ID, push.Body, push.Header)
			}
		}
		if n := len(p.receiver.Pushes()); n > 1234/2 {
			t.Errorf("it took %d requests", n)
		}
	})

	t.Run("what fails is sent again as it was, and what follows waits for it", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"retry": soonAgain, "batch": 10})
		came := make(chan struct{})
		p.receiver.Answer(func(n int, _ harness.Push) int {
			if n == 1 {
				close(came)
			}
			if n <= 2 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		events := p.add(p.path, 0, 3)
		<-came
		events = append(events, p.add(p.path, 3, 5)...)
		p.want(p.path, events)
		pushes := p.receiver.Pushes()
		for _, again := range pushes[1:3] {
			if again.ID != pushes[0].ID || !bytes.Equal(again.Body, pushes[0].Body) {
				t.Errorf("the retry is %s %s, the first was %s %s", again.ID, again.Body, pushes[0].ID, pushes[0].Body)
			}
		}
	})

	t.Run("what the receiver refuses, and what fails for the last time, stops nothing", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"retry": soonAgain})
		p.receiver.Answer(func(_ int, push harness.Push) int {
			switch {
			case bytes.Contains(push.Body, []byte(`"n":0`)):
				return http.StatusUnprocessableEntity
			case bytes.Contains(push.Body, []byte(`"n":2`)):
				return http.StatusInternalServerError
			}
			return http.StatusOK
		})
		events := p.add(p.path, 0, 4)
		p.want(p.path, []string{events[1], events[3]})
		attempts := `reveille_delivery_attempts_total{outcome="dead",status=%q,subscription=%q}`
		e.awaitMetrics(t, map[string]float64{
			fmt.Sprintf(attempts, "4xx", p.sub.ID): 1, fmt.Sprintf(attempts, "5xx", p.sub.ID): 1,
		})
		tries := map[int]int{}
		for _, push := range p.receiver.Pushes() {
			tries[push.Status]++
		}
		if tries[http.StatusUnprocessableEntity] != 1 || tries[http.StatusInternalServerError] != 3 {
			t.Errorf("the tries, by their answers, were %v", tries)
		}
		p.letters(map[string]string{
			"status 422": events[0] + " 1 attempts", "status 500": events[2] + " 3 attempts",
		})
		harness.Eventually(t, soon, "both are logged", func() error {
			for _, reason := range []string{"status 422", "status 500"} {
				if !slices.ContainsFunc(strings.Split(p.rev.Log(), "\n"), func(line string) bool {
					return strings.Contains(line, "events are dead") && strings.Contains(line, p.sub.ID) &&
						strings.Contains(line, reason) && strings.Contains(line, p.path)
				}) {
					return fmt.Errorf("no line says %s", reason)
				}
			}
			return nil
		})
	})

	t.Run("bytes come as they are", func(t *testing.T) {
		p := e.pushes(t, nil)
		path := p.folder + "/bytes"
		p.gateway.Do(http.MethodPut, path, "", "Content-Type", "application/x-thing")
		p.gateway.Do(http.MethodPost, path, "one\x00\xff", "Content-Type", "application/x-thing")
		harness.Eventually(t, soon, "they come", func() error {
			if _, got := p.receiver.Taken(path); strings.Join(got, "") != "one\x00\xff" {
				return fmt.Errorf("%q came", got)
			}
			return nil
		})
		for _, push := range p.receiver.Pushes() {
			if kind := push.Header.Get("Content-Type"); kind != "application/x-thing" {
				t.Errorf("they have the content type %q", kind)
			}
		}
	})

	t.Run("an event that is too large is passed over", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.gateway.Append(p.path, `{"large":"`+strings.Repeat("x", 1<<20)+`"}`)
		p.want(p.path, p.add(p.path, 0, 2))
	})

	t.Run("a stream that is made anew is pushed from its start, under other ids", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.gateway.Create(p.folder + "/anew")
		first := p.add(p.folder+"/anew", 0, 2)
		p.want(p.folder+"/anew", first)
		p.gateway.DeleteStream(p.folder + "/anew")
		p.gateway.Create(p.folder + "/anew")
		p.want(p.folder+"/anew", append(first, p.add(p.folder+"/anew", 0, 2)...))
	})

	t.Run("a receiver that answers 410 gets nothing until the subscription is resumed", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.receiver.Answer(func(int, harness.Push) int { return http.StatusGone })
		events := p.add(p.path, 0, 2)
		p.await("left alone", func(c fsm.Consumer) bool { return c.Retired })
		p.receiver.Answer(func(int, harness.Push) int { return http.StatusOK })
		a := p.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+p.sub.ID+"/resume", "")
		if a.Status != http.StatusOK {
			t.Fatalf("resume: %d %s", a.Status, a.Body)
		}
		p.want(p.path, events)
	})
}

// The code for receivers in SIGNATURES.md takes what is pushed with the signature hmac, and nothing else.
func TestThePageOfSignaturesVerifiesAPush(t *testing.T) {
	t.Parallel()
	p := shared(t).pushes(t, map[string]any{"signature": "hmac"})
	p.want(p.path, p.add(p.path, 0, 1))
	push := p.receiver.Pushes()[0]
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "dispatcher/format/SIGNATURES.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("```js\n([^`]*export function verify\\([\\s\\S]*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no code for receivers")
	}
	file := filepath.Join(t.TempDir(), "verify.mjs")
	ask := `
const [header, body, secret] = process.argv.slice(2);
process.stdout.write(String(verify({ "webhook-signature": header }, Buffer.from(body), secret)));
`
	if err := os.WriteFile(file, slices.Concat(found[1], []byte(ask)), 0o600); err != nil {
		t.Fatal(err)
	}
	signature := push.Header.Get("Webhook-Signature")
	for _, c := range []struct {
		name, header, body, secret string
		right                      bool
	}{
		{"what was pushed", signature, string(push.Body), p.sub.Secret, true},
		{"another body", signature, `{"n":1}`, p.sub.Secret, false},
		{"another secret", signature, string(push.Body), "whsec_x", false},
		{"no signature", "", string(push.Body), p.sub.Secret, false},
		{
			"an old one", harness.Sign(p.sub.Secret, time.Now().Add(-time.Hour), push.Body), string(push.Body),
			p.sub.Secret, false,
		},
	} {
		out, err := exec.CommandContext(t.Context(), "node", file, c.header, c.body, c.secret).CombinedOutput()
		if err != nil || string(out) != strconv.FormatBool(c.right) {
			t.Errorf("%s: verify says %s, %v", c.name, out, err)
		}
	}
}

// A replica that dies in the middle of a delivery leaves it to the deadline: it comes again, as it was.
func TestAPushOutlivesItsReplica(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	p := e.pushes(t, map[string]any{"timeout": "5s", "batch": 2})
	got := make(chan struct{})
	release := make(chan struct{})
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n == 2 {
			close(got)
			<-release
		}
		return http.StatusOK
	})
	events := p.add(p.path, 0, 6)
	<-got
	e.rev.Kill()
	close(release)
	e.rev.Start()
	harness.Eventually(t, harness.Wait, "all have come", func() error {
		_, taken := p.receiver.Taken(p.path)
		for _, event := range events {
			if !slices.Contains(taken, event) {
				return fmt.Errorf("%s has not", event)
			}
		}
		return nil
	})
	events = slices.Insert(events, 4, events[2:4]...) // those of which nobody knows whether they were taken
	if _, taken := p.receiver.Taken(p.path); !slices.Equal(taken, events) {
		t.Errorf("they came as %q", taken)
	}
}
