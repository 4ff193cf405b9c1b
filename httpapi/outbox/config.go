package outbox

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// The bounds of a configuration and of an event. Times are in milliseconds.
const (
	maxBackoff   = 24 * 3600 * 1000
	minTimeout   = 1000
	maxTimeout   = 60_000
	minRetention = 60_000
	maxRetention = 365 * 24 * 3600 * 1000
	maxDelay     = 365 * 24 * 3600 * 1000
	maxFactor    = 10
	maxSecrets   = 100
	// Standard Webhooks asks for a secret of so many bytes.
	minSecret = 24
	maxSecret = 64
)

// configBody is the configuration in an answer. Secrets has the names of the providers that have one.
type configBody struct {
	MaxAttempts       int      `json:"maxAttempts"`
	InitialBackoffMs  int64    `json:"initialBackoffMs"`
	MaxBackoffMs      int64    `json:"maxBackoffMs"`
	BackoffMultiplier float64  `json:"backoffMultiplier"`
	DeliveryTimeoutMs int64    `json:"deliveryTimeoutMs"`
	MaxConcurrent     int      `json:"maxConcurrent"`
	RetentionMs       int64    `json:"retentionMs"`
	Secrets           []string `json:"secrets"`
}

func configBodyOf(c fsm.OutboxConfig) configBody {
	return configBody{
		MaxAttempts: c.MaxAttempts, InitialBackoffMs: c.InitialBackoffMs, MaxBackoffMs: c.MaxBackoffMs,
		BackoffMultiplier: c.BackoffMultiplier, DeliveryTimeoutMs: c.DeliveryTimeoutMs, MaxConcurrent: fsm.OutboxLanes,
		RetentionMs: c.RetentionMs, Secrets: append([]string{}, slices.Sorted(maps.Keys(c.Secrets))...),
	}
}

// config answers GET /webhooks/config.
func (f *Face) config(c echo.Context) error {
	config, err := f.Outbox.Store.OutboxConfig(c.Request().Context())
	return web.Answer(c, http.StatusOK, configBodyOf(config), err)
}

// changedBody is the answer to a change.
type changedBody struct {
	configBody
	Previous configBody `json:"previous"`
}

// notedConfig is a configuration as the audit has it. The names of providers do not say that one has another secret.
type notedConfig struct {
	configBody
	NewSecrets bool `json:"new_secrets,omitempty"`
}

// changeConfig answers PATCH /webhooks/config. What the body leaves out stays as it is.
func (f *Face) changeConfig(c echo.Context) error {
	o, err := f.Bodies.JSON(c)
	if err != nil {
		return err
	}
	was, is, err := f.Outbox.Store.ChangeOutboxConfig(c.Request().Context(),
		func(config fsm.OutboxConfig) (fsm.OutboxConfig, error) { return f.patched(config, o) })
	secrets := len(was.Secrets)+len(is.Secrets) > 0 && !reflect.DeepEqual(was.Secrets, is.Secrets)
	change := fsm.Change{What: "configuration of direct deliveries changed"}
	change.Before, change.After = control.Differing(
		notedConfig{configBodyOf(was), false}, notedConfig{configBodyOf(is), secrets})
	if err == nil && string(change.After) != "{}" {
		f.Outbox.Control.Did(c.Request().Context(), change)
	}
	return web.Answer(c, http.StatusOK, changedBody{configBodyOf(is), configBodyOf(was)}, err)
}

// patched returns a configuration with what a body asks for, if the whole is right then.
func (f *Face) patched(c fsm.OutboxConfig, o web.Object) (fsm.OutboxConfig, error) {
	attempts, concurrent := int64(c.MaxAttempts), int64(fsm.OutboxLanes)
	numbers := []struct {
		name        string
		value       *int64
		least, most int64
	}{
		{"maxAttempts", &attempts, 1, maxTries},
		{"initialBackoffMs", &c.InitialBackoffMs, 1, maxBackoff},
		{"maxBackoffMs", &c.MaxBackoffMs, 1, maxBackoff},
		{"deliveryTimeoutMs", &c.DeliveryTimeoutMs, minTimeout, maxTimeout},
		{"maxConcurrent", &concurrent, fsm.OutboxLanes, fsm.OutboxLanes},
		{"retentionMs", &c.RetentionMs, minRetention, maxRetention},
	}
	names := []string{"backoffMultiplier", "secrets"}
	for _, n := range numbers {
		names = append(names, n.name)
	}
	if err := o.Only(names...); err != nil {
		return c, err
	}
	for _, n := range numbers {
		value, given, err := web.Optional[int64](o, n.name, "a whole number")
		switch {
		case err != nil:
			return c, err
		case given && n.least == n.most && value != n.least:
			return c, refusal.New(fsm.CodeInvalidRequest, "%s is always %d", n.name, n.least)
		case given && (value < n.least || value > n.most):
			return c, refusal.New(fsm.CodeInvalidRequest, "%s must be a whole number from %d to %d", n.name, n.least,
				n.most)
		case given:
			*n.value = value
		}
	}
	c.MaxAttempts = int(attempts)
	factor, given, err := web.Optional[float64](o, "backoffMultiplier", "a number")
	switch {
	case err != nil:
		return c, err
	case given && (factor < 1 || factor > maxFactor):
		return c, refusal.New(fsm.CodeInvalidRequest, "backoffMultiplier must be a number from 1 to %d", maxFactor)
	case given:
		c.BackoffMultiplier = factor
	}
	if c.MaxBackoffMs < c.InitialBackoffMs {
		return c, refusal.New(fsm.CodeInvalidRequest, "maxBackoffMs (%d) is less than initialBackoffMs (%d)",
			c.MaxBackoffMs, c.InitialBackoffMs)
	}
	return f.withSecrets(c, o)
}

// withSecrets changes the secrets of some providers; null takes one away.
func (f *Face) withSecrets(c fsm.OutboxConfig, o web.Object) (fsm.OutboxConfig, error) {
	const want = "an object with a secret, or null, for each provider"
	secrets, _, err := web.Optional[map[string]json.RawMessage](o, "secrets", want)
	if err != nil {
		return c, err
	}
	for _, provider := range slices.Sorted(maps.Keys(secrets)) {
		secret := ""
		if !web.IsNull(secrets[provider]) {
			if secret, err = web.Value[string](secrets[provider], "secrets", want); err != nil {
				return c, err
			}
			if err := checkSecret(secret); err != nil {
				return c, err
			}
		}
		if err := text("secrets: a provider", provider, true); err != nil {
			return c, err
		}
		c = c.WithSecret(provider, secret, f.Outbox.Control.Clock())
	}
	if len(c.Secrets) > maxSecrets {
		return c, refusal.New(fsm.CodeInvalidRequest, "secrets: at most %d providers can have one", maxSecrets)
	}
	return c, nil
}

// checkSecret says what is wrong with a secret, which it does not repeat.
func checkSecret(secret string) error {
	text, prefixed := strings.CutPrefix(secret, fsm.SecretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !prefixed || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return refusal.New(fsm.CodeInvalidRequest,
			"secrets: a secret must be %s and the base64 of %d to %d bytes, as Standard Webhooks has it",
			fsm.SecretPrefix, minSecret, maxSecret)
	}
	return nil
}
