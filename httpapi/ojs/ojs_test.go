package ojs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/httpapi"
	"reveille/httpapi/ojs"
	"reveille/test/ports"
)

const ojsHook = `"url":"https://w.example/hook","events":["*"]`

func newOJS(t *testing.T, change func(*httpapi.Config)) *harness {
	t.Helper()
	return newHarness(t, func(c *httpapi.Config) {
		c.OJSStreams = "/jobs/**"
		if change != nil {
			change(c)
		}
	})
}

// ojs creates a subscription by the resources of OJS, and returns its path, and its body as it was answered.
func (h *harness) ojs(fields string) (path string, a ports.Answer) {
	h.T.Helper()
	a = h.API("POST", ojs.Subscriptions, "{"+ojsHook+fields+"}", "Content-Type", "application/json")
	if a.Status != http.StatusCreated {
		h.T.Fatalf("POST: %d %s", a.Status, a.Text)
	}
	h.Secret(a.Body["secret"].(string))
	return ojs.Subscriptions + "/" + a.Body["id"].(string), a
}

// stored is the subscription as the store has it.
func (h *harness) stored(path string) fsm.Subscription {
	h.T.Helper()
	if err := h.Store.RefreshCatalog(h.T.Context()); err != nil {
		h.T.Fatal(err)
	}
	sub, found := h.Store.Catalog().Get(path[strings.LastIndexByte(path, '/')+1:])
	if !found {
		h.T.Fatalf("there is no %s", path)
	}
	return sub
}

// TestASubscriptionOfOJS holds the shapes of 5.1 and 6, and that it is a push subscription by the text's own rules: its
// delays (7.2), its time-out (7.3), and no order (7.4).
func TestASubscriptionOfOJS(t *testing.T) {
	h := newOJS(t, nil)
	path, a := h.ojs(`,"metadata":{"owner":"platform-team"}`)
	id, secret := a.Body["id"].(string), a.Body["secret"].(string)
	shape := regexp.MustCompile(`^\{"id":"sub_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",` +
		`"url":"https://w.example/hook","events":\["\*"\],"active":true,"secret":"whsec_[A-Za-z0-9+/]{43}=",` +
		`"metadata":\{"owner":"platform-team"\},"created_at":"2026-01-02T03:04:05Z"\}\n$`)
	if !shape.MatchString(a.Text) || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("got %s", a.Text)
	}
	sub := h.stored(path)
	want := fsm.Subscription{
		ID: id, Generation: sub.Generation, Pattern: "/jobs/**", Webhook: "https://w.example/hook", Secret: secret,
		Mode: fsm.ModePush, Format: fsm.FormatOJS, Signature: fsm.SignatureStandardWebhooks, Batch: 1,
		Ordering: fsm.OrderingNone, Timeout: 30 * time.Second, Metadata: map[string]string{"owner": "platform-team"},
		Retry: []time.Duration{
			30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour,
			24 * time.Hour,
		},
		CreatedAt: sub.CreatedAt, Version: sub.Version, Filter: fsm.Filter{Events: []string{"*"}},
	}
	if !sub.Equal(want) || sub.Generation == "" {
		t.Errorf("stored is %+v, want %+v", sub, want)
	}

	shown := strings.Replace(a.Text, `"secret":"`+secret+`",`, "", 1)
	if got := h.API("GET", path, ""); got.Status != 200 || got.Text != shown {
		t.Errorf("GET: %d %s, want %s", got.Status, got.Text, shown)
	}
	list := `{"subscriptions":[` + shown + "]}\n"
	if got := h.API("GET", ojs.Subscriptions, ""); got.Status != 200 || got.Text != list {
		t.Errorf("the list: %d %s, want %s", got.Status, got.Text, list)
	}
	if got := h.API("GET", "/**?subscription="+id, ""); got.Status != 200 ||
		!strings.Contains(got.Text, `"format":"ojs"`) {
		t.Errorf("by the other API: %d %s", got.Status, got.Text)
	}

	for _, again := range []string{"found", "gone"} {
		if got := h.API("DELETE", path, ""); got.Status != 204 || got.Text != "" {
			t.Errorf("DELETE of one that is %s: %d %s", again, got.Status, got.Text)
		}
	}
	for _, request := range [][2]string{
		{"GET", ""}, {"HEAD", ""}, {"PATCH", ""}, {"POST", "/test"}, {"POST", "/rotate-secret"},
	} {
		h.Want(h.API(request[0], path+request[1], "{}"), 404, fsm.CodeSubscriptionNotFound, "")
	}
	if got := h.API("GET", ojs.Subscriptions, ""); got.Text != `{"subscriptions":[]}`+"\n" {
		t.Errorf("the list: %s", got.Text)
	}
}

