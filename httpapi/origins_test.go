package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/ojs"
	"reveille/test/ports"
)

const app = "https://app.example"

func TestOwnResourcesHaveTheirOwnRuleOfCORS(t *testing.T) {
	const method, allow, headers = "Access-Control-Allow-Methods", "Access-Control-Allow-Origin",
		"Access-Control-Allow-Headers"
	for _, c := range []struct {
		name, origin, want string
		origins            []string
	}{
		{"none by default", app, "", nil},
		{"a listed origin", app, app, []string{"https://other.example", app}},
		{"another one", "https://evil.example", "", []string{app}},
		{"one that begins like it", app + ".evil.example", "", []string{app}},
		{"no origin at all", "", "", []string{app}},
		{"null", "null", "", []string{app}},
		{"any", "https://evil.example", "*", []string{AnyOrigin}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("%s %s "+
					"went upstream", r.Method, r.RequestURI)
			}))
			t.Cleanup(srv.Close)
			h := newHarness(t,
				func(cfg *Config) {
					cfg.Gateway, cfg.UpstreamURL, cfg.Origins = true, ports.MustURL(t, srv.URL), c.origins
				})
			for target, methods := range map[string]string{
				"/a/*?subscription=a": "GET, HEAD, PUT, PATCH, DELETE", "/**?subscriptions": "GET, HEAD",
				"/callback/" + ports.ConsumerID: "POST",
			} {
				a := h.API("OPTIONS", target, "", "Origin", c.origin, "Access-Control-Request-Method", "PUT")
				if a.Status != 204 || a.Header.Get("Allow") != methods || a.Header.Get(allow) != c.want {
					t.Errorf("%s: %d %v", target, a.Status, a.Header)
				}
				granted := c.want != ""
				if (a.Header.Get(method) == methods) != granted ||
					strings.Contains(a.Header.Get(headers), "Authorization") != granted {
					t.Errorf("%s: the preflight says %v", target, a.Header)
				}
				// The answer itself, refusals included.
				for _, m := range []string{"GET", "PATCH"} {
					if a := h.API(m, target, "", "Origin", c.origin); a.Header.Get(allow) != c.want {
						t.Errorf("%s %s: %v", m, target, a.Header)
					}
				}
				if exact := len(c.origins) > 0 &&
					c.origins[0] != AnyOrigin; (a.Header.Get("Vary") == "Origin") != exact {
					t.Errorf("%s: Vary %q", target, a.Header.Get("Vary"))
				}
			}
			if a := h.API("GET", "/__ds/x", "", "Origin", c.origin); a.Status != 501 || a.Header.Get(allow) != c.want {
				t.Errorf("%d %v", a.Status, a.Header)
			}
		})
	}
}

// askOperator sends a request to the operator port by a host, at an address that the port listens on.
func (h *harness) askOperator(at, host, method, target string, header ...string) ports.Answer {
	h.T.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(map[string]string{"POST": `{"streams":["/a"]}`}[method]))
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	local := net.Addr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(at), 9090)))
	w := httptest.NewRecorder()
	h.svc.Operator().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
	return h.Read(w.Result())
}

// operatorAddresses are those of a replica that listens on all of them.
var operatorAddresses = []string{"127.0.0.1", "::1", "10.0.0.7", "fd00::7", "203.0.113.7"}

