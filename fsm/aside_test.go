package fsm

import (
	"fmt"
	"testing"
)

// TestAsideID holds that no other consumer has the ID of an aside, and that its consumer is known by it.
func TestAsideID(t *testing.T) {
	for _, path := range []string{"/a", "/a:7", "/a:b:c"} {
		of := ConsumerID("sub", path)
		id := AsideID(of, 7)
		if _, _, ok := ParseConsumerID(id); ok {
			t.Errorf("%s may be another consumer's", id)
		}
		if got, aside := AsideOf(id); got != of || !aside {
			t.Errorf("%s is an aside of %q, %t", id, got, aside)
		}
		if _, aside := AsideOf(of); aside {
			t.Errorf("%s is an aside", of)
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
