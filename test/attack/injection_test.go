package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// rawEndpoint reads requests byte by byte, as no HTTP library does it for the test.
type rawEndpoint struct {
	URL string

	mu sync.Mutex
	// lines are the lines of each request, without their ends, by the path. Faults are what is no request.
	lines  map[string][][]string
	faults []string
}

func newRawEndpoint(t *testing.T) *rawEndpoint {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	e := &rawEndpoint{URL: "http://" + ln.Addr().String(), lines: map[string][][]string{}}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *rawEndpoint) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for r := bufio.NewReader(c); ; {
		var lines []string
		length := 0
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			bare, ended := strings.CutSuffix(line, "\r\n")
			if !ended || strings.ContainsAny(bare, "\r\n\x00") {
				e.fault("the line %q", line)
				return
			}
			if bare == "" {
				break
			}
			lines = append(lines, bare)
			if n, is := strings.CutPrefix(bare, "Content-Length: "); is {
				length, _ = strconv.Atoi(n)
			}
		}
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			e.fault("a body of less than %d bytes", length)
			return
		}
		e.note(lines)
		_, _ = io.WriteString(c, ok+"Content-Type: application/json\r\nContent-Length: 13\r\n\r\n"+`{"done":true}`)
	}
}

func (e *rawEndpoint) fault(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, fmt.Sprintf(format, args...))
}

func (e *rawEndpoint) note(lines []string) {
	target, first := "", strings.Split(append(lines, "")[0], " ")
	if len(first) == 3 && first[0] == http.MethodPost && first[2] == "HTTP/1.1" {
		target = first[1]
	} else {
		e.fault("the first line %q", lines)
	}
	path, _, _ := strings.Cut(target, "?")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines[path] = append(e.lines[path], lines)
}

func (e *rawEndpoint) requests(path string) [][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines[path])
}

// injection is what a subscription asks for to have something else sent than one header.
type injection struct {
	fields string
	// header and query are what is sent of it: a whole line, and what the URL has behind its own query.
	header, query string
}

// sent are injections that are no harm: what they ask for is sent as it stands.
var sent = []injection{
	{fields: `"headers":{"X-Evil":""}`, header: "X-Evil: "},
	{fields: `"headers":{"x-evil":"a%0d%0aHost: b"}`, header: "X-Evil: a%0d%0aHost: b"},
	{fields: `"headers":{"X-Evil":"a\\r\\nHost: b"}`, header: `X-Evil: a\r\nHost: b`},
	// By their last byte only, these would be CR and LF.
	{fields: `"headers":{"X-Evil":"a\u010d\u010aHost: b"}`, header: "X-Evil: a\u010d\u010aHost: b"},
	{fields: `"headers":{"X-Evil":"a\u560d\u560aHost: b"}`, header: "X-Evil: a\u560d\u560aHost: b"},
	{fields: `"headers":{"X-Evil":"a\u2028Host: b\u2029"}`, header: "X-Evil: a\u2028Host: b\u2029"},
	{fields: `"headers":{"X-Evil":"\ud800\udc00\ud800"}`, header: "X-Evil: \U00010000\ufffd"},
	{fields: `"headers":{"!#$%&'*+-.^_` + "`" + `|~9":"a"}`, header: "!#$%&'*+-.^_`|~9: a"},
	{fields: `"headers":{"authorization":"Basic: \"a\", Bearer b"}`, header: `Authorization: Basic: "a", Bearer b`},
	{fields: `"authorization":"Bearer a, Host: b"`, header: "Authorization: Bearer a, Host: b"},
	{fields: `"authorization":"Bearer \u010d\u010aé"`, header: "Authorization: Bearer \u010d\u010aé"},
	{
		fields: `"authorization":{"query":"access_token","token":"a b&c=d#e?f%0d%0a+;/\\é"}`,
		query:  "access_token=a%20b%26c%3Dd%23e%3Ff%250d%250a%2B%3B%2F%5C%C3%A9",
	},
	{
		fields: `"authorization":{"query":"a&b#c%0a+d","token":" HTTP/1.1"}`,
		query:  "a%26b%23c%250a%2Bd=%20HTTP%2F1.1",
	},
	{fields: `"authorization":{"query":"t","token":"\u010d\u010a\u2028"}`, query: "t=%C4%8D%C4%8A%E2%80%A8"},
}

