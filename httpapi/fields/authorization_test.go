package fields_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/ports"
)

const (
	// hush is in each secret of these tests.
	hush     = "hush"
	inHeader = `"authorization":"Bearer hush"`
	inQuery  = `"authorization":{"query":"access_token","token":"hush"}`
)

// authorized makes a subscription "s" with these fields beside its webhook, https://w.example/hook?a=b.
func (h *harness) authorized(fields string) (target string) {
	h.T.Helper()
	h.Secret(hush)
	target = "/agents/*?subscription=s"
	a := h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook?a=b",`+fields+`}`)
	if a.Status != http.StatusCreated {
		h.T.Fatalf("got %d %s", a.Status, a.Text)
	}
	h.Secret(a.Body["webhook_secret"].(string))
	return target
}

func TestAnAuthorizationIsStoredAndShownWithoutItsSecret(t *testing.T) {
	for _, mode := range fsm.Modes {
		for fields, c := range map[string]struct {
			want  fsm.Authorization
			shown string
		}{
			inHeader: {fsm.Authorization{Secret: "Bearer hush"}, `{"header":"Authorization"}`},
			inQuery:  {fsm.Authorization{Query: "access_token", Secret: "hush"}, `{"query":"access_token"}`},
			`"authorization":{"query":"!#$%&'*+-.^_|~0","token":" hush é"}`: {
				fsm.Authorization{Query: "!#$%&'*+-.^_|~0", Secret: " hush é"}, `{"query":"!#$%&'*+-.^_|~0"}`,
			},
			`"authorization":{"query":"` + strings.Repeat("a", 64) + `","token":"` + strings.Repeat("x", 4096) + `"}`: {
				fsm.Authorization{Query: strings.Repeat("a", 64), Secret: strings.Repeat("x", 4096)},
				`{"query":"` + strings.Repeat("a", 64) + `"}`,
			},
			`"authorization":null`: {},
		} {
			h := newHarness(t, nil)
			fields += fmt.Sprintf(`,"mode":%q`, mode)
			target := h.authorized(fields)
			if got := h.Store.DB.Subscriptions()["s"].Authorization; got != c.want {
				t.Errorf("%s: stored is %+v, want %+v", fields, got, c.want)
			}
			for name, a := range map[string]ports.Answer{
				"PUT again": h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook?a=b",`+fields+`}`),
				"GET":       h.API(http.MethodGet, target, ""),
				"the list":  h.API(http.MethodGet, "/**?subscriptions", ""),
				"PATCH":     h.API(http.MethodPatch, target, `{}`),
			} {
				shown := strings.Contains(a.Text, `"authorization":`+c.shown)
				if c.shown == "" {
					shown = !strings.Contains(a.Text, "authorization")
				}
				if a.Status != http.StatusOK || !shown || strings.Contains(a.Text, hush) {
					t.Errorf("%s of %s: %d %s, want %s", name, fields, a.Status, a.Text, c.shown)
				}
			}
		}
	}
}

func TestAPutWithAnotherAuthorizationIsAnotherConfiguration(t *testing.T) {
	for _, fields := range []string{
		`"authorization":"Bearer hush2"`, inQuery, `"authorization":null`, `"description":""`,
	} {
		h := newHarness(t, nil)
		target := h.authorized(inHeader)
		h.Want(h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook?a=b",`+fields+`}`), 409,
			fsm.CodeSubscriptionConflict, "it has another authorization")
	}
}

func TestAPatchOfAnAuthorization(t *testing.T) {
	header := fsm.Authorization{Secret: "Bearer hush"}
	query := fsm.Authorization{Query: "access_token", Secret: "hush"}
	for _, c := range []struct {
		fields, patch string
		want          fsm.Authorization
	}{
		{inHeader, `{"description":"d"}`, header},
		{inHeader, `{` + inQuery + `}`, query},
		{inQuery, `{` + inHeader + `}`, header},
		{inHeader, `{"authorization":null}`, fsm.Authorization{}},
		{`"description":"d"`, `{` + inQuery + `}`, query},
		{`"headers":{"Authorization":"hush"}`, `{"headers":{"authorization":null},` + inHeader + `}`, header},
		{inHeader, `{"headers":{"Authorization":"hush"},"authorization":null}`, fsm.Authorization{}},
	} {
		h := newHarness(t, nil)
		target := h.authorized(c.fields)
		a := h.API(http.MethodPatch, target, c.patch)
		if got := h.Store.DB.Subscriptions()["s"].Authorization; a.Status != http.StatusOK || got != c.want {
			t.Errorf("%s of %s: %d %s; stored is %+v, want %+v", c.patch, c.fields, a.Status, a.Text, got, c.want)
		}
	}
}