func TestTheOperatorPortTakesNothingFromWebPages(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Origins = []string{AnyOrigin, "https://ops.example"} })
	for _, c := range []struct {
		name, host string
		header     []string
		want       int
	}{
		{"a program", "localhost:9090", nil, 200},
		{"a page of this port", "127.0.0.1:9090", []string{"Origin", "http://127.0.0.1:9090"}, 200},
		{"a page of the operator's", "ops.example", []string{"Origin", "https://ops.example"}, 200},
		{"the same page that asks by a private host", "localhost:9090", []string{"Origin", "https://ops.example"}, 200},
		{
			"a foreign page, though the API port takes any", "localhost:9090",
			[]string{"Origin", "https://evil.example"},
			403,
		},
		{"a page without an origin", "localhost:9090", []string{"Origin", "null"}, 403},
		{"a page of another port", "localhost:9090", []string{"Origin", "http://localhost:3000"}, 403},
		{"a rebound name", "evil.example:9090", []string{"Origin", "http://evil.example:9090"}, 403},
		{
			"an image of a foreign page", "localhost:9090",
			[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
			403,
		},
	} {
		for _, at := range operatorAddresses {
			for _, method := range []string{"GET", "POST"} {
				a := h.askOperator(at, c.host, method, "/api/v1/streams", c.header...)
				if a.Status != c.want || c.want == 403 &&
					(a.Code() != "FORBIDDEN" || !strings.Contains(a.Message(), "REVEILLE_CORS_ORIGINS")) {
					t.Errorf("%s: %s: %d %s, want %d", c.name, method, a.Status, a.Text, c.want)
				}
			}
			if a := h.askOperator(at, c.host, "GET", "/healthz", c.header...); a.Status != 200 {
				t.Errorf("%s: a probe: %d", c.name, a.Status)
			}
		}
	}
	if a := h.askOperator(
		"127.0.0.1", "localhost:9090", "GET", "/api/v1/version", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode",
		"navigate",
	); a.Status != 200 {
		t.Errorf("a link that was followed: %d", a.Status)
	}
	preflight := []string{"Origin", "https://ops.example", "Access-Control-Request-Method", "POST"}
	a := h.askOperator("127.0.0.1", "localhost:9090", "OPTIONS", "/api/v1/streams", preflight...)
	if a.Status != 204 || a.Header.Get("Access-Control-Allow-Origin") != "https://ops.example" {
		t.Errorf("a preflight of the operator's page: %d %v", a.Status, a.Header)
	}
	a = h.askOperator("127.0.0.1", "localhost:9090", "OPTIONS", "/api/v1/streams", "Origin", "https://evil.example",
		"Access-Control-Request-Method", "POST")
	if a.Status != 403 || a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a foreign preflight: %d %v", a.Status, a.Header)
	}
}

func TestTheOperatorPortAnswersAtNoNameThatAStrangerCanHave(t *testing.T) {
	const listed, bound = "https://ops.example,http://machine.example:9090", "bound.example:9090"
	for _, c := range []struct {
		name, origins, addr string
		hosts               []string
		open                bool
	}{
		{"loopback names", "", ":9090", []string{"localhost", "localhost:9090", "LOCALHOST:1", "x.localhost"}, true},
		{
			"addresses", "", ":9090",
			[]string{"127.0.0.1:9090", "[::1]:9090", "[::1]", "10.0.0.7", "[fd00::7]:1", "203.0.113.7:1"},
			true,
		},
		{
			"names that public DNS does not hold", "", ":9090",
			[]string{
				"reveille-operator:9090", "reveille-operator.prod.svc:9090",
				"reveille-operator.prod.svc.cluster.local:9090", "reveille-operator.prod.svc.cluster.local.:9090",
				"ip-10-0-0-7.ec2.internal:9090", "machine.local",
			},
			true,
		},
		{
			"public names", "", ":9090",
			[]string{
				"evil.example:9090", "evil.example", "EVIL.example.:9090", "reveille.dev:9090", "evil.svc.example",
				"localhost.evil.example", "127.0.0.1.evil.example:9090", "evilsvc.example:9090",
			},
			false,
		},
		{"a public name, though the API port takes any page", "*", ":9090", []string{"evil.example"}, false},
		{
			"hosts of listed origins", listed, ":9090",
			[]string{"ops.example", "OPS.example", "ops.example:443", "machine.example:9090"},
			true,
		},
		{
			"other hosts than those listed", listed, ":9090",
			[]string{"evil.example", "ops.example.evil.example", "x.ops.example", "ops.example:90", "machine.example"},
			false,
		},
		{"the name that the port is bound by", "", bound, []string{bound, "bound.example", "BOUND.example:1"}, true},
		{"other names than the one it is bound by", "", bound, []string{"evil.example", "x." + bound}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, func(cfg *Config) {
				cfg.OperatorAddr = c.addr
				if c.origins != "" {
					cfg.Origins = strings.Split(c.origins, ",")
				}
			})
			for _, host := range c.hosts {
				for _, at := range operatorAddresses {
					for _, method := range []string{"GET", "POST", "OPTIONS"} {
						a := h.askOperator(at, host, method, "/api/v1/streams")
						refused := a.Status == 403 && a.Code() == "FORBIDDEN" &&
							strings.Contains(a.Message(), "add http://"+host+" to REVEILLE_CORS_ORIGINS")
						if refused == c.open || c.open && a.Status == 403 {
							t.Errorf("%s %s at %s: %d %s", method, host, at, a.Status, a.Text)
						}
					}
					if a := h.askOperator(at, host, "GET", "/healthz"); a.Status != 200 {
						t.Errorf("a probe by %s at %s: %d", host, at, a.Status)
					}
					if a := h.askOperator(at, host, "GET", "/readyz"); a.Status != 200 {
						t.Errorf("a probe of readiness by %s at %s: %d", host, at, a.Status)
					}
				}
			}
		})
	}
}

