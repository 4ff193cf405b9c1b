package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/test/anycable"
)

// to returns a client of a handler, whose streams are below /ds.
func to(t *testing.T, h http.Handler, change func(*Config)) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	root, err := url.Parse(srv.URL + "/ds")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{URL: root, HeadTimeout: time.Second}
	if change != nil {
		change(&cfg)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func TestAnyCablesOffsetsSortByNumberWithinTheirEpoch(t *testing.T) {
	parse := func(s string) fsm.Offset {
		o, err := anyCable.offset(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return o
	}
	nine, ten := parse("9::x"), parse("10::x")
	if !ten.After(nine) || nine.After(ten) || ten.Value() != "10::x" || parse("010::x") != ten {
		t.Errorf("%q and %q", nine, ten)
	}
	if largest := parse("18446744073709551615::x"); !largest.After(ten) {
		t.Errorf("%q is not beyond %q", largest, ten)
	}
	if other := parse("11::y"); other.After(ten) || !other.Other(ten) {
		t.Errorf("%q compares with %q", other, ten)
	}
	for _, start := range []string{"0", "-1"} {
		if o := parse(start); o != fsm.Start {
			t.Errorf("%q is %q", start, o)
		}
	}
	for _, bad := range []string{
		"", "now", "1", "x::y", "1::", "::x", "-1::x", "+1::x", "1::a b", "1::a/b",
		"18446744073709551616::x",
	} {
		if o, err := anyCable.offset(bad); !errors.Is(err, fsm.ErrOffset) {
			t.Errorf("%q is %q, %v", bad, o, err)
		}
	}
}

func TestAStreamOfAnyCableIsThereOnceItShowsAnEvent(t *testing.T) {
	for name, opts := range map[string]anycable.Options{
		"as it comes":                  {},
		"whose HEAD says \"now\"":      {HeadSaysNow: true},
		"of which little is kept":      {History: 3, HeadSaysNow: true},
		"which keeps more than a read": {History: 1000, HeadSaysNow: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := anycable.New(opts)
			c := to(t, s, nil)
			info, err := c.Head(t.Context(), "/a")
			if err != nil || info.Exists || !info.Empty || info.Gone() || info.Tail != fsm.Start {
				t.Fatalf("before its first event: %+v, %v", info, err)
			}
			for n := range 250 {
				s.Publish("a", fmt.Sprint(n))
			}
			if info, err = c.HeadAnew(t.Context(), "/a"); err != nil || !info.Exists ||
				info.Tail.Value() != s.Publish("a") {
				t.Errorf("after 250 events: %+v, %v", info, err)
			}
			if c.Dialect() != DialectAnyCable || c.TakesWrites() || !c.Shown() {
				t.Errorf("it speaks %s", c.Dialect())
			}
		})
	}
}

// stripped takes the version out of the answers, as a proxy may.
func stripped(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		rec.Header().Del(headerAnyCable)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

func TestTheDialectIsToldByAnswers(t *testing.T) {
	streams := func(tails map[string]string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tail := tails[r.URL.Path]; tail != "" {
				w.Header().Set(HeaderNextOffset, tail)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		})
	}
	for _, tt := range []struct {
		name    string
		server  http.Handler
		dialect string
		want    fsm.StreamInfo
		speaks  string
	}{
		{
			"by the version of AnyCable", anycable.New(anycable.Options{}), DialectAuto,
			fsm.StreamInfo{Empty: true, Tail: fsm.Start},
			DialectAnyCable,
		},
		{
			"by a name that nobody made", stripped(anycable.New(anycable.Options{})), DialectAuto,
			fsm.StreamInfo{Empty: true, Tail: fsm.Start},
			DialectAnyCable,
		},
		{
			"by the form of an offset", streams(map[string]string{"/ds/a": "3::x"}), DialectAuto,
			fsm.StreamInfo{Exists: true, Tail: fsm.IncarnateOffset("x", fmt.Sprintf("%020d", 3), "3::x")},
			DialectAnyCable,
		},
		{"by a 404", streams(nil), DialectAuto, fsm.StreamInfo{}, DialectStandard},
		{
			"a tail of 0 on a server that has 404s", streams(map[string]string{"/ds/a": "0"}), DialectAuto,
			fsm.StreamInfo{Exists: true, Tail: "0"},
			DialectStandard,
		},
		{
			"by an offset of another form", streams(map[string]string{"/ds/a": "0_3"}), DialectAuto,
			fsm.StreamInfo{Exists: true, Tail: "0_3"},
			DialectStandard,
		},
		{
			"by the setting", streams(map[string]string{"/ds/a": "3::x"}), DialectStandard,
			fsm.StreamInfo{Exists: true, Tail: "3::x"},
			DialectStandard,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := to(t, tt.server, func(cfg *Config) { cfg.Dialect = tt.dialect })
			info, err := c.Head(t.Context(), "/a")
			if err != nil || info != tt.want || c.Dialect() != tt.speaks {
				t.Errorf("got %+v, %v, want %+v; it speaks %s", info, err, tt.want, c.Dialect())
			}
		})
	}
}

