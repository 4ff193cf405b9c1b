package dispatcher

import (
	"net/http"
	"net/url"
	"strings"

	"reveille/fsm"
)

// authorize adds what proves to the endpoint that a request is allowed (CloudEvents webhook spec, Authorization). No
// cache is to keep a URL with a secret in it, unless the subscription's own headers say otherwise.
func authorize(r *http.Request, by fsm.Authorization) {
	switch {
	case by.Secret == "":
		return
	case by.Query == "":
		r.Header.Set("Authorization", by.Secret)
		return
	}
	if r.URL.RawQuery != "" {
		r.URL.RawQuery += "&"
	}
	r.URL.RawQuery += percentEncoded(by.Query) + "=" + percentEncoded(by.Secret)
	if r.Header.Get("Cache-Control") == "" {
		r.Header.Set("Cache-Control", "no-store")
	}
}

// percentEncoded has a space as "%20", which a reader of any URL decodes, and not as the "+" of a form.
func percentEncoded(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