// TestAnOJSSubscriptionIsChanged holds PATCH (6.4): what is left out stays, and active is what an operator's pause and
// resumption are.
func TestAnOJSSubscriptionIsChanged(t *testing.T) {
	h := newOJS(t, nil)
	path, _ := h.ojs(`,"active":false,"metadata":{"a":"1","b":"2"}`)
	if sub := h.stored(path); !sub.Paused {
		t.Errorf("created inactive: %+v", sub)
	}
	if err := h.Store.RetireSubscription(t.Context(), h.stored(path)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, patch string
		want        []string
		is          func(fsm.Subscription) bool
	}{
		{
			"nothing", `{}`,
			[]string{`"active":false`, `"metadata":{"a":"1","b":"2"}`},
			func(s fsm.Subscription) bool { return s.Paused && s.Retired },
		},
		{
			"active", `{"active":true}`,
			[]string{`"active":true`, `"url":"https://w.example/hook"`},
			func(s fsm.Subscription) bool { return !s.Stopped() },
		},
		{
			"active, once more", `{"active":true}`,
			[]string{`"active":true`},
			func(s fsm.Subscription) bool { return !s.Paused },
		},
		{
			"inactive, and another URL", `{"active":false,"url":"https://x.example/"}`,
			[]string{`"active":false`, `"url":"https://x.example/"`},
			func(s fsm.Subscription) bool { return s.Paused && s.Webhook == "https://x.example/" },
		},
		{
			"active by default", `{"active":null}`,
			[]string{`"active":true`},
			func(s fsm.Subscription) bool { return !s.Paused },
		},
		{
			"a key of the metadata", `{"metadata":{"a":null,"c":"3"}}`,
			[]string{`"metadata":{"b":"2","c":"3"}`},
			func(s fsm.Subscription) bool { return !s.Paused && len(s.Metadata) == 2 },
		},
		{
			"no metadata", `{"metadata":null}`, nil,
			func(s fsm.Subscription) bool { return len(s.Metadata) == 0 },
		},
		{"all events", `{"events":["*"]}`, []string{`"events":["*"]`}, func(fsm.Subscription) bool { return true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := h.stored(path)
			a := h.API("PATCH", path, tc.patch)
			if a.Status != 200 || strings.Contains(a.Text, "secret") {
				t.Fatalf("got %d %s", a.Status, a.Text)
			}
			for _, want := range tc.want {
				if !strings.Contains(a.Text, want) {
					t.Errorf("got %s, want %s", a.Text, want)
				}
			}
			after := h.stored(path)
			if !tc.is(after) || after.Secret != before.Secret || after.Format != fsm.FormatOJS {
				t.Errorf("stored is %+v", after)
			}
			if got := h.API("GET", path, ""); got.Text != a.Text {
				t.Errorf("GET: %s, want %s", got.Text, a.Text)
			}
		})
	}
}

