package dispatcher

import (
	"net/http"
	"net/url"
	"strings"

	"reveille/fsm"
)

// authorize adds the proof that a request is allowed (CloudEvents webhook spec, Authorization). If the URL then has a
// secret in it, caches must not keep it, unless the subscription's own headers say otherwise.
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

// percentEncoded encodes a space as "%20", which every reader of URLs decodes, not as the "+" of a form.
func percentEncoded(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
