package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi/control"
	"reveille/httpapi/ojs"
	"reveille/httpapi/web"
	"reveille/test/ports"
)

// outboxServer takes appends, and has one event.
type outboxServer struct {
	control.OutboxServer
	event fsm.OutboxEvent
}

func (s *outboxServer) Append(context.Context, string, string, []byte) (fsm.Offset, error) {
	return "1", nil
}

func (s *outboxServer) ReadBatch(
	context.Context, string, string, fsm.Offset, fsm.Offset, int, int64, func([]byte) bool,
) (fsm.Batch, error) {
	text, err := json.Marshal(s.event)
	return fsm.Batch{Events: [][]byte{text}}, err
}

// noChange are the requests that change nothing by an operator or a client, and so are not in the audit: what workers
// and endpoints answer, and events.
var noChange = []string{"POST /callback/s:%2Fa", "POST /consent/s?key=k", "POST /webhooks/deliver"}

// TestEveryChangeIsInTheAudit asks each resource that can change something to do so. Whoever adds such a resource adds
// its request here.
func TestEveryChangeIsInTheAudit(t *testing.T) {
	server := &outboxServer{}
	h := newHarness(t, func(c *Config) {
		c.OJSStreams, c.DeliveryLog, c.Outbox, c.OutboxServer = "/jobs/**", fsm.LogAll, "/outbox", server
		c.Consents = &ports.Consents{}
	})
	push := fsm.Subscription{
		ID: "p", Generation: "g-p", Pattern: "/p/*", Webhook: "https://user.example.com/hook", Mode: fsm.ModePush,
		Secret: h.Secret("whsec_p"), CreatedAt: h.Clock(),
	}.WithDefaults()
	h.Store.DB.PutSubscription(push)
	h.Up.Streams["/p/0"] = fsm.StreamInfo{Exists: true, Tail: "0009"}
	consumer := spec.NewConsumer(push, "/p/0", "0009", 0)
	consumer.Links["/p/0"] = fsm.Link{Acked: "0009", Tail: "0009"}
	h.Store.DB.PutConsumer(consumer)
	workers := h.Subscribe("w", 0)
	for _, path := range []string{"/w/0", "/w/1"} {
		h.Up.Streams[path] = h.Up.Streams["/p/0"]
		c := spec.NewConsumer(workers, path, "0009", 0)
		c.Links[path] = consumer.Links["/p/0"]
		h.Store.DB.PutConsumer(c)
	}
	addLetter := func() (id string) {
		h.Store.DB.PutLetter(fsm.DeadLetter{
			Subscription: "p", Generation: "g-p", Consumer: consumer.ID, Stream: "/p/0", From: "0008", To: "0009",
			Within: "0009", Events: 1,
		})
		rows := ports.RowsOf(h.Operator(http.MethodGet, "/api/v1/dead-letters", ""), "dead_letters")
		return rows[len(rows)-1]["id"].(string)
	}
	letters := []string{addLetter(), addLetter(), addLetter()}
	// form sends what a page for operators has.
	mark := regexp.MustCompile(`name="secret" value="(\w+)"`)
	form := func(method, target, body string, _ ...string) ports.Answer {
		send := func(body string) ports.Answer {
			return h.Operator(method, target, body,
				"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
		}
		if strings.HasSuffix(target, "rotate-secret") { // a question comes first
			body += "&secret=" + mark.FindStringSubmatch(send("").Text)[1]
		}
		return send(body)
	}
	event := fsm.OutboxEvent{
		ID: fsm.NewOutboxID(0, "1"), Target: "https://w.example/hook", CreatedAt: h.Clock().UnixMilli(),
	}
	server.event = event
	server.event.Payload = "1"
	h.Store.DB.PutEvent(fsm.OutboxRecord{Event: event, Stream: "/outbox/t/0", Status: fsm.OutboxPending})
	const secret, sub = "it-is-secret", "/a/*?subscription=s"
	h.Secret(secret)
	oj := func() string { return h.ojsID(t) }
	asked := map[*web.Resource]map[string]bool{}
	for _, r := range []struct {
		method, target, body string
		port                 func(method, target, body string, header ...string) ports.Answer
		what, says           string
	}{
		{
			"PUT", sub, `{"webhook":"https://w.example/` + secret + `?k=` + secret + `","headers":{"X-A":"` + secret +
				`"},"authorization":{"query":"t","token":"` + secret + `"},"description":"` +
				strings.Repeat("d", 2000) + `"}`, h.API,
			"subscription created", `"description":"(long)",`,
		},
		{
			"PATCH", sub, `{"description":"d","headers":{"X-A":null,"X-B":"` + secret + `"}}`, h.API,
			"subscription changed",
			`s 0 before {"description":"(long)","headers":["X-A"]} after {"description":"d","headers":["X-B"]}`,
		},
		{
			"POST", ojs.Subscriptions, `{"url":"https://w.example/hook","events":["*"]}`, h.API,
			"subscription created", "",
		},
		{"POST", ojs.Subscriptions + "/OJ/test", "", h.API, "test delivery", ""},
		{"POST", ojs.Subscriptions + "/OJ/rotate-secret", "", h.API, "secret rotated", ""},
		{"POST", ojs.Deliveries + "/" + hiddenEv + "/retry", "", h.API, "a delivery is retried", hiddenEv},
		{
			"PATCH", ojs.Subscriptions + "/OJ", `{"active":false}`, h.API, "subscription changed",
			`before {"paused":false} after {"paused":true}`,
		},
		{"DELETE", ojs.Subscriptions + "/OJ", "", h.API, "subscription deleted", ""},
		{
			"PATCH", "/webhooks/config", `{"maxAttempts":3}`, h.API, "configuration of direct deliveries changed",
			`"maxAttempts":5`,
		},
		{"DELETE", "/webhooks/events/" + event.ID, "", h.API, "event cancelled", event.ID},
		{"POST", "/webhooks/events/" + event.ID + "/replay", "", h.API, "event replayed", event.ID},
		{"POST", "/api/v1/streams", `{"streams":["/a/1","/a/2"]}`, h.Operator, "streams named", "/a/1, /a/2 2"},
		{"DELETE", "/api/v1/streams", `{"streams":["/a/2"]}`, h.Operator, "streams forgotten", "/a/2 1"},
		{"POST", "/api/v1/subscriptions/p/pause", "", h.Operator, "subscription paused", "p 1"},
		{"POST", "/api/v1/subscriptions/p/resume", "", h.Operator, "subscription resumed", "p 0"},
		{"POST", "/api/v1/subscriptions/p/retry", "", h.Operator, "subscription retried", "p 0"},
		{"POST", "/api/v1/subscriptions/p/rotate-secret", "", h.Operator, "secret rotated", "p"},
		{"POST", "/api/v1/subscriptions/p/consent", "", h.Operator, "consent asked for", "p"},
		{"POST", "/api/v1/subscriptions/p/test", "", h.Operator, "test delivery", "p"},
		{
			"POST", "/api/v1/subscriptions/p/replay", `{"stream":"/p/0","from":"-1"}`, h.Operator,
			"a span of a stream is replayed", " of /p/0 0",
		},
		{
			"POST", "/api/v1/subscriptions/w/rewind", `{"stream":"/w/0","to":"-1"}`, h.Operator, "consumer rewound",
			`/w/0 0 before {"acked":"0009"} after {"acked":"-1"}`,
		},
		{
			"POST", "/api/v1/dead-letters/" + letters[0] + "/replay", "", h.Operator, "dead letters are replayed",
			letters[0] + " of /p/0 1",
		},
		{"POST", "/api/v1/dead-letters/replay", `{"subscription":"p"}`, h.Operator, "dead letters are replayed", "p"},
		{"POST", "/api/v1/replays/cancel", `{"subscription":"p"}`, h.Operator, "replays cancelled", "p"},
		{
			"DELETE", "/api/v1/dead-letters/" + letters[1], "", h.Operator, "dead letters discarded",
			letters[1] + " of /p/0 1",
		},
		{"POST", "/api/v1/dead-letters/discard", `{"subscription":"p"}`, h.Operator, "dead letters discarded", "p"},
		{"POST", "/subscriptions/p/pause", "", form, "subscription paused", "p 1"},
		{"POST", "/subscriptions/p/resume", "", form, "subscription resumed", "p 0"},
		{"POST", "/subscriptions/p/retry", "", form, "subscription retried", "p 0"},
		{"POST", "/subscriptions/p/rotate-secret", "confirmed=yes", form, "secret rotated", "p"},
		{"POST", "/subscriptions/p/consent", "", form, "consent asked for", "p"},
		{"POST", "/subscriptions/p/test", "", form, "test delivery", "p"},
		{
			"POST", "/subscriptions/p/replay", "stream=/p/0&from=-1", form, "a span of a stream is replayed",
			" of /p/0 0",
		},
		{
			"POST", "/subscriptions/w/rewind", "confirmed=yes&stream=/w/1&to=-1", form, "consumer rewound",
			`/w/1 0 before {"acked":"0009"} after {"acked":"-1"}`,
		},
		{
			"POST", "/dead-letters/LETTER/replay", "", form, "dead letters are replayed",
			" of /p/0 1",
		},
		{"POST", "/dead-letters/replay", "subscription=p", form, "dead letters are replayed", "p"},
		{"POST", "/replays/cancel", "confirmed=yes&subscription=p", form, "replays cancelled", "p"},
		{
			"POST", "/dead-letters/LETTER/discard", "confirmed=yes", form, "dead letters discarded",
			" of /p/0 1",
		},
		{"POST", "/dead-letters/discard", "confirmed=yes&subscription=p", form, "dead letters discarded", "p"},
		{
			"PUT", "/api/v1/log-level", `{"level":"debug"}`, h.Operator, "log level changed",
			`one 0 before {"level":"info"} after {"level":"debug"}`,
		},
		{
			"DELETE", sub, "", h.API, "subscription deleted",
			`s 0 before {"pattern":"/a/*","webhook":"https://w.example:443",`,
		},
	} {
		if strings.Contains(r.target, hiddenEv) {
			h.Store.DB.PutLogged(h.Store.DB.Subscriptions()[oj()], fsm.LoggedAttempt{
				At: h.Clock(), Stream: "/jobs/a", Consumer: fsm.ConsumerID(oj(), "/jobs/a"), WakeID: "w_1",
				DeliveryID: hiddenEv, Attempt: 1, Result: "failed",
			})
			waiting := spec.NewConsumer(h.Store.DB.Subscriptions()[oj()], "/jobs/a", "0003", 1)
			waiting.State, waiting.WakeID, waiting.Deadline = fsm.Waking, "w_1", h.Clock().Add(time.Minute)
			h.Store.DB.PutConsumer(waiting)
		}
		target := r.target
		if strings.Contains(target, "/OJ") {
			target = strings.Replace(target, "OJ", oj(), 1)
		}
		if strings.HasPrefix(target, "/dead-letters/") {
			target = strings.Replace(target, "LETTER", addLetter(), 1)
		}
		before := h.changes()
		a := r.port(r.method, target, r.body, "Content-Type", "application/json")
		if a.Status >= 300 {
			t.Errorf("%s %s: %d %s", r.method, target, a.Status, a.Text)
			continue
		}
		noted := h.changes()[len(before):]
		if len(noted) != 1 || noted[0].What != r.what || noted[0].From != "192.0.2.1" {
			t.Errorf("%s %s: the audit has %+v, want %q", r.method, target, noted, r.what)
			continue
		}
		c := noted[0]
		text := fmt.Sprint(c.Subscription, " ", c.About, " ", c.Count)
		for side, fields := range []json.RawMessage{c.Before, c.After} {
			if len(fields) > 0 {
				text += " " + []string{"before ", "after "}[side] + string(fields)
			}
		}
		if !strings.Contains(strings.Join(strings.Fields(text), " "), r.says) || strings.Contains(text, secret) {
			t.Errorf("%s %s: the audit says %q, want %q", r.method, target, text, r.says)
		}
		res := h.resource(t, r.method, target)
		if asked[res] == nil {
			asked[res] = map[string]bool{}
		}
		asked[res][r.method] = true
	}
	for _, request := range noChange {
		method, target, _ := strings.Cut(request, " ")
		res := h.resource(t, method, target)
		if asked[res] == nil {
			asked[res] = map[string]bool{}
		}
		asked[res][method] = true
	}
	for i := range h.svc.table {
		res := &h.svc.table[i]
		for _, m := range res.Methods {
			if !slices.Contains([]string{"GET", "HEAD", web.Every}, m.Name) && !asked[res][m.Name] {
				t.Errorf("resource %d %s: nothing asks for its method %s", i, res.Route, m.Name)
			}
		}
	}
}

// changes are those in the audit, the oldest first.
func (h *harness) changes() []fsm.Change {
	h.T.Helper()
	list, err := h.Store.Changes(h.T.Context(), "", fsm.MaxChanges)
	if err != nil {
		h.T.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// ojsID is the ID of the one subscription of Open Job Spec.
func (h *harness) ojsID(t *testing.T) string {
	t.Helper()
	for id, sub := range h.Store.DB.Subscriptions() {
		if sub.Format == fsm.FormatOJS {
			return id
		}
	}
	t.Fatal("there is no subscription of Open Job Spec")
	return ""
}

// resource is the one that a request is for.
func (h *harness) resource(t *testing.T, method, target string) *web.Resource {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := range h.svc.table {
		if res := &h.svc.table[i]; res.Route == r.URL.Path {
			return res
		}
	}
	for i := range h.svc.table {
		res := &h.svc.table[i]
		route, path := strings.Split(res.Route, "/"), strings.Split(r.URL.Path, "/")
		if res.Route != "" && len(route) == len(path) && !slices.ContainsFunc(route, func(s string) bool {
			i := slices.Index(route, s)
			return !strings.HasPrefix(s, ":") && s != path[i]
		}) {
			return res
		}
	}
	res := h.svc.own(r, web.RawPath(r))
	if res == nil {
		t.Fatalf("no resource answers %s %s", method, target)
	}
	return res
}
