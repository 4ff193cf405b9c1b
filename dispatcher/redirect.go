package dispatcher

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// shownHost matches a host that a reason may show in full: a name or an address, and maybe a port. Every token of
// Reveille is longer.
var shownHost = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]{1,100}$`)

// answerTo returns the answer of an attempt's endpoint, without the body.
func (d *Dispatcher) answerTo(a *attempt) format.Answer {
	answer := format.Answer{Status: a.status, Header: a.response.Header, At: d.cfg.Clock()}
	if location := a.response.Header.Get("Location"); location != "" && a.status >= 300 && a.status <= 399 {
		answer.RedirectsTo = redirectsTo(a.sub, a.request, location)
	}
	return answer
}

// redirectsTo says where a Location points. It shows the scheme and the host at most: the rest may echo the request, or
// hold a key. It does not show a host that is not plain (shownHost), or that holds a secret of the subscription.
func redirectsTo(sub fsm.Subscription, req *http.Request, location string) string {
	u, err := req.URL.Parse(location)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch {
	case u.Scheme == req.URL.Scheme && hostAndPort(u) == hostAndPort(req.URL):
		if u.EscapedPath() == req.URL.EscapedPath() {
			return "the same path of the same host"
		}
		return "another path of the same host"
	case !shownHost.MatchString(host) || mask(sub, u.Host) != u.Host:
		return "another host"
	}
	return u.Scheme + "://" + host
}

// hostAndPort returns the host and the port of a URL in one form.
func hostAndPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}
