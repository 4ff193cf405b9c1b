package redisstore

import (
	"slices"
	"testing"
)

func TestHostsWithoutAPortHaveTheUsualOne(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"h1,h2:7000", []string{"h1:6379", "h2:7000"}},
		{"user:pass%40word@h1", []string{"h1:6379"}},
		{"[::1],[::2]:7000/name", []string{"[::1]:6379", "[::2]:7000"}},
	} {
		m, err := parseMembers(tc.text, "6379")
		if err != nil || !slices.Equal(m.addrs, tc.want) {
			t.Errorf("%s: %q, %v, want %q", tc.text, m.addrs, err, tc.want)
		}
	}
}