// events are events that try the same.
var events = []string{
	`{"type":"a\r\nX-Evil: b","id":"c\r\nX-Evil: d"}`,
	`{"specversion":"1.0","id":"a","source":"b","type":"c","evil":"\r\nX-Evil: d"}`,
	`{"specversion":"1.0","id":"a","source":"b","type":"c","evil":"\u010d\u010aX-Evil: d","data":1}`,
	`{"specversion":"1.0","id":"a","source":"b","type":"c","datacontenttype":"text/plain\u010aX-Evil: d","data":"e"}`,
	`{"specversion":"1.0","id":"a","source":"b","type":"c","origin":"evil.example","data":1}`,
}

// refusedInjections are those that are refused.
func refusedInjections() (list []string) {
	for _, value := range []string{
		`a\r\nX-More: b`, `a\nX-More: b`, `a\rX-More: b`, `a\r\n\r\nPOST / HTTP/1.1\r\n`, `\r\n`, `a\u0000`, `a\u0001`,
		`a\u001b[2J`, `a\u007f`, `a\u0085X-More: b`, `a\u009f`, `a\tb`, ` a`, `a `, ` `,
	} {
		list = append(list, `"headers":{"X-Evil":"`+value+`"}`, `"headers":{"Authorization":"`+value+`"}`,
			`"authorization":"`+value+`"`)
		if strings.Trim(value, " a") != "" { // a space is a part of a token
			list = append(list, `"authorization":{"query":"t","token":"`+value+`"}`)
		}
	}
	for _, name := range []string{
		"", " ", "X Evil", "X-Evil ", " X-Evil", "X-Evil:", "X-Evil: a", `X-Evil\r\nX-More`, `X-Evil\n`, `X\u0000`,
		`X\u0085`, "X-\u00c9vil", "\u212aeep-Alive", "Ho\u017ft", `\u010d\u010aX`, ":path", "X(a)", `X\"`, "X/Y", "X@Y",
	} {
		list = append(list, `"headers":{"`+name+`":"a"}`, `"authorization":{"query":"`+name+`","token":"a"}`)
	}
	for _, name := range []string{
		"Host", "content-length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive",
		"Proxy-Connection", "Proxy-Authorization", "TE", "Trailer", "Upgrade", "Expect", "User-Agent", "Forwarded",
		"X-Forwarded-For", "X-Forwarded-Host", "Origin", "ORIGIN", "WebHook-Request-Origin", "WebHook-Request-Callback",
		"WebHook-Request-Rate", "WebHook-Allowed-Origin", "webhook-id", "Webhook-Signature", "Webhook-Signature-New",
		"X-OJS-Signature", "Reveille-Stream", "ce-id", "Traceparent", "Content_Length", "TRANSFER_ENCODING",
		"Webhook_Signature", "WebHook_Request_Origin", "X_Forwarded_For",
	} {
		list = append(list, `"headers":{"`+name+`":"a"}`, `"headers":{"`+name+`":""}`)
	}
	return append(list, `"headers":{"X-Evil":["a","b"]}`, `"headers":{"X-Evil":"a","x-evil":"b"}`,
		`"headers":{"Authorization":"a"},"authorization":"b"`, `"authorization":{"query":"own","token":"a"}`,
		`"authorization":{"query":"`+strings.Repeat("a", 65)+`","token":"a"}`)
}

