package redisstore

import (
	"context"
	"encoding/json"

	"reveille/fsm"
)

// decodeOutboxConfig takes the default for what is not stored.
func decodeOutboxConfig(text string) (c fsm.OutboxConfig, err error) {
	if c = fsm.DefaultOutboxConfig; text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

// OutboxConfig implements control.OutboxStore.
func (s *Store) OutboxConfig(ctx context.Context) (fsm.OutboxConfig, error) {
	text, err := s.rdb.Get(ctx, s.keys.outbox()).Result()
	if err = wrap(err); err != nil {
		return fsm.OutboxConfig{}, err
	}
	return decodeOutboxConfig(text)
}

// ChangeOutboxConfig implements control.OutboxStore.
func (s *Store) ChangeOutboxConfig(
	ctx context.Context, change func(fsm.OutboxConfig) (fsm.OutboxConfig, error),
) (was, is fsm.OutboxConfig, err error) {
	for sent := ""; ; {
		text, err := s.rdb.Get(ctx, s.keys.outbox()).Result()
		if err = wrap(err); err != nil {
			return was, is, err
		}
		if sent != "" && text == sent { // the reply of the call that has stored it was lost
			return was, is, nil
		}
		if was, err = decodeOutboxConfig(text); err != nil {
			return was, is, err
		}
		if is, err = change(was); err != nil {
			return was, is, err
		}
		next, err := json.Marshal(is)
		if err != nil {
			return was, is, err
		}
		sent = string(next)
		r := s.call(ctx, scriptChangeOutbox, []string{s.keys.outbox(), s.keys.version(), s.keys.changes()},
			text, sent, s.versionSeen.Load(), versionDraw())
		switch changed := r.yes(); {
		case r.bad != nil:
			return was, is, r.bad
		case changed:
			_ = s.RefreshCatalog(ctx) // Run reads the list again anyway
			s.hints.tellSubscriptions()
			return was, is, nil
		}
	}
}
