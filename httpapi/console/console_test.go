package console_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/fsm/spec/memstore"
	"reveille/httpapi"
	"reveille/httpapi/control"
	"reveille/test/ports"
	"reveille/test/ports/service"
)

// evil is a text that would run if it were not shown as text.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(2)>`

// troubled has everything that pages show, and evil texts wherever others have a say.
func troubled(t *testing.T) *ports.Harness { return troubledWith(t, func(*httpapi.Config) {}) }

func troubledWith(t *testing.T, change func(*httpapi.Config)) *ports.Harness {
	t.Helper()
	h, _ := service.New(t, func(c *httpapi.Config) {
		c.DeliveryLog = fsm.LogAll
		change(c)
	})
	h.Subscribe("orders", 3)
	h.Subscribe("quiet", 1)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub, _ := h.Store.Catalog().Get("orders")
	sub.Description = evil
	h.Store.DB.PutSubscription(sub)
	path := "/orders/0"
	consumer := fsm.ConsumerID("orders", path)
	h.Store.DB.PutConsumer(spec.NewConsumer(sub, "/orders/it's(1)", "0009", 0)) // which templates write otherwise
	h.Change(consumer, func(c *fsm.Consumer) {
		c.State, c.WokeAt, c.WakeID, c.Attempt = fsm.Waking, h.Clock().Add(-time.Hour), "w_orders_1", 2
		c.FirstFailure, c.LastError, c.Deadline = c.WokeAt, evil, h.Clock().Add(time.Minute)
	})
	for i := range 60 {
		h.Store.DB.PutLetter(fsm.DeadLetter{
			Subscription: "orders", Generation: sub.Generation, Consumer: consumer, Stream: path,
			DeliveryID: fmt.Sprint("evt_dead_", i), From: fsm.Start.At(int64(i), "0009"),
			To: fsm.Start.At(int64(i+1), "0009"), Within: fsm.Start.At(int64(i+1), "0009"), Events: 1, Attempts: 3,
			Class: "server_error", Reason: "status 500", Status: 500, Answer: evil, DeadAt: h.Clock(),
		})
		a := fsm.LoggedAttempt{
			At: h.Clock().Add(time.Duration(i) * time.Second), Stream: path, Consumer: consumer,
			WakeID: fmt.Sprint("w_", i), DeliveryID: fmt.Sprint("evt_", i), Attempt: 2, MaxAttempts: 9,
			Result: "failed", Status: 503, Class: "unavailable", Reason: "status 503", Answer: evil, Events: 1,
			Bytes: 312, From: fsm.Start, Took: time.Second, Exchanged: time.Second, Remote: "192.0.2.7:443",
			HTTP: "1.1", TLS: "1.3",
		}
		if i%2 == 0 {
			a.Result, a.Status, a.Class, a.Reason, a.Answer = "done", 204, "", "", ""
		}
		h.Store.DB.PutLogged(sub, a)
	}
	h.Store.DB.PutCounted(sub, fsm.Attempt{
		Result: fsm.AttemptFailed, Class: "unavailable", Sent: true, Exchanged: time.Second,
	})
	if err := h.Store.NoteChange(t.Context(), fsm.Change{
		What: "subscription changed", Subscription: "orders", From: "192.0.2.1", About: evil,
		Before: []byte(`{"description":"<b>"}`), After: []byte(`{"description":"<i>"}`),
	}); err != nil {
		t.Fatal(err)
	}
	h.Health.Up, h.Health.Server.State = true, fsm.StreamServerUp
	h.Health.Others = []fsm.ReplicaStatus{{ID: "one", Alive: true, Partitions: 4}}
	return h
}

