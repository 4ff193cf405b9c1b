package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"reveille/fsm"
	"reveille/httpapi/web"
	"reveille/test/ports"
)

// behind puts the gateway of a harness in front of a handler and starts both.
func behind(t *testing.T, base string, upstream http.HandlerFunc) (h *harness, root string, client *http.Client) {
	srv := httptest.NewServer(upstream)
	t.Cleanup(srv.Close)
	h = newHarness(t, func(c *Config) {
		c.Gateway, c.UpstreamURL, c.RegistryPath = true, ports.MustURL(t, srv.URL+base), "/__registry__"
	})
	root, client = h.server()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h, root, client
}

// dial sends bytes as they are.
func dial(t *testing.T, root, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(root, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// raw sends bytes as they are and returns the answer.
func raw(t *testing.T, root, request string) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(dial(t, root, request)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// The bytes that go upstream: the path in its canonical form, the query as it came.
func TestGatewayAsksForTheCanonicalPathAndKeepsTheQueryToTheByte(t *testing.T) {
	got, long := make(chan string, 1), strings.Repeat("x", fsm.MaxPathLen)
	for base, prefix := range map[string]string{"": "", "/": "", "/v1/stream": "/v1/stream", "/v%201/": "/v%201"} {
		_, root, _ := behind(t, base, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })
		targets := map[string]string{
			"/a%2Fb%2fc": "/a%2Fb%2Fc", "/a/../b/./c": "/b/c", "/\u20ac%2Fx": "/%E2%82%AC%2Fx",
			`/a|b^c"d%2F`: "/a|b^c%22d%2F",
			`/a"b`:        "/a%22b", "/a*b/./%61": "/a*b/a", "/a%2a?x=1?y=2": "/a%2A?x=1?y=2", `/a\b`: "/a/b",
			"/e/%61?offset=%61": "/e/a?offset=%61", "/%7Ebob/%c3%bc": "/~bob/%C3%BC", "/e/%2e/d/%2E%2e/z": "/e/z",
			"/%2561": "/%2561", "/__registry_%5F/%2e/x": "/__registry__/x", "/e/" + long + "/../" + long: "/e/" + long,
		}
		for _, target := range []string{
			"/", "/a", "/a/", "/a%20b+c", "/%2Fa%2F%2Fb", "/%E2%82%AC", "/a:b;c,d=e@f", "/a/b%2F../..c/.../d",
			"/~a_(b)!*'$&", "/a?", "/a?offset=-1&live=long-poll&cursor=x", "/a?q=%2F;b&&=&%zz&\u20ac", "/a%2A?x=1?y=2",
			"/a*b",
		} {
			targets[target] = target
		}
		for target, want := range targets {
			res := raw(t, root, "GET "+target+" HTTP/1.1\r\nHost: public.example\r\nConnection: close\r\n\r\n")
			_ = res.Body.Close()
			if res.StatusCode != 200 {
				t.Fatalf("%s: got %d", target, res.StatusCode)
			}
			uri := <-got
			if i := strings.Index(uri, "://"); i >= 0 { // the absolute form names the host as well
				uri = uri[i+3:]
				uri = uri[strings.Index(uri, "/"):]
			}
			if uri != prefix+want {
				t.Errorf("base %q: upstream got %q for %q", base, uri, target)
			}
		}
	}
}

func TestGatewayHeaders(t *testing.T) {
	seen := make(chan *http.Request, 1)
	h, root, client := behind(t, "", func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		w.Header()["Date"] = nil
		w.Header().Set("X-Custom", "kept")
		w.WriteHeader(http.StatusFound)
	})
	send := func(header map[string]string) (*http.Request, *http.Response) {
		r, _ := http.NewRequest(http.MethodGet, root+"/a", nil)
		r.Host = "public.example"
		for k, v := range header {
			r.Header.Set(k, v)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return <-seen, res
	}
	r, res := send(map[string]string{
		"User-Agent": "", "Accept-Encoding": "identity",
		"Authorization": "Bearer of the client",
	})
	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "public.example", "X-Forwarded-Proto": "http",
		"User-Agent":      "",
		"Accept-Encoding": "identity", "Authorization": "Bearer of the client", "Connection": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("upstream got %s %q, want %q", name, got, want)
		}
	}
	if r.Host != h.svc.cfg.UpstreamURL.Host {
		t.Errorf("upstream got Host %q, not its own", r.Host)
	}
	if res.StatusCode != 302 || res.Header.Get("X-Custom") != "kept" {
		t.Errorf("the redirect came as %d %v", res.StatusCode, res.Header)
	}
	if res.Header.Get("Cache-Control") != "" {
		t.Error("an answer of upstream was given a Cache-Control")
	}
	r, _ = send(map[string]string{
		"X-Forwarded-For": "10.1.1.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "front.example",
		"Forwarded": "for=10.1.1.1", "User-Agent": "me/1",
	})
	for name, want := range map[string]string{
		"X-Forwarded-For": "10.1.1.1, 127.0.0.1", "X-Forwarded-Host": "front.example", "X-Forwarded-Proto": "https",
		"Forwarded": "for=10.1.1.1", "User-Agent": "me/1",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("behind a proxy upstream got %s %q, want %q", name, got, want)
		}
	}
}

