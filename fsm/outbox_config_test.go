package fsm

import (
	"slices"
	"testing"
	"time"
)

// TestBackoffsFollowTheFormula holds the delays of the delivery semantics, Retry Strategy, without their jitter.
func TestBackoffsFollowTheFormula(t *testing.T) {
	with := func(change func(*OutboxConfig)) OutboxConfig {
		c := DefaultOutboxConfig
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		config OutboxConfig
		want   []int64
	}{
		"by default": {
			DefaultOutboxConfig, []int64{1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000},
		},
		"always the same": {with(func(c *OutboxConfig) {
			c.BackoffMultiplier = 1
		}), []int64{1000}},
		"with a fraction": {with(func(c *OutboxConfig) {
			c.InitialBackoffMs, c.BackoffMultiplier, c.MaxBackoffMs = 100, 1.5, 300
		}), []int64{100, 150, 225, 300}},
		"at its most": {with(func(c *OutboxConfig) { c.MaxBackoffMs = 1000 }), []int64{1000}},
	} {
		var got []int64
		for _, d := range tc.config.Backoffs() {
			got = append(got, d.Milliseconds())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	slow := with(func(c *OutboxConfig) { c.InitialBackoffMs, c.BackoffMultiplier = 1, 1.01 })
	if n := len(slow.Backoffs()); n != maxBackoffs {
		t.Errorf("a schedule has %d delays", n)
	}
}

// TestASecretOfAProviderIsRotated holds which secrets sign.
func TestASecretOfAProviderIsRotated(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	none := DefaultOutboxConfig
	first := none.WithSecret("github", "a", now)
	if s, ok := first.SecretOf("github"); !ok || s.Secret != "a" || s.Previous.Secret != "" ||
		s.Previous.Until != now.Add(RotationOverlap) {
		t.Errorf("the first is %+v, %t", s, ok)
	}
	if again, _ := first.WithSecret("github", "a", now).SecretOf("github"); again.Previous.Secret != "" {
		t.Errorf("the same again is %+v", again)
	}
	second := first.WithSecret("github", "b", now)
	if s, _ := second.SecretOf("github"); s.Secret != "b" || s.Previous.At(now) != "a" ||
		s.Previous.At(now.Add(RotationOverlap)) != "" {
		t.Errorf("the second is %+v", s)
	}
	if _, ok := second.WithSecret("github", "", now).SecretOf("github"); ok {
		t.Error("it is not taken away")
	}
	if _, ok := none.SecretOf("github"); ok || len(first.Secrets) != 1 || first.Secrets["github"].Secret != "a" {
		t.Errorf("the earlier ones have changed: %+v, %+v", none, first)
	}
}