// get asks for a page, and returns what it is made of.
func get(t *testing.T, h *ports.Harness, target string, status int) *html.Node {
	t.Helper()
	a := h.Operator(http.MethodGet, target, "")
	if a.Status != status || a.Header.Get("Content-Type") != "text/html; charset=UTF-8" {
		t.Fatalf("%s: %d %s\n%s", target, a.Status, a.Header.Get("Content-Type"), a.Text)
	}
	if policy := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none';") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("%s: the policy is %q", target, policy)
	}
	root, err := html.Parse(strings.NewReader(a.Text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func text(root *html.Node) string {
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

// TestEveryLinkLeadsToAPage follows all links from the front page on. It holds that each page is shown, that none has
// anything from elsewhere or that a text of others has put there, and that no two elements share an ID.
func TestEveryLinkLeadsToAPage(t *testing.T) {
	h := troubled(t)
	seen, left := map[string]bool{"/": true}, []string{"/"}
	kinds := map[string]bool{}
	for len(left) > 0 {
		target := left[0]
		left = left[1:]
		at, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		kinds[strings.SplitN(at.Path, "/", 3)[1]] = true
		for n := range get(t, h, target, http.StatusOK).Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if id := attribute(n, "id"); id != "" {
				if ids[id] {
					t.Errorf("%s: two elements have the id %s", target, id)
				}
				ids[id] = true
			}
			if n.Data == "script" && n.FirstChild != nil || n.Data == "style" || n.Data == "img" {
				t.Errorf("%s: it has a %s", target, n.Data)
			}
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
					t.Errorf("%s: %s has %s", target, n.Data, a.Key)
				}
				if !slices.Contains([]string{"href", "src", "action", "hx-get"}, a.Key) {
					continue
				}
				to, err := at.Parse(a.Val)
				if err != nil || to.Host != "" {
					t.Errorf("%s: %s leads to %q", target, n.Data, a.Val)
				} else if to.Fragment = ""; !seen[to.String()] && n.Data == "a" {
					seen[to.String()] = true
					left = append(left, to.String())
				}
			}
		}
	}
	for _, kind := range []string{
		"", "subscriptions", "deliveries", "consumers", "dead-letters", "replays", "audit", "find",
	} {
		if !kinds[kind] {
			t.Errorf("no link leads to /%s", kind)
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d pages were found", len(seen))
	}
}

// TestPagesShowWhatOneAsks holds what an operator reads at three in the morning.
func TestPagesShowWhatOneAsks(t *testing.T) {
	h := troubled(t)
	for target, says := range map[string][]string{
		"/": {
			"1 subscription is not well", "orders", "failing", "60 dead letters", "1 h ago", "unavailable 1", "one",
			"Redis up",
		},
		"/subscriptions": {"orders", "quiet", "failing", "ok"},
		"/subscriptions/orders": {
			"failing", evil, "since 2026-01-02T02:04:05Z", "60 dead letters", "evt_59", "status 503",
			"It is not ready",
		},
		"/deliveries?id=evt_7":                       {"evt_7", "failed 503", "2 of 9", "status 503"},
		"/deliveries?result=failed%2Cretired%2Cdead": {"Failed only", "evt_59"},
		"/consumers?subscription=orders": {
			"orders:%2Forders%2F0", "the last attempt failed; ended by", "in 1 m",
		},
		"/consumers/orders:%2Forders%2F0":   {"w_orders_1", "/orders/0", "the last attempt failed"},
		"/dead-letters?subscription=orders": {"status 500", "now"},
		"/find?q=evt_8":                     {"done 204"},
		"/find?subscription=orders&q=evt_7": {
			"failed 503", "attempt 2 of 9", "192.0.2.7:443, HTTP 1.1, TLS 1.3", "The endpoint answered 503", evil,
			"312 bytes, 1 event\n", "1s",
		},
		"/subscriptions/orders/deliveries/evt_7": {
			"evt_7", "over", "failed 503", "attempt 2 of 9", "The endpoint answered 503", "Reveille tries again", evil,
			"Show the request",
		},
		"/subscriptions/orders/deliveries/evt_dead_7": {"dead", "status 500"},
		"/audit":   {"subscription changed", "192.0.2.1", `{"description":"<b>"}`, evil},
		"/replays": {"No replay is under way"},
	} {
		shown := text(get(t, h, target, http.StatusOK))
		for _, part := range says {
			if !strings.Contains(strings.ToLower(shown), strings.ToLower(part)) {
				t.Errorf("%s does not say %q:\n%s", target, part, shown)
			}
		}
	}
	if shown := text(get(t, h, "/find?q=evt_8", http.StatusOK)); strings.Contains(shown, "What it means") {
		t.Errorf("a success means something:\n%s", shown)
	}
	if shown := text(get(t, h, "/subscriptions?failing=true", http.StatusOK)); strings.Contains(shown, "quiet") {
		t.Errorf("what is well is among what is not:\n%s", shown)
	}
}

// TestAPageSaysWhoHasPausedASubscription holds that a pause by Reveille has its reason, and one by an operator has not.
func TestAPageSaysWhoHasPausedASubscription(t *testing.T) {
	h := troubled(t)
	for _, disabled := range []bool{false, true} {
		pause := func(sub fsm.Subscription) (fsm.Subscription, error) {
			sub.Paused, sub.Disabled = true, disabled
			return sub, nil
		}
		if _, err := h.Store.ChangeSubscription(t.Context(), "quiet", pause); err != nil {
			t.Fatal(err)
		}
		shown := text(get(t, h, "/subscriptions/quiet", http.StatusOK))
		by := strings.Contains(shown, "by Reveille: its endpoint has failed for its disable_after")
		if !strings.Contains(shown, "since "+h.Clock().Format(time.RFC3339)) || by != disabled {
			t.Errorf("disabled %t, it is shown as %s", disabled, shown)
		}
	}
}

// TestFiltersAreInTheAddress holds that a list keeps its filters from page to page and while it refreshes itself, and
// shows them in its form.
func TestFiltersAreInTheAddress(t *testing.T) {
	h := troubled(t)
	const filtered = "/dead-letters?refresh=off&stream=%2Forders%2F0&subscription=orders"
	letters := map[string]bool{}
	target := filtered + "&since="
	for pages := 1; target != ""; pages++ {
		next := ""
		for n := range get(t, h, target, http.StatusOK).Descendants() {
			switch id := attribute(n, "id"); {
			case id == "next":
				next = attribute(n, "href")
			case strings.HasPrefix(id, "l-"):
				letters[id] = true
			case attribute(n, "name") == "subscription" && attribute(n, "value") != "orders":
				t.Errorf("%s: the form has %v", target, n.Attr)
			case attribute(n, "hx-get") != "":
				t.Errorf("%s refreshes itself", target)
			case id == "refresh" && !strings.Contains(attribute(n, "href"), "subscription=orders"):
				t.Errorf("%s refreshes as %s", target, attribute(n, "href"))
			}
		}
		if next != "" && !strings.HasPrefix(next, "/dead-letters?cursor=") || pages > 5 {
			t.Fatalf("the next page is %s", next)
		}
		target = next
	}
	if len(letters) != 60 {
		t.Errorf("the pages have %d dead letters", len(letters))
	}
	for n := range get(t, h, "/deliveries?status=503", http.StatusOK).Descendants() {
		if attribute(n, "id") == "live" && attribute(n, "hx-get") != "/deliveries?status=503" {
			t.Errorf("it refreshes as %q", attribute(n, "hx-get"))
		}
	}
}

// TestAPageSaysWhatIsWrong holds that errors are pages, too.
func TestAPageSaysWhatIsWrong(t *testing.T) {
	h := troubled(t)
	for target, want := range map[string]struct {
		status int
		says   string
	}{
		"/subscriptions/none":  {404, "there is no subscription with this id"},
		"/find?q=nothing":      {404, "nothing that is known has this id"},
		"/deliveries?statsu=1": {400, `"statsu" is not a parameter of this list`},
		"/deliveries?since=1h": {400, "since must be a time"},
		"/consumers/x":         {400, "consumer id"},
	} {
		if shown := text(get(t, h, target, want.status)); !strings.Contains(shown, want.says) {
			t.Errorf("%s does not say %q:\n%s", target, want.says, shown)
		}
	}
	h.Store.Fail(fmt.Errorf("%w: redis was refused", fsm.ErrUnavailable))
	h.Health.Err = fsm.ErrUnavailable
	if shown := text(get(t, h, "/subscriptions", 503)); !strings.Contains(shown, "redis was refused") {
		t.Errorf("while Redis is away:\n%s", shown)
	}
	shown := text(get(t, h, "/", 200))
	for _, says := range []string{"Redis away", "Redis is away", "not all consumers are counted"} {
		if !strings.Contains(shown, says) {
			t.Errorf("the overview while Redis is away does not say %q:\n%s", says, shown)
		}
	}
}

// TestAllIsWellOnlyIfAllIsKnownToBe holds what the first line of the overview goes by.
func TestAllIsWellOnlyIfAllIsKnownToBe(t *testing.T) {
	for says, change := range map[string]func(*ports.Harness){
		"all is well":                   func(*ports.Harness) {},
		"Redis is away":                 func(h *ports.Harness) { h.Health.Err = fsm.ErrUnavailable },
		"the stream server is down":     func(h *ports.Harness) { h.Health.Server.State = fsm.StreamServerDown },
		"the stream server is not seen": func(h *ports.Harness) { h.Health.Server.State = fsm.StreamServerNotSeen },
		"1 replica is gone": func(h *ports.Harness) {
			h.Health.Others = append(h.Health.Others, fsm.ReplicaStatus{})
		},
		"some partitions have no replica": func(h *ports.Harness) { h.Health.Unowned = 2 },
		"1 subscription is not well": func(h *ports.Harness) {
			h.Change("quiet:%2Fquiet%2F0", func(c *fsm.Consumer) {
				c.State, c.WakeID, c.FirstFailure = fsm.Waking, "w_1", h.Clock().Add(-time.Hour)
			})
		},
		"not all consumers are counted": func(h *ports.Harness) {
			h.Store.DB.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
				if c.Method == "TallyConsumers" {
					return fsm.ErrUnavailable
				}
				return nil
			}})
		},
		"the statistics could not be read": func(h *ports.Harness) {
			h.Store.DB.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
				if c.Method == "CountPending" {
					return fsm.ErrUnavailable
				}
				return nil
			}})
		},
	} {
		h, _ := service.New(t, nil)
		h.Subscribe("quiet", 1)
		h.Health.Up, h.Health.Server.State = true, fsm.StreamServerUp
		h.Health.Others = []fsm.ReplicaStatus{{ID: "one", Alive: true, Partitions: 4}}
		change(h)
		shown := text(get(t, h, "/", http.StatusOK))
		if !strings.Contains(shown, says) || strings.Contains(shown, "all is well") != (says == "all is well") {
			t.Errorf("the overview does not say %q:\n%s", says, shown)
		}
	}
}

