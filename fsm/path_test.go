package fsm

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The cases of RFC 3986, section 6.2.2, of its section 5.2.4, and of the characters of its section 2.
func TestAllSpellingsOfAPathAreOne(t *testing.T) {
	for want, spellings := range map[string][]string{
		"/e/a":               {"/e/a", "/e/%61", "/%65/a", "/e/./a", "/e/b/../a", "/e/%2e/a", "/e/b/%2E%2e/a", `/e\a`},
		"/~bob/A-Z.0_9":      {"/%7Ebob/A-Z.0_9", "/%7ebob/%41%2DZ%2e0%5F9", "/~bob/A%2dZ%2E%30%5f9"},
		"/a%2Fb":             {"/a%2Fb", "/a%2fb", "/%61%2fb"},
		"/%C3%BC":            {"/%C3%BC", "/%c3%bc", "/%C3%bc", "/ü"},
		"/%E2%82%AC%20x":     {"/€ x", "/%e2%82%ac%20x", "/%E2%82%AC x"},
		"/a%3Ab@c%40d":       {"/a%3Ab@c%40d", "/a%3ab@c%40d", "/%61%3ab@c%40%64"},
		"/a:b;c=1,2!$&'()+d": {"/a:b;c=1,2!$&'()+d", "/%61:b;c=1,2!$&'()+%64"},
		"/%2561":             {"/%2561", "/%25%36%31"}, // decoded once, it is "%61", and that is another name
		"/a%25zz/%zz%2":      {"/a%25zz/%zz%2", "/%61%25zz/%zz%2"},
		"/b/c/g":             {"/b/c/%2e/d/../g", "/b/c/./d/%2E./g", "/b/c/x/../g"},
		"/mid/6":             {"/mid/content=5/../6"},
		"/a/":                {"/a/.", "/a/%2e", "/a/b/..", "/a/b/%2e%2e"},
		"/a/...":             {"/a/...", "/a/%2e%2E.", "/a/..%2e"},
		"/%5C":               {"/%5C", "/%5c"},
	} {
		for _, s := range spellings {
			if got, err := CanonicalPath(s); err != nil || got != want {
				t.Errorf("%q: %q (%v), want %q", s, got, err, want)
			}
			if got, err := ForwardedPath(s); err != nil || got != want {
				t.Errorf("%q is forwarded as %q (%v), want %q", s, got, err, want)
			}
			if p, err := ParsePattern(s); err == nil && p.String() != want && !strings.HasSuffix(want, "/") {
				t.Errorf("%q as a pattern: %q, want %q", s, p, want)
			}
			if p, err := ParsePattern("/**"); err != nil || !p.Matches(s) {
				t.Errorf("%q is matched by no pattern", s)
			}
		}
	}
}

func TestAPatternMatchesAStreamHoweverItIsSpelled(t *testing.T) {
	for _, pattern := range []string{"/e/%7Ebob/*", "/%65/~bob/%2a", "/e/%7ebob/**"} {
		p, err := ParsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/e/~bob/x", "/e/~bob/%C3%BC"} {
			if !p.Matches(path) {
				t.Errorf("%s does not match %s", pattern, path)
			}
		}
		if p.Matches("/e/%257Ebob/x") {
			t.Errorf("%s matches another name", pattern)
		}
	}
}

func TestOtherPathsAreForwardedInOneFormToo(t *testing.T) {
	long := strings.Repeat("x", MaxPathLen)
	for in, want := range map[string]string{
		"/%61/*": "/a/*", "/a/%2a": "/a/%2A", "/a/b/../" + long: "/a/" + long,
	} {
		if got, err := ForwardedPath(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"/../*", "/%2e%2e/" + long, "/*//a", "/__d%73/*", "*"} {
		if got, err := ForwardedPath(in); err == nil {
			t.Errorf("%q is forwarded as %q", in, got)
		}
	}
}

// drawPath draws paths of what canonical forms differ in.
func drawPath(t *rapid.T) string {
	piece := rapid.SampledFrom([]string{
		"/", "/", "a", "B", "~", ".", "..", "/./", "/../", "%2e", "%2E%2e", "%2f", "%2F", "%61", "%7e", "%7E", "%25",
		"%2561", "%252e%252e", "%", "%2", "%4", "1", "%31", "5c", "%5c", `\`, "ü", "%c3%bc", " ", "*", "%2a", "__ds",
		"%5f", ":", "@", "%40", "%zz",
	})
	return "/" + strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), "")
}

func TestACanonicalPathIsItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPath(t)
		if got, err := ForwardedPath(p); err == nil {
			if again, err := ForwardedPath(got); err != nil || again != got {
				t.Fatalf("%q is forwarded as %q, and that as %q, %v", p, got, again, err)
			}
		}
		got, err := CanonicalPath(p)
		if err != nil {
			return
		}
		if again, err := CanonicalPath(got); err != nil || again != got {
			t.Fatalf("%q: %q, and then %q, %v", p, got, again, err)
		}
		// No server that decodes it once has another stream, or leaves the root.
		if plain, err := url.PathUnescape(got); err == nil {
			if again, _ := url.PathUnescape(p); !strings.ContainsAny(p, `\.%`) && again != plain {
				t.Fatalf("%q is %q there, %q was %q", got, plain, p, again)
			}
			depth := 0
			for s := range strings.SplitSeq(plain, "/") {
				switch s {
				case "", ".":
				case "..":
					depth--
				default:
					depth++
				}
				if depth < 0 {
					t.Fatalf("%q leads out of the root as %q", p, plain)
				}
			}
		}
	})
}

// TestALongPathCostsNoMoreThanItsBytes has each decoded character complete another encoding. Decoded from the start
// again each time, it would take hours.
func TestALongPathCostsNoMoreThanItsBytes(t *testing.T) {
	if got, err := ForwardedPath("/" + strings.Repeat("%3", 1<<20) + "1"); err != nil || got != "/1" {
		t.Errorf("got %.20s, %v", got, err)
	}
}

// TestNoSpellingLeadsPastAKeptPath holds that a path is found to lie below another, whoever decodes it on the way.
func TestNoSpellingLeadsPastAKeptPath(t *testing.T) {
	for p, want := range map[string]bool{
		"/outbox": true, "/outbox/": true, "/outbox/a": true, "/outb%6fx/a": true, "/outbox%2Fa": true,
		"/outbox%2fa":   true,
		"/outbox%252Fa": true, "/%6Futbox%2Fa": true, "//outbox/a": true, "/./outbox/a": true, "/x/../outbox/a": true,
		"/x%2F..%2Foutbox/a": true, "/x/%2e%2e/outbox": true, `/\outbox\a`: true, "/outbox/**": true,
		"/": false, "/outboxes": false, "/out/box": false, "/x/outbox": false, "/outbox/../a": false, "": false,
	} {
		if got := Within(p, "/outbox"); got != want {
			t.Errorf("%q: %t", p, got)
		}
	}
}
