package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm"
	"reveille/test/ports"
)

// protocols are those that a stream server may speak.
var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// behindProtocol is behind for a stream server that speaks one protocol alone, without TLS.
func behindProtocol(t *testing.T, protocol string, change func(*Config), upstream http.HandlerFunc) (*harness, string) {
	t.Helper()
	var only http.Protocols
	only.SetHTTP1(protocol == "HTTP/1.1")
	only.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != protocol {
			t.Errorf("upstream is asked by %s, want %s", r.Proto, protocol)
		}
		upstream(w, r)
	}))
	srv.Config.Protocols = &only
	srv.Start()
	t.Cleanup(srv.Close)
	h := newHarness(t, func(c *Config) {
		c.Gateway, c.UpstreamURL = true, ports.MustURL(t, srv.URL)
		c.UpstreamTransport = &http.Transport{Protocols: &only, DisableCompression: true}
		if change != nil {
			change(c)
		}
	})
	root, _ := h.server()
	return h, root
}

// The offers of curl --http2 and of browsers that open a WebSocket.
const (
	offersHTTP2     = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
	offersWebSocket = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
)

func TestTheGatewayOffersUpstreamNoOtherProtocol(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			seen := make(chan http.Header, 1)
			h, root := behindProtocol(t, protocol, nil, func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != "event" {
					t.Errorf("upstream got the body %q, %v", body, err)
				}
				seen <- r.Header.Clone()
				w.Header().Set("Stream-Next-Offset", "7")
			})
			for _, c := range []struct{ name, offer string }{
				{"none", ""},
				{"HTTP/2", offersHTTP2},
				{"a WebSocket", offersWebSocket},
				{"several protocols", "Connection: upgrade\r\nUpgrade: websocket, h2c\r\nUpgrade: TLS/1.0\r\n"},
				{"one that Connection does not list", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"},
				{"none, though Connection lists one", "Connection: Upgrade, HTTP2-Settings\r\n"},
				{"one that is no protocol", "Connection: Upgrade\r\nUpgrade: \u20ac\r\n"},
			} {
				t.Run(c.name, func(t *testing.T) {
					for method, calls := range map[string][]string{
						"GET": nil, "POST": {"before /a", `written /a "7" false`},
						"PUT": {"before creating /a", `written /a "7" false`},
					} {
						h.Rec.ForgetCalls()
						res := raw(t, root, method+" /a HTTP/1.1\r\nHost: x\r\n"+c.offer+
							"X-Other: kept\r\nContent-Length: 5\r\n\r\nevent")
						if a := h.Read(res); a.Status != http.StatusOK {
							t.Fatalf("%s: %d %s, want the answer of upstream", method, a.Status, a.Text)
						}
						got := <-seen
						for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
							if v, ok := got[name]; ok {
								t.Errorf("%s: upstream got %s %q", method, name, v)
							}
						}
						if got.Get("X-Other") != "kept" {
							t.Errorf("%s: upstream got the header %v", method, got)
						}
						h.WantCalls(calls...)
					}
				})
			}
		})
	}
}

func TestTheGatewayRefusesAnAnswerThatSwitchesProtocols(t *testing.T) {
	for _, protocol := range protocols {
		for name, offer := range map[string]string{"asked for": offersWebSocket, "not asked for": ""} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				ended := make(chan struct{}, 1)
				r := prometheus.NewPedanticRegistry()
				h, root := behindProtocol(t, protocol, func(c *Config) { c.Metrics = r },
					func(w http.ResponseWriter, r *http.Request) {
						defer func() { ended <- struct{}{} }()
						_, _ = io.ReadAll(r.Body)
						w.Header().Set("Connection", "Upgrade")
						w.Header().Set("Upgrade", "websocket")
						if r.ProtoMajor == 2 {
							w.WriteHeader(http.StatusSwitchingProtocols)
							return
						}
						conn, _, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						defer func() { _ = conn.Close() }()
						_, _ = io.WriteString(conn,
							"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
						if n, _ := io.Copy(io.Discard, conn); n > 0 {
							t.Errorf("%d bytes came after the answer", n)
						}
					})
				for method, calls := range map[string][]string{
					"GET": nil, "POST": {"before /a", "refused /a"}, "PUT": {"before creating /a", "refused /a"},
				} {
					h.Rec.ForgetCalls()
					res := raw(t, root,
						method+" /a HTTP/1.1\r\nHost: x\r\n"+offer+"Content-Length: 5\r\n\r\nevent")
					h.Want(h.Read(res), 502, fsm.CodeUpstreamUnavailable, "stream server")
					select {
					case <-ended:
					case <-time.After(time.Minute):
						t.Fatal("the connection to upstream is open still")
					}
					h.WantCalls(calls...)
				}
				want := map[string]int{"read none": 1, "write none": 2}
				if got := ports.Counted(t, r, "reveille_gateway_requests_total"); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("counted %v, want %v", got, want)
				}
			})
		}
	}
}