// TestThePagesSayWhatIsOnlyAtLeastSo holds that no page shows for exact what was not looked at.
func TestThePagesSayWhatIsOnlyAtLeastSo(t *testing.T) {
	h, _ := service.New(t, nil)
	h.Subscribe("few", 1)
	h.Subscribe("many", 5)
	h.Change("few:%2Ffew%2F0", func(c *fsm.Consumer) {
		c.State, c.WakeID, c.FirstFailure = fsm.Waking, "w_1", h.Clock().Add(-time.Hour)
	})
	h.Store.Tallied, h.Health.Up, h.Health.Server.State = 4, true, fsm.StreamServerUp
	for target, want := range map[string][]string{
		"/":                            {"at least 1 subscription is not well", "not all consumers are counted"},
		"/subscriptions":               {"few"},
		"/subscriptions?failing=true":  {"few"},
		"/subscriptions/many":          {"Not known", "at least 0 pending", "how long is not known", "Only some of"},
		"/subscriptions/few":           {"1 pending"},
		secondOf(t, h, "many"):         {"many", "not known", "at least 0"},
		secondOf(t, h, "many", "true"): {"many", "not known", "at least 0"},
	} {
		shown := text(get(t, h, target, http.StatusOK))
		for _, says := range want {
			if !strings.Contains(shown, says) {
				t.Errorf("%s does not say %q:\n%s", target, says, shown)
			}
		}
		for _, not := range []string{"nothing waits for the endpoint", "all is well"} {
			if strings.Contains(shown, not) && target != "/subscriptions/few" {
				t.Errorf("%s says %q:\n%s", target, not, shown)
			}
		}
	}
}

