package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/redisstore"
)

// work counts the commands that scripts run, and takes the time that each keeps Redis. The scripts are called one at a
// time.
type work struct {
	mu   sync.Mutex
	most map[string]int64
	took map[string]time.Duration
}

// measured has the work of a client's scripts measured.
func measured(rdb redis.UniversalClient) *work {
	h := &work{most: map[string]int64{}, took: map[string]time.Duration{}}
	rdb.AddHook(h)
	return h
}

// spent is what a server has done so far.
type spent struct {
	// commands are those carried out, by scripts or not.
	commands int64
	// scripts is the time that scripts took, whatever else the machine did meanwhile.
	scripts time.Duration
}

// DialHook implements redis.Hook.
func (*work) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *work) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.measure(ctx, cmd, next) }
}

// ProcessPipelineHook implements redis.Hook. The scripts of a pipeline are carried out one by one.
func (h *work) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if scriptOf(cmd) == "" {
				return next(ctx, cmds)
			}
		}
		var failure error
		for _, cmd := range cmds {
			err := h.measure(ctx, cmd, func(ctx context.Context, cmd redis.Cmder) error {
				return next(ctx, []redis.Cmder{cmd})
			})
			if failure == nil {
				failure = err
			}
		}
		return failure
	}
}

// scriptOf returns the name of the script that a command calls, "" if it calls none of ours.
func scriptOf(cmd redis.Cmder) string {
	if len(cmd.Args()) < 2 {
		return ""
	}
	return redisstore.ScriptCalled(fmt.Sprint(cmd.Args()[1]))
}

func (h *work) measure(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	name := scriptOf(cmd)
	if name == "" {
		return next(ctx, cmd)
	}
	before := h.spent(ctx, next)
	err := next(ctx, cmd)
	after := h.spent(ctx, next)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most[name] = max(h.most[name], after.commands-before.commands)
	if cmd.Name() != "eval" && err == nil { // that one compiles it, which happens once
		h.took[name] = max(h.took[name], after.scripts-before.scripts)
	}
	return err
}

func (h *work) spent(ctx context.Context, next redis.ProcessHook) (s spent) {
	cmd := redis.NewStringCmd(ctx, "info", "commandstats")
	if err := next(ctx, cmd); err != nil {
		panic(err)
	}
	for line := range strings.Lines(cmd.Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasPrefix(name, "cmdstat_") {
			continue
		}
		var calls, usec int64
		if _, err := fmt.Sscanf(value, "calls=%d,usec=%d,", &calls, &usec); err != nil {
			panic(err)
		}
		s.commands += calls
		if name == "cmdstat_evalsha" || name == "cmdstat_fcall" {
			s.scripts += time.Duration(usec) * time.Microsecond
		}
	}
	return s
}

// bounded logs the most that each script did, and fails the test if that is too much, or if one of some scripts was
// not called.
func (h *work) bounded(t *testing.T, commandsMost int64, called ...string) {
	t.Helper()
	for name, n := range h.most {
		t.Logf("%-20s %6d commands, %s", name, n, h.took[name])
		if n > commandsMost {
			t.Errorf("%s: %d commands, want at most %d", name, n, commandsMost)
		}
	}
	for _, name := range called {
		if h.most[name] == 0 {
			t.Errorf("%s was not called", name)
		}
	}
}
