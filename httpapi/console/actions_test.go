package console_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/test/ports"
)

// post sends a form as a browser does that says where forms come from.
func post(h *ports.Harness, target string, form url.Values, header ...string) ports.Answer {
	return h.Operator(http.MethodPost, target, form.Encode(), append([]string{
		"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin",
	}, header...)...)
}

// TestActionsDoWhatTheySay holds what each button does, and that what cannot be undone must be confirmed first.
func TestActionsDoWhatTheySay(t *testing.T) {
	h := troubled(t)
	h.Tester.Result = fsm.TestDelivery{Status: 503, Took: time.Second, Failure: "status 503", Body: []byte(evil)}
	sub := func() fsm.Subscription { return h.Store.DB.Subscriptions()["orders"] }
	letters := func() int {
		n := 0
		counts, err := h.Store.CountDeadLetters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			n += c.Of["orders"]
		}
		return n
	}
	rows := ports.RowsOf(h.Operator(http.MethodGet, "/api/v1/dead-letters?limit=2", ""), "dead_letters")
	first, second := rows[0]["id"].(string), rows[1]["id"].(string)
	secret := sub().Secret
	h.Up.Streams["/quiet/0"] = fsm.StreamInfo{Exists: true, Tail: "0009"}
	h.Change("quiet:%2Fquiet%2F0", func(c *fsm.Consumer) {
		c.Links["/quiet/0"] = fsm.Link{Acked: "0009", Tail: "0009"}
	})
	h.Pass(time.Second)
	ofOrders := url.Values{"subscription": {"orders"}}
	for _, step := range []struct {
		target string
		form   url.Values
		// asks is what must be confirmed first.
		asks, says string
		done       func() bool
	}{
		{"/subscriptions/orders/pause", nil, "", "orders is paused", func() bool { return sub().Paused }},
		{"/subscriptions/orders/resume", nil, "", "orders is resumed", func() bool { return !sub().Paused }},
		{
			"/subscriptions/orders/retry", nil, "", "with 1 consumer that waited",
			func() bool { c, _ := h.Store.Lookup("orders:%2Forders%2F0"); return !c.Deadline.After(h.Clock()) },
		},
		{
			"/subscriptions/orders/test", nil, "", "The test failed: status 503",
			func() bool { return len(h.Tester.Tested) == 1 && !h.Tester.Bounded }, // the endpoint has its own time
		},
		{
			"/subscriptions/orders/rotate-secret", nil, "signed with a new secret", "not shown again",
			func() bool { return sub().Secret != secret },
		},
		{
			"/subscriptions/quiet/rewind",
			url.Values{"stream": {"/quiet/0"}, "to": {"0003"}},
			"fenced off",
			"has gone back",
			func() bool { c, _ := h.Store.Lookup("quiet:%2Fquiet%2F0"); return c.Links["/quiet/0"].Acked == "0003" },
		},
		{
			"/dead-letters/" + first + "/discard", nil, "cannot be replayed any more", "is discarded",
			func() bool { return letters() == 59 },
		},
		{
			"/dead-letters/" + second + "/replay", nil, "", "are delivered again",
			func() bool { return len(h.Store.DB.Replays()) == 1 },
		},
		{
			"/dead-letters/replay", ofOrders, "", "59 dead letters are replayed",
			func() bool { return len(h.Store.DB.Replays()) > 0 },
		},
		{
			"/replays/cancel", ofOrders, "These replays end", "59 replays are cancelled",
			func() bool { return len(h.Store.DB.Replays()) == 0 },
		},
		{
			"/dead-letters/discard", ofOrders, "cannot be replayed any more", "59 dead letters are discarded",
			func() bool { return letters() == 0 },
		},
	} {
		changed := h.Store.DB.Subscriptions()["orders"]
		a := post(h, step.target, step.form)
		if step.asks != "" {
			if !strings.Contains(a.Text, step.asks) || step.done() || changed.Secret != sub().Secret {
				t.Errorf("%s does not ask before: %d %s", step.target, a.Status, a.Text)
			}
			form := url.Values{}
			for n := range parse(t, a.Text).Descendants() {
				if name := attribute(n, "name"); n.Data == "input" && attribute(n, "type") == "hidden" {
					form.Add(name, attribute(n, "value"))
				}
			}
			a = post(h, step.target, form)
		}
		if a.Status != http.StatusOK || !strings.Contains(text(parse(t, a.Text)), step.says) || !step.done() {
			t.Errorf("%s: %d, done: %v, %s", step.target, a.Status, step.done(), text(parse(t, a.Text)))
		}
		if step.target == "/subscriptions/orders/rotate-secret" && !strings.Contains(a.Text, sub().Secret) {
			t.Error("the new secret is not shown")
		}
		h.Secret(sub().Secret)
		if err := h.Store.RefreshCatalog(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if shown := text(get(t, h, "/subscriptions/orders", http.StatusOK)); strings.Contains(shown, sub().Secret) {
		t.Error("the page shows the secret")
	}
}

// formOf returns where the form of a button goes, and what it sends.
func formOf(t *testing.T, page, button string) (target string, fields url.Values) {
	t.Helper()
	for form := range parse(t, page).Descendants() {
		if form.Data != "form" {
			continue
		}
		has := false
		fields = url.Values{}
		for n := range form.Descendants() {
			has = has || attribute(n, "id") == button
			if n.Data == "input" {
				fields.Add(attribute(n, "name"), attribute(n, "value"))
			}
		}
		if has {
			return attribute(form, "action"), fields
		}
	}
	t.Fatalf("there is no %s in\n%s", button, page)
	return "", nil
}

// TestAButtonIsAboutWhatTheListShows holds that the filters of a list are those of its buttons, that what comes after
// the question is not meant by it, and that one goes back to the same list.
func TestAButtonIsAboutWhatTheListShows(t *testing.T) {
	h := troubled(t)
	add := func(path string) {
		h.Store.DB.PutLetter(fsm.DeadLetter{
			Subscription: "orders", Generation: h.Store.DB.Subscriptions()["orders"].Generation,
			Consumer: fsm.ConsumerID("orders", path), Stream: path, From: fsm.Start, To: "0009", Within: "0009",
			Events: 1, Reason: "status 400", DeadAt: h.Clock(),
		})
	}
	h.Pass(time.Minute)
	since := h.Clock().Format(time.RFC3339)
	add("/orders/1")
	add("/orders/2")
	h.Pass(time.Minute)
	list := "/dead-letters?since=" + url.QueryEscape(since) + "&stream=%2Forders%2F1&subscription=orders"
	target, fields := formOf(t, h.Operator(http.MethodGet, list, "").Text, "all-discard")
	asked := post(h, target, fields)
	add("/orders/1")
	h.Pass(time.Minute)
	target, fields = formOf(t, asked.Text, "confirm")
	done := post(h, target, fields)
	if shown := text(parse(t, done.Text)); !strings.Contains(shown, "1 dead letter is discarded") {
		t.Fatalf("it says %s", shown)
	}
	for n := range parse(t, done.Text).Descendants() {
		if attribute(n, "id") == "back" && !strings.HasPrefix(attribute(n, "href"), list) {
			t.Errorf("back is %s", attribute(n, "href"))
		}
	}
	left := map[string]int{}
	all := h.Operator(http.MethodGet, "/api/v1/dead-letters?limit=1000", "")
	for _, row := range ports.RowsOf(all, "dead_letters") {
		left[row["stream"].(string)]++
	}
	if left["/orders/0"] != 60 || left["/orders/1"] != 1 || left["/orders/2"] != 1 {
		t.Errorf("left are %v", left)
	}
	target, fields = formOf(t, h.Operator(http.MethodGet, list, "").Text, "all-replay")
	if a := post(h, target, fields); !strings.Contains(a.Text, "1 dead letter is replayed") {
		t.Errorf("%s: %s", target, text(parse(t, a.Text)))
	}
	replays := "/replays?stream=%2Forders%2F1&subscription=orders"
	target, fields = formOf(t, h.Operator(http.MethodGet, replays, "").Text, "all-cancel")
	asked = post(h, target, fields)
	target, fields = formOf(t, asked.Text, "confirm")
	if a := post(h, target, fields); !strings.Contains(a.Text, "1 replay is cancelled") {
		t.Errorf("%s: %s", target, text(parse(t, a.Text)))
	}
	page := h.Operator(http.MethodGet, "/subscriptions/orders", "").Text
	target, fields = formOf(t, page, "all-replay")
	if a := post(h, target, fields); !strings.Contains(a.Text, "62 dead letters are replayed") {
		t.Errorf("%s: %s", target, text(parse(t, a.Text)))
	}
}

// TestAListThatIsTooLongForOneRequestGoesOn holds that each request ends in time and says that there is more, that the
// last one does not, and that what comes in between is not meant.
func TestAListThatIsTooLongForOneRequestGoesOn(t *testing.T) {
	const list = "/dead-letters?subscription=orders"
	for _, c := range []struct{ button, call, says, next string }{
		{"all-replay", "ReplayDeadLetters", " dead letters are replayed", "queued"},
		{"all-discard", "DropDeadLetters", " dead letters are discarded", "discarded"},
	} {
		h := troubled(t)
		h.Store.DB.SetHooks(memstore.Hooks{Before: func(call memstore.Call) error {
			if call.Method == c.call {
				h.Pass(11 * time.Second) // more than one request may take
			}
			return nil
		}})
		late := func() {
			path := "/orders/1"
			h.Store.DB.PutLetter(fsm.DeadLetter{
				Subscription: "orders", Generation: h.Store.DB.Subscriptions()["orders"].Generation,
				Consumer: fsm.ConsumerID("orders", path), Stream: path, From: fsm.Start, To: "0009", Within: "0009",
				Events: 1, Reason: "status 400", DeadAt: h.Clock(),
			})
		}
		h.Pass(time.Second)
		target, fields := formOf(t, h.Operator(http.MethodGet, list, "").Text, c.button)
		a := post(h, target, fields)
		if c.button == "all-discard" {
			target, fields = formOf(t, a.Text, "confirm")
			a = post(h, target, fields)
		}
		done, requests := 0, 0
		for {
			n := 0
			shown := strings.TrimSpace(text(parse(t, a.Text)))
			for line := range strings.Lines(shown) {
				if said, found := strings.CutSuffix(strings.TrimSpace(line), c.says+"."); found {
					n, _ = strconv.Atoi(said)
				}
			}
			done, requests = done+n, requests+1
			if !strings.Contains(shown, "There was no time for all of them") {
				break
			}
			if requests > 60 {
				t.Fatalf("%s does not end", c.button)
			}
			late()
			target, fields = formOf(t, a.Text, "more")
			if fields.Get("subscription") != "orders" {
				t.Errorf("%s goes on with %v", c.button, fields)
			}
			a = post(h, target, fields)
		}
		if done != 60 || requests < 2 {
			t.Errorf("%s: %d letters in %d requests", c.button, done, requests)
		}
		// The operator API says the same.
		h = troubled(t)
		h.Store.DB.SetHooks(memstore.Hooks{Before: func(call memstore.Call) error {
			if call.Method == c.call {
				h.Pass(11 * time.Second)
			}
			return nil
		}})
		done, requests = 0, 0
		for cursor := ""; requests == 0 || cursor != ""; requests++ {
			body := fmt.Sprintf(`{"subscription":"orders","cursor":%q}`, cursor)
			a := h.Operator(http.MethodPost, "/api/v1"+strings.TrimSuffix(target, "?"), body)
			n, _ := a.Body[c.next].(float64)
			cursor, _ = a.Body["next"].(string)
			if done += int(n); a.Status >= 300 || requests > 60 {
				t.Fatalf("%d %s", a.Status, a.Text)
			}
			late()
		}
		if done != 60 || requests < 2 {
			t.Errorf("%s: %d letters in %d requests of the API", target, done, requests)
		}
	}
}

// TestASecretIsRotatedOnceByOneForm holds that a form that is sent twice does not end the signatures of the secret that
// receivers have, and that a second rotation keeps them as well.
func TestASecretIsRotatedOnceByOneForm(t *testing.T) {
	h := troubled(t)
	sub := func() fsm.Subscription { return h.Store.DB.Subscriptions()["orders"] }
	first := sub().Secret
	const rotate = "/subscriptions/orders/rotate-secret"
	_, fields := formOf(t, post(h, rotate, nil).Text, "confirm")
	for i, status := range []int{http.StatusOK, http.StatusConflict} {
		if a := post(h, rotate, fields); a.Status != status || sub().Previous.Secret != first {
			t.Errorf("%d: %d, and the previous secret is the first: %v", i, a.Status, sub().Previous.Secret == first)
		}
		h.Secret(sub().Secret)
	}
	second := sub().Secret
	_, fields = formOf(t, post(h, rotate, nil).Text, "confirm")
	if a := post(h, rotate, fields); a.Status != 200 || sub().Previous.Secret != first || sub().Secret == second {
		t.Errorf("again: %d %s", a.Status, text(parse(t, a.Text)))
	}
	h.Secret(sub().Secret)
}

func parse(t *testing.T, page string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestOnlyThePageItselfSendsForms holds that neither another site, nor a form without a token, nor another machine does
// anything.
func TestOnlyThePageItselfSendsForms(t *testing.T) {
	h := troubled(t)
	const pause = "/subscriptions/orders/pause"
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	page := h.Operator(http.MethodGet, "/subscriptions/orders", "")
	cookie := strings.SplitN(page.Header.Get("Set-Cookie"), ";", 2)[0]
	token := ""
	for n := range parse(t, page.Text).Descendants() {
		if attribute(n, "name") == "csrf" {
			token = attribute(n, "value")
		}
	}
	if token == "" || !strings.Contains(page.Header.Get("Set-Cookie"), "SameSite=Strict") {
		t.Fatalf("the token is %q, the cookie %q", token, page.Header.Get("Set-Cookie"))
	}
	for name, header := range map[string][]string{
		"another site":          {"Sec-Fetch-Site", "cross-site"},
		"another origin":        {"Origin", "https://evil.example", "Cookie", cookie},
		"a sibling":             {"Sec-Fetch-Site", "same-site"},
		"a form without cookie": {},
		"another host":          {"Sec-Fetch-Site", "same-origin", "X-Forwarded-For", "192.0.2.1"},
	} {
		body := url.Values{"csrf": {token}}.Encode()
		a := h.Operator(http.MethodPost, pause, body, append(append([]string{}, form...), header...)...)
		if a.Status != http.StatusForbidden || h.Store.DB.Subscriptions()["orders"].Paused {
			t.Errorf("%s: %d %s", name, a.Status, a.Text)
		}
	}
	if a := h.Operator(http.MethodPost, pause, "csrf=wrong", append(form, "Cookie", cookie)...); a.Status != 403 {
		t.Errorf("a wrong token: %d", a.Status)
	}
	h.At = net.IPv4(10, 1, 2, 3)
	if a := post(h, pause, nil); a.Status != http.StatusForbidden {
		t.Errorf("another machine: %d", a.Status)
	}
	h.At = net.IPv6loopback
	if h.Store.DB.Subscriptions()["orders"].Paused {
		t.Fatal("it is paused")
	}
	body := url.Values{"csrf": {token}}.Encode()
	if a := h.Operator(http.MethodPost, pause, body, append(form, "Cookie", cookie)...); a.Status != http.StatusOK ||
		!h.Store.DB.Subscriptions()["orders"].Paused {
		t.Errorf("with the token: %d %s", a.Status, a.Text)
	}
}

// TestAFormThatIsWrongDoesNothing holds that errors of actions are pages that say what is wrong.
func TestAFormThatIsWrongDoesNothing(t *testing.T) {
	h := troubled(t)
	for target, want := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"/subscriptions/none/pause":   {nil, 404, "there is no subscription with this id"},
		"/dead-letters/replay":        {nil, 400, "subscription is missing"},
		"/dead-letters/dl_9_9/replay": {nil, 400, "no id of a dead letter"},
		"/replays/cancel": {
			url.Values{"subscription": {"none"}, "confirmed": {"yes"}}, 404, "no subscription",
		},
		"/dead-letters/discard": {
			url.Values{"subscription": {"orders"}, "stream": {"x"}, "confirmed": {"yes"}}, 400, "stream:",
		},
		"/subscriptions/orders/replay":  {url.Values{"stream": {"/orders/0"}, "from": {"?"}}, 400, "from:"},
		"/subscriptions/orders/consent": {nil, 501, "REVEILLE_CONSENT"},
		"/subscriptions/orders/test": {
			url.Values{"long": {strings.Repeat("x", 70<<10)}}, 400, "the form cannot be read",
		},
	} {
		a := post(h, target, want.form)
		if shown := text(parse(t, a.Text)); a.Status != want.status || !strings.Contains(shown, want.says) {
			t.Errorf("%s: %d, want %d with %q:\n%s", target, a.Status, want.status, want.says, shown)
		}
	}
	h.Tester.Err = errors.New("broken")
	if a := post(h, "/subscriptions/orders/test", nil); a.Status != http.StatusInternalServerError {
		t.Errorf("a test that is broken: %d", a.Status)
	}
}