// TestAPageOfDeliveriesSaysWhoseTheyAre holds that a page with the attempts of some does not pass for that of all.
func TestAPageOfDeliveriesSaysWhoseTheyAre(t *testing.T) {
	h, _ := service.New(t, nil)
	for i := range control.LogsAtATime + 2 {
		sub := h.Subscribe(fmt.Sprintf("s%04d", i), 0)
		h.Pass(time.Millisecond)
		h.Store.DB.PutLogged(sub, fsm.LoggedAttempt{At: h.Clock(), Stream: "/a", DeliveryID: "evt_1", Result: "done"})
	}
	const says = "Older attempts of the subscriptions"
	if shown := text(get(t, h, "/deliveries", http.StatusOK)); strings.Contains(shown, says) {
		t.Errorf("the latest attempts are shown as\n%s", shown)
	}
	next := ports.Next(h.Operator(http.MethodGet, "/api/v1/deliveries?limit=1000", ""))
	shown := text(get(t, h, "/deliveries?cursor="+next, http.StatusOK))
	if !strings.Contains(shown, says+" s0000 to s0999.") || !strings.Contains(shown, "s0001") {
		t.Errorf("the older ones are shown as\n%s", shown)
	}
}

// secondOf is where the page of subscriptions is that begins with one.
func secondOf(t *testing.T, h *ports.Harness, id string, failing ...string) string {
	t.Helper()
	query := url.Values{}
	if len(failing) > 0 {
		query.Set("failing", failing[0])
	}
	a := h.Operator(http.MethodGet, "/api/v1/subscriptions?"+query.Encode(), "")
	query.Set("cursor", ports.Next(a))
	if len(ports.RowsOf(a, "subscriptions")) != 1 {
		t.Fatalf("the page before %s is %v", id, a.Body)
	}
	return "/subscriptions?" + query.Encode()
}

