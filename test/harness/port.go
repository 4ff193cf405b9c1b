package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// FreePort draws ports below the range that kernels use for outgoing connections. So no connection takes a port before
// the server listens on it. A Redis in cluster mode also listens on its own port plus 10,000, unless it is told another
// one. These ports lie below that range as well, and apart from the drawn ones.
const (
	firstPort = 11000
	lastPort  = 19999
)

// FreePort returns a TCP port on 127.0.0.1 that nothing listens on. No other test gets it before this one ends, not
// even in another test binary. So a server can be told its port, and be started on it again.
func FreePort(t testing.TB) int {
	t.Helper()
	port, release, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// ReservePort is FreePort, but keeps the port until release is called.
func ReservePort() (port int, release func(), err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("reveille-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, nil, fmt.Errorf("free port: %w", err)
	}
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := tryLock(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			return 0, nil, fmt.Errorf("free port: %w", err)
		}
		if lock == nil {
			continue
		}
		if canListen(port) {
			return port, func() { _ = lock.Close() }, nil
		}
		_ = lock.Close()
	}
	return 0, nil, fmt.Errorf("free port: none found from %d to %d", firstPort, lastPort)
}

func canListen(port int) bool {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// tryLock takes an exclusive lock on a file, and makes the file if necessary. It returns nil if the lock is taken. The
// lock ends when the file is closed or this process ends.
func tryLock(path string) (*os.File, error) {
	return flock(path, syscall.LOCK_EX|syscall.LOCK_NB)
}

// waitLock is tryLock, but waits for its turn.
func waitLock(path string) (*os.File, error) {
	return flock(path, syscall.LOCK_EX)
}

func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}
