package harness

import "testing"

// Long marks a test that takes long, or whose long form checks what a quicker test checks already. The short form (go
// test -short, make test) leaves it out; make test-all runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("the long form runs it: make test-all")
	}
}