// TestThePageIsServedToThisMachineAlone holds that no other address shows anything.
func TestThePageIsServedToThisMachineAlone(t *testing.T) {
	h := troubled(t)
	h.At = net.IPv4(10, 1, 2, 3)
	for _, target := range []string{"/", "/subscriptions/orders", "/find?q=evt_7"} {
		shown := text(get(t, h, target, http.StatusForbidden))
		if !strings.Contains(shown, "loopback address alone") || strings.Contains(shown, "status 503") {
			t.Errorf("%s shows\n%s", target, shown)
		}
	}
	h.At = net.IPv4(127, 0, 0, 1)
	get(t, h, "/", http.StatusOK)
	if a := h.Operator(http.MethodGet, "/", "", "X-Forwarded-For", "192.0.2.1"); a.Status != http.StatusForbidden {
		t.Errorf("what a proxy passes on is answered %d", a.Status)
	}
}

// TestAssetsAreServed holds that a page has what it is made of, and nothing else.
func TestAssetsAreServed(t *testing.T) {
	h := troubled(t)
	for name, kind := range map[string]string{
		"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8",
		"htmx.min.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		a := h.Operator(http.MethodGet, "/assets/"+name, "")
		if a.Status != http.StatusOK || a.Header.Get("Content-Type") != kind || a.Text == "" {
			t.Errorf("%s: %d %s", name, a.Status, a.Header.Get("Content-Type"))
		}
	}
	for _, name := range []string{"none.js", "..%2fconsole.go", "htmx.LICENSE"} {
		if a := h.Operator(http.MethodGet, "/assets/"+name, ""); a.Status != http.StatusNotFound {
			t.Errorf("%s: %d", name, a.Status)
		}
	}
}

