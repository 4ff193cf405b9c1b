package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi/control"
	"reveille/httpapi/web"
	"reveille/test/ports"
)

// What the principal of these tests does not see has this name in it. It has the paths ofA alone.
const (
	hidden   = "bravo"
	ofA      = "/a/**"
	hiddenOJ = "sub_0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f1a"
	hiddenEv = "evt_0f9a5c1b7d3e2a4c6b80_1"
)

// twoPaths has subscriptions of /a, and of /bravo if there are such.
func twoPaths(t *testing.T, there bool) *harness {
	t.Helper()
	h := newHarness(t, func(c *Config) {
		c.Pprof, c.MetricsPage, c.OJSStreams = true, http.NotFoundHandler(), "/"+hidden+"/**"
		c.DeliveryLog = fsm.LogAll
		c.Consents = &ports.Consents{
			Catalog: func(string) (sub fsm.Subscription, there bool) { return sub, false },
		}
	})
	h.Subscribe("a", 2)
	h.fill("a", "dl_a")
	if !there {
		return h
	}
	h.Up.Streams["/"+hidden+"/0"] = fsm.StreamInfo{Exists: true, Tail: "0009", NotJSON: true}
	h.Subscribe(hidden, 3)
	h.fill(hidden, hiddenEv)
	sub := fsm.Subscription{
		ID: hiddenOJ, Generation: "g", Pattern: "/" + hidden + "/**", Webhook: "https://bravo.example.com/hook",
		Secret: h.Secret("whsec_ojs"), Mode: fsm.ModePush, Format: fsm.FormatOJS, Ordering: fsm.OrderingNone,
	}.WithDefaults()
	h.Store.DB.PutSubscription(sub)
	h.Store.DB.PutConsumer(spec.NewConsumer(sub, "/"+hidden+"/0", "0009", 0))
	h.fill(hiddenOJ, hiddenEv)
	h.Store.DB.SetBackfill(sub, &fsm.Backfill{Done: 1, Total: 2})
	return h
}

// fill gives a subscription trouble, streams, dead letters, a replay and a log.
func (h *harness) fill(id, delivery string) {
	h.T.Helper()
	if err := h.Store.RefreshCatalog(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	sub, _ := h.Store.Catalog().Get(id)
	path := strings.Replace(strings.TrimSuffix(sub.Pattern, "*")+"0", "*", "", 1)
	consumer := fsm.ConsumerID(id, path)
	h.Change(consumer, func(c *fsm.Consumer) {
		c.State, c.WokeAt, c.WakeID = fsm.Waking, h.Clock().Add(-time.Hour), "w_"+id
		c.FirstFailure, c.LastError = c.WokeAt, "status 503"
	})
	h.Store.DB.PutRecord(fsm.Stream{Path: path, First: h.Clock()})
	for i := range 3 {
		h.Store.DB.PutLetter(fsm.DeadLetter{
			Subscription: id, Generation: sub.Generation, Consumer: consumer, Stream: path, DeliveryID: delivery,
			From: fsm.Start.At(int64(i), "0009"), To: fsm.Start.At(int64(i+1), "0009"),
			Within: fsm.Start.At(int64(i+1), "0009"), Events: 1, Reason: "status 500",
		})
	}
	h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{
		At: h.Clock(), Stream: path, Consumer: consumer, WakeID: "w_" + id, DeliveryID: delivery, Attempt: 1,
		Result: "failed", Status: 503,
	})
	h.Store.DB.PutCounted(sub, fsm.Attempt{Result: fsm.AttemptFailed, Class: "unavailable"})
}

// letterID is the ID of a dead letter of the hidden subscription.
func (h *harness) letterID() string {
	h.T.Helper()
	for p := range h.Store.Partitions() {
		span := fsm.LetterSpan{Partition: p, Subscription: hidden, Through: fsm.MaxLetterNumber}
		list, err := h.Store.DeadLetters(h.T.Context(), span, 1)
		if err != nil {
			h.T.Fatal(err)
		}
		if len(list) > 0 {
			return list[0].ID.String()
		}
	}
	h.T.Fatal("there is no dead letter")
	return ""
}

// asks has what requests name: in the target, in the query and in the body.
type asks struct{ ids, rest, queries, bodies []string }

