package fsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOffsets(t *testing.T) {
	order := []Offset{
		Start, "0000000000000000_0000000000000000", "0000000000000000_0000000000000013", "A", "Z", "a",
		"a 9", "b",
	}
	for i, a := range order {
		for j, b := range order {
			if a.After(b) != (i > j) {
				t.Errorf("%q after %q: %v", a, b, a.After(b))
			}
		}
		if Offset("").After(a) || !a.After("") && a != Start {
			t.Errorf("unknown against %q", a)
		}
	}
	if o := IncarnateOffset("IY03", "000000000013", "13::IY03"); o.Value() != "13::IY03" ||
		!o.After(IncarnateOffset("IY03", "000000000009", "9::IY03")) {
		t.Errorf("offset with a key: %q", o)
	}
	for _, good := range []string{
		"-1", "0", "0000000000000000_0000000000000013", "13::IY03",
		strings.Repeat("x", MaxOffsetLen),
	} {
		if o, err := ParseOffset(good); err != nil || o.Value() != good {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " ", "now", "a b", "a ", "a,b", "a&b", "a=b", "a?b", "a/b", "é", "a\n", "a\nb", "a\x00",
		strings.Repeat("x", MaxOffsetLen+1),
	} {
		if _, err := ParseOffset(bad); !errors.Is(err, ErrOffset) {
			t.Errorf("%q was taken as an offset", bad)
		}
	}
}

func TestOffsetsOfTwoIncarnationsDoNotCompare(t *testing.T) {
	old, later := IncarnateOffset("x", "13", "13::x"), IncarnateOffset("x", "14", "14::x")
	anew := IncarnateOffset("y", "05", "5::y")
	if old.Value() != "13::x" || old.Incarnation() != "x" || Offset("13").Incarnation() != "" {
		t.Errorf("%q is %q of %q", old, old.Value(), old.Incarnation())
	}
	if !later.After(old) || old.After(later) || old.Other(later) {
		t.Error("those of one incarnation do not compare")
	}
	if old.After(anew) || anew.After(old) || !old.Other(anew) || !anew.Other(old) {
		t.Error("those of two incarnations compare")
	}
	if !anew.After(Start) || !anew.After("") || anew.Other(Start) || anew.Other("") || Start.Other(anew) {
		t.Error("the start is not that of every incarnation")
	}
	for _, tt := range []struct {
		name string
		link Link
		want bool
	}{
		{"what was acked of another incarnation acks nothing", Link{Acked: old, Tail: anew}, true},
		{"all is acked", Link{Acked: anew, Tail: anew}, false},
		{"nothing is there yet", Link{Acked: Start, Tail: Start}, false},
	} {
		if tt.link.Pending() != tt.want {
			t.Errorf("%s: pending is %v", tt.name, !tt.want)
		}
	}
}

func TestCanonicalPath(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"/a/b", "/a/b"},
		{"/a%2Fb/%c3%BC", "/a%2Fb/%C3%BC"},
		{"/a b", "/a%20b"},
		{"/ü", "/%C3%BC"},
		{`/a"<>{}`, "/a%22%3C%3E%7B%7D"},
		{`/a\b`, "/a/b"},
		{"/a/./b/../c", "/a/c"},
		{"/a/%2e%2E/b", "/b"},
		{"/a/..", "/"},
		{"/a/.", "/a/"},
		{"/a.b/...", "/a.b/..."},
		{"/a/b/", "/a/b/"},
		{"/", "/"},
		{"/a%2F..", "/a%2F.."},
		{"/a/b%2F../..c", "/a/b%2F../..c"},
		{"/%2Fx%2F%2Fy", "/%2Fx%2F%2Fy"},
		{"/a%23b%3Fc", "/a%23b%3Fc"},
		{"/a/__dsx/x__ds", "/a/__dsx/x__ds"},
		{"/%zz%2", "/%zz%2"},
	} {
		got, err := CanonicalPath(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("%q: %q (%v), want %q", tt.in, got, err, tt.want)
		}
		if again, err := CanonicalPath(got); err != nil || again != got {
			t.Errorf("%q is not canonical: %q", got, again)
		}
	}
	for _, bad := range []string{"", "a", "/a?b", "/a#b", "/a\x00", "/" + strings.Repeat("ü", MaxPathLen/2)} {
		if got, err := CanonicalPath(bad); !errors.Is(err, ErrPath) {
			t.Errorf("%q was taken as the path %q", bad, got)
		}
	}
}

