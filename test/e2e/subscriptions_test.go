package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// wantFields checks that an answer is a JSON object of just these fields.
func wantFields(t *testing.T, res harness.Response, status int, want map[string]string) {
	t.Helper()
	var fields map[string]json.RawMessage
	res.Decode(t, &fields)
	delete(fields, "backfill") // told of for as long as it goes on
	got := map[string]string{}
	for name, value := range fields {
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got[name] = text
	}
	if res.Status != status || !maps.Equal(got, want) {
		t.Errorf("%d %v, want %d %v", res.Status, got, status, want)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
}

func wantError(t *testing.T, res harness.Response, code fsm.Code, says string) {
	t.Helper()
	var answer struct {
		Error struct{ Code, Message string }
	}
	res.Decode(t, &answer)
	if res.Status != code.Status() || answer.Error.Code != string(code) ||
		!strings.Contains(answer.Error.Message, says) {
		t.Errorf("%d %s, want %d %s and a message with %q", res.Status, res.Body, code.Status(), code, says)
	}
}

// TestSubscriptionAPI follows the webhook spec, Subscription HTTP API.
func TestSubscriptionAPI(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	s := e.empty(t)
	pattern, id := s.folder+"/agents/*", s.sub.ID
	byID := func(p, id string) string { return p + "?subscription=" + id }
	body := jsonOf(t, map[string]string{"webhook": s.worker.URL + "/hook", "description": "what it is for"})
	public := map[string]string{
		"subscription_id": id, "pattern": pattern, "webhook": s.worker.URL + "/hook",
		"description": "what it is for",
	}
	// shown are the IDs that a list has, in which every entry must be as it is shown.
	shown := func(t *testing.T, p string) []string {
		t.Helper()
		res := s.gateway.Do(http.MethodGet, p+"?subscriptions", "")
		var list struct {
			Subscriptions []map[string]json.RawMessage `json:"subscriptions"`
		}
		if res.Decode(t, &list); res.Status != http.StatusOK || list.Subscriptions == nil {
			t.Fatalf("GET %s?subscriptions: %d %s", p, res.Status, res.Body)
		}
		ids := []string{}
		for _, sub := range list.Subscriptions {
			if _, has := sub["webhook_secret"]; has || strings.Contains(res.Body, "whsec_") {
				t.Errorf("the list shows a secret: %s", res.Body)
			}
			ids = append(ids, strings.Trim(string(sub["subscription_id"]), `"`))
		}
		return ids
	}
	wantShown := func(t *testing.T, p string, want ...string) {
		t.Helper()
		if got := shown(t, p); !slices.Equal(got, want) {
			t.Errorf("GET %s?subscriptions has %v, want %v", p, got, want)
		}
	}

	t.Run("before there is any, the lists are empty and one by id is not found", func(t *testing.T) {
		wantShown(t, "/**")
		wantShown(t, pattern)
		wantError(t, s.gateway.Do(http.MethodGet, byID("/**", id), ""), fsm.CodeSubscriptionNotFound, "")
	})

	var secret string
	t.Run("create: 201 with the secret", func(t *testing.T) {
		res := s.gateway.PutSubscription(pattern, id, body)
		var made harness.Subscription
		res.Decode(t, &made)
		secret = made.Secret
		if !strings.HasPrefix(secret, "whsec_") || len(secret) < len("whsec_")+32 {
			t.Errorf("the secret is %q", secret)
		}
		want := maps.Clone(public)
		want["webhook_secret"] = secret
		wantFields(t, res, http.StatusCreated, want)
	})
	t.Run("create the same once more: 200 without the secret, "+
		"under either spelling of the pattern", func(t *testing.T) {
		for _, p := range []string{pattern, s.folder + "/agents/%2A", s.folder + "/agents/%2a"} {
			wantFields(t, s.gateway.PutSubscription(p, id, body), http.StatusOK, public)
		}
	})
	t.Run("create with the same id and another configuration: 409, and nothing changes", func(t *testing.T) {
		for _, tt := range []struct{ pattern, body string }{
			{s.folder + "/agents/**", body},
			{
				pattern,
				jsonOf(t, map[string]string{"webhook": s.worker.URL + "/other", "description": "what it is for"}),
			},
			{pattern, jsonOf(t, map[string]string{"webhook": s.worker.URL + "/hook", "description": "something else"})},
			{pattern, jsonOf(t, map[string]string{"webhook": s.worker.URL + "/hook"})},
		} {
			wantError(t, s.gateway.PutSubscription(tt.pattern, id, tt.body), fsm.CodeSubscriptionConflict, "")
		}
		wantFields(t, s.gateway.Do(http.MethodGet, byID("/**", id), ""), http.StatusOK, public)
	})
	t.Run("get by id, under /** and under its own pattern: without the secret", func(t *testing.T) {
		for _, p := range []string{"/**", pattern, s.folder + "/agents/%2A"} {
			wantFields(t, s.gateway.Do(http.MethodGet, byID(p, id), ""), http.StatusOK, public)
		}
		wantError(t, s.gateway.Do(http.MethodGet, byID(s.folder+"/other/*", id), ""), fsm.CodeSubscriptionNotFound, "")
		wantError(t, s.gateway.Do(http.MethodGet, byID("/**", id+"x"), ""), fsm.CodeSubscriptionNotFound, "")
	})

	second, third := id+"-2", id+"-3"
	t.Run("list by pattern and list all", func(t *testing.T) {
		plain := jsonOf(t, map[string]string{"webhook": s.worker.URL})
		for i, p := range map[string]string{second: pattern, third: s.folder + "/other/*"} {
			if res := s.gateway.PutSubscription(p, i, plain); res.Status != http.StatusCreated {
				t.Fatalf("%d %s", res.Status, res.Body)
			}
		}
		wantShown(t, pattern, id, second)
		wantShown(t, s.folder+"/agents/%2A", id, second)
		wantShown(t, s.folder+"/other/*", third)
		wantShown(t, s.folder+"/nobody/*")
		wantShown(t, "/**", id, second, third)
	})

	t.Run("the secret is shown never again, in no answer and in no log", func(t *testing.T) {
		s.gateway.Create(s.folder + "/agents/one")
		wake := s.worker.Wake(2) // one of each subscription
		s.callback(wake, wake.Claim(true))
		if secret == "" || strings.Contains(s.rev.Log(), secret) || strings.Contains(s.rev.Log(), wake.Token) {
			t.Error("the log has a secret or a token")
		}
		for _, w := range s.worker.Wakes() {
			if strings.Contains(string(w.Body), secret) {
				t.Errorf("a wake has the secret: %s", w.Body)
			}
		}
	})

	t.Run("delete: 204, also of one that is not there", func(t *testing.T) {
		wantError(t, s.gateway.Do(http.MethodDelete, byID(s.folder+"/other/*", id), ""), fsm.CodeSubscriptionNotFound,
			"")
		wantShown(t, pattern, id, second)
		for range 2 {
			if res := s.gateway.Do(http.MethodDelete, byID(pattern, id), ""); res.Status != http.StatusNoContent ||
				res.Body != "" {
				t.Errorf("%d %q", res.Status, res.Body)
			}
			wantError(t, s.gateway.Do(http.MethodGet, byID("/**", id), ""), fsm.CodeSubscriptionNotFound, "")
		}
		wantShown(t, "/**", second, third)
	})
	t.Run("created anew after its deletion it has another secret", func(t *testing.T) {
		var made harness.Subscription
		res := s.gateway.PutSubscription(pattern, id, body)
		if res.Decode(t, &made); res.Status != http.StatusCreated || made.Secret == "" || made.Secret == secret {
			t.Errorf("%d %s", res.Status, res.Body)
		}
	})

	t.Run("an id of 1 to 128 characters of A-Za-z0-9._~- is fine", func(t *testing.T) {
		for _, good := range []string{"a", "A-z.0_9~", strings.Repeat("x", 128), "%61bc"} {
			res := s.gateway.PutSubscription(s.folder+"/ids/*", good, body)
			var made harness.Subscription
			res.Decode(t, &made)
			if decoded, err := url.PathUnescape(good); err != nil || res.Status != http.StatusCreated ||
				made.ID != decoded {
				t.Errorf("%s: %d %s (%v)", good, res.Status, res.Body, err)
			}
			s.gateway.DeleteSubscription("/**", good)
		}
	})
	t.Run("a malformed id is refused, whatever is asked of it", func(t *testing.T) {
		before := shown(t, "/**")
		for _, bad := range []string{
			"", strings.Repeat("x", 129), "a%20b", "a+b", "a%2Fb", "a:b", "a%3Ab", "%C3%BC", "a%00", "a*", "%zz", "a%",
			"x&subscription=y",
		} {
			wantError(t, s.gateway.PutSubscription(pattern, bad, body), fsm.CodeInvalidSubscriptionID, "subscription")
			wantError(t, s.gateway.Do(http.MethodGet, byID("/**", bad), ""), fsm.CodeInvalidSubscriptionID,
				"subscription")
			wantError(t, s.gateway.Do(http.MethodDelete, byID("/**", bad), ""), fsm.CodeInvalidSubscriptionID,
				"subscription")
		}
		wantShown(t, "/**", before...)
	})
	t.Run("a malformed body is refused, and the field is named", func(t *testing.T) {
		before := shown(t, "/**")
		for _, tt := range []struct{ body, says string }{
			{"", "JSON"},
			{"{", "JSON"},
			{"[]", "object"},
			{`"x"`, "object"},
			{"{}", "webhook"},
			{`{"webhook":null}`, "webhook"},
			{`{"webhook":""}`, "webhook"},
			{`{"webhook":7}`, "webhook"},
			{`{"webhook":["http://x"]}`, "webhook"},
			{`{"webhook":"` + s.worker.URL + `","description":7}`, "description"},
			{`{"webhook":"` + s.worker.URL + `","description":"` + strings.Repeat("x", 5000) + `"}`, "description"},
			{`{"webhook":"` + s.worker.URL + "/" + strings.Repeat("x", 3000) + `"}`, "webhook"},
		} {
			wantError(t, s.gateway.PutSubscription(pattern, id+"-new", tt.body), fsm.CodeInvalidRequest, tt.says)
		}
		for _, webhook := range []string{
			"/relative", "example.com/hook", "ftp://127.0.0.1/x", "http://",
			"http://user:secret@127.0.0.1/", "http://[::1", "::",
		} {
			res := s.gateway.PutSubscription(pattern, id+"-new", jsonOf(t, map[string]string{"webhook": webhook}))
			wantError(t, res, fsm.CodeInvalidWebhook, "webhook")
			if strings.Contains(res.Body, "secret@") {
				t.Errorf("the answer repeats the credentials: %s", res.Body)
			}
		}
		large := `{"webhook":"` + s.worker.URL + `","padding":"` + strings.Repeat("x", maxBody) + `"}`
		wantError(t, s.gateway.PutSubscription(pattern, id+"-new", large), fsm.CodeBodyTooLarge, "")
		wantShown(t, "/**", before...)
	})
	t.Run("fields that nobody knows are refused by name", func(t *testing.T) {
		more := strings.Replace(body, "{", `{"subscription_id":"another","webhook_secret":"mine","x":1,`, 1)
		wantError(t, s.gateway.PutSubscription(pattern, id, more), fsm.CodeInvalidRequest,
			`unknown field "subscription_id", "webhook_secret", "x"`)
	})
}

// refusal checks an error of the subscription API.
func refusal(t *testing.T, what string, res harness.Response, status int, code fsm.Code) {
	t.Helper()
	var body struct {
		Error struct{ Code, Message string }
	}
	if res.Status != status || json.Unmarshal([]byte(res.Body), &body) != nil || body.Error.Code != string(code) ||
		body.Error.Message == "" {
		t.Errorf("%s: the answer is %d %s, want %d with the code %s and a message", what, res.Status, res.Body, status,
			code)
	}
}

func TestDecisionsOnTheSubscriptionAPI(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	api := e.gateway
	const hook, other = "http://127.0.0.1:9/hook", "http://127.0.0.1:9/other"
	body := func(webhook, description string) string {
		b, _ := json.Marshal(map[string]string{"webhook": webhook, "description": description})
		return string(b)
	}

	t.Run("D11: the same configuration again is 200 without the secret, "+
		"any other under the same id is 409", func(t *testing.T) {
		created := api.PutSubscription("/d11/*", "same", body(hook, "text"))
		if created.Status != http.StatusCreated || !strings.Contains(created.Body, `"webhook_secret":"whsec_`) {
			t.Fatalf("the answer is %d %s, want 201 with a secret", created.Status, created.Body)
		}
		for _, pattern := range []string{"/d11/*", "/d11/%2A", "/d11/%2a"} {
			if res := api.PutSubscription(pattern, "same", body(hook, "text")); res.Status != http.StatusOK ||
				strings.Contains(res.Body, "secret") {
				t.Errorf("the same again as %s: %d %s, want 200 without the secret", pattern, res.Status, res.Body)
			}
		}
		for what, res := range map[string]harness.Response{
			"another webhook":     api.PutSubscription("/d11/*", "same", body(other, "text")),
			"another description": api.PutSubscription("/d11/*", "same", body(hook, "")),
			"another pattern":     api.PutSubscription("/d11/**", "same", body(hook, "text")),
		} {
			refusal(t, what, res, http.StatusConflict, fsm.CodeSubscriptionConflict)
		}
		if sub, ok := api.Subscription("same"); !ok || sub.Webhook != hook || sub.Description != "text" ||
			sub.Pattern != "/d11/*" {
			t.Errorf("after the refusals the subscription is %+v", sub)
		}
	})

	t.Run("D11: ids are 1 to 128 characters of A-Za-z0-9._~-", func(t *testing.T) {
		for _, id := range []string{"a", strings.Repeat("x", 128), "AZaz09._~-"} {
			if res := api.PutSubscription("/d11/ids", id, body(hook, "")); res.Status != http.StatusCreated {
				t.Errorf("id %q: %d %s, want 201", id, res.Status, res.Body)
			}
		}
		for _, id := range []string{
			"", strings.Repeat("x", 129), "a%20b", "a%2Fb", "a:b", "%C3%A4", "a+b", "a%00",
			"a*",
		} {
			for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
				res := api.Do(method, "/d11/ids?subscription="+id, body(hook, ""), "Content-Type", "application/json")
				refusal(t, method+" of id "+id, res, http.StatusBadRequest, fsm.CodeInvalidSubscriptionID)
			}
		}
	})

	t.Run("D11: GET and DELETE by id accept the subscription's own pattern or /**, "+
		"and DELETE of an unknown id is 204", func(t *testing.T) {
		api.SubscribeURL("/d11/own/*", "own", hook)
		for _, pattern := range []string{"/d11/own/*", "/d11/own/%2A", "/**"} {
			if res := api.Do(http.MethodGet, pattern+"?subscription=own", ""); res.Status != http.StatusOK {
				t.Errorf("GET %s: %d %s, want 200", pattern, res.Status, res.Body)
			}
		}
		for _, pattern := range []string{"/d11/other/*", "/d11/**", "/d11/own/one"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				res := api.Do(method, pattern+"?subscription=own", "")
				refusal(t, method+" "+pattern, res, http.StatusNotFound, fsm.CodeSubscriptionNotFound)
			}
		}
		if _, ok := api.Subscription("own"); !ok {
			t.Error("a refused DELETE has deleted the subscription")
		}
		for _, pattern := range []string{"/d11/own/*", "/d11/own/*", "/**", "/anything"} {
			api.DeleteSubscription(pattern, "own")
		}
		refusal(t, "GET of a deleted one", api.Do(http.MethodGet, "/**?subscription=own", ""), http.StatusNotFound,
			fsm.CodeSubscriptionNotFound)
		api.SubscribeURL("/d11/own/*", "own", hook)
		api.DeleteSubscription("/**", "own")
		refusal(t, "GET of a deleted one", api.Do(http.MethodGet, "/d11/own/*?subscription=own", ""),
			http.StatusNotFound, fsm.CodeSubscriptionNotFound)
	})

	t.Run("D11: each cause of an error has a code of its own", func(t *testing.T) {
		for _, tc := range []struct {
			what, pattern, body string
			status              int
			code                fsm.Code
		}{
			{"an empty segment", "/d11//x", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"three stars", "/d11/***", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"a star amid a segment", "/d11/a*b", body(hook, ""), 400, fsm.CodeInvalidPattern},
			{"a body that is not JSON", "/d11/x", "{", 400, fsm.CodeInvalidRequest},
			{"a body that is no object", "/d11/x", "[]", 400, fsm.CodeInvalidRequest},
			{"no webhook", "/d11/x", "{}", 400, fsm.CodeInvalidRequest},
			{"a webhook of the wrong type", "/d11/x", `{"webhook":1}`, 400, fsm.CodeInvalidRequest},
			{"a webhook that may not be", "/d11/x", body("ftp://example.com", ""), 400, fsm.CodeInvalidWebhook},
			{"a body of more than 1 MiB", "/d11/x", body(hook, strings.Repeat("x", 1<<20)), 413, fsm.CodeBodyTooLarge},
		} {
			refusal(t, tc.what, api.PutSubscription(tc.pattern, "wrong", tc.body), tc.status, tc.code)
		}
		if sub, ok := api.Subscription("wrong"); ok {
			t.Errorf("a refused request created %+v", sub)
		}
	})

	t.Run("D11: consumer_id encodes the path as encodeURIComponent does", func(t *testing.T) {
		for path, want := range map[string]string{
			"/plain/stream":       "%2Fplain%2Fstream",
			"/-_.!~'()/$&+,;=:@":  "%2F-_.!~'()%2F%24%26%2B%2C%3B%3D%3A%40",
			"/with%20space%2Fand": "%2Fwith%2520space%252Fand",
			"/%C3%A4":             "%2F%25C3%25A4",
		} {
			s := e.subscribed(t)
			s.path = s.folder + path
			deep := harness.NewWorker(t)
			id := s.sub.ID + "-d"
			s.gateway.Subscribe(s.folder+"/**", id, deep)
			tail := s.begin()
			w := deep.Wake(1)
			if want := id + ":%2F" + s.folder[1:] + want; w.ConsumerID != want ||
				!strings.HasSuffix(w.Callback, "/callback/"+want) {
				t.Errorf("%s: the consumer is %s with the callback %s, want %s", s.path, w.ConsumerID, w.Callback, want)
			}
			s.callback(w, w.Claim(true, s.ack(tail)))
			s.gateway.DeleteSubscription("/**", id)
		}
	})
}