func TestSubscriptionsAreMadeOfNothingButJSON(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.OJSStreams = "/jobs/**" })
	made := h.API("POST", ojs.Subscriptions, `{"url":"https://w.example/hook","events":["*"]}`)
	h.Secret(made.Body["secret"].(string))
	path := ojs.Subscriptions + "/" + made.Body["id"].(string)
	for _, kind := range []string{
		"text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "+json",
		"multipart/form-data; boundary=x",
	} {
		for _, request := range []string{
			"PUT /a?subscription=a", "PATCH /a?subscription=a", "POST " + ojs.Subscriptions, "PATCH " + path,
		} {
			method, target, _ := strings.Cut(request, " ")
			h.API("PUT", "/a?subscription=a", `{"webhook":"https://example.com/a"}`)
			h.Want(h.API(method, target, `{"webhook":"https://example.com/b"}`, "Content-Type", kind), 415,
				fsm.CodeUnsupportedMediaType, "application/json")
		}
	}
	if a := h.API(
		"PATCH", "/a?subscription=a", `{"description":"a"}`, "Content-Type", "application/merge-patch+json",
	); a.Status != 200 {
		t.Error(a.Text)
	}
}

func TestTheOperatorPortTakesNothingButJSON(t *testing.T) {
	h := newHarness(t, nil)
	for _, kind := range []string{
		"text/plain", "application/x-www-form-urlencoded", "", "application/jsonx",
		"multipart/form-data; boundary=x",
	} {
		for method, target := range map[string]string{
			"POST": "/api/v1/streams", "DELETE": "/api/v1/streams", "PUT": "/api/v1/log-level",
		} {
			h.Want(h.Operator(method, target, `{"streams":["/a"],"level":"debug"}`, "Content-Type", kind), 415,
				fsm.CodeUnsupportedMediaType, "application/json")
		}
		h.Want(h.Operator("POST", "/api/v1/subscriptions/a/resume", `{}`, "Content-Type", kind), 415,
			fsm.CodeUnsupportedMediaType, "")
	}
	h.WantCalls()
	if a := h.Operator(
		"POST", "/api/v1/streams", `{"streams":["/a"]}`, "Content-Type", "application/json; charset=utf-8",
	); a.Status != 200 {
		t.Fatal(a.Text)
	}
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a/resume", `{"all":true}`), 400, fsm.CodeInvalidRequest,
		`unknown field "all"; this request has none`)
	h.Want(h.Operator("PUT", "/api/v1/log-level", `{"level":"info","for":"1h"}`), 400, fsm.CodeInvalidRequest,
		`unknown field "for"; known are level`)
}