// TestARefusedOJSSubscriptionIsNotMade holds that the fields are judged as those of a PUT are, and that the refusal
// names them as the text does.
func TestARefusedOJSSubscriptionIsNotMade(t *testing.T) {
	h := newOJS(t, nil)
	path, _ := h.ojs("")
	before := h.stored(path)
	url := func(text string) string { return fmt.Sprintf(`{"url":%s,"events":["*"]}`, text) }
	for _, tc := range []struct {
		name, body string
		code       fsm.Code
		says       string
		patch      bool
	}{
		{"no JSON", `url=a`, fsm.CodeInvalidRequest, "not JSON", true},
		{"a list", `[]`, fsm.CodeInvalidRequest, "not a JSON object", true},
		{"no url", `{"events":["*"]}`, fsm.CodeInvalidRequest, "url is missing", false},
		{"no events", `{"url":"https://w.example/"}`, fsm.CodeInvalidRequest, "events is missing", false},
		{"a url that is null", url(`null`), fsm.CodeInvalidRequest, "url is missing", true},
		{"a url that is a number", url(`7`), fsm.CodeInvalidRequest, "url must be a URL", true},
		{"an empty url", url(`""`), fsm.CodeInvalidRequest, "url is empty", true},
		{
			"a long url", url(`"https://w.example/` + strings.Repeat("x", 2048) + `"`), fsm.CodeInvalidRequest,
			"url is longer than 2048 bytes", true,
		},
		{"no list of events", `{` + ojsHook + `,"events":"*"}`, fsm.CodeInvalidRequest, "events must be a list", true},
		{"events that are null", `{` + ojsHook + `,"events":null}`, fsm.CodeInvalidRequest, "events is missing", true},
		{"an empty list", `{` + ojsHook + `,"events":[]}`, fsm.CodeInvalidRequest, "events must be a list", true},
		{
			"a wildcard in the middle", `{` + ojsHook + `,"events":["job.*.x"]}`, fsm.CodeInvalidRequest,
			`events[0] can have "*" only`, true,
		},
		{
			"a misspelt filter", `{` + ojsHook + `,"filter":{"queue":["a"]}}`, fsm.CodeInvalidRequest,
			`unknown field "filter.queue"; known are filter.queues, filter.job_types`, true,
		},
		{
			"a filter without values", `{` + ojsHook + `,"filter":{"queues":[]}}`, fsm.CodeInvalidRequest,
			"filter.queues must be a list", true,
		},
		{"a filter that is a list", `{` + ojsHook + `,"filter":[]}`, fsm.CodeInvalidRequest, "filter must be", true},
		{"a secret", `{` + ojsHook + `,"secret":"hush"}`, fsm.CodeInvalidRequest, `unknown field "secret"`, true},
		{"a name of the other API", `{` + ojsHook + `,"webhook":"x"}`, fsm.CodeInvalidRequest, `field "webhook"`, true},
		{"active in words", `{` + ojsHook + `,"active":"no"}`, fsm.CodeInvalidRequest, "active must be true or", true},
		{
			"metadata that are no texts", `{` + ojsHook + `,"metadata":{"a":1}}`, fsm.CodeInvalidRequest,
			"metadata.a must be a string", true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h.Want(h.API("POST", ojs.Subscriptions, tc.body), 400, tc.code, tc.says)
			if tc.patch {
				h.Want(h.API("PATCH", path, tc.body), 400, tc.code, tc.says)
			}
		})
	}
	h.Rec.Refuse = fmt.Errorf("webhook must use https, not http")
	h.Want(h.API("POST", ojs.Subscriptions, "{"+ojsHook+"}"), 400, fsm.CodeInvalidWebhook, "url must use https")
	h.Want(h.API("PATCH", path, "{"+ojsHook+"}"), 400, fsm.CodeInvalidWebhook, "url must use https")
	if after := h.stored(path); !after.Equal(before) || len(h.Store.Catalog().All()) != 1 {
		t.Errorf("it is %+v, of %d", after, len(h.Store.Catalog().All()))
	}
}