// TestThePageOfADeliveryShowsItsRequest holds that what a request has is shown as text, to those who may see it, and
// only when they ask for it. Why there is none stands in its place.
func TestThePageOfADeliveryShowsItsRequest(t *testing.T) {
	const admin, read, page = "the-admin-token", "the-read-token", "/subscriptions/orders/deliveries/evt_7"
	for _, token := range []string{"", admin, read} {
		h := troubledWith(t, func(c *httpapi.Config) {
			if token != "" {
				c.AdminToken, c.ReadToken = admin, read
			}
		})
		h.Rebuilder.Result = fsm.SentRequest{
			Method: "POST", URL: "https://w.example/[masked]", At: h.Clock(), Size: 70_000, Cut: true,
			Header: map[string][]string{"Webhook-Signature": {"[masked]"}, "X-Evil": {evil}},
			Body:   []byte(`{"text":"` + evil + `"}`),
		}
		ask := func(target string) string {
			a := h.Operator(http.MethodGet, target, "", "Authorization", "Bearer "+token)
			if a.Status != http.StatusOK || strings.Contains(a.Text, "<script>alert") ||
				strings.Contains(a.Text, "<img") {
				t.Errorf("%s with %q: %d\n%s", target, token, a.Status, a.Text)
			}
			root, err := html.Parse(strings.NewReader(a.Text))
			if err != nil {
				t.Fatal(err)
			}
			for n := range root.Descendants() {
				refreshes := attribute(n, "id") == "live" && attribute(n, "hx-get") != ""
				if refreshes && strings.Contains(target, "request=") && token != read {
					t.Errorf("%s asks for itself again", target)
				}
				if strings.HasPrefix(attribute(n, "id"), "show-") && token == read {
					t.Errorf("%s offers the request to one who may only look", target)
				}
			}
			return text(root)
		}
		shown := ask(page)
		if strings.Contains(shown, "The request") || len(h.Rebuilder.Rebuilt) > 0 {
			t.Errorf("with %q: it is shown unasked", token)
		}
		attempts := ports.RowsOf(
			h.Operator("GET", "/api/v1/deliveries?id=evt_7", "", "Authorization", "Bearer "+token), "deliveries")
		target := page + "?request=" + attempts[0]["id"].(string)
		shown = ask(target)
		if token == read {
			if len(h.Rebuilder.Rebuilt) > 0 || strings.Contains(shown, "The request") {
				t.Errorf("one who may only look is shown %s", shown)
			}
			continue
		}
		for _, want := range []string{
			"POST https://w.example/[masked]", "Webhook-Signature: [masked]", "X-Evil: " + evil,
			`{"text":"` + evil + `"}`, "it has 70000 bytes", "2026-01-02T03:04:05Z",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("with %q, it lacks %q:\n%s", token, want, shown)
			}
		}
		h.Rebuilder.Result.Body = []byte("\xff\x00")
		if shown = ask(target); !strings.Contains(shown, "/wA=") {
			t.Errorf("bytes are shown as %s", shown)
		}
		h.Rebuilder.Err = &fsm.NotRebuiltError{Code: fsm.CodeEventsGone, Why: "they are gone: " + evil}
		if shown = ask(target); !strings.Contains(shown, "they are gone: "+evil) ||
			!strings.Contains(shown, "failed 503") {
			t.Errorf("with %q, why there is none is not said: %s", token, shown)
		}
		h.Rebuilder.Rebuilt = nil
		if shown = ask(page + "?request=1-0"); !strings.Contains(shown, "does not show that attempt") ||
			strings.Contains(shown, "The request") || len(h.Rebuilder.Rebuilt) > 0 {
			t.Errorf("with %q, an attempt that is not there is shown as %s", token, shown)
		}
	}
}
