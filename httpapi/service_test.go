package httpapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"reveille/fsm"
)

func TestConfigIsChecked(t *testing.T) {
	whole := newHarness(t, nil).svc.cfg
	for field, spoil := range map[string]func(*Config){
		"Store": func(c *Config) { c.Store = nil }, "Upstream": func(c *Config) { c.Upstream = nil },
		"Streams": func(c *Config) { c.Streams = nil }, "Outcomes": func(c *Config) { c.Outcomes = nil },
		"Targets": func(c *Config) { c.Targets = nil }, "Tester": func(c *Config) { c.Tester = nil },
		"Rebuilder": func(c *Config) { c.Rebuilder = nil },
		"Tokens":    func(c *Config) { c.Tokens = nil },
		"Ready":     func(c *Config) { c.Ready = nil }, "Logger": func(c *Config) { c.Logger = nil },
		"UpstreamURL": func(c *Config) { c.Gateway = true }, "BodyTimeout": func(c *Config) { c.BodyTimeout = -1 },
	} {
		cfg := whole
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Fatalf("%s: %v", field, err)
		}
	}
}

func TestErrorsAreAnswered(t *testing.T) {
	h := newHarness(t, nil)
	for want, err := range map[fsm.Code]error{
		fsm.CodeUnavailable: context.DeadlineExceeded, fsm.CodeSubscriptionConflict: &fsm.ConflictError{},
		fsm.CodeInternal: errors.New("boom"),
	} {
		if got := h.svc.refusalFor(err).Code; got != want {
			t.Fatalf("%v: got %s, want %s", err, got, want)
		}
	}
}