func TestARequestForAStreamIsSigned(t *testing.T) {
	s := anycable.New(anycable.Options{Secret: "hush", Bearer: "me", Poll: time.Millisecond})
	s.Publish("a b", "1")
	auth := http.Header{"Authorization": {"Bearer me"}}
	c := to(t, s, func(cfg *Config) { cfg.SigningKey, cfg.Headers = "hush", auth })
	info, err := c.Head(t.Context(), "/a%20b")
	if err != nil || !info.Exists {
		t.Errorf("HEAD: %+v, %v", info, err)
	}
	if err := c.Poll(t.Context(), nil, "/a%20b", info.Tail, "", func(Event) error { return nil }); err != nil {
		t.Errorf("GET: %v", err)
	}
	if n := s.Refused.Load(); n > 0 {
		t.Errorf("%d requests were refused", n)
	}
	for name, change := range map[string]func(*Config){
		"another key":   func(cfg *Config) { cfg.SigningKey, cfg.Headers = "loud", auth },
		"no key":        func(cfg *Config) { cfg.Headers = auth },
		"without token": func(cfg *Config) { cfg.SigningKey = "hush" },
	} {
		var answer AnswerError
		if _, err := to(t, s, change).Head(t.Context(), "/a%20b"); !errors.As(err, &answer) || answer.Status != 401 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOffsetThatIsNotKeptSaysNothingOfTheStream(t *testing.T) {
	s := anycable.New(anycable.Options{History: 2})
	core, logs := observer.New(zap.WarnLevel)
	c := to(t, s, func(cfg *Config) { cfg.Logger = zap.New(core) })
	from, err := anyCable.offset(s.Publish("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	s.Publish("a", "2", "3", "4")
	err = c.Poll(t.Context(), nil, "/a", from, "", func(Event) error { return nil })
	if !errors.Is(err, ErrNotKept) || errors.Is(err, ErrGone) || IsDown(err) {
		t.Errorf("got %v", err)
	}
	said := logs.FilterMessageSnippet("does not keep an offset any more")
	if n := said.FilterField(zap.String("stream", "/a")).FilterField(zap.String("offset", from.Value())).Len(); n != 1 {
		t.Errorf("%d log lines name stream and offset, want one: %v", n, logs.All())
	}
	if info, err := c.Head(t.Context(), "/a"); err != nil || !info.Exists {
		t.Errorf("HEAD: %+v, %v", info, err)
	}
}

func TestACacheHidesNoEvent(t *testing.T) {
	for name, byPath := range map[string]bool{"that goes by the URL": false, "that leaves the query out": true} {
		t.Run(name, func(t *testing.T) {
			s := anycable.New(anycable.Options{Poll: time.Millisecond})
			cache := &anycable.Cache{Next: s, ByPath: byPath}
			c := to(t, cache, nil)
			s.Publish("a", "1")
			var at fsm.Offset
			for range 3 {
				tail := s.Publish("a", "1")
				info, err := c.HeadAnew(t.Context(), "/a")
				if byPath && err != nil {
					continue // it says that it cannot know, which is right
				}
				if err != nil || info.Tail.Value() != tail {
					t.Fatalf("HEAD shows %+v, %v, want %s", info, err, tail)
				}
				at = info.Tail
				for range 2 { // the second would be answered by the cache
					err = c.Poll(t.Context(), nil, "/a", at, "", func(e Event) error {
						if e.UpToDate && e.Cached {
							t.Error("what a cache has is up to date")
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
			if !byPath && cache.Hits() > 0 {
				t.Errorf("%d answers came from the cache", cache.Hits())
			}
		})
	}
}

func TestAProbeSaysWhatIsThere(t *testing.T) {
	answer := func(status int, header ...string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		})
	}
	for _, tt := range []struct {
		name   string
		server http.Handler
		stream bool
		speaks string
		// says is what the log says is wrong, or the dialect.
		says string
	}{
		{"AnyCable", anycable.New(anycable.Options{}), true, DialectAnyCable, DialectAnyCable},
		{
			"AnyCable that wants signed streams", anycable.New(anycable.Options{Secret: "hush"}), false,
			DialectAnyCable, "answered 401: see REVEILLE_UPSTREAM_HEADERS and REVEILLE_UPSTREAM_SIGNING_KEY",
		},
		{
			"a stream server without the stream",
			answer(404, "Access-Control-Expose-Headers", "etag, stream-next-offset"), true, DialectStandard,
			DialectStandard,
		},
		{
			"a web server without the page", answer(404), false, DialectStandard,
			"answered 404 as any web server may; the first stream will show: it is no stream server",
		},
		{
			"a web server that has every page", answer(200), false, DialectStandard,
			"answered 200 without Stream-Next-Offset: it is no stream server",
		},
		{
			"a web server that leads elsewhere", answer(302, "Location", "/login"), false, DialectStandard,
			"answered 302: it is no stream server",
		},
		{"a server that is broken", answer(503), false, DialectStandard, "answered 503"},
		{
			"a server that wants a token", answer(403), false, DialectStandard,
			"answered 403: see REVEILLE_UPSTREAM_HEADERS",
		},
	} {
		c := to(t, tt.server, nil)
		if err := c.Probe(t.Context()); (err == nil) != tt.stream || c.Shown() != tt.stream ||
			c.Dialect() != tt.speaks {
			t.Errorf("%s: %v, speaks %s", tt.name, err, c.Dialect())
		}
		if line := firstProbed(t, tt.server, nil); !strings.Contains(line, tt.says) ||
			strings.HasPrefix(line, "info: the stream server answers") != tt.stream ||
			strings.HasPrefix(line, "warn: no stream server answers at REVEILLE_UPSTREAM_URL") == tt.stream {
			t.Errorf("%s: logged %q, want that %q", tt.name, line, tt.says)
		}
	}
	nowhere := func(cfg *Config) { cfg.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} }
	c := to(t, answer(200), nowhere)
	if err := c.Probe(t.Context()); !errors.Is(err, errNoAnswer) || c.Shown() {
		t.Errorf("nothing there: %v", err)
	}
	if line := firstProbed(t, answer(200), nowhere); !strings.Contains(line, "no stream server answers") ||
		!strings.Contains(line, "connection refused") {
		t.Errorf("nothing there: logged %q", line)
	}
}

// firstProbed returns the first line that is logged of what answers: its level, its message and its fields.
func firstProbed(t *testing.T, server http.Handler, change func(*Config)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	core, logs := observer.New(zap.InfoLevel)
	logged := zap.Hooks(func(zapcore.Entry) error {
		cancel()
		return nil
	})
	c := to(t, server, func(cfg *Config) {
		if change != nil {
			change(cfg)
		}
		cfg.Logger = zap.New(core, logged)
	})
	if err := c.KeepProbing(ctx, func() bool { return false }); err != nil {
		t.Error(err)
	}
	if logs.Len() == 0 {
		return "nothing"
	}
	e := logs.All()[0]
	return fmt.Sprintf("%s: %s %v", e.Level, e.Message, e.ContextMap())
}
