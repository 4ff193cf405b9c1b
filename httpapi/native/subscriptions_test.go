package native_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/web"
)

const hook = `{"webhook":"https://w.example/hook","description":"d"}`

func TestSubscriptionLifeCycle(t *testing.T) {
	h := newHarness(t, nil)
	h.Rec.OnSubscribed = func(sub fsm.Subscription) {
		h.Secret(sub.Secret)
		h.Store.DB.SetBackfill(sub, nil) // it is over at once
	}
	target := "/agents/*?subscription=agent-handler"

	a := h.API(http.MethodPut, target, hook)
	secret, _ := a.Body["webhook_secret"].(string)
	if a.Status != 201 || !regexp.MustCompile(`^whsec_[A-Za-z0-9_-]{43}$`).MatchString(secret) {
		t.Fatalf("got %d %s", a.Status, a.Text)
	}
	shown := `{"subscription_id":"agent-handler","pattern":"/agents/*","webhook":"https://w.example/hook",`
	if want := shown + `"webhook_secret":"` + secret + `","description":"d"}`; strings.TrimSpace(a.Text) != want {
		t.Fatalf("got %s, want %s", a.Text, want)
	}
	hex := regexp.MustCompile(`^[0-9a-f]{32}$`)
	if g := h.Store.DB.Subscriptions()["agent-handler"].Generation; !hex.MatchString(g) {
		t.Fatalf("generation %q", g)
	}
	h.WantCalls("subscribed agent-handler /agents/*") // before the answer

	shown += `"description":"d"}`
	if a = h.API(http.MethodPut, "/agents/%2A?subscription=agent-handler", hook); a.Status != 200 ||
		strings.TrimSpace(a.Text) != shown {
		t.Fatalf("the same again: got %d %s", a.Status, a.Text)
	}
	h.WantCalls("subscribed agent-handler /agents/*")
	for _, c := range []struct{ target, body string }{
		{"/other/*?subscription=agent-handler", hook},
		{target, `{"webhook":"https://w.example/other","description":"d"}`},
		{target, `{"webhook":"https://w.example/hook"}`},
	} {
		h.Want(h.API(http.MethodPut, c.target, c.body), 409, fsm.CodeSubscriptionConflict, "another configuration")
	}

	for _, pattern := range []string{"/agents/*", "/agents/%2a", "/**", "/%2A%2A"} {
		if a = h.API(http.MethodGet, pattern+"?subscription=agent-handler", ""); a.Status != 200 ||
			strings.TrimSpace(a.Text) != shown {
			t.Fatalf("GET under %s: %d %s", pattern, a.Status, a.Text)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete} {
		for _, other := range []string{"/other/*", "/agents/**", "/agents/one"} {
			h.Want(h.API(method, other+"?subscription=agent-handler", ""), 404, fsm.CodeSubscriptionNotFound,
				"another pattern")
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		h.Want(h.API(method, "/**?subscription=nobody", ""), 404, fsm.CodeSubscriptionNotFound, "")
	}

	stored := h.Store.DB.Subscriptions()["agent-handler"]
	stored.Paused, stored.Retired = true, true
	h.Store.DB.PutSubscription(stored)
	stopped := strings.TrimSuffix(shown, "}") + `,"paused":true,"retired":true}`
	if a = h.API(http.MethodGet, target, ""); strings.TrimSpace(a.Text) != stopped {
		t.Fatalf("stopped: got %s", a.Text)
	}
	for range 2 { // the second finds nothing, which is what was wanted
		if a = h.API(http.MethodDelete, target, ""); a.Status != 204 || a.Text != "" ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("got %d %s", a.Status, a.Text)
		}
	}
	h.Want(h.API(http.MethodGet, target, ""), 404, fsm.CodeSubscriptionNotFound, "")
	a = h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook","description":null}`)
	if a.Status != 201 || strings.Contains(a.Text, "description") {
		t.Fatalf("without a description: %d %s", a.Status, a.Text)
	}
	if a.Body["webhook_secret"] == secret {
		t.Fatal("a secret was handed out twice")
	}
	if a = h.API(http.MethodDelete, "/**?subscription=agent-handler", ""); a.Status != 204 {
		t.Fatalf("DELETE under /**: %d", a.Status)
	}
}

func TestASubscriptionChoosesHowItsWakesAreSigned(t *testing.T) {
	h := newHarness(t, nil)
	const target, webhook = "/agents/*?subscription=", `{"webhook":"https://w.example/hook","signature":`
	a := h.API(http.MethodPut, target+"standard", webhook+`"standard-webhooks"}`)
	secret, _ := a.Body["webhook_secret"].(string)
	h.Secret(secret)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if a.Status != 201 || err != nil || len(key) != 32 || a.Body["signature"] != "standard-webhooks" {
		t.Fatalf("got %d %s, %v", a.Status, a.Text, err)
	}
	if a = h.API(http.MethodGet, target+"standard", ""); a.Body["signature"] != "standard-webhooks" {
		t.Errorf("GET: %s", a.Text)
	}
	a = h.API(http.MethodGet, "/**?subscriptions", "")
	if !strings.Contains(a.Text, `"signature":"standard-webhooks"`) {
		t.Errorf("the list: %s", a.Text)
	}
	for _, other := range []string{`"hmac"}`, `null}`} {
		h.Want(h.API(http.MethodPut, target+"standard", webhook+other), 409, fsm.CodeSubscriptionConflict, "")
	}
	// The scheme of the webhook spec is the default, and its answers have no field that the spec does not have.
	for i, body := range []string{`"hmac"}`, `null}`, `"hmac"}`} {
		a = h.API(http.MethodPut, target+"hmac", webhook+body)
		if want := []int{201, 200, 200}[i]; a.Status != want || strings.Contains(a.Text, "signature") {
			t.Errorf("PUT %s: %d %s", body, a.Status, a.Text)
		}
		if i == 0 {
			h.Secret(a.Body["webhook_secret"].(string))
		}
	}
}

// TestAPatchOfTheSignatureGivesASecretOfItsScheme holds for both modes that null is the mode's default, that the secret
// changes with the scheme, and that it stays where the scheme stays.
func TestAPatchOfTheSignatureGivesASecretOfItsScheme(t *testing.T) {
	const standard, asIs = fsm.SignatureStandardWebhooks, fsm.SignatureHMAC
	secrets := map[fsm.Signature]*regexp.Regexp{
		standard: regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`),
		asIs:     regexp.MustCompile(`^whsec_[A-Za-z0-9_-]{43}$`),
	}
	for _, c := range []struct {
		fields, patch string
		was, becomes  fsm.Signature
	}{
		{`"mode":"push"`, `{}`, standard, standard},
		{`"mode":"push"`, `{"signature":null}`, standard, standard},
		{`"mode":"push"`, `{"signature":"standard-webhooks"}`, standard, standard},
		{`"mode":"push"`, `{"format":"ojs"}`, standard, standard},
		{`"mode":"push"`, `{"signature":"hmac"}`, standard, asIs},
		{`"mode":"push","signature":"hmac"`, `{"batch":2}`, asIs, asIs},
		{`"mode":"push","signature":"hmac"`, `{"signature":null}`, asIs, standard},
		{`"mode":"wake"`, `{"signature":null}`, asIs, asIs},
		{`"mode":"wake"`, `{"signature":"standard-webhooks"}`, asIs, standard},
		{`"signature":"standard-webhooks"`, `{"description":"d"}`, standard, standard},
		{`"signature":"standard-webhooks"`, `{"signature":null}`, standard, asIs},
	} {
		t.Run(c.fields+" "+c.patch, func(t *testing.T) {
			h := newHarness(t, nil)
			const target = "/agents/*?subscription=s"
			made := h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook",`+c.fields+`}`)
			first, _ := made.Body["webhook_secret"].(string)
			h.Secret(first)
			if sub := h.Store.DB.Subscriptions()["s"]; sub.Signature != c.was || !secrets[c.was].MatchString(first) {
				t.Fatalf("it was created with %s and a secret of %d characters", sub.Signature, len(first))
			}
			a := h.API(http.MethodPatch, target, c.patch)
			second, told := a.Body["webhook_secret"].(string)
			if told {
				h.Secret(second)
			}
			sub := h.Store.DB.Subscriptions()["s"]
			if a.Status != http.StatusOK || sub.Signature != c.becomes || told != (c.was != c.becomes) {
				t.Errorf("status %d, a new secret: %t; it is signed by %s", a.Status, told, sub.Signature)
			}
			if told && second != sub.Secret || !told && sub.Secret != first ||
				!secrets[c.becomes].MatchString(sub.Secret) {
				t.Error("the secret is not that of its scheme")
			}
		})
	}
}