// TestInjectionByHeaders has subscriptions of both modes ask for headers and authorizations that would be more than one
// header. Each is refused by its name and changes nothing, or it is sent as one header, as the bytes of the request
// show.
func TestInjectionByHeaders(t *testing.T) {
	r := newRig(t, map[string]string{})
	hook := newRawEndpoint(t)
	const target = "/there/*?subscription=there"
	for _, mode := range fsm.Modes {
		body := fmt.Sprintf(`{"webhook":"%s/there?own=1","mode":%q`, hook.URL, mode)
		r.must(http.MethodPut, target, body+`}`)
		before := r.gateway.Do(http.MethodGet, target, "").Body
		refused := refusedInjections()
		together(len(refused), func(i int) {
			put, err := r.gateway.Try(t.Context(), http.MethodPut, "/new/*?subscription=new", body+","+refused[i]+"}",
				"Content-Type", "application/json")
			refuses(t, refused[i], put, err)
			patch, err := r.gateway.Try(t.Context(), http.MethodPatch, target, `{"description":"d",`+refused[i]+"}")
			refuses(t, refused[i], patch, err)
		})
		if after := r.gateway.Do(http.MethodGet, target, "").Body; after != before {
			t.Errorf("refused requests made %s of %s", after, before)
		}
		if _, there := r.gateway.Subscription("new"); there {
			t.Error("a refused request has made a subscription")
		}
		r.gateway.DeleteSubscription("/there/*", "there")

		// Half of them come by a PUT, half by a PATCH.
		for i, in := range sent {
			name := fmt.Sprintf("/%s-%d", mode, i)
			body := fmt.Sprintf(`{"webhook":"%s%s?own=1","mode":%q`, hook.URL, name, mode)
			if mode == fsm.ModePush { // it has what is in events in headers
				body += `,"format":"cloudevents-binary"`
			}
			target := fmt.Sprintf("%s?subscription=%s", name, name[1:])
			if i%2 == 0 {
				r.must(http.MethodPut, target, body+","+in.fields+"}")
			} else {
				r.must(http.MethodPut, target, body+"}")
				r.must(http.MethodPatch, target, "{"+in.fields+"}")
			}
			r.gateway.Create(name)
			for _, event := range events {
				r.gateway.Append(name, event)
			}
		}
		for i, in := range sent {
			in.arrives(t, hook, fmt.Sprintf("/%s-%d", mode, i))
		}
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	for _, fault := range hook.faults {
		t.Errorf("the endpoint got %s", fault)
	}
}

func refuses(t *testing.T, fields string, a harness.Response, err error) {
	t.Helper()
	var said struct{ Error struct{ Message string } }
	name := fields[1:strings.Index(fields, `":`)]
	if err == nil {
		err = json.Unmarshal([]byte(a.Body), &said)
	}
	if err != nil || a.Status != http.StatusBadRequest || !strings.Contains(said.Error.Message, name) {
		t.Errorf("%s: %d %s %v, want 400 that names %s", fields, a.Status, a.Body, err, name)
	}
}

// arrives waits for a request and looks at its lines.
func (in injection) arrives(t *testing.T, hook *rawEndpoint, path string) {
	t.Helper()
	least := map[bool]int{true: len(events), false: 1}[strings.HasPrefix(path, "/"+string(fsm.ModePush))]
	harness.Eventually(t, harness.Wait, in.fields+" arrives at "+path,
		harness.True(func() bool { return len(hook.requests(path)) >= least }, "not yet"))
	want := "POST " + path + "?own=1 HTTP/1.1"
	if in.query != "" {
		want = "POST " + path + "?own=1&" + in.query + " HTTP/1.1"
	}
	for _, lines := range hook.requests(path) {
		if lines[0] != want {
			t.Errorf("%s: the first line is %q, want %q", in.fields, lines[0], want)
		}
		seen := map[string]int{}
		for _, line := range lines[1:] {
			name, _, _ := strings.Cut(line, ":")
			seen[textproto.CanonicalMIMEHeaderKey(name)]++
			switch {
			case line == in.header:
				seen["in"]++
			case !slices.ContainsFunc(own, func(of string) bool { return strings.HasPrefix(name, of) }):
				t.Errorf("%s: there is the line %q", in.fields, line)
			}
		}
		for name, n := range seen {
			if n > 1 {
				t.Errorf("%s: %d lines are of %s", in.fields, n, name)
			}
		}
		if in.header != "" && seen["in"] != 1 || seen["Host"] != 1 || seen["Content-Length"] != 1 ||
			seen["Content-Type"] != 1 || in.query != "" && seen["Cache-Control"] != 1 {
			t.Errorf("%s: the request is %q", in.fields, lines)
		}
	}
}

// own begin the names of headers that a delivery has by itself.
var own = []string{
	"Host", "User-Agent", "Content-Length", "Content-Type", "Accept-Encoding", "Cache-Control", "Reveille-Stream",
	"Webhook-", "Ce-",
}