func TestARefusedAuthorizationIsNamedAndChangesNothing(t *testing.T) {
	const parameter = "authorization.query must have 1 to 64 characters, of those that the name of a header has"
	const both = "headers has Authorization, and authorization is set: one of them only"
	const taken = "which the query of webhook has already"
	for _, c := range []struct{ fields, says string }{
		{`"authorization":7`, "authorization must be a string, or an object"},
		{`"authorization":["hush"]`, "authorization must be a string, or an object"},
		{`"authorization":""`, "authorization is empty"},
		{`"authorization":" "`, "authorization is empty"},
		{`"authorization":" Bearer hush"`, "authorization begins or ends with a space"},
		{`"authorization":"Bearer hush "`, "authorization begins or ends with a space"},
		{`"authorization":"hush\r\nX-A: hush"`, "authorization has a control character"},
		{`"authorization":"hush\u0000"`, "authorization has a control character"},
		{`"authorization":"` + strings.Repeat("x", 4097) + `"`, "authorization is longer than 4096 bytes"},
		{`"authorization":{}`, "authorization.query is missing"},
		{`"authorization":{"token":"hush"}`, "authorization.query is missing"},
		{`"authorization":{"query":"t"}`, "authorization.token is missing"},
		{`"authorization":{"query":"t","token":null}`, "authorization.token is missing"},
		{`"authorization":{"query":"t","token":""}`, "authorization.token is empty"},
		{`"authorization":{"query":"t","token":"  "}`, "authorization.token is empty"},
		{`"authorization":{"query":"t","token":["hush"]}`, "authorization.token must be a string"},
		{`"authorization":{"query":"t","token":"hush\n"}`, "authorization.token has a control character"},
		{`"authorization":{"query":7,"token":"hush"}`, "authorization.query must be"},
		{`"authorization":{"query":"","token":"hush"}`, parameter},
		{`"authorization":{"query":"a b","token":"hush"}`, parameter},
		{`"authorization":{"query":"a=b","token":"hush"}`, parameter},
		{`"authorization":{"query":"é","token":"hush"}`, parameter},
		{`"authorization":{"header":"Authorization"}`, `unknown field "authorization.header"`},
		{`"authorization":{"query":"t","token":"hush","x":1}`, `unknown field "authorization.x"`},
		{inHeader + `,"headers":{"authorization":"hush"}`, both},
		{inQuery + `,"headers":{"Authorization":"hush"}`, both},
		{`"authorization":{"query":"a","token":"hush"}`, taken},
		{inQuery + `,"webhook":"https://w.example/?b&access%5Ftoken=1"`, taken},
		{inQuery + `,"webhook":"https://w.example/?b=1;access_token"`, taken},
		{inHeader + `,"headers":` + members(2, "X-%d", 4083), "headers and authorization must have at most 8192"},
		{`"authorization":{"query":"` + strings.Repeat("a", 65) + `","token":"hush"}`, parameter},
		{
			`"authorization":{"query":"t","token":"` + strings.Repeat("x", 4097) + `"}`,
			"authorization.token is longer than 4096",
		},
	} {
		h := newHarness(t, nil)
		target := h.authorized(inQuery)
		before := h.Store.DB.Subscriptions()["s"]
		// Of a name that comes twice the last counts.
		body := `{"webhook":"https://w.example/hook?a=b",` + c.fields + `}`
		put := h.API(http.MethodPut, "/agents/*?subscription=new", body)
		patch := h.API(http.MethodPatch, target, `{"description":"d",`+c.fields+`}`)
		for _, a := range []ports.Answer{put, patch} {
			h.Want(a, 400, fsm.CodeInvalidRequest, c.says)
			if strings.Contains(a.Text, hush) {
				t.Errorf("the answer has the secret: %s", a.Text)
			}
		}
		if subs := h.Store.DB.Subscriptions(); len(subs) != 1 || !subs["s"].Equal(before) {
			t.Errorf("%s made %+v of %+v", c.fields, subs, before)
		}
	}
}

