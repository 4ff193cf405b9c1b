package httpapi

import (
	"net/http"
	"strings"
)

// AnyOrigin is the member of Config.Origins that lets pages of every origin use the API port.
const AnyOrigin = "*"

const (
	corsHeaders = "Authorization, Content-Type, Traceparent, Tracestate"
	corsMaxAge  = "600"
)

// origins are the web origins whose pages may use Reveille's own resources from a browser (Fetch standard, CORS
// protocol).
type origins struct {
	any    bool
	listed map[string]bool
}

func newOrigins(list []string) origins {
	o := origins{listed: make(map[string]bool, len(list))}
	for _, origin := range list {
		if origin == AnyOrigin {
			o.any = true
			continue
		}
		o.listed[origin] = true
	}
	return o
}

// mark tells the browser whether a page may read the answer.
func (o origins) mark(header http.Header, r *http.Request) {
	if o.any {
		header.Set("Access-Control-Allow-Origin", AnyOrigin)
	} else if len(o.listed) > 0 {
		header.Add("Vary", "Origin") // the answer to other origins lacks the header: a cache must tell them apart
		if origin := r.Header.Get("Origin"); o.listed[origin] {
			o.answerTo(header, origin)
		}
	}
	if header.Get("Access-Control-Allow-Origin") != "" {
		header.Set("Access-Control-Expose-Headers", "Retry-After")
	}
}

// answerTo lets pages of an origin read the answer.
func (o origins) answerTo(header http.Header, origin string) {
	header.Set("Access-Control-Allow-Origin", origin)
}

// hasHost says whether a listed origin is at a host. Programs may name the default port, which origins leave out.
func (o origins) hasHost(host string) bool {
	host = strings.ToLower(host)
	return o.listed["https://"+strings.TrimSuffix(host, ":443")] || o.listed["http://"+strings.TrimSuffix(host, ":80")]
}

// preflight tells the browser which requests a page may send. mark was called before.
func (o origins) preflight(header http.Header, r *http.Request, methods string) {
	if header.Get("Access-Control-Allow-Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return
	}
	header.Set("Access-Control-Allow-Methods", methods)
	header.Set("Access-Control-Allow-Headers", corsHeaders)
	header.Set("Access-Control-Max-Age", corsMaxAge)
}