func asksOf(letter string) asks {
	quoted := func(format string) string { return fmt.Sprintf(format, hidden) }
	return asks{
		ids:  []string{hidden, hiddenOJ, letter, ""},
		rest: []string{quoted("%s:%%2F%[1]s%%2F0"), quoted("%s:%%2F%[1]s%%2F0:9")},
		queries: []string{
			"", "subscription=" + hidden, quoted("stream=/%s/0"), "watched=true", "failing=true", "limit=1",
			"status=dead", "subscription_id=" + hiddenOJ, "q=" + hidden, "q=/" + hidden + "/0", "q=" + letter,
			"q=" + hiddenEv, "q=w_" + hidden, quoted("q=%s:%%252F%[1]s%%252F0"),
		},
		bodies: []string{
			"", `{}`, `{"webhook":"https://w.example/hook","mode":"push","events":["x"]}`,
			quoted(`{"subscription":"%s"}`), quoted(`{"streams":["/%s/0"]}`),
			quoted(`{"stream":"/%s/0","from":"-1"}`), quoted(`{"subscription":"%s","stream":"/%[1]s/0"}`),
			`{"url":"https://w.example/hook","events":["*"]}`, `{"level":"debug"}`,
			quoted(`{"stream":"/%s/0","to":"-1"}`), quoted("confirmed=yes&stream=/%s/0&to=-1"),
			"confirmed=yes", quoted("confirmed=yes&subscription=%s"), quoted("stream=/%s/0&from=-1"),
		},
	}
}

// asked is a request that is sent to both of two harnesses.
type asked struct{ name, target, body string }

// requests has the requests for a resource, which name what is hidden in every way. own has a target of the API port.
func (a asks) requests(res web.Resource, own string) (all []asked) {
	targets := []string{own}
	if res.Route != "" {
		targets = nil
		for _, id := range a.ids {
			for _, rest := range a.rest {
				target := strings.NewReplacer(":delivery", hiddenEv, ":id", id, "*", rest).Replace(res.Route)
				if !slices.Contains(targets, target) {
					targets = append(targets, target)
				}
			}
		}
	}
	for _, m := range res.Methods {
		name := m.Name
		if name == web.Every {
			name = http.MethodGet
		}
		for _, target := range targets {
			if name != http.MethodGet {
				for _, body := range a.bodies {
					all = append(all, asked{name, target, body})
				}
				continue
			}
			for _, query := range a.queries {
				joined := target
				if query != "" {
					joined += map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")] + query
				}
				all = append(all, asked{name, joined, ""})
			}
		}
	}
	return all
}

func (h *harness) send(res web.Resource, r asked) ports.Answer {
	h.T.Helper()
	switch {
	case res.Route == "":
	case r.name != http.MethodGet && !strings.HasPrefix(res.Route, "/api/"): // a form of a page
		return h.Operator(r.name, r.target, r.body,
			"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	default:
		return h.Operator(r.name, r.target, r.body)
	}
	return h.API(r.name, r.target, r.body)
}

// aboutNoStream are the resources that say the same, whatever there is. To one that sees all, every other one must show
// what is hidden here: otherwise the test asks it for nothing.
var aboutNoStream = []string{
	"/healthz", "/readyz", "/api/v1/version", "/callback/s:%2Fa", "/callback/s:/a", "/a/__ds/b", "/consent/s?key=k",
	"/ojs/v1/webhooks/events", "/assets/:name",
}

// TestAPrincipalSeesNothingOutsideItsPaths asks each resource of the table, in every way, for what lies outside. Each
// answer is the same as if it did not exist, and nothing of it changes.
func TestAPrincipalSeesNothingOutsideItsPaths(t *testing.T) {
	only, err := fsm.ParsePattern(ofA)
	if err != nil {
		t.Fatal(err)
	}
	asA := func(_ *http.Request, needed fsm.Role) (fsm.Principal, error) {
		return fsm.Principal{Name: "acme", Roles: []fsm.Role{needed}, Paths: []fsm.Pattern{only}}, nil
	}
	left := ownTargets
	for i, res := range newHarness(t, func(c *Config) {
		c.Pprof, c.MetricsPage, c.OJSStreams = true, http.NotFoundHandler(), "/"+hidden+"/**"
		c.Consents = &ports.Consents{}
	}).svc.resources() {
		own := ""
		if res.Route == "" {
			own, left = left[0], left[1:]
		}
		t.Run(res.Route+own, func(t *testing.T) {
			with, without := twoPaths(t, true), twoPaths(t, false)
			replay := fmt.Sprintf(`{"subscription":%q}`, hiddenOJ)
			if a := with.Operator("POST", "/api/v1/dead-letters/replay", replay); a.Status != http.StatusAccepted {
				t.Fatalf("replay: %d %s", a.Status, a.Text)
			}
			with.Rec.ForgetCalls()
			before := with.hiddenState()
			requests := asksOf(with.letterID()).requests(res, strings.NewReplacer(
				"sub_1", hiddenOJ, "evt_1", hiddenEv, "/a/*?", "/**?", "=s", "="+hidden).Replace(own))
			with.svc.permit, without.svc.permit = asA, asA
			logged := with.Logs.Len()
			for _, r := range requests {
				got, want := with.send(res, r), without.send(res, r)
				if got.Status != want.Status || got.Text != want.Text {
					t.Errorf("%s %s %s: %d %s; if it did not exist, %d %s", r.name, r.target, r.body,
						got.Status, got.Text, want.Status, want.Text)
				}
				if res.Whole && got.Status != http.StatusForbidden {
					t.Errorf("%s %s: %d", r.name, r.target, got.Status)
				}
			}
			if after := with.hiddenState(); after != before {
				t.Errorf("it has become\n%s\nand was\n%s", after, before)
			}
			for _, line := range with.Logs.All()[logged:] {
				if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, hidden) {
					t.Errorf("logged %s", text)
				}
			}
			if calls := with.Rec.Noted(); len(calls) > 0 || len(with.Tester.Tested) > 0 ||
				len(with.Rebuilder.Rebuilt) > 0 || len(with.Up.Asked()) > 0 {
				t.Errorf("asked for it: %q, %v, %v, %q", calls, with.Tester.Tested, with.Rebuilder.Rebuilt,
					with.Up.Asked())
			}
			if res.Whole || slices.Contains(aboutNoStream, res.Route+own) {
				return
			}
			with.svc.permit, without.svc.permit = permit, permit
			if !slices.ContainsFunc(requests, func(r asked) bool {
				got, want := with.send(res, r), without.send(res, r)
				return got.Status != want.Status || got.Text != want.Text
			}) {
				t.Errorf("resource %d: to the one that sees all, it says the same with and without %s; "+
					"add to asksOf what it is asked for", i, hidden)
			}
		})
	}
}

