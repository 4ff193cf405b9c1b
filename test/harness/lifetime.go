package harness

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
)

// Lifetime is for servers that outlive the test that starts them.
type Lifetime struct {
	mu       sync.Mutex
	cleanups []func()
}

// Of returns what a function that starts a server takes for its test. If the start fails, so does t, but what is to be
// cleaned up is cleaned up by End. Once t is over, what was started may only be used in ways that cannot fail a test.
func (l *Lifetime) Of(t testing.TB) testing.TB { return &lasting{TB: t, l: l} }

// End cleans up, last things first.
func (l *Lifetime) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
	l.cleanups = nil
}

type lasting struct {
	testing.TB
	l *Lifetime
}

func (t *lasting) Cleanup(f func()) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.l.cleanups = append(t.l.cleanups, f)
}

// Failed is asked by cleanups, which run when no test does.
func (*lasting) Failed() bool { return false }

func (*lasting) Context() context.Context { return context.Background() }

func (t *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "reveille-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
