package httpapi

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// The gateway lets neither side switch to another protocol: what follows would pass unseen, also writes to streams.

// withoutUpgrade returns a request's header without its offer of other protocols. That offer is for this server alone,
// which may ignore it (RFC 9110, section 7.8). The proxy would repeat it upstream, where HTTP/2 does not allow it. The
// proxy itself removes Connection, with all that it lists.
func withoutUpgrade(header http.Header) http.Header {
	if header["Upgrade"] == nil && header["Http2-Settings"] == nil {
		return header
	}
	header = header.Clone()
	header.Del("Upgrade")
	header.Del("Http2-Settings")
	return header
}

var errSwitched = errors.New("the stream server switched to another protocol without being asked to")

// oneProtocol is a transport that refuses answers that switch to another protocol.
type oneProtocol struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t oneProtocol) RoundTrip(r *http.Request) (*http.Response, error) {
	// By HTTP/2, which does not allow it, a 101 comes as an informational answer. The proxy would pass it on, and the
	// client would take it for the final answer. The proxy has made the trace for this request alone.
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.Got1xxResponse != nil {
		pass := trace.Got1xxResponse
		trace.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
			if code == http.StatusSwitchingProtocols {
				return errSwitched
			}
			return pass(code, header)
		}
	}
	res, err := t.RoundTripper.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return nil, errSwitched
	}
	return res, err
}
