package harness

import "testing"

// Long marks a test that takes long, or that holds in its long form what a quicker test holds already. The short form
// (go test -short, make test) leaves it out; make test-all runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("the long form runs it: make test-all")
	}
}
