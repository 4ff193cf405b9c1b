package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// proxyError is the error of a request that a proxy answered itself.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return fmt.Sprintf("the proxy answered status %d", e.status) }

// onConnect judges the answer to a CONNECT, which is always the proxy's own.
func onConnect(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return &proxyError{res.StatusCode}
	}
	return nil
}

// ofProxy says whether an answer that came through a proxy over plain HTTP is the proxy's own. A 407 always is. Any
// other failure is the proxy's if the answer says so: by an error in Proxy-Status (RFC 9209, section 2.1.1), or as
// Squid does.
func ofProxy(res *http.Response) bool {
	switch {
	case res.StatusCode == http.StatusProxyAuthRequired:
		return true
	case res.StatusCode < http.StatusBadRequest:
		return false
	case res.Header.Get("X-Squid-Error") != "":
		return true
	}
	for _, list := range res.Header["Proxy-Status"] {
		for parameter := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ';' || r == ',' }) {
			if name, _, _ := strings.Cut(strings.TrimSpace(parameter), "="); name == "error" {
				return true
			}
		}
	}
	return false
}
