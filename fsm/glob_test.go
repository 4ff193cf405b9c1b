package fsm

import (
	"errors"
	"strings"
	"testing"
)

func TestGlobPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{
			"/agents/*",
			[]string{"/agents/task-1", "/agents/a%2Fb"},
			[]string{"/agents/foo/bar", "/agents", "/agents/", "/x/task-1"},
		},
		{
			"/agents/**",
			[]string{"/agents/task-1", "/agents/foo/bar/baz", "/agents", "/agents/x/"},
			[]string{"/other/path", "/agent", "/agentsx/y"},
		},
		{
			"/agents/*/inbox",
			[]string{"/agents/worker-1/inbox"},
			[]string{"/agents/worker-1/outbox", "/agents/inbox", "/agents/a/b/inbox"},
		},
		{"/a/*/*", []string{"/a/x/y", "/a/x%2Fy/z"}, []string{"/a/x", "/a/x/y/z", "/a/x%2Fy"}},
		{"/a/**/z", []string{"/a/z", "/a/x/z", "/a/x/y/z", "/a/z/z"}, []string{"/a/z/x", "/a", "/z"}},
		{"/a/Task-1", []string{"/a/Task-1"}, []string{"/a/task-1", "/a/Task-10", "/a/Task-1/x", "/a/Task-1/"}},
		{"/a/%2A/c", []string{"/a/b/c"}, []string{"/a/c", "/a/b/b/c"}},
		{"/**", []string{"/", "/a", "/a/b/c"}, nil},
		{"/**/inbox", []string{"/inbox", "/a/inbox", "/a/b/inbox"}, []string{"/a/inbox/b"}},
		{"/a/**/b/**/c", []string{"/a/b/c", "/a/x/b/y/z/c", "/a/b/b/c"}, []string{"/a/c", "/a/b", "/b/c"}},
		{"/agents/%2A", []string{"/agents/task-1"}, []string{"/agents/a/b"}},
		{"/agents/%2a%2A", []string{"/agents/a/b"}, nil},
		{"/exact", []string{"/exact"}, []string{"/exac", "/exact/", "/Exact"}},
		{"/a%20b/*", []string{"/a%20b/c"}, []string{"/a b/c"}},
		{"/*", nil, []string{"/*", "/%2A", "/%2a"}},
	} {
		p, err := ParsePattern(tt.pattern)
		if err != nil {
			t.Fatalf("%s: %v", tt.pattern, err)
		}
		for _, path := range tt.yes {
			if !p.Matches(path) {
				t.Errorf("%s does not match %s", tt.pattern, path)
			}
		}
		for _, path := range tt.no {
			if p.Matches(path) {
				t.Errorf("%s matches %s", tt.pattern, path)
			}
		}
	}
	for _, bad := range []string{
		"", "agents/*", "/", "/agents/", "//a", "/a//b", "/***", "/a*b", "/a%2Ab", "/a/*b", "/./a", "/a/..",
		"/a/%2e%2E", "/a?b", "/a#b",
		"/" + strings.Repeat("x", MaxPathLen), `/\x`, `/a/..\b`, "/..%2ftenantB%2fx", "/*/..%2f..%5Cx", "/%2e%2e%2F*",
		"/a/__ds/*", "/%5f_ds/**",
	} {
		if p, err := ParsePattern(bad); !errors.Is(err, ErrPattern) {
			t.Errorf("%q was taken as the pattern %q (%v)", bad, p, err)
		}
	}
}