func TestGatewayAsksByTheHostThatIsSetForUpstream(t *testing.T) {
	seen := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Host }))
	t.Cleanup(srv.Close)
	h := newHarness(t, func(c *Config) {
		c.Gateway, c.UpstreamURL, c.UpstreamHost = true, ports.MustURL(t, srv.URL), "streams.internal"
	})
	root, _ := h.server()
	for _, target := range []string{"/a", `/a|b"%2F`} { // the second goes as an opaque URL
		_ = raw(t, root, "GET "+target+" HTTP/1.1\r\nHost: public.example\r\nConnection: close\r\n\r\n").Body.Close()
		if got := <-seen; got != "streams.internal" {
			t.Errorf("%s: upstream got Host %q", target, got)
		}
	}
}

func TestGatewayGivesALocationBelowTheRootThePublicAddress(t *testing.T) {
	for _, c := range []struct{ name, base, public, proto, location, want string }{
		{
			"the server's own address", "/v1/stream", "", "", "http://{up}/v1/stream/a%2Fb?x=1#y",
			"http://public.example/a%2Fb?x=1#y",
		},
		{"at the root of its host", "", "", "", "http://{up}/a", "http://public.example/a"},
		{"with another scheme", "/v1/stream", "", "", "https://{up}/v1/stream/a", "http://public.example/a"},
		{"behind a proxy with TLS", "/v1/stream", "", "https", "http://{up}/v1/stream/a", "https://public.example/a"},
		{
			"as the server was told the client's", "/v1/stream", "", "", "http://public.example/v1/stream/a",
			"http://public.example/a",
		},
		{"a path", "/v1/stream", "", "", "/v1/stream/a", "/a"},
		{"the root itself", "/v1/stream", "", "", "/v1/stream", "/"},
		{"a relative path", "/v1/stream", "", "", "b/c", "b/c"},
		{"a public URL", "/v1/stream", "https://s.example/in", "", "http://{up}/v1/stream/a", "https://s.example/in/a"},
		{"a path, and a public URL", "/v1/stream", "https://s.example/in/", "", "/v1/stream/a", "/in/a"},
		{"outside the root", "/v1/stream", "", "", "http://{up}/v1/streams/a", "http://{up}/v1/streams/a"},
		{
			"another host", "/v1/stream", "https://s.example", "", "https://cdn.example/v1/stream/a",
			"https://cdn.example/v1/stream/a",
		},
		{"no URL", "", "https://s.example", "", "http://[", "http://["},
	} {
		t.Run(c.name, func(t *testing.T) {
			var up string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", strings.ReplaceAll(c.location, "{up}", up))
				w.WriteHeader(http.StatusCreated)
			}))
			t.Cleanup(srv.Close)
			up = strings.TrimPrefix(srv.URL, "http://")
			h := newHarness(t, func(cfg *Config) {
				cfg.Gateway, cfg.UpstreamURL = true, ports.MustURL(t, srv.URL+c.base)
				if c.public != "" {
					cfg.PublicURL = ports.MustURL(t, c.public)
				}
			})
			root, _ := h.server()
			forwarded := ""
			if c.proto != "" {
				forwarded = "X-Forwarded-Proto: " + c.proto + "\r\n"
			}
			res := raw(t, root,
				"PUT /a HTTP/1.1\r\nHost: public.example\r\nContent-Length: 0\r\n"+
					forwarded+"Connection: close\r\n\r\n")
			_ = res.Body.Close()
			if got, want := res.Header.Get("Location"), strings.ReplaceAll(c.want, "{up}", up); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestGatewayPassesEachChunkAtOnceAndACancelledReadOn(t *testing.T) {
	next, gone := make(chan string), make(chan struct{})
	_, root, client := behind(t, "", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-next:
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(gone)
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, root+"/a?live=sse", nil)
	res, err := client.Do(r) // the header comes before the first event
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		want := fmt.Sprintf("data: %d\n", i)
		next <- want
		if got, err := lines.ReadString('\n'); got != want || err != nil { // before the next one is sent
			t.Fatalf("got %q, %v", got, err)
		}
	}
	cancel()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Fatal("upstream was not told that the client went away")
	}
}

