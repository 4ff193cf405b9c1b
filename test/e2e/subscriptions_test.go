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
	"reveille/httpapi/web"
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
	if res.Status != web.Status(code) || answer.Error.Code != string(code) ||
		!strings.Contains(answer.Error.Message, says) {
		t.Errorf("%d %s, want %d %s and a message with %q", res.Status, res.Body, web.Status(code), code, says)
	}
}

// TestSubscriptionAPI follows the webhook spec, Subscription HTTP API.
func TestSubscriptionAPI(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
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
		for _, bad := range []string{"", strings.Repeat("x", 129), "a%2Fb", "%zz", "x&subscription=y"} {
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
			{"[]", "object"},
			{"{}", "webhook"},
			{`{"webhook":7}`, "webhook"},
			{`{"webhook":"` + s.worker.URL + `","description":7}`, "description"},
		} {
			wantError(t, s.gateway.PutSubscription(pattern, id+"-new", tt.body), fsm.CodeInvalidRequest, tt.says)
		}
		for _, webhook := range []string{"/relative", "ftp://127.0.0.1/x", "http://user:secret@127.0.0.1/", "::"} {
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