func TestAPatchChangesWhatItNamesAndNothingElse(t *testing.T) {
	const target = "/agents/*?subscription=s"
	for _, c := range []struct {
		patch, shown string
		secret       *regexp.Regexp // of the new secret that is shown; nil for none
		refused      string
	}{
		{patch: `{}`, shown: `"webhook":"https://w.example/hook","description":"d"`},
		{
			patch: `{"webhook":"https://w.example/moved"}`,
			shown: `"webhook":"https://w.example/moved","description":"d"`,
		},
		{patch: `{"description":"other"}`, shown: `"webhook":"https://w.example/hook","description":"other"`},
		{patch: `{"description":null}`, shown: `"webhook":"https://w.example/hook"`},
		{patch: `{"signature":"hmac"}`, shown: `"webhook":"https://w.example/hook","description":"d"`},
		{
			patch:  `{"signature":"standard-webhooks"}`,
			shown:  `"webhook":"https://w.example/hook","description":"d","signature":"standard-webhooks"`,
			secret: regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{43}=$`),
		},
		{patch: `{"webhook":null}`, refused: "webhook is missing: it must be a URL"},
		{patch: `{"webhook":""}`, refused: "webhook is empty"},
		{patch: `{"webhook":"https://w.example/moved","description":7}`, refused: "description must be a string"},
		{patch: `{"webhook":"https://w.example/moved","signature":"md5"}`, refused: "signature must be"},
		{
			patch:   `{"pattern":"/other/*"}`,
			refused: `unknown field "pattern"; known are webhook, description, signature, start, mode`,
		},
		{patch: `[]`, refused: "not a JSON object"},
	} {
		t.Run(c.patch, func(t *testing.T) {
			h := newHarness(t, nil)
			h.Rec.OnSubscribed = func(sub fsm.Subscription) { h.Store.DB.SetBackfill(sub, nil) }
			made := h.API(http.MethodPut, target, hook)
			h.Secret(made.Body["webhook_secret"].(string))
			before := h.Store.DB.Subscriptions()["s"]
			a := h.API(http.MethodPatch, target, c.patch)
			after := h.Store.DB.Subscriptions()["s"]
			if c.refused != "" {
				h.Want(a, 400, fsm.CodeInvalidRequest, c.refused)
				if !after.Equal(before) {
					t.Errorf("a refused request made %+v of %+v", after, before)
				}
				return
			}
			shown := `{"subscription_id":"s","pattern":"/agents/*",` + c.shown + `}`
			secret, told := a.Body["webhook_secret"].(string)
			if told {
				h.Secret(secret)
			}
			if told != (c.secret != nil) || told && !c.secret.MatchString(secret) || told && after.Secret != secret {
				t.Errorf("it shows the secret %q; stored is %q", secret, after.Secret)
			}
			text := strings.Replace(strings.TrimSpace(a.Text), `"webhook_secret":"`+secret+`",`, "", 1)
			if a.Status != http.StatusOK || text != shown {
				t.Errorf("got %d %s, want %s", a.Status, text, shown)
			}
			if !told && after.Secret != before.Secret || after.Generation != before.Generation {
				t.Error("it has another secret or generation")
			}
			if a := h.API(http.MethodGet, target, ""); strings.TrimSpace(a.Text) != shown {
				t.Errorf("GET: %s, want %s", a.Text, shown)
			}
			// A repetition of the PUT asks for what was there before.
			if a := h.API(http.MethodPut, target, hook); (a.Status == http.StatusOK) != after.SameConfig(before) {
				t.Errorf("the PUT once more: %d %s", a.Status, a.Text)
			}
		})
	}
	t.Run("a webhook that is not allowed", func(t *testing.T) {
		h := newHarness(t, nil)
		h.Secret(h.API(http.MethodPut, target, hook).Body["webhook_secret"].(string))
		before := h.Store.DB.Subscriptions()["s"]
		h.Rec.Refuse = errors.New("webhook host \"10.0.0.1\" is a private address")
		h.Want(h.API(http.MethodPatch, target, `{"webhook":"https://10.0.0.1/"}`), 400, fsm.CodeInvalidWebhook,
			`webhook host "10.0.0.1" is a private address`)
		if after := h.Store.DB.Subscriptions()["s"]; !after.Equal(before) {
			t.Errorf("a refused request made %+v of %+v", after, before)
		}
		// What the patch does not name is not judged again.
		if a := h.API(http.MethodPatch, target, `{"description":"other"}`); a.Status != http.StatusOK {
			t.Errorf("got %d %s", a.Status, a.Text)
		}
	})
}

func TestSubscriptionDeletedAgainLeavesNoConsumerOfACutShortDeletion(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("cut", 1)
	h.Store.Cut = true
	if a := h.API(http.MethodDelete, "/cut/*?subscription=cut", ""); a.Status != 503 {
		t.Fatalf("cut short: got %d %s", a.Status, a.Text)
	}
	if a := h.API(http.MethodDelete, "/agents/*?subscription=cut", ""); a.Status != 204 {
		t.Fatalf("got %d %s", a.Status, a.Text)
	}
	if len(h.Store.DB.Consumers()) > 0 {
		t.Error("the answer says deleted, and a consumer is left")
	}
}

func TestSubscriptionPatternIsTheRawPath(t *testing.T) {
	for target, want := range map[string]string{
		"/a%2Fb/%2A": "/a%2Fb/*", "/caf\u00e9/**": "/caf%C3%A9/**", "/a%20b": "/a%20b", "/a.b/..c": "/a.b/..c",
		`/a"%2F`: "/a%22%2F",
	} {
		h := newHarness(t, nil)
		a := h.API(http.MethodPut, target+"?subscription=a", hook)
		if secret, ok := a.Body["webhook_secret"].(string); ok {
			h.Secret(secret)
		}
		if a.Status != 201 || a.Body["pattern"] != want {
			t.Fatalf("%s: got %d %s, want the pattern %s", target, a.Status, a.Text, want)
		}
	}
}

func TestSubscriptionLists(t *testing.T) {
	h := newHarness(t, nil)
	if a := h.API(http.MethodGet, "/**?subscriptions", ""); strings.TrimSpace(a.Text) != `{"subscriptions":[]}` {
		t.Fatal(a.Text)
	}
	for id, pattern := range map[string]string{"a": "/a/*", "b": "/a/*", "c": "/**", "d": "/a/x", "e": "/a%20b/*"} {
		h.Store.DB.PutSubscription(fsm.Subscription{
			ID: id, Pattern: pattern, Webhook: "https://w.example/" + id,
			Secret: h.Secret("whsec_of_" + id),
		})
	}
	for target, want := range map[string]string{
		"/**?subscriptions": "a b c d e", "/a/*?subscriptions": "a b", "/a/%2A?subscriptions=": "a b",
		"/a/x?subscriptions":         "d",
		"/a%20b/*?x&subscriptions=1": "e", "/nothing/**?subscriptions": "",
	} {
		a := h.API(http.MethodGet, target, "")
		var ids []string
		for _, s := range a.Body["subscriptions"].([]any) {
			ids = append(ids, s.(map[string]any)["subscription_id"].(string))
		}
		if a.Status != 200 || strings.Join(ids, " ") != want || strings.Contains(a.Text, "whsec") {
			t.Fatalf("%s: got %d %s, want %s", target, a.Status, a.Text, want)
		}
	}
}

func TestSubscriptionShowsItsBackfillWhileItIsUnderWay(t *testing.T) {
	h := newHarness(t, nil)
	h.Store.DB.PutSubscription(fsm.Subscription{ID: "a", Pattern: "/a/*", Webhook: "https://w.example/"})
	h.Store.DB.SetBackfill(fsm.Subscription{ID: "a"}, &fsm.Backfill{Done: 3, Total: 10})
	if a := h.API(
		http.MethodGet, "/**?subscription=a", "",
	); !strings.Contains(a.Text, `"backfill":{"done":3,"total":10}`) {
		t.Fatal(a.Text)
	}
	h.Store.DB.SetBackfill(fsm.Subscription{ID: "a"}, nil)
	if a := h.API(http.MethodGet, "/**?subscription=a", ""); strings.Contains(a.Text, "backfill") {
		t.Fatal(a.Text)
	}
}

func TestSubscriptionErrorsNameTheCauseAndChangeNothing(t *testing.T) {
	long := strings.Repeat("x", 4097)
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		code                       fsm.Code
		says                       string
	}{
		{"an empty id", "PUT", "/a?subscription=", hook, 400, fsm.CodeInvalidSubscriptionID, "1 to 128"},
		{"an id without a value", "GET", "/a?subscription", "", 400, fsm.CodeInvalidSubscriptionID, "1 to 128"},
		{"a long id", "PUT", "/a?subscription=" + long[:129], hook, 400, fsm.CodeInvalidSubscriptionID, "1 to 128"},
		{"an id with a colon", "PUT", "/a?subscription=a:b", hook, 400, fsm.CodeInvalidSubscriptionID, "':'"},
		{
			"an id with an encoded slash", "DELETE", "/a?subscription=a%2Fb", "", 400, fsm.CodeInvalidSubscriptionID,
			"'/'",
		},
		{"an id with a space", "PUT", "/a?subscription=a%20b", hook, 400, fsm.CodeInvalidSubscriptionID, "' '"},
		{"an id with a plus", "PUT", "/a?subscription=a+b", hook, 400, fsm.CodeInvalidSubscriptionID, "only"},
		{"an id with a star", "GET", "/a?subscription=a*", "", 400, fsm.CodeInvalidSubscriptionID, "'*'"},
		{"an id with a NUL", "PUT", "/a?subscription=a%00", hook, 400, fsm.CodeInvalidSubscriptionID, "only"},
		{"an id beyond ASCII", "PUT", "/a?subscription=%C3%A4", hook, 400, fsm.CodeInvalidSubscriptionID, "only"},
		{
			"an id that ends in half an escape", "DELETE", "/a?subscription=a%", "", 400,
			fsm.CodeInvalidSubscriptionID, "malformed",
		},
		{
			"an id that is malformed in the query", "PUT", "/a?subscription=%zz", hook, 400,
			fsm.CodeInvalidSubscriptionID, "malformed",
		},
		{
			"an id given twice", "PUT", "/a?subscription=a&subscription=b", hook, 400, fsm.CodeInvalidSubscriptionID,
			"2 times",
		},
		{"an empty segment", "PUT", "/a//b?subscription=a", hook, 400, fsm.CodeInvalidPattern, "segment 2"},
		{
			"an empty segment at the start", "PUT", "//a?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			"segment 1 is empty",
		},
		{"a slash at the end", "PUT", "/a/?subscription=a", hook, 400, fsm.CodeInvalidPattern, "segment 2 is empty"},
		{"nothing but a slash", "PUT", "/?subscription=a", hook, 400, fsm.CodeInvalidPattern, "segment 1 is empty"},
		{"three stars", "PUT", "/a/***?subscription=a", hook, 400, fsm.CodeInvalidPattern, `segment 2 ("***")`},
		{
			"two stars among other characters", "PUT", "/a/**x?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			`segment 2 ("**x")`,
		},
		{
			"a star at the start of a segment", "PUT", "/*-task/x?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			`segment 1 ("*-task")`,
		},
		{"a single dot segment", "PUT", "/a/./x?subscription=a", hook, 400, fsm.CodeInvalidPattern, `segment 2 (".")`},
		{
			"an encoded dot segment", "PUT", "/a/%2E%2e/x?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			`segment 2 ("..")`,
		},
		{
			"a long pattern", "PUT", "/" + long[:fsm.MaxPathLen] + "?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			"2048 bytes",
		},
		{"a star within a segment", "GET", "/a*b?subscription=a", "", 400, fsm.CodeInvalidPattern, "segment 1"},
		{
			"a star within a segment, encoded", "GET", "/a%2Ab?subscriptions", "", 400, fsm.CodeInvalidPattern,
			"segment 1",
		},
		{"a dot segment", "DELETE", "/a/../b?subscription=a", "", 400, fsm.CodeInvalidPattern, "segment 2"},
		{"no body", "PUT", "/a?subscription=a", "", 400, fsm.CodeInvalidRequest, "not JSON"},
		{"a body cut short", "PUT", "/a?subscription=a", hook[:20], 400, fsm.CodeInvalidRequest, "not JSON"},
		{"garbage after the body", "PUT", "/a?subscription=a", hook + "}", 400, fsm.CodeInvalidRequest, "not JSON"},
		{
			"a body that is a list", "PUT", "/a?subscription=a", "[" + hook + "]", 400, fsm.CodeInvalidRequest,
			"not a JSON object",
		},
		{
			"no webhook", "PUT", "/a?subscription=a", `{"Webhook":"https://w.example"}`,
			400, fsm.CodeInvalidRequest, "webhook is missing",
		},
		{
			"a null webhook", "PUT", "/a?subscription=a", `{"webhook":null}`,
			400, fsm.CodeInvalidRequest, "webhook is missing",
		},
		{
			"an unknown field", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","descripton":"d","retries":3}`,
			400, fsm.CodeInvalidRequest,
			`unknown field "descripton", "retries"; known are webhook, description, signature, start, mode`,
		},
		{
			"a pattern out of the root", "PUT", "/..%2ftenantB%2fx?subscription=a", hook, 400, fsm.CodeInvalidPattern,
			"stream root",
		},
		{"a reserved pattern", "PUT", "/a/__ds/**?subscription=a", hook, 400, fsm.CodeInvalidPattern, "reserved"},
		{
			"an empty webhook", "PUT", "/a?subscription=a", `{"webhook":""}`, 400, fsm.CodeInvalidRequest,
			"webhook is empty",
		},
		{
			"a webhook that is a number", "PUT", "/a?subscription=a", `{"webhook":1}`, 400, fsm.CodeInvalidRequest,
			"webhook must be",
		},
		{
			"a long webhook", "PUT", "/a?subscription=a", `{"webhook":"https://w.example/` + long + `"}`,
			400, fsm.CodeInvalidRequest, "webhook is longer",
		},
		{
			"a description that is a list", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","description":[]}`,
			400, fsm.CodeInvalidRequest, "description must be",
		},
		{
			"a long description", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","description":"` + long + `"}`,
			400, fsm.CodeInvalidRequest, "description is longer",
		},
		{
			"a signature that nobody knows", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","signature":"md5"}`,
			400, fsm.CodeInvalidRequest, `signature must be "hmac" or "standard-webhooks"`,
		},
		{
			"an empty signature", "PUT", "/a?subscription=a", `{"webhook":"https://w.example/","signature":""}`,
			400, fsm.CodeInvalidRequest, `signature must be "hmac" or "standard-webhooks"`,
		},
		{
			"a signature that is a number", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","signature":1}`,
			400, fsm.CodeInvalidRequest, `signature must be "hmac" or "standard-webhooks"`,
		},
		{
			"a large body", "PUT", "/a?subscription=a",
			`{"webhook":"https://w.example/","x":"` + strings.Repeat("x", web.MaxBody) + `"}`,
			413, fsm.CodeBodyTooLarge, "1048576",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.Want(h.API(c.method, c.target, c.body), c.status, c.code, c.says)
			if len(h.Store.DB.Subscriptions()) > 0 {
				t.Fatal("a refused request created a subscription")
			}
			h.WantCalls()
		})
	}
	t.Run("a webhook that is not allowed", func(t *testing.T) {
		h := newHarness(t, nil)
		h.Rec.Refuse = errors.New("webhook host \"10.0.0.1\" is a private address")
		a := h.API("PUT", "/a?subscription=a", hook)
		h.Want(a, 400, fsm.CodeInvalidWebhook, `webhook host "10.0.0.1" is a private address`)
		if strings.Contains(a.Text, "webhook: webhook") {
			t.Errorf("the field is named twice: %s", a.Text)
		}
		if len(h.Store.DB.Subscriptions()) > 0 {
			t.Fatal("a refused request created a subscription")
		}
	})
	t.Run("the largest body that is allowed", func(t *testing.T) {
		h := newHarness(t, nil)
		body := `{"webhook":"https://w.example/"}`
		body += strings.Repeat(" ", web.MaxBody-len(body))
		if a := h.API("PUT", "/a?subscription=a", body); a.Status != 201 {
			t.Fatal(a.Text)
		}
	})
	for _, r := range []struct{ method, target, body string }{
		{"PUT", "/a?subscription=a", hook},
		{"GET", "/a?subscription=a", ""},
		{"GET", "/a?subscriptions", ""},
		{"PATCH", "/a?subscription=a", "{}"},
		{"DELETE", "/a?subscription=a", ""},
	} {
		t.Run("a store that is away: "+r.method+" "+r.target, func(t *testing.T) {
			h := newHarness(t, nil)
			h.Store.Fail(fmt.Errorf("dial: %w", fsm.ErrUnavailable))
			h.Want(h.API(r.method, r.target, r.body), 503, fsm.CodeUnavailable, "try again")
		})
	}
}

