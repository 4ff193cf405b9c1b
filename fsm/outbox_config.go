package fsm

import (
	"maps"
	"math"
	"time"
)

// OutboxConfig is how events are delivered that were handed over (delivery semantics, Retry Strategy). It is the same
// for all targets. The names are those of that text.
type OutboxConfig struct {
	// MaxAttempts is how often an event is tried that has no number of its own.
	MaxAttempts int `json:"maxAttempts"`
	// InitialBackoffMs is the delay after the first failed attempt. Each further delay is BackoffMultiplier times the
	// one before, up to MaxBackoffMs.
	InitialBackoffMs  int64   `json:"initialBackoffMs"`
	MaxBackoffMs      int64   `json:"maxBackoffMs"`
	BackoffMultiplier float64 `json:"backoffMultiplier"`
	// DeliveryTimeoutMs is how long an endpoint may take for its answer.
	DeliveryTimeoutMs int64 `json:"deliveryTimeoutMs"`
	// RetentionMs is the OutboxEvent.RetentionMs of events that are handed over without one.
	RetentionMs int64 `json:"retentionMs"`
	// Secrets sign the events of a provider, in place of the secret of the target.
	Secrets map[string]OutboxSecret `json:"secrets,omitempty"`
}

// OutboxSecret signs the events of a provider. The previous one signs beside it for a time. If that is empty, it is the
// secret of the target.
type OutboxSecret struct {
	Secret   string         `json:"secret"`
	Previous PreviousSecret `json:"previous,omitzero"`
}

const (
	// OutboxRetention is how long an event is kept by default once it is delivered (delivery semantics, Payload
	// Retention).
	OutboxRetention = 7 * 24 * time.Hour
	// OutboxLanes is over how many streams the events of one target are spread: so many first attempts are made at
	// once (delivery semantics, maxConcurrent).
	OutboxLanes = 10
	// maxBackoffs bounds the delays of a schedule. The last one repeats.
	maxBackoffs = 100
)

// DefaultOutboxConfig is what holds until somebody changes it.
var DefaultOutboxConfig = OutboxConfig{
	MaxAttempts: 5, InitialBackoffMs: 1000, MaxBackoffMs: 300_000, BackoffMultiplier: 2, DeliveryTimeoutMs: 30_000,
	RetentionMs: OutboxRetention.Milliseconds(),
}

// Backoffs are the delays after the first failed attempt, the second and so on. The last one repeats.
func (c OutboxConfig) Backoffs() (delays []time.Duration) {
	for ms := float64(c.InitialBackoffMs); len(delays) < maxBackoffs; ms *= c.BackoffMultiplier {
		capped := math.Min(ms, float64(c.MaxBackoffMs))
		delays = append(delays, time.Duration(capped)*time.Millisecond)
		if ms >= float64(c.MaxBackoffMs) || c.BackoffMultiplier == 1 {
			break
		}
	}
	return delays
}

// Timeout is how long an endpoint may take for its answer.
func (c OutboxConfig) Timeout() time.Duration {
	return time.Duration(c.DeliveryTimeoutMs) * time.Millisecond
}

// Most is the number of attempts after which an event is dead.
func (c OutboxConfig) Most(e OutboxEvent) int {
	if e.MaxAttempts > 0 {
		return e.MaxAttempts
	}
	return c.MaxAttempts
}

// SecretOf returns the secrets for the events of a provider; ok is false if it has none of its own.
func (c OutboxConfig) SecretOf(provider string) (s OutboxSecret, ok bool) {
	s, ok = c.Secrets[provider]
	return s, ok
}

// WithSecret gives a provider a secret, or takes it away if that is empty. The present one goes on signing for
// RotationOverlap.
func (c OutboxConfig) WithSecret(provider, secret string, now time.Time) OutboxConfig {
	was := c.Secrets[provider]
	if c.Secrets = maps.Clone(c.Secrets); c.Secrets == nil {
		c.Secrets = map[string]OutboxSecret{}
	}
	switch {
	case secret == "":
		delete(c.Secrets, provider)
	case secret != was.Secret:
		c.Secrets[provider] = OutboxSecret{
			Secret: secret, Previous: PreviousSecret{Secret: was.Secret, Until: now.Add(RotationOverlap)},
		}
	}
	return c
}

// Deliver returns the subscription of a target as the configuration has it delivered.
func (c OutboxConfig) Deliver(sub Subscription) Subscription {
	if sub.Format == FormatOutbox {
		sub.Retry, sub.Timeout = c.Backoffs(), c.Timeout()
	}
	return sub
}