// TestOneRuleSaysWhichPathsAreStreams holds paths and literal patterns to the same rule.
func TestOneRuleSaysWhichPathsAreStreams(t *testing.T) {
	for why, paths := range map[error][]string{
		ErrOutsideRoot: {
			"/..", "/../a", "/a/../../b", "/%2e%2E/b", "/.%2e/b", `/..\b`, `/a\..\..\b`, "/./../b", "/a//../../b",
			"/..%2fb", "/a/..%2F..%5cb",
			"/a%2Fb/../../c", "/a/%2e./%2E%2e/b", "/..%2ftenantB%2fx", "/%252e%252e%252fb", "/..%25252fb",
			"/%zz/..%2f..%2f..%2fb",
		},
		ErrReservedPath: {
			"/__ds", "/__ds/subscriptions/x", "/a/__ds/b", "/x/../__ds/b", "/%5F%5fds/b", "/__d%73", "/a%2F__ds%2Fb",
			`/a\__ds\b`, "/%255f_ds",
			"/__ds/" + strings.Repeat("x", MaxPathLen),
		},
		ErrEmptySegment: {"//", "//x/agents/t1", "/a//b", "/a//", `/\x`, "/a/..//x"},
	} {
		for _, p := range paths {
			if got, err := CanonicalPath(p); !errors.Is(err, ErrPath) || !errors.Is(err, why) {
				t.Errorf("%q: %q, %v; want %v", p, got, err, why)
			}
			if got, err := ParsePattern(p); !errors.Is(err, ErrPattern) {
				t.Errorf("%q was taken as the pattern %q", p, got)
			}
		}
	}
	for _, p := range []string{"/a*b", "/*", "/a/%2A", "/a%2ab"} {
		if got, err := CanonicalPath(p); !errors.Is(err, ErrWildcard) {
			t.Errorf("%q: %q, %v; want %v", p, got, err, ErrWildcard)
		}
	}
	if _, err := CanonicalPath("/" + strings.Repeat("x", MaxPathLen)); !errors.Is(err, ErrPathTooLong) {
		t.Error(err)
	}
}

func TestConsumerID(t *testing.T) {
	for _, tt := range []struct{ path, id string }{
		{"/agents/task-123", "my-sub:%2Fagents%2Ftask-123"},
		{"/a%2Fb", "my-sub:%2Fa%252Fb"},
		{"/a_b.c!~*'()", "my-sub:%2Fa_b.c!~*'()"},
		{"/a:b@c", "my-sub:%2Fa%3Ab%40c"},
		{"/-_.!~'()/$&+,;=:@", "my-sub:%2F-_.!~'()%2F%24%26%2B%2C%3B%3D%3A%40"},
		{"/with%20space%2Fand", "my-sub:%2Fwith%2520space%252Fand"},
		{"/%C3%A4", "my-sub:%2F%25C3%25A4"},
	} {
		if got := ConsumerID("my-sub", tt.path); got != tt.id {
			t.Errorf("%s: %s, want %s", tt.path, got, tt.id)
		}
		if sub, path, ok := ParseConsumerID(tt.id); !ok || sub != "my-sub" || path != tt.path {
			t.Errorf("%s reads as %q %q %v", tt.id, sub, path, ok)
		}
	}
	for _, bad := range []string{"", "x", "x:", "x:a", "x:%2", "x:%2f", "x:/a", ":%2Fa", "a b:%2Fa", "x:%2Fa%41"} {
		if _, path, ok := ParseConsumerID(bad); ok {
			t.Errorf("%q was taken as the id of a consumer of %q", bad, path)
		}
	}
}