// TestOnlySubscriptionsOfOJSAreShownByOJS holds that what was made otherwise cannot be read, changed, tested or deleted
// by its resources.
func TestOnlySubscriptionsOfOJSAreShownByOJS(t *testing.T) {
	const id = "sub_019539a4-b68c-7def-8000-aabbccddeeff"
	h := newOJS(t, nil)
	h.Want(h.API("PUT", "/jobs/**?subscription=mine", `{"webhook":"https://w.example/","mode":"push","format":"ojs"}`),
		201, "", "")
	h.Want(h.API("PUT", "/jobs/**?subscription="+id, `{"webhook":"https://w.example/","mode":"push"}`), 201, "", "")
	for _, id := range []string{id, "mine", "none", "sub_1", "sub_", "sub_{019539a4-b68c-7def-8000-aabbccddeeff}"} {
		for _, request := range [][2]string{
			{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/test"}, {"POST", "/rotate-secret"},
		} {
			a := h.API(request[0], ojs.Subscriptions+"/"+id+request[1], "{}")
			h.Want(a, 404, fsm.CodeSubscriptionNotFound, "")
		}
	}
	if a := h.API("GET", ojs.Subscriptions, ""); a.Text != `{"subscriptions":[]}`+"\n" {
		t.Errorf("the list: %s", a.Text)
	}
	if n := len(h.Store.Catalog().All()); n != 2 {
		t.Errorf("%d are left", n)
	}
}

// TestTheSecretOfAnOJSSubscriptionIsRotated holds 8.3 with the overlap that it recommends.
func TestTheSecretOfAnOJSSubscriptionIsRotated(t *testing.T) {
	h := newOJS(t, nil)
	path, created := h.ojs("")
	a := h.API("POST", path+"/rotate-secret", "")
	secret, _ := a.Body["secret"].(string)
	h.Secret(secret)
	want := fmt.Sprintf(`{"id":%q,"secret":%q,"previous_signs_until":"2026-01-03T03:04:05Z"}`+"\n", created.Body["id"],
		secret)
	sub := h.stored(path)
	if a.Status != 200 || a.Text != want || sub.Secret != secret || sub.Previous.Secret != created.Body["secret"] {
		t.Errorf("got %d %s of %+v, want %s", a.Status, a.Text, sub, want)
	}
	a = h.API("POST", path+"/rotate-secret", `{"overlap":"0s"}`)
	h.Secret(a.Body["secret"].(string))
	if sub := h.stored(path); a.Status != 200 || len(a.Body) != 2 || sub.Previous.Secret != "" {
		t.Errorf("without an overlap: %d %s of %+v", a.Status, a.Text, sub)
	}
	h.Want(h.API("POST", path+"/rotate-secret", `{"for":"1h"}`), 400, fsm.CodeInvalidRequest, `unknown field "for"`)
}

// TestAnOJSSubscriptionIsTested holds the shape of 6.6.
func TestAnOJSSubscriptionIsTested(t *testing.T) {
	p := &ports.Tester{Result: fsm.TestDelivery{Status: 200, Took: 145 * time.Millisecond, Body: []byte("OK")}}
	h := newOJS(t, func(c *httpapi.Config) { c.Tester = p })
	path, created := h.ojs("")
	a := h.API("POST", path+"/test", "")
	const want = `{"success":true,"status_code":200,"response_time_ms":145,"response_body":"OK"}` + "\n"
	if a.Status != 200 || a.Text != want || len(p.Tested) != 1 || p.Tested[0].ID != created.Body["id"] {
		t.Errorf("got %d %s of %+v", a.Status, a.Text, p.Tested)
	}
	p.Err = fsm.ErrTesting
	h.Want(h.API("POST", path+"/test", ""), 429, fsm.CodeTooManyRequests, "")
}

// TestPagesMayNotPostToOJS holds that a page that was not allowed to use the API port cannot make a subscription with
// the browser of somebody who can: no browser asks before a POST.
func TestPagesMayNotPostToOJS(t *testing.T) {
	for _, tc := range []struct {
		name    string
		origins []string
		header  []string
		status  int
	}{
		{"a program", nil, nil, 201},
		{"a page of the same host", nil, []string{"Origin", "http://example.com"}, 201},
		{"a page of another", nil, []string{"Origin", app}, 403},
		{"a page without an origin", nil, []string{"Origin", "null"}, 403},
		{"a form of another", nil, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a listed page", []string{app}, []string{"Origin", app}, 201},
		{"any page", []string{"*"}, []string{"Origin", app}, 201},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newOJS(t, func(c *httpapi.Config) { c.Origins = tc.origins })
			path, _ := h.ojs("")
			for target, body := range map[string]string{
				ojs.Subscriptions: "{" + ojsHook + "}", path + "/test": "", path + "/rotate-secret": "",
			} {
				a := h.API("POST", target, body, tc.header...)
				want := tc.status
				if want == 201 && target != ojs.Subscriptions {
					want = 200
				}
				if a.Status != want {
					t.Errorf("%s: %d %s", target, a.Status, a.Text)
				}
			}
		})
	}
}

// TestNothingElseIsAtTheRootOfOJS holds that no request there reaches the stream server while OJS is served, and all of
// them do while it is not.
func TestNothingElseIsAtTheRootOfOJS(t *testing.T) {
	var reached []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.RequestURI)
	}))
	t.Cleanup(srv.Close)
	targets := []string{
		"/ojs/v1/webhooks", "/ojs/v1/webhooks/", "/ojs/v1/webhooks/deliveries/",
		"/ojs/v1/webhooks/deliveries/del_1/retry", "/ojs/v1/webhooks/deliveries/del_1/replay",
		"/ojs/v1/webhooks/subscriptions/", "/ojs/v1/webhooks/subscriptions/sub_1/",
		"/ojs/v1/webhooks/subscriptions/sub_1/test/x", "/ojs/v1/webhooks/subscriptions/sub_1/events",
		"/ojs/v1/a/../webhooks/subscriptions", `/ojs/v1\webhooks/subscriptions`,
	}
	for _, pattern := range []string{"", "/ojs/**"} {
		h := newHarness(t, func(c *httpapi.Config) {
			c.Gateway, c.UpstreamURL, c.OJSStreams = true, ports.MustURL(t, srv.URL), pattern
		})
		for _, target := range append(targets, "/ojs/v1/webhooksome", "/ojs/v1", "/ojs/jobs") {
			reached = nil
			a := h.API("POST", target, "")
			own := pattern != "" && slices.Contains(targets, target)
			if own {
				h.Want(a, 404, fsm.CodeNotFound, "")
			}
			if own == (len(reached) > 0) {
				t.Errorf("with the pattern %q, %s reached %q", pattern, target, reached)
			}
		}
	}
}

