package dispatcher

import (
	"net/http"
	"net/url"
	"testing"

	"reveille/fsm"
)

func TestWhatARequestIsAuthorizedBy(t *testing.T) {
	const hook = "https://w.example/hook"
	for name, tt := range map[string]struct {
		webhook string
		headers http.Header
		by      fsm.Authorization

		url, authorization, cache string
	}{
		"nothing":                 {webhook: hook, url: hook},
		"nothing, beside a query": {webhook: hook + "?a=b", url: hook + "?a=b"},
		"a header of its own": {
			webhook: hook, headers: http.Header{"Authorization": {"Basic a"}}, url: hook, authorization: "Basic a",
		},
		"the Authorization header": {
			webhook: hook, by: fsm.Authorization{Secret: "Bearer a b"}, url: hook, authorization: "Bearer a b",
		},
		"the query": {
			webhook: hook, by: fsm.Authorization{Query: "access_token", Secret: "abc"},
			url: hook + "?access_token=abc", cache: "no-store",
		},
		"the query, beside another": {
			webhook: hook + "?a=%20b&&c", by: fsm.Authorization{Query: "t", Secret: "x"},
			url: hook + "?a=%20b&&c&t=x", cache: "no-store",
		},
		"an empty query": {
			webhook: hook + "?", by: fsm.Authorization{Query: "t", Secret: "x"}, url: hook + "?t=x", cache: "no-store",
		},
		"what a query cannot hold as it is": {
			hook, nil,
			fsm.Authorization{Query: "a&b%#+", Secret: "é=&? +/#%"},
			hook + "?a%26b%25%23%2B=%C3%A9%3D%26%3F%20%2B%2F%23%25", "", "no-store",
		},
		"the query, with another rule for caches": {
			hook,
			http.Header{"Cache-Control": {"private"}},
			fsm.Authorization{Query: "t", Secret: "x"},
			hook + "?t=x", "",
			"private",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tt.webhook, nil)
			if err != nil {
				t.Fatal(err)
			}
			for header, values := range tt.headers {
				r.Header[header] = values
			}
			authorize(r, tt.by)
			if got := r.URL.String(); got != tt.url || r.Header.Get("Authorization") != tt.authorization ||
				r.Header.Get("Cache-Control") != tt.cache {
				t.Errorf("it is sent to %s with %v; want %+v", got, r.Header, tt)
			}
			if by := tt.by; by.Query != "" {
				if u, err := url.Parse(r.URL.String()); err != nil || u.Query().Get(by.Query) != by.Secret {
					t.Errorf("a reader of %s finds %q, %v", r.URL, u.Query().Get(by.Query), err)
				}
			}
		})
	}
}
