package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// globRow is a pattern and streams that it matches or not, below a folder of the test's own.
type globRow struct {
	rule    string
	pattern string
	yes, no []string
}

// globRows has the rows of the spec's table of patterns, then its rules (webhook spec, Glob Patterns).
var globRows = []globRow{
	{
		"/agents/* matches /agents/task-1 and not /agents/foo/bar", "/agents/*",
		[]string{"/agents/task-1"},
		[]string{"/agents/foo/bar", "/agents"},
	},
	{
		"/agents/** matches /agents/task-1 and /agents/foo/bar/baz and not /other/path", "/agents/**",
		[]string{"/agents/task-1", "/agents/foo/bar/baz"},
		[]string{"/other/path", "/agentsx/y"},
	},
	{
		"/agents/*/inbox matches /agents/worker-1/inbox and not /agents/worker-1/outbox", "/agents/*/inbox",
		[]string{"/agents/worker-1/inbox"},
		[]string{"/agents/worker-1/outbox", "/agents/inbox", "/agents/a/b/inbox"},
	},
	{
		"* matches exactly one path segment", "/a/*/*",
		[]string{"/a/x/y", "/a/x%2Fy/z"},
		[]string{"/a/x", "/a/x/y/z", "/a/x%2Fy"},
	},
	{
		"** matches zero or more path segments", "/a/**/z",
		[]string{"/a/z", "/a/x/z", "/a/x/y/z", "/a/z/z"},
		[]string{"/a/z/x", "/a", "/z"},
	},
	{
		"** at the end matches zero segments too", "/a/b/**",
		[]string{"/a/b", "/a/b/c"},
		[]string{"/a", "/a/bc"},
	},
	{
		"literal segments match exactly", "/a/Task-1",
		[]string{"/a/Task-1"},
		[]string{"/a/task-1", "/a/Task-10", "/a/Task-1/x", "/a/Task-1/"},
	},
	{"%2A is the same as *", "/a/%2A/c", []string{"/a/b/c"}, []string{"/a/c", "/a/b/b/c"}},
	{"%2a%2A is the same as **", "/a/%2a%2A", []string{"/a/b", "/a/b/c"}, []string{"/b"}},
	{"streams named * are not supported", "/a/*", []string{"/a/b"}, []string{"/a/%2A", "/a/%2a"}},
}

// woken returns the streams whose consumers a worker was woken for, by subscription.
func woken(w *harness.Worker) map[string][]string {
	all := map[string][]string{}
	for _, wake := range w.Wakes() {
		id := wake.Subscription()
		if !slices.Contains(all[id], wake.PrimaryStream) {
			all[id] = append(all[id], wake.PrimaryStream)
			slices.Sort(all[id])
		}
	}
	return all
}

// TestGlobPatterns creates streams and looks who is woken, with the subscription first and with the streams first.
func TestGlobPatterns(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	for _, streamsFirst := range []bool{false, true} {
		t.Run(map[bool]string{
			false: "streams that come after their subscription",
			true:  "streams that are there already",
		}[streamsFirst], func(t *testing.T) {
			s := e.empty(t)
			s.worker.AnswerDone()
			want, rules, streams := map[string][]string{}, map[string]string{}, []string{}
			isStar := func(path string) bool { return strings.Contains(strings.ToLower(path), "%2a") }
			writer := func(path string) *harness.Client {
				if isStar(path) {
					return s.streams // the gateway takes no writes to it
				}
				return s.gateway
			}
			create := func() {
				for _, path := range streams {
					if isStar(path) {
						refusal(t, "PUT of "+path, s.gateway.Do(http.MethodPut, path, ""), http.StatusBadRequest,
							fsm.CodeInvalidPath)
					}
					writer(path).Create(path)
				}
			}
			subscribe := func() {
				for i, row := range globRows {
					id := fmt.Sprintf("%s-%d", s.sub.ID, i)
					s.gateway.Subscribe(fmt.Sprintf("%s/%d%s", s.folder, i, row.pattern), id, s.worker)
					t.Cleanup(func() { s.gateway.DeleteSubscription("/**", id) })
					rules[id] = row.rule
				}
			}
			for i, row := range globRows {
				id := fmt.Sprintf("%s-%d", s.sub.ID, i)
				for _, path := range row.yes {
					want[id] = append(want[id], fmt.Sprintf("%s/%d%s", s.folder, i, path))
				}
				slices.Sort(want[id])
				streams = append(streams, want[id]...)
				for _, path := range row.no {
					streams = append(streams, fmt.Sprintf("%s/%d%s", s.folder, i, path))
				}
			}
			if streamsFirst {
				create()
				subscribe()
			} else {
				subscribe()
				create()
			}
			for _, path := range streams {
				writer(path).Append(path, `{"event":true}`)
			}
			all := func() bool { return maps.EqualFunc(woken(s.worker), want, slices.Equal) }
			_ = harness.Poll(soon, harness.True(all, "some are missing"))
			_ = harness.Poll(quiet, harness.True(func() bool { return !all() }, "no others"))
			got := woken(s.worker)
			for i := range globRows {
				id := fmt.Sprintf("%s-%d", s.sub.ID, i)
				t.Run(rules[id], func(t *testing.T) {
					if !slices.Equal(got[id], want[id]) {
						t.Errorf("%s woke for %v, want %v", globRows[i].pattern, got[id], want[id])
					}
				})
			}
		})
	}

	t.Run("/** matches every stream", func(t *testing.T) {
		s := e.empty(t)
		s.worker.AnswerDone()
		s.subscribe("/**")
		for _, path := range []string{s.folder, s.folder + "/a", s.folder + "/a/b/c"} {
			s.gateway.Create(path)
		}
		harness.Eventually(t, soon, "all of them woke it", func() error {
			mine := slices.DeleteFunc(woken(s.worker)[s.sub.ID],
				func(p string) bool { return !strings.HasPrefix(p, s.folder) })
			return harness.True(func() bool { return len(mine) == 3 }, "only %v did", mine)()
		})
	})
}

