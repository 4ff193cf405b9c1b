package harness

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
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

	t    testing.TB
	args []string
}

// StartRedis starts redis-server with the arguments that a test adds to the usual ones.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: run .ci/install-deps")
	}
	port := FreePort(t)
	r := &Redis{
		Addr: loopback(port), URL: "redis://" + loopback(port), t: t,
		args: append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--appendonly", "no", "--save", "",
		}, args...),
	}
	out := testOutput(t, "redis-server on "+r.Addr)
	r.start(out)
	t.Cleanup(func() { r.Kill() })
	return r
}

// Dir is where the server keeps its files.
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
	<-r.Done()
	r.start(r.output)
}

// Client returns a client that is closed with the test.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.Addr, ContextTimeoutEnabled: true})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func redisCommand(args ...string) *exec.Cmd {
	return exec.Command("redis-server", args...) // ended by Process
}

func (r *Redis) start(out *Output) {
	r.t.Helper()
	p, err := Start("redis-server", out, redisCommand(r.args...))
	if err != nil {
		r.t.Fatal(err)
	}
	r.Process = p
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	ready(r.t, p, func(ctx context.Context) error {
		info, err := c.Info(ctx, "server", "persistence").Result()
		switch {
		case err != nil:
			return err
		case strings.Contains(info, "loading:1"):
			return errors.New("it is still loading")
		case !strings.Contains(info, fmt.Sprintf("process_id:%d\r", p.Pid())):
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
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
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
