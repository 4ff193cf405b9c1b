package fsm

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPattern is the cause of every error that ParsePattern returns.
var ErrPattern = errors.New("not a pattern")

// Pattern is a parsed glob pattern (webhook spec, Glob Patterns). The zero Pattern matches nothing.
type Pattern struct {
	text     string
	segments []string
}

// ParsePattern reads a pattern as it stands in the raw path of a URL. "%2A" is the same as "*". It returns ErrPattern
// if the pattern is not absolute, is too long, or has an empty, "." or ".." segment. A segment that contains "*" must
// be "*" or "**". At least one path that the pattern matches must be a possible stream path (see CanonicalPath).
func ParsePattern(raw string) (Pattern, error) {
	p, err := escaped(raw)
	if err == nil {
		p = strings.ReplaceAll(normalized(p), "%2A", "*")
		err = reachable(p)
	}
	if err == nil && len(p) > MaxPathLen {
		err = ErrPathTooLong
	}
	if err != nil {
		return Pattern{}, fmt.Errorf("%w: %w", ErrPattern, err)
	}
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		switch dots := undot(s); {
		case s == "":
			return Pattern{}, fmt.Errorf("%w: segment %d is empty", ErrPattern, i+1)
		case s == "*" || s == "**":
		case strings.Contains(s, "*"):
			return Pattern{}, fmt.Errorf("%w: segment %d (%q) mixes \"*\" with other characters: "+
				"use \"*\" for one segment or \"**\" for any number", ErrPattern, i+1, s)
		case dots == "." || dots == "..":
			return Pattern{}, fmt.Errorf("%w: segment %d (%q) cannot be part of a stream path", ErrPattern, i+1, s)
		}
	}
	return Pattern{text: p, segments: segments}, nil
}

// String returns the canonical form.
func (p Pattern) String() string { return p.text }

// Segments are what the pattern has between its slashes. The caller must not change them.
func (p Pattern) Segments() []string { return p.segments }

// Literal says whether the pattern has no wildcard, and so names one stream.
func (p Pattern) Literal() bool { return len(p.segments) > 0 && !strings.Contains(p.text, "*") }

// Matches says whether the pattern matches a stream path, which is canonical.
func (p Pattern) Matches(path string) bool {
	segments, ok := PathSegments(path)
	return ok && len(p.segments) > 0 && matchSegments(p.segments, segments)
}

// Covers says whether p matches every path that q matches. If it says no, p may still match them.
func (p Pattern) Covers(q Pattern) bool {
	return len(p.segments) > 0 && len(q.segments) > 0 && matchSegments(p.segments, q.segments)
}

// PathSegments splits a stream path, which is canonical. ok is false for names that no pattern matches. These have a
// literal "*" (webhook spec, Glob Patterns), or are not absolute.
func PathSegments(path string) ([]string, bool) {
	if !strings.HasPrefix(path, "/") || hasWildcard(path) {
		return nil, false
	}
	return strings.Split(path[1:], "/"), true
}

// matchSegments is the classic two-pointer wildcard match. On a mismatch it returns to the last "**" and lets it take
// one segment more. So its cost is bounded by the product of the two lengths. The path may be a pattern:
// only "**" takes a "**" in it.
func matchSegments(pattern, path []string) bool {
	pi, si := 0, 0
	star, mark := -1, 0
	for si < len(path) {
		switch {
		case pi < len(pattern) && pattern[pi] == "**":
			star, mark = pi, si
			pi++
		case pi < len(pattern) && (pattern[pi] == path[si] || pattern[pi] == "*" && path[si] != "" && path[si] != "**"):
			pi++
			si++
		case star >= 0:
			mark++
			pi, si = star+1, mark
		default:
			return false
		}
	}
	for pi < len(pattern) && pattern[pi] == "**" {
		pi++
	}
	return pi == len(pattern)
}
