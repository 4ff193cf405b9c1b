package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Lifetime is for servers that outlive the test that starts them.
type Lifetime struct {
	mu       sync.Mutex
	cleanups []func()
	faults   []string
}

// Of returns the testing.TB for a function that starts such a server. If the start fails, t fails, but End does the
// cleanup. A fault that is found later does not end the test that finds it: End returns it.
func (l *Lifetime) Of(t testing.TB) testing.TB { return &lasting{TB: t, l: l} }

// End cleans up, last things first, and returns the faults found since the start.
func (l *Lifetime) End() []string {
	l.mu.Lock()
	cleanups := l.cleanups
	l.cleanups = nil
	l.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
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

// Errorf may be called when no test runs.
func (t *lasting) Errorf(format string, args ...any) { t.fault(fmt.Sprintf(format, args...)) }

// Error may be called when no test runs.
func (t *lasting) Error(args ...any) { t.fault(fmt.Sprint(args...)) }

func (t *lasting) fault(what string) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.l.faults = append(t.l.faults, what)
}

// Failed is called by cleanups, which run when no test does.
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