// TestTheRequestOfAWakeIsForThoseWhoSeeAllItsStreams holds that a wake, which names all streams of its consumer, is not
// shown to one who does not see one of them.
func TestTheRequestOfAWakeIsForThoseWhoSeeAllItsStreams(t *testing.T) {
	only, err := fsm.ParsePattern(ofA)
	if err != nil {
		t.Fatal(err)
	}
	h := twoPaths(t, true)
	sub, _ := h.Store.Catalog().Get("a")
	for id, stream := range map[string]string{"w_seen": "/a/1", "w_hidden": "/" + hidden + "/0"} {
		h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{
			At: h.Clock(), Stream: "/a/0", Consumer: "a:%2Fa%2F0", WakeID: id, DeliveryID: id, Bytes: 1, Result: "done",
			Extent: fsm.Extent{Shape: "0123abcd", Streams: []fsm.WokenStream{{Path: "/a/0"}, {Path: stream}}},
		})
	}
	all := h.svc.permit
	asA := func(_ *http.Request, needed fsm.Role) (fsm.Principal, error) {
		return fsm.Principal{Name: "acme", Roles: []fsm.Role{needed}, Paths: []fsm.Pattern{only}}, nil
	}
	for _, c := range []struct {
		permit func(*http.Request, fsm.Role) (fsm.Principal, error)
		id     string
		status int
	}{{asA, "w_seen", 200}, {asA, "w_hidden", 404}, {all, "w_hidden", 200}} {
		h.svc.permit, h.Rebuilder.Rebuilt = c.permit, nil
		a := h.Operator("GET", "/api/v1/subscriptions/a/deliveries/"+c.id+"/request", "")
		if a.Status != c.status || (c.status == 200) != (len(h.Rebuilder.Rebuilt) == 1) {
			t.Errorf("%s: %d %s, built %+v", c.id, a.Status, a.Text, h.Rebuilder.Rebuilt)
		}
	}
}

