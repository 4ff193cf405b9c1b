package fsm

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAPatternCoversAnother(t *testing.T) {
	for _, c := range []struct {
		pattern, other string
		want           bool
	}{
		{"/a/**", "/a/**", true},
		{"/a/**", "/a/b/*", true},
		{"/a/**", "/a", true},
		{"/a/**", "/**", false},
		{"/a/**", "/*/b", false},
		{"/a/**", "/ab/**", false},
		{"/a/*", "/a/b", true},
		{"/a/*", "/a/*", true},
		{"/a/*", "/a/**", false},
		{"/a/*", "/a", false},
		{"/a", "/a", true},
		{"/a", "/*", false},
		{"/**", "/**/a/*", true},
		{"/a/**/z", "/a/*/**/y/z", true},
		{"/a/**/z", "/a/**", false},
		{"/*/**", "/**/*", false}, // it would, but saying no is safe
	} {
		p, q := pattern(t, c.pattern), pattern(t, c.other)
		if got := p.Covers(q); got != c.want {
			t.Errorf("%s covers %s: %t, want %t", c.pattern, c.other, got, c.want)
		}
	}
	if p := pattern(t, "/**"); p.Covers(Pattern{}) || (Pattern{}).Covers(p) {
		t.Error("a pattern that is none covers another, or is covered")
	}
}

// TestWhatAPatternCoversItMatches holds for all paths of a pattern that another one covers.
func TestWhatAPatternCoversItMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, of ...string) string {
			return "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(of), 1, 5).Draw(t, name), "/")
		}
		p, errP := ParsePattern(draw("pattern", "a", "b", "*", "**"))
		q, errQ := ParsePattern(draw("other", "a", "b", "*", "**"))
		if errP != nil || errQ != nil {
			t.Fatal(errP, errQ)
		}
		path := draw("path", "a", "b", "c")
		if p.Covers(q) && q.Matches(path) && !p.Matches(path) {
			t.Fatalf("%s covers %s, and does not match %s", p, q, path)
		}
	})
}

func TestWhatAPrincipalSees(t *testing.T) {
	nobody, all := Principal{}, Principal{Paths: []Pattern{pattern(t, AllStreams)}}
	a := Principal{Roles: []Role{"reader"}, Paths: []Pattern{pattern(t, "/x"), pattern(t, "/a/**")}}
	const refused = "/a/**x" // a pattern of a later version
	for _, c := range []struct {
		name    string
		of      Principal
		pattern string
		want    bool
	}{
		{"nobody sees a pattern", nobody, "/a", false},
		{"all see a pattern that this version refuses", all, refused, true},
		{"a principal does not", a, refused, false},
		{"a principal sees what one of its patterns covers", a, "/a/*", true},
		{"and nothing else", a, "/b", false},
	} {
		if got := c.of.SeesPattern(c.pattern); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if nobody.Sees("/a") || !all.Sees("/a*") || !a.Sees("/x") || !a.Sees("/a/b") || a.Sees("/b/a") {
		t.Error("a principal sees another stream than its patterns match")
	}
	if nobody.Has("") || a.Has("") || !a.Has("reader") || a.Has("writer") {
		t.Error("a principal has another role than its own")
	}
}

func pattern(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
