package dispatcher

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// shownHost is a host of which a reason shows all: a name or an address, and maybe a port. No token of Reveille's is as
// short.
var shownHost = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]{1,100}$`)

// answerTo is what the endpoint of an attempt has answered, without the body.
func (d *Dispatcher) answerTo(a *attempt) format.Answer {
	answer := format.Answer{Status: a.status, Header: a.response.Header, At: d.cfg.Clock()}
	if location := a.response.Header.Get("Location"); location != "" && a.status >= 300 && a.status <= 399 {
		answer.RedirectsTo = redirectsTo(a.sub, a.request, location)
	}
	return answer
}

// redirectsTo says where a Location points. It shows the scheme and the host at most: the rest may be an echo of the
// request, or hold a key. A host that is no plain one, or holds a secret of the subscription, is not shown either.
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

// hostAndPort is where a URL leads, in one form.
func hostAndPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}