// TestMalformedPatterns holds that none of them becomes a subscription, and that the error says why.
func TestMalformedPatterns(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	s := e.empty(t)
	body := `{"webhook":"` + s.worker.URL + `"}`
	for _, tt := range []struct{ rule, pattern, says string }{
		{"an empty segment", "/agents//inbox", "segment 2 is empty"},
		{"an empty segment at the start", "//agents", "segment 1 is empty"},
		{"a slash at the end", "/agents/", "segment 2 is empty"},
		{"nothing but a slash", "/", "segment 1 is empty"},
		{"three stars", "/agents/***", `segment 2 ("***")`},
		{"a star among other characters", "/agents/a*b", `segment 2 ("a*b")`},
		{"an encoded star among other characters", "/agents/a%2Ab", `segment 2 ("a*b")`},
		{"a star at the start of a segment", "/*-task/x", `segment 1 ("*-task")`},
		{"two stars among other characters", "/agents/**x", `segment 2 ("**x")`},
		{"a dot segment", "/agents/./x", `segment 2 (".")`},
		{"a dot-dot segment", "/agents/../x", `segment 2 ("..")`},
		{"an encoded dot-dot segment", "/agents/%2E%2e/x", `segment 2 ("%2E%2e")`},
		{"more than 2048 bytes", "/" + strings.Repeat("x", 2048), "2048 bytes"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			res := s.gateway.PutSubscription(tt.pattern, s.sub.ID, body)
			var answer struct {
				Error struct{ Code, Message string }
			}
			res.Decode(t, &answer)
			if res.Status != http.StatusBadRequest || answer.Error.Code != string(fsm.CodeInvalidPattern) ||
				!strings.Contains(answer.Error.Message, tt.says) {
				t.Errorf("%d %s, want 400 INVALID_PATTERN and a message with %q", res.Status, res.Body, tt.says)
			}
			if sub, found := s.gateway.Subscription(s.sub.ID); found {
				t.Errorf("there is a subscription now: %+v", sub)
			}
		})
	}
}

// TestPathEncodings leads streams with unusual names through a whole life cycle. The consumer's ID encodes the path as
// JavaScript's encodeURIComponent does, and the callback's URL holds it raw (webhook spec, Consumer Instance).
func TestPathEncodings(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	for _, tt := range []struct{ rule, segment, encoded string }{
		{"an encoded slash is part of its segment", "a%2Fb", "a%252Fb"},
		{"an encoded slash in lower case stays as it is", "a%2fb", "a%252fb"},
		{"spaces", "two%20words%20", "two%2520words%2520"},
		{"unicode", "%C3%BC%E2%98%83", "%25C3%25BC%25E2%2598%2583"},
		{"unicode in lower case stays as it is", "%c3%bc", "%25c3%25bc"},
		{"dots", "v1.2...", "v1.2..."},
		{"dots that look like more", "...", "..."},
		{"what encodeURIComponent leaves alone", "-_.!~'()", "-_.!~'()"},
		{
			"what a path may hold and encodeURIComponent encodes", "a+b&c=d:e@f;g,h$i",
			"a%2Bb%26c%3Dd%3Ae%40f%3Bg%2Ch%24i",
		},
		{"a percent sign", "100%25", "100%2525"},
		{"a question mark and a number sign, encoded", "a%3Fb%23c", "a%253Fb%2523c"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := e.empty(t)
			s.path = s.folder + "/" + tt.segment
			s.subscribe(s.folder + "/*")
			s.gateway.Create(s.path)
			tail := s.gateway.Append(s.path, `{"event":true}`)
			wake := s.worker.Wake(1)
			id := s.sub.ID + ":%2F" + strings.TrimPrefix(s.folder, "/") + "%2F" + tt.encoded
			if wake.ConsumerID != id || wake.Callback != s.rev.URL+"/callback/"+id || wake.PrimaryStream != s.path {
				t.Errorf("consumer_id %s, callback %s, primary_stream %s, want %s of %s", wake.ConsumerID,
					wake.Callback, wake.PrimaryStream, id, s.path)
			}
			s.wantPayload(wake, wake.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
			messages, next := s.streams.Read(wake.PrimaryStream, wake.Offset(wake.PrimaryStream))
			if len(messages) != 1 || next != tail {
				t.Fatalf("read %s up to %s", messages, next)
			}
			s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(next))), s.ack(next))
			s.noWakeAfter(1, quiet)
			s.append()
			second := s.worker.Wake(2)
			s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{s.ack(next)}, s.path)

			secondary := s.folder + "-tools/" + tt.segment
			toolTail := s.streams.Create(secondary)
			s.wantStreams(s.callback(second, harness.Callback{Epoch: second.Epoch, Subscribe: []string{secondary}}),
				s.ack(next), at(secondary, toolTail))
			s.gateway.DeleteStream(s.path)
			s.refused(second, second.Claim(true), fsm.CodeConsumerGone)
		})
	}

	t.Run("characters that a URL encodes may come as they are in a callback", func(t *testing.T) {
		s, wake := e.live(t)
		encoded := s.folder + "-tools/%C3%BC%20x"
		s.streams.Create(encoded)
		tail := s.streams.Append(encoded, `{"event":true}`)
		a := s.callback(wake, harness.Callback{Epoch: wake.Epoch, Subscribe: []string{s.folder + "-tools/ü x"}})
		s.wantStreams(a, s.ack(s.tail), at(encoded, tail))
	})
}