// TestTheFilterOfAnOJSSubscription holds 5.2: what is asked for is stored for the deliveries, and shown by the names of
// the text, whichever API has set it.
func TestTheFilterOfAnOJSSubscription(t *testing.T) {
	h := newOJS(t, nil)
	path, _ := h.ojs("")
	other := "/**?subscription=" + path[len(ojs.Subscriptions)+1:]
	queues := func(names ...fsm.Value) map[string][]fsm.Value { return map[string][]fsm.Value{"data.queue": names} }
	for _, tc := range []struct {
		name, target, patch, shown string
		want                       fsm.Filter
	}{
		{
			"types and queues", path, `{"events":["job.*","workflow.failed"],"filter":{"queues":["a","b"]}}`,
			`"events":["job.*","workflow.failed"],"filter":{"queues":["a","b"]},`,
			fsm.Filter{Events: []string{"job.*", "workflow.failed"}, Values: queues(`"a"`, `"b"`)},
		},
		{
			"job types beside the queues", path, `{"filter":{"job_types":["x.y"]}}`,
			`"filter":{"job_types":["x.y"],"queues":["a","b"]},`,
			fsm.Filter{Events: []string{"job.*", "workflow.failed"}, Values: map[string][]fsm.Value{
				"data.queue": {`"a"`, `"b"`}, "data.job_type": {`"x.y"`},
			}},
		},
		{
			"no job types", path, `{"filter":{"job_types":null}}`, `"filter":{"queues":["a","b"]},`,
			fsm.Filter{Events: []string{"job.*", "workflow.failed"}, Values: queues(`"a"`, `"b"`)},
		},
		{
			"all of some queues", path, `{"events":["*"]}`, `"events":["*"],"filter":{"queues":["a","b"]},`,
			fsm.Filter{Events: []string{"*"}, Values: queues(`"a"`, `"b"`)},
		},
		{"all", path, `{"filter":null}`, `"events":["*"],"active"`, fsm.Filter{Events: []string{"*"}}},
		{
			"by the other API", other, `{"events":null,"filter":{"queues":["c"],"data.attempt":[1]}}`,
			`"events":["*"],"filter":{"data.attempt":[1],"queues":["c"]},`,
			fsm.Filter{Values: map[string][]fsm.Value{"data.queue": {`"c"`}, "data.attempt": {"1"}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h.Want(h.API("PATCH", tc.target, tc.patch), 200, "", "")
			if a := h.API("GET", path, ""); !strings.Contains(a.Text, tc.shown) {
				t.Errorf("got %s, want %s", a.Text, tc.shown)
			}
			if got := h.stored(path).Filter; !got.Equal(tc.want) {
				t.Errorf("stored is %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestObserversHearOfSubscriptions holds that they are told of each that is made or deleted, by whichever API, once.
func TestObserversHearOfSubscriptions(t *testing.T) {
	var heard []string
	h := newOJS(t, func(c *httpapi.Config) {
		c.Outcomes.Observe(router.Observer{Subscription: func(sub fsm.Subscription, there bool) {
			heard = append(heard, fmt.Sprint(sub.ID, " ", sub.Format, " ", there))
		}})
	})
	path, a := h.ojs("")
	for range 2 {
		h.API("PUT", "/**?subscription=s", `{"webhook":"https://w.example/"}`)
	}
	h.API("PATCH", path, `{"active":false}`)
	for range 2 {
		h.API("DELETE", path, "")
		h.API("DELETE", "/**?subscription=s", "")
	}
	id := a.Body["id"].(string)
	want := []string{id + " ojs true", "s wake true", id + " ojs false", "s wake false"}
	if !slices.Equal(heard, want) {
		t.Errorf("heard is %q, want %q", heard, want)
	}
}
