package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server of a test's own. It keeps everything in memory unless the test asks for more.
type Redis struct {
	*Process
	// Addr is host:port; URL is what REVEILLE_REDIS_URL takes.
	Addr string
	URL  string
	// TLSAddr is host:port for encrypted connections, if the server was started with the arguments of a CA.
	TLSAddr string

	t    testing.TB
	args []string
	dir  string
	// id and bus are the node's ID and the port of its bus, in a cluster.
	id  string
	bus int
}

// StartRedis starts redis-server with the usual arguments and the ones of the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	r := newRedis(t, args...)
	r.launch()
	r.await()
	return r
}

// newRedis prepares a server and does not start it.
func newRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: run .ci/install-deps")
	}
	port := FreePort(t)
	r := &Redis{Addr: loopback(port), URL: "redis://" + loopback(port), t: t, dir: t.TempDir()}
	r.args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", r.dir, "--appendonly", "no", "--save", "",
	}, args...)
	if slices.Contains(args, "--tls-cert-file") {
		encrypted := FreePort(t)
		r.TLSAddr = loopback(encrypted)
		r.args = append(r.args, "--tls-port", strconv.Itoa(encrypted))
	}
	return r
}

// Dir returns the folder where the server keeps its files.
func (r *Redis) Dir() string {
	for i := len(r.args) - 2; i >= 0; i-- {
		if r.args[i] == "--dir" {
			return r.args[i+1]
		}
	}
	return ""
}

// Restart starts the server again on the same port, after a Kill or a Stop. Unless it was started with persistence, it
// is empty.
func (r *Redis) Restart() {
	r.t.Helper()
	r.launch()
	r.await()
}

// LoseSince takes away what a killed server appended to its file after WrittenSoFar returned written. The server must
// not rewrite that file.
func (r *Redis) LoseSince(written int64) {
	r.t.Helper()
	if err := os.Truncate(r.appendedTo(), written); err != nil {
		r.t.Errorf("take away the end of what redis wrote: %v", err)
	}
}

// WrittenSoFar returns the length of the file to which the server appends its changes, in bytes.
func (r *Redis) WrittenSoFar() int64 {
	r.t.Helper()
	info, err := os.Stat(r.appendedTo())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Size()
}

func (r *Redis) appendedTo() string {
	r.t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.Dir(), "appendonlydir", "*.incr.aof"))
	if len(files) != 1 {
		r.t.Fatalf("files that redis appends to: %v, want one", files)
	}
	return files[0]
}

// Client returns a client that is closed with the test.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: r.Addr, ContextTimeoutEnabled: true, ReadTimeout: Wait, WriteTimeout: Wait, // on a crowded machine
	})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func redisCommand(args ...string) *exec.Cmd {
	return exec.Command("redis-server", args...) // ended by Process
}

// launch starts the process, again after its end.
func (r *Redis) launch() {
	r.t.Helper()
	var out *Output
	if r.Process == nil {
		out = testOutput(r.t, "redis-server on "+r.Addr)
		r.t.Cleanup(func() { r.Kill() })
	} else {
		<-r.Done()
		out = r.output
	}
	p, err := Start("redis-server", out, redisCommand(r.args...))
	if err != nil {
		r.t.Fatal(err)
	}
	r.Process = p
}

// await waits until the server answers.
func (r *Redis) await() {
	r.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	ready(r.t, r.Process, func(ctx context.Context) error {
		info, err := c.Info(ctx, "server", "persistence").Result()
		switch {
		case err != nil:
			return err
		case strings.Contains(info, "loading:1"):
			return errors.New("it is still loading")
		case !strings.Contains(info, fmt.Sprintf("process_id:%d\r", r.Pid())):
			return errors.New("another server answers on its port")
		}
		return nil
	})
}

// ready waits until a process that was just started answers.
func ready(t testing.TB, p *Process, check func(ctx context.Context) error) {
	t.Helper()
	var ended bool
	err := Poll(startTimeout, func() error {
		select {
		case <-p.Done():
			ended = true
			return nil
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return check(ctx)
	})
	switch {
	case ended:
		t.Fatalf("%s ended before it was ready: %v\n%s", p.name, p.Err(), p.Log())
	case err != nil:
		p.Kill()
		t.Fatalf("%s was not ready within %s: %v", p.name, startTimeout, err)
	}
}