func TestGatewayStreamsBodiesBothWays(t *testing.T) {
	const size = 20 << 20
	firstSeen := make(chan struct{})
	_, root, client := behind(t, "", func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		_, _ = io.ReadFull(r.Body, first)
		close(firstSeen)
		rest, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(append(first, rest...))
		w.Header().Set("X-Sum", fmt.Sprint(len(first)+len(rest))+" "+r.Trailer.Get("X-Up"))
	})
	payload := make([]byte, size)
	_, _ = rand.Read(payload)
	in, out := io.Pipe()
	go func() {
		_, _ = out.Write(payload[:5])
		<-firstSeen // upstream reads before the client has sent all
		_, _ = out.Write(payload[5:])
		_ = out.Close()
	}()
	r, _ := http.NewRequest(http.MethodPatch, root+"/big", in)
	r.Trailer = http.Header{"X-Up": {"came"}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(got, payload) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), size, err)
	}
	if sum := res.Trailer.Get("X-Sum"); sum != fmt.Sprint(size)+" came" {
		t.Fatalf("trailers: %q", sum)
	}
}

func TestGatewayExpectContinue(t *testing.T) {
	for name, status := range map[string]int{
		"the body is asked for by upstream": 200,
		"upstream refuses before the body":  413,
	} {
		t.Run(name, func(t *testing.T) {
			_, root, client := behind(t, "", func(w http.ResponseWriter, r *http.Request) {
				if status == 200 {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				w.WriteHeader(status)
			})
			client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
			asked, sent := false, false
			ctx := httptrace.WithClientTrace(t.Context(),
				&httptrace.ClientTrace{Got100Continue: func() { asked = true }})
			body := readerFunc(func([]byte) (int, error) { sent = true; return 0, io.EOF })
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, root+"/a", body)
			r.ContentLength = -1
			r.Header.Set("Expect", "100-continue")
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if want := status == 200; res.StatusCode != status || asked != want || sent != want {
				t.Fatalf("got %d, asked %v, sent %v", res.StatusCode, asked, sent)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestGatewayTellsDiscoveryOfWrites(t *testing.T) {
	var h *harness
	h, root, client := behind(t, "/base", func(w http.ResponseWriter, r *http.Request) {
		h.Rec.Note("upstream %s %s", r.Method, r.URL.EscapedPath())
		if tail := r.Header.Get("Test-Tail"); tail != "" {
			w.Header().Set("Stream-Next-Offset", tail)
		}
		var status int
		_, _ = fmt.Sscan(r.Header.Get("Test-Status"), &status)
		w.WriteHeader(status)
	})
	for _, c := range []struct {
		name, method, path, tail string
		status                   int
		want                     []string
	}{
		{
			"PUT that creates", "PUT", "/a%2Fb", "0_0", 201,
			[]string{"before creating /a%2Fb", "upstream PUT /base/a%2Fb", `written /a%2Fb "0_0" true`},
		},
		{
			"PUT of one that is there", "PUT", "/a", "0_5", 200,
			[]string{"before creating /a", "upstream PUT /base/a", `written /a "0_5" false`},
		},
		{"POST", "POST", "/a", "0_9", 204, []string{"before /a", "upstream POST /base/a", `written /a "0_9" false`}},
		{
			"POST whose answer names no tail", "POST", "/a", "", 200,
			[]string{"before /a", "upstream POST /base/a", `written /a "" false`},
		},
		{"POST that is refused", "POST", "/a", "", 409, []string{"before /a", "upstream POST /base/a", "refused /a"}},
		{
			"POST that is redirected", "POST", "/a", "", 307,
			[]string{"before /a", "upstream POST /base/a", "refused /a"},
		},
		{
			"POST to a path with dots", "POST", "/x/../a", "7", 200,
			[]string{"before /a", "upstream POST /base/a", `written /a "7" false`},
		},
		{"DELETE", "DELETE", "/a", "", 204, []string{"upstream DELETE /base/a", "deleted /a"}},
		{"DELETE of one that is not there", "DELETE", "/a", "", 404, []string{"upstream DELETE /base/a"}},
		{"GET", "GET", "/a", "0_9", 200, []string{"upstream GET /base/a"}},
		{"HEAD", "HEAD", "/a", "0_9", 200, []string{"upstream HEAD /base/a"}},
		{"OPTIONS", "OPTIONS", "/a", "", 204, []string{"upstream OPTIONS /base/a"}},
		{
			"POST to the registry stream", "POST", "/__registry__", "1", 200,
			[]string{"upstream POST /base/__registry__"},
		},
		{
			"PUT below the registry stream", "PUT", "/__registry__/x", "1", 201,
			[]string{"upstream PUT /base/__registry__/x"},
		},
		{
			"PUT of one named like it", "PUT", "/__registry__x", "1", 201,
			[]string{
				"before creating /__registry__x", "upstream PUT /base/__registry__x",
				`written /__registry__x "1" true`,
			},
		},
		{
			"PUT of a path that is too long to be one", "PUT", "/" + strings.Repeat("x", 2048), "1", 201,
			[]string{"upstream PUT /base/" + strings.Repeat("x", 2048)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.Rec.ForgetCalls()
			r, _ := http.NewRequest(c.method, root+c.path, nil)
			r.Header.Set("Test-Status", fmt.Sprint(c.status))
			r.Header.Set("Test-Tail", c.tail)
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if got := h.Rec.Noted(); res.StatusCode != c.status || !slices.Equal(got, c.want) {
				t.Fatalf("got %d and calls %q, want %q", res.StatusCode, got, c.want)
			}
		})
	}
	t.Run("a deletion that cannot be noted is answered all the same", func(t *testing.T) {
		h.Rec.Err = errors.New("redis is away")
		r, _ := http.NewRequest(http.MethodDelete, root+"/a", nil)
		r.Header.Set("Test-Status", "204")
		res, err := client.Do(r)
		if err != nil || res.StatusCode != 204 {
			t.Fatal(res, err)
		}
		if h.Logs.FilterField(zap.String("stream", "/a")).Len() != 1 {
			t.Fatal("nothing was logged")
		}
	})
}

func TestGatewayUpstreamDown(t *testing.T) {
	// Nobody listens on the first port.
	h := newHarness(t,
		func(c *Config) { c.Gateway, c.UpstreamURL = true, ports.MustURL(t, "http://user:hunter2@127.0.0.1:1") })
	h.Secret("hunter2")
	root, client := h.server()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, _ := http.NewRequest(method, root+"/a", strings.NewReader("x"))
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		h.Want(h.Read(res), 502, "UPSTREAM_UNAVAILABLE", "stream server")
	}
	h.WantCalls("before /a", "refused /a")
}

func TestGatewayClientThatGoesAwayFromAWriteIsNoError(t *testing.T) {
	for name, leave := range map[string]func(root string, arrived <-chan struct{}){
		"while it waits for the answer": func(root string, arrived <-chan struct{}) {
			conn := dial(t, root, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			<-arrived
			_ = conn.Close()
		},
		"while it sends the body": func(root string, arrived <-chan struct{}) {
			conn := dial(t, root, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
			<-arrived
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{})
			h, root, _ := behind(t, "", func(_ http.ResponseWriter, r *http.Request) {
				close(arrived)
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
			leave(root, arrived)
			h.Await("refused /a") // what became of the write is for discovery to find out
			for _, e := range h.Logs.All() {
				if e.Level > zapcore.DebugLevel {
					t.Fatalf("logged: %s %v", e.Message, e.ContextMap())
				}
			}
		})
	}
}

func TestABodyThatTricklesInIsEnded(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.BodyTimeout = 200 * time.Millisecond })
	h.Wake()
	root, client := h.server()
	token := h.Token(ports.ConsumerID, ports.Epoch, 0)
	trickle := func(method, target, auth string) *http.Response {
		return raw(t, root,
			method+" "+target+" HTTP/1.1\r\nHost: x\r\nAuthorization: "+auth+
				"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"epoch\"")
	}
	for _, c := range []struct{ method, target string }{
		{"POST", "/callback/" + ports.ConsumerID},
		{"PUT", "/a?subscription=a"},
	} {
		res := trickle(c.method, c.target, "Bearer "+token)
		if !res.Close {
			t.Fatal("the connection is kept")
		}
		h.Want(h.Read(res), 400, "INVALID_REQUEST", "did not arrive within 200ms")
	}
	// One that is refused before its body is read is ended as well.
	h.Want(h.Read(trickle("POST", "/callback/"+ports.ConsumerID, "none")), 401, "TOKEN_INVALID", "")

	// The limit is for the body only: what comes after it may take longer.
	h.svc.native.HeadTimeout = 500 * time.Millisecond
	h.Up.Broken[ports.Primary] = true
	r, _ := http.NewRequest(http.MethodPost, root+"/callback/"+ports.ConsumerID, strings.NewReader(`{"epoch":7}`))
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if a := h.Read(res); a.Status != 200 {
		t.Fatal(a.Text)
	}
}

func TestABodyWithoutALengthIsLimitedToo(t *testing.T) {
	h := newHarness(t, nil)
	h.Wake()
	root, client := h.server()
	body := io.MultiReader(strings.NewReader(`{"epoch":7,"x":"`),
		io.LimitReader(readerFunc(func(b []byte) (int, error) {
			for i := range b {
				b[i] = 'x'
			}
			return len(b), nil
		}), web.MaxBody))
	r, _ := http.NewRequest(http.MethodPost, root+"/callback/"+ports.ConsumerID, body)
	r.Header.Set("Authorization", "Bearer "+h.Token(ports.ConsumerID, ports.Epoch, 0))
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	h.Want(h.Read(res), 413, "BODY_TOO_LARGE", "")
}

// refusedBy sends a request as it stands, and fails the test unless it is refused and nothing of it goes upstream.
func refusedBy(t *testing.T, h *harness, root, method, target string, status int, code fsm.Code) ports.Answer {
	t.Helper()
	res := raw(t, root,
		method+" "+target+" HTTP/1.1\r\nHost: public.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	a := h.Read(res)
	if a.Status != status || a.Code() != string(code) {
		t.Errorf("%s %s: %d %s, want %d %s", method, target, a.Status, a.Text, status, code)
	}
	h.WantCalls()
	return a
}

// behindNothing is a gateway whose stream server fails the test when it is asked.
func behindNothing(t *testing.T, base string) (h *harness, root string) {
	h, root, _ = behind(t, base,
		func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s went upstream", r.Method, r.RequestURI) })
	return h, root
}

func TestGatewayRefusesWhatIsNoStreamsPath(t *testing.T) {
	for _, base := range []string{"", "/v1/stream"} {
		h, root := behindNothing(t, base)
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"} {
			for _, target := range []string{
				"/..", "/../admin", "/a/../../admin", "/%2e%2E/admin", "/.%2e/admin", `/..\admin`, `/a\..\..\admin`,
				"/./../b", "/a//../../b",
				"/..%2fadmin", "/a/..%2F..%5cadmin", "/a%2Fb/../../admin", "/../v1/stream/a", "/%252e%252e/admin",
			} {
				refusedBy(t, h, root, method, target, 404, fsm.CodeNotFound)
			}
			for _, target := range []string{"//x/agents/t1", "/a//b", `/\x/a`, "/a#b", "/#", "/a#b?c=d", "/a//"} {
				refusedBy(t, h, root, method, target, 400, fsm.CodeInvalidPath)
			}
			for _, target := range []string{
				"/__ds", "/__ds/jwks.json", "/__ds/subscriptions/x/claim", "/tenant/__ds/subscriptions/x",
				"/%5F%5Fds/x", "/a%2F__ds%2Fb",
				"/x/../__ds/y", "/__ds/x?live=sse",
			} {
				refusedBy(t, h, root, method, target, 501, fsm.CodeNotImplemented)
			}
		}
		for _, method := range []string{"PUT", "POST"} {
			for _, target := range []string{"/agents/*", "/agents/%2A", "/a%2ab", "/**"} {
				if a := refusedBy(
					t, h, root, method, target, 400, fsm.CodeInvalidPath,
				); !strings.Contains(a.Message(), "?subscription=ID") {
					t.Errorf("the answer does not say what was meant: %s", a.Text)
				}
			}
		}
	}
}

func TestReservedPathsAreAnsweredWithoutAGatewayToo(t *testing.T) {
	h := newHarness(t, nil)
	h.Want(h.API("GET", "/__ds/jwks.json", ""), 501, fsm.CodeNotImplemented, "__ds")
	h.Want(h.API("GET", "/x/__ds/jwks.json", ""), 501, fsm.CodeNotImplemented, "__ds")
}

func TestWhatCarriesSubscriptionsInItsQueryNeverGoesUpstream(t *testing.T) {
	h, root := behindNothing(t, "")
	for _, c := range []struct{ method, target, allow string }{
		{"PUT", "/agents/*?subscriptions=a2", "GET, HEAD"},
		{"POST", "/agents/a?subscriptions", "GET, HEAD"},
		{"DELETE", "/agents/*?x=1&subscriptions", "GET, HEAD"},
		{"POST", "/agents/*?subscription=a3", "GET, HEAD, PUT, PATCH, DELETE"},
		{"LOCK", "/agents/a?subscription", "GET, HEAD, PUT, PATCH, DELETE"},
		{"PURGE", "/agents/a?%73ubscription=a", "GET, HEAD, PUT, PATCH, DELETE"},
		{"POST", "/__ds/x?subscription=a", "GET, HEAD, PUT, PATCH, DELETE"},
	} {
		a := refusedBy(t, h, root, c.method, c.target, 405, fsm.CodeMethodNotAllowed)
		if a.Header.Get("Allow") != c.allow || !strings.Contains(a.Message(), "?subscription=ID") {
			t.Errorf("%s %s: Allow %q, %s", c.method, c.target, a.Header.Get("Allow"), a.Text)
		}
	}
	for _, target := range []string{"/a?subscription=a", "/a?subscriptions", "/callback/" + ports.ConsumerID} {
		res := raw(t, root, "OPTIONS "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		_ = res.Body.Close()
		if res.StatusCode != 204 || res.Header.Get("Allow") == "" {
			t.Errorf("OPTIONS %s: %d %v", target, res.StatusCode, res.Header)
		}
	}
}

func TestWritesToAnUpstreamThatTakesNoneAreRefused(t *testing.T) {
	var asked atomic.Int32
	h, root, client := behind(t, "/ds", func(w http.ResponseWriter, _ *http.Request) { asked.Add(1) })
	h.Up.ReadOnly = true
	for method, want := range map[string]int{
		"PUT": 405, "POST": 405, "DELETE": 405, "PATCH": 405, "GET": 200, "HEAD": 200, "OPTIONS": 200,
	} {
		before := asked.Load()
		req, err := http.NewRequestWithContext(t.Context(), method, root+"/a", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || (asked.Load() > before) != (want == 200) {
			t.Errorf("%s got %d, want %d, and went upstream: %v", method, res.StatusCode, want, asked.Load() > before)
		}
		if want == 405 &&
			(!strings.Contains(string(body), `"code":"METHOD_NOT_ALLOWED"`) || res.Header.Get("Allow") == "") {
			t.Errorf("%s: %s %v", method, body, res.Header)
		}
	}
}

func TestACallbackWhosePathWasDecodedDoesNotGoToTheStreamServer(t *testing.T) {
	reached := make(chan string, 9)
	h, root, _ := behind(t, "", func(_ http.ResponseWriter, r *http.Request) { reached <- r.RequestURI })
	post := func(path, token string) int {
		res := raw(t, root,
			"POST "+path+
				" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: Bearer "+token+
				"\r\n\r\n")
		_ = res.Body.Close()
		return res.StatusCode
	}
	token := h.Token(ports.ConsumerID, ports.Epoch, 0)
	for _, path := range []string{"/callback/my-sub:/agents/task-1", "/callback/my-sub:%2Fagents/task-1"} {
		if status := post(path, token); status != 404 || len(reached) > 0 {
			t.Errorf("%s: %d, %d requests at the stream server", path, status, len(reached))
		}
	}
	if n := h.Logs.FilterMessageSnippet("callbacks arrive with a decoded path").Len(); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
	// Whoever sends it: nothing below /callback/ is a stream's.
	for path, bearer := range map[string]string{
		"/callback/my-sub:/agents/task-1": "theirs", "/callback/my-sub:/agents/task-2": token,
		"/x/../callback/a": token, "/callback/": token,
	} {
		if status := post(path, bearer); status != 404 || len(reached) > 0 {
			t.Errorf("%s: %d, %d requests at the stream server", path, status, len(reached))
		}
	}
	if status := post("/callback", token); status != 200 || <-reached != "/callback" {
		t.Errorf("a stream named /callback got %d", status)
	}
}
