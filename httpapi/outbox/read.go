package outbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"strings"
	"time"
	"unicode"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// read reads an event that is handed over now.
func read(o web.Object, now time.Time) (e fsm.OutboxEvent, err error) {
	known := []string{
		"target_url", "event_type", "provider", "payload", "metadata", "max_attempts", "retention_ms", "deliver_at",
		"delay_ms",
	}
	if err := o.Only(append(known, keyNames...)...); err != nil {
		return e, err
	}
	target, err := web.Required[string](o, "target_url", "a URL")
	if err != nil {
		return e, err
	}
	kind, err := web.Required[string](o, "event_type", "a string")
	if err != nil {
		return e, err
	}
	provider, _, err := web.Optional[string](o, "provider", "a string")
	if err != nil {
		return e, err
	}
	key, err := readKey(o)
	if err != nil {
		return e, err
	}
	tries, tried, err := web.Optional[int](o, "max_attempts", "a whole number")
	if err != nil {
		return e, err
	}
	retention, keeps, err := web.Optional[int64](o, "retention_ms", "a whole number")
	if err != nil {
		return e, err
	}
	begins, err := readDeliverAt(o, now)
	if err != nil {
		return e, err
	}
	payload, has := o["payload"]
	metadata := o["metadata"]
	if web.IsNull(metadata) {
		metadata = nil
	}
	e = fsm.OutboxEvent{
		Target: target, Type: kind, Provider: provider, Key: key, MaxAttempts: tries, RetentionMs: retention,
		Payload: string(payload), Metadata: compact(metadata), DeliverAt: begins,
	}
	switch {
	case !has:
		err = refusal.New(fsm.CodeInvalidRequest, "payload is missing: it must be JSON")
	case target == "":
		err = refusal.New(fsm.CodeInvalidRequest, "target_url is empty: it must be a URL")
	case len(target) > maxTarget:
		err = refusal.New(fsm.CodeInvalidRequest, "target_url is longer than %d bytes", maxTarget)
	case tried && (tries < 1 || tries > maxTries):
		err = refusal.New(fsm.CodeInvalidRequest, "max_attempts must be a whole number from 1 to %d", maxTries)
	case keeps && (retention < minRetention || retention > maxRetention):
		err = refusal.New(fsm.CodeInvalidRequest, "retention_ms must be a whole number from %d to %d",
			int64(minRetention), int64(maxRetention))
	case len(metadata) > 0 && metadata[0] != '{':
		err = refusal.New(fsm.CodeInvalidRequest, "metadata must be an object")
	case len(metadata) > maxDetails:
		err = refusal.New(fsm.CodeInvalidRequest, "metadata is larger than %d bytes", maxDetails)
	default:
		err = cmp.Or(text("event_type", kind, true), text("provider", provider, provider != ""))
	}
	return e, err
}

// readDeliverAt reads when an event is to be delivered, in milliseconds since 1970; 0 for at once.
func readDeliverAt(o web.Object, now time.Time) (int64, error) {
	delay, delayed, err := web.Optional[int64](o, "delay_ms", "a whole number")
	if err != nil {
		return 0, err
	}
	switch at, dated := o["deliver_at"]; {
	case dated && !web.IsNull(at) && delayed:
		return 0, refusal.New(fsm.CodeInvalidRequest, "deliver_at and delay_ms cannot both be given")
	case delayed && (delay < 0 || delay > maxDelay):
		return 0, refusal.New(fsm.CodeInvalidRequest, "delay_ms must be a whole number from 0 to %d", int64(maxDelay))
	case delayed:
		return now.UnixMilli() + delay, nil
	case !dated || web.IsNull(at):
		return 0, nil
	default:
		begins, err := readTime("deliver_at", strings.Trim(string(at), `"`))
		if err == nil && (begins.IsZero() || begins.UnixMilli() > now.UnixMilli()+maxDelay) {
			err = refusal.New(fsm.CodeInvalidRequest, "deliver_at must be a time within 365 days")
		}
		return begins.UnixMilli(), err
	}
}

// keyNames are the names of an idempotency key: the spec has both.
var keyNames = []string{"idempotency_key", "idempotencyKey"}

// readKey reads an idempotency key; it is empty if there is none.
func readKey(o web.Object) (key string, err error) {
	for _, name := range keyNames {
		named, ok, err := web.Optional[string](o, name, "a string")
		switch {
		case err != nil:
			return "", err
		case !ok:
			continue
		case key != "" && key != named:
			return "", refusal.New(fsm.CodeInvalidRequest, "idempotency_key and idempotencyKey are not the same")
		}
		if err := text(name, named, true); err != nil {
			return "", err
		}
		key = named
	}
	return key, nil
}

// text refuses a text that cannot stand in a header, or is too long.
func text(name, value string, needed bool) error {
	switch {
	case needed && value == "":
		return refusal.New(fsm.CodeInvalidRequest, "%s is empty", name)
	case len(value) > maxText:
		return refusal.New(fsm.CodeInvalidRequest, "%s is longer than %d bytes", name, maxText)
	case strings.ContainsFunc(value, unicode.IsControl):
		return refusal.New(fsm.CodeInvalidRequest, "%s must not hold control characters", name)
	}
	return nil
}

// compact returns a JSON text without spaces.
func compact(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, text) != nil { // a part of a body that was read as JSON
		return text
	}
	return b.Bytes()
}

// pathValue returns what follows a prefix in a path, decoded.
func pathValue(raw, prefix string) (string, error) {
	value, err := url.PathUnescape(strings.TrimPrefix(raw, prefix))
	if err != nil {
		return "", refusal.New(fsm.CodeInvalidPath, "the end of the path is malformed")
	}
	return value, nil
}