// TestASubscriptionIsTheSameOnlyIfItIsDeliveredInTheSameWay holds what a PUT under an ID that is taken is compared by.
func TestASubscriptionIsTheSameOnlyIfItIsDeliveredInTheSameWay(t *testing.T) {
	stored := Subscription{ID: "s", Pattern: "/a", Webhook: "https://example.com/"}.WithDefaults()
	if stored.Mode != ModeWake || stored.Format != FormatWake || stored.Signature != SignatureHMAC {
		t.Errorf("the defaults are %+v", stored)
	}
	for name, tc := range map[string]struct {
		change func(*Subscription)
		same   bool
	}{
		"another generation and secret": {func(s *Subscription) { s.Generation, s.Secret = "g", "whsec_2" }, true},
		"another pattern":               {func(s *Subscription) { s.Pattern = "/b" }, false},
		"another webhook":               {func(s *Subscription) { s.Webhook += "b" }, false},
		"another description":           {func(s *Subscription) { s.Description = "b" }, false},
		"another mode":                  {func(s *Subscription) { s.Mode = "of a later version" }, false},
		"another format":                {func(s *Subscription) { s.Format = "ojs" }, false},
		"another signature":             {func(s *Subscription) { s.Signature = "standard" }, false},
		"another start":                 {func(s *Subscription) { s.Start = Start }, false},
		"another batch":                 {func(s *Subscription) { s.Batch = 2 }, false},
		"another timeout":               {func(s *Subscription) { s.Timeout = time.Second }, false},
		"other delays":                  {func(s *Subscription) { s.Retry = []time.Duration{time.Second} }, false},
		"other headers":                 {func(s *Subscription) { s.Headers = map[string]string{"X-A": "1"} }, false},
		"another authorization":         {func(s *Subscription) { s.Authorization.Secret = "Bearer a" }, false},
		"another place for it":          {func(s *Subscription) { s.Authorization.Query = "t" }, false},
		"other metadata":                {func(s *Subscription) { s.Metadata = map[string]string{"a": "1"} }, false},
		"no headers, told otherwise":    {func(s *Subscription) { s.Headers = map[string]string{} }, true},
	} {
		asked := stored
		tc.change(&asked)
		if got := stored.SameConfig(asked); got != tc.same {
			t.Errorf("%s: the same is %t", name, got)
		}
		if again := asked.WithDefaults(); !again.Equal(asked) {
			t.Errorf("%s: the defaults replaced what is there: %+v", name, again)
		}
	}
}

func TestTheDefaultsOfASubscriptionGoByItsMode(t *testing.T) {
	push := Subscription{ID: "s", Mode: ModePush}.WithDefaults()
	want := Subscription{
		ID: "s", Mode: ModePush, Format: FormatJSON, Signature: SignatureStandardWebhooks, Batch: 1,
		Ordering: OrderingStream, Timeout: PushTimeout, Retry: PushRetry,
	}
	if !push.Equal(want) {
		t.Errorf("the defaults are %+v, want %+v", push, want)
	}
	for _, mode := range Modes {
		for _, f := range Formats[mode] {
			want := map[Mode]Signature{ModeWake: SignatureHMAC, ModePush: SignatureStandardWebhooks}[mode]
			if got := (Subscription{Mode: mode, Format: f}).WithDefaults().Signature; got != want {
				t.Errorf("a delivery of mode %s and format %s is signed by %s, want %s", mode, f, got, want)
			}
		}
		for _, s := range Signatures {
			if got := (Subscription{Mode: mode, Signature: s}).WithDefaults().Signature; got != s {
				t.Errorf("a delivery of mode %s that asks for %s is signed by %s", mode, s, got)
			}
		}
	}
	set := Subscription{
		ID: "s", Mode: ModePush, Format: "cloudevents", Signature: SignatureHMAC, Batch: 7,
		Ordering: "key", Timeout: time.Second, Retry: []time.Duration{time.Minute},
	}
	if got := set.WithDefaults(); !got.Equal(set) {
		t.Errorf("the defaults replaced what is there: %+v", got)
	}
}

// TestAsideID holds that no other consumer has the ID of an aside, and that its stream is known by it.
func TestAsideID(t *testing.T) {
	for _, path := range []string{"/a", "/a:7", "/a:b:c"} {
		of := ConsumerID("sub", path)
		id := AsideID(of, 7)
		if _, _, ok := ParseConsumerID(id); ok {
			t.Errorf("%s may be another consumer's", id)
		}
		for _, id := range []string{id, of} {
			if sub, got, ok := ParseAnyConsumerID(id); sub != "sub" || got != path || !ok {
				t.Errorf("%s is read as %q, %q, %t", id, sub, got, ok)
			}
		}
	}
	for _, bad := range []string{
		"", "x", "x:/a", "sub:%2Fa:", "sub:%2Fa:x", "sub:%2Fa:07", "sub:%2Fa:+7", "sub:a:7", "::7",
	} {
		if sub, path, ok := ParseAnyConsumerID(bad); ok {
			t.Errorf("%q is read as %s", bad, fmt.Sprint(sub, path))
		}
	}
}