// hiddenState is what the store has outside the principal's paths.
func (h *harness) hiddenState() string {
	h.T.Helper()
	var b strings.Builder
	subs := h.Store.DB.Subscriptions()
	for _, id := range slices.Sorted(maps.Keys(subs)) {
		fmt.Fprintf(&b, "%+v\n", subs[id])
	}
	for _, c := range h.Store.DB.Consumers() {
		fmt.Fprintf(&b, "%+v\n", c)
	}
	counts, err := h.Store.CountDeadLetters(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	fmt.Fprintf(&b, "%v\n%v\n", counts, h.Store.DB.Replays())
	return b.String()
}

// TestAnIDThatIsTakenOutsideThePaths holds that a PUT says no more than that an ID is taken, and that a principal makes
// no subscription that it would not see.
func TestAnIDThatIsTakenOutsideThePaths(t *testing.T) {
	h := twoPaths(t, true)
	only, _ := fsm.ParsePattern(ofA)
	h.svc.permit = func(*http.Request, fsm.Role) (fsm.Principal, error) {
		return fsm.Principal{Name: "acme", Paths: []fsm.Pattern{only}}, nil
	}
	const hook = `{"webhook":"https://w.example/hook"}`
	was := h.hiddenState()
	taken := h.API("PUT", "/a/*?subscription="+hidden, hook)
	h.Want(taken, http.StatusConflict, fsm.CodeSubscriptionConflict, "")
	pushed := h.API("PUT", "/a/*?subscription="+hiddenOJ, `{"webhook":"https://w.example/","mode":"push"}`)
	if pushed.Text != taken.Text || strings.Contains(taken.Text, "another") {
		t.Errorf("it tells what is there: %s and %s", taken.Text, pushed.Text)
	}
	filtered := `{"webhook":"https://w.example/hook","mode":"push","events":["x"]}`
	for _, target := range []string{"/" + hidden + "/0", "/" + hidden + "/9", "/**", "/*/0"} {
		h.Want(h.API("PUT", target+"?subscription=new", filtered), http.StatusForbidden, fsm.CodeForbidden, "paths")
	}
	if now := h.hiddenState(); now != was || len(h.Up.Asked()) > 0 {
		t.Errorf("the refused requests have changed something, or asked for %q", h.Up.Asked())
	}

	// Its own are there, with their owner, which is not shown and cannot be set.
	a := h.API("PUT", "/a/*?subscription=new", hook)
	if a.Status != http.StatusCreated || strings.Contains(a.Text, "acme") {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	h.Secret(a.Body["webhook_secret"].(string))
	if owner := h.Store.DB.Subscriptions()["new"].Owner; owner != "acme" {
		t.Errorf("its owner is %q", owner)
	}
	h.Want(h.API("PUT", "/a/*?subscription=new", `{"webhook":"https://w.example/other"}`), http.StatusConflict,
		fsm.CodeSubscriptionConflict, "another webhook")
	for _, name := range []string{"PUT", "PATCH"} {
		h.Want(h.API(name, "/a/*?subscription=new", `{"webhook":"https://w.example/hook","owner":"other"}`), 400,
			fsm.CodeInvalidRequest, "owner")
	}
	for _, b := range []ports.Answer{
		h.API("GET", "/a/*?subscription=new", ""), h.API("GET", "/**?subscriptions", ""),
		h.Operator("GET", "/api/v1/subscriptions/new", ""), h.Operator("GET", "/api/v1/consumers?subscription=a", ""),
	} {
		if b.Status != http.StatusOK || strings.Contains(b.Text, "acme") || len(b.Text) < 100 {
			t.Errorf("%d %s", b.Status, b.Text)
		}
	}
	if n := h.Operator("GET", "/api/v1/status", "").Body["subscriptions"]; n != 2.0 {
		t.Errorf("the status counts %v subscriptions", n)
	}
	if rows := ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters", ""), "dead_letters"); len(rows) != 3 {
		t.Errorf("there are %d dead letters", len(rows))
	}
}

// TestEventsAreFoundByThoseWhoSeeAll holds that a search by another principal finds none.
func TestEventsAreFoundByThoseWhoSeeAll(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.Outbox, c.OutboxServer = "/outbox", struct{ control.OutboxServer }{}
	})
	event := fsm.OutboxEvent{ID: fsm.NewOutboxID(0, "1"), Key: "key-1", CreatedAt: h.Clock().UnixMilli()}
	h.Store.DB.PutEvent(fsm.OutboxRecord{Event: event, Stream: "/outbox/t/0", Status: fsm.OutboxPending})
	if _, err := h.Store.ReserveKey(t.Context(), event.Key, fsm.OutboxKey{ID: event.ID}); err != nil {
		t.Fatal(err)
	}
	only, _ := fsm.ParsePattern("/outbox/**")
	for _, q := range []string{event.ID, event.Key} {
		h.svc.permit = permit
		if a := h.Operator(http.MethodGet, "/api/v1/find?q="+q, ""); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", q, a.Status, a.Text)
		}
		h.svc.permit = func(_ *http.Request, needed fsm.Role) (fsm.Principal, error) {
			return fsm.Principal{Name: "acme", Roles: []fsm.Role{needed}, Paths: []fsm.Pattern{only}}, nil
		}
		h.Want(h.Operator(http.MethodGet, "/api/v1/find?q="+q, ""), 404, fsm.CodeNotFound, "nothing that is known")
	}
}