// TestAPatchOfOneFieldIsJudgedBesideTheOthers is about a PATCH that has nothing wrong in itself.
func TestAPatchOfOneFieldIsJudgedBesideTheOthers(t *testing.T) {
	for _, c := range []struct{ fields, patch, says string }{
		{inHeader, `{"headers":{"Authorization":"hush"}}`, "headers has Authorization, and authorization is set"},
		{`"headers":{"Authorization":"hush"}`, `{` + inQuery + `}`, "headers has Authorization, and authorization is"},
		{inQuery, `{"webhook":"https://w.example/hook?access_token=hush"}`, "which the query of webhook has already"},
	} {
		h := newHarness(t, nil)
		target := h.authorized(c.fields)
		before := h.Store.DB.Subscriptions()["s"]
		h.Want(h.API(http.MethodPatch, target, c.patch), 400, fsm.CodeInvalidRequest, c.says)
		if after := h.Store.DB.Subscriptions()["s"]; !after.Equal(before) {
			t.Errorf("%s made %+v of %+v", c.patch, after, before)
		}
	}
}

func TestNoSecretMovesToAnotherParty(t *testing.T) {
	const headers = `"headers":{"X-A":"hush","X-B":"hush"}`
	for _, c := range []struct {
		name, fields, patch string
		// kept is what the refusal names; empty if the patch is taken.
		kept string
	}{
		{"another host", inHeader, `"webhook":"https://evil.example/hook"`, "authorization"},
		{"a host below it", inHeader, `"webhook":"https://a.w.example/hook"`, "authorization"},
		{"another scheme", inHeader, `"webhook":"http://w.example/hook"`, "authorization"},
		{"another port", inQuery, `"webhook":"https://w.example:8443/hook"`, "authorization"},
		{"another path and query", inQuery, `"webhook":"https://w.example/other?b=c"`, ""},
		{"the same in another spelling", inHeader + `,` + headers, `"webhook":"HTTPS://W.Example:443/hook"`, ""},
		{"no secrets", `"metadata":{"a":"b"}`, `"webhook":"https://other.example/"`, ""},
		{"it is given anew", inHeader, `"webhook":"https://other.example/",` + inHeader, ""},
		{"it is given anew in another form", inHeader, `"webhook":"https://other.example/",` + inQuery, ""},
		{"it is taken away", inQuery, `"webhook":"https://other.example/","authorization":null`, ""},
		{"headers", headers, `"webhook":"https://evil.example/"`, "headers"},
		{
			"a header is given anew, another is not", headers,
			`"webhook":"https://evil.example/","headers":{"X-A":"1"}`, "headers",
		},
		{"a header more", headers, `"webhook":"https://evil.example/","headers":{"X-C":"1"}`, "headers"},
		{
			"a header is given anew, another is taken away", headers,
			`"webhook":"https://other.example/","headers":{"x-a":"1","x-b":null}`, "",
		},
		{"all headers are taken away", headers, `"webhook":"https://other.example/","headers":null`, ""},
		{
			"headers are given anew, the authorization is not", inHeader + `,` + headers,
			`"webhook":"https://evil.example/","headers":{"X-A":"1","X-B":"1"}`, "authorization",
		},
		{"neither", inHeader + `,` + headers, `"webhook":"https://evil.example/"`, "authorization and headers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			target := h.authorized(c.fields)
			before := h.Store.DB.Subscriptions()["s"]
			a := h.API(http.MethodPatch, target, `{`+c.patch+`}`)
			after := h.Store.DB.Subscriptions()["s"]
			if c.kept == "" {
				if a.Status != http.StatusOK || after.Webhook == before.Webhook {
					t.Errorf("got %d %s; stored is %+v", a.Status, a.Text, after)
				}
				return
			}
			h.Want(a, 400, fsm.CodeInvalidRequest, "webhook has another scheme, host or port, which would get what "+
				c.kept+" has for the old one")
			if strings.Contains(a.Text, hush) || !after.Equal(before) {
				t.Errorf("it made %+v, and answered %s", after, a.Text)
			}
		})
	}
}
