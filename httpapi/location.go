package httpapi

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// location returns the Location of an answer as its client can use it. What lies below the stream root gets the public
// address. What leads elsewhere stays as it is. The argument sent is the request as it went upstream.
func (g *gateway) location(sent *http.Request, location string) string {
	u, err := url.Parse(location)
	if err != nil || u.Opaque != "" || u.Host != "" && !g.isUpstream(sent, u) {
		return location
	}
	rest, below := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(g.root.EscapedPath(), "/"))
	if !below || rest != "" && rest[0] != '/' {
		return location
	}
	base := g.publicBase(sent)
	to := strings.TrimSuffix(base.EscapedPath(), "/") + rest
	if u.Host != "" {
		to = base.Scheme + "://" + base.Host + to
	} else if to == "" {
		to = "/"
	}
	if u.RawQuery != "" || u.ForceQuery {
		to += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		to += "#" + u.EscapedFragment()
	}
	return to
}

// publicBase is where clients find the gateway. It is the public URL, if one is set. Otherwise it is the address that
// this client used, which a proxy before us knows better.
func (g *gateway) publicBase(sent *http.Request) *url.URL {
	if g.public != nil {
		return g.public
	}
	first := func(name string) string {
		value, _, _ := strings.Cut(sent.Header.Get(name), ",")
		return strings.TrimSpace(value)
	}
	return &url.URL{Scheme: first("X-Forwarded-Proto"), Host: first("X-Forwarded-Host")}
}

// isUpstream says whether a URL is the stream server's own. The URL may have the server's address, the name by which it
// is asked, or the name in X-Forwarded-Host.
func (g *gateway) isUpstream(sent *http.Request, u *url.URL) bool {
	if u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "" {
		return false
	}
	at := hostport(u.Scheme, u.Host)
	for _, host := range []string{g.root.Host, g.host, sent.Header.Get("X-Forwarded-Host")} {
		if host != "" && (at == hostport(u.Scheme, host) || at == hostport(g.root.Scheme, host)) {
			return true
		}
	}
	return false
}

// hostport adds the port that a scheme stands for.
func hostport(scheme, host string) string {
	host = strings.ToLower(host)
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
