package fsm

import (
	"slices"
	"strings"
	"testing"
)

// TestFingerprintsTellKeysApart holds that equal keys have equal ones, in the order of the keys, and
// that none holds its key.
func TestFingerprintsTellKeysApart(t *testing.T) {
	one, two := strings.Repeat("a", MinTokenKey), strings.Repeat("b", MinTokenKey)
	prints := func(keys ...string) []string {
		tokens, err := NewTokens(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return tokens.Fingerprints()
	}
	both := prints(one, two)
	if both[0] == both[1] || !slices.Equal(prints(two, one), []string{both[1], both[0]}) ||
		!slices.Equal(prints(one), both[:1]) {
		t.Errorf("the fingerprints are %v", both)
	}
	for _, p := range both {
		if len(p) != 8 || strings.Contains(one+two, p) {
			t.Errorf("fingerprint %q", p)
		}
	}
}