func TestASubscriptionWaitsUntilItIsKnownWhichStreamsThereAre(t *testing.T) {
	h := newHarness(t, nil)
	h.Rec.Err = fmt.Errorf("%w: the registry stream was read up to 7 of 9", fsm.ErrStreamsUnknown)
	h.Want(h.API(http.MethodPut, "/a/*?subscription=s", hook), 503, fsm.CodeUnavailable, "7 of 9")
}

func TestWithoutAGatewayTheRestIsNotFound(t *testing.T) {
	h := newHarness(t, nil)
	for _, r := range [][2]string{
		{"GET", "/a"},
		{"PUT", "/a"},
		{"HEAD", "/a?subscription=a"},
		{"OPTIONS", "/"},
		{"PURGE", "/x"},
		{"GET", "/a?Subscription=a"},
		{"GET", "/a?x=subscription"},
	} {
		if a := h.API(r[0], r[1], ""); a.Status != 404 {
			t.Fatalf("%v: got %d %s", r, a.Status, a.Text)
		}
	}
	h.Want(h.API("GET", "/a", ""), 404, fsm.CodeNotFound, "")
}

// TestClientsDoNotUseTheSubscriptionsOfTheProgramItself holds that a client neither takes, sees nor deletes one for
// direct deliveries or for notices, and that other ids that begin alike are free.
func TestClientsDoNotUseTheSubscriptionsOfTheProgramItself(t *testing.T) {
	h := newHarness(t, nil)
	const name = "0123456789abcdef01234567"
	for own, format := range map[string]fsm.Format{
		fsm.OutboxSubscription(name): fsm.FormatOutbox, fsm.NoticeSubscription(name): fsm.FormatJSON,
	} {
		h.Store.DB.PutSubscription(fsm.Subscription{
			ID: own, Generation: "g", Pattern: "/own/" + name + "/*", Webhook: "https://w.example/secret",
			Mode: fsm.ModePush, Format: format,
		}.WithDefaults())
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodPatch, http.MethodDelete} {
			h.Want(h.API(method, "/**?subscription="+own, `{"webhook":"https://w.example/hook"}`),
				http.StatusBadRequest, fsm.CodeInvalidSubscriptionID, "Reveille itself")
		}
		if a := h.API(http.MethodGet, "/**?subscriptions", ""); strings.Contains(a.Text, name) {
			t.Errorf("the list is %s", a.Text)
		}
		free := strings.TrimSuffix(own, name) + "orders"
		other := h.API(http.MethodPut, "/a/*?subscription="+free, `{"webhook":"https://w.example/hook"}`)
		if other.Status != http.StatusCreated {
			t.Errorf("another id: %d %s", other.Status, other.Text)
		}
	}
}
