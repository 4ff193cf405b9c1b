package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"reveille/fsm"
)

// dropBatch is how many consumers of a deleted subscription one script call removes.
const dropBatch = 200

// record is a subscription as it is stored.
type record struct {
	ID          string `json:"id"`
	Generation  string `json:"generation"`
	Pattern     string `json:"pattern"`
	Webhook     string `json:"webhook"`
	Secret      string `json:"secret"`
	Description string `json:"description,omitempty"`
	CreatedAt   int64  `json:"created_at"` // microseconds
}

func decodeSubscription(s string) (fsm.Subscription, error) {
	var r record
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		// The text is not part of the error: it holds the secret.
		return fsm.Subscription{}, fmt.Errorf("redis: a stored subscription is not valid JSON")
	}
	return fsm.Subscription{
		ID: r.ID, Generation: r.Generation, Pattern: r.Pattern, Webhook: r.Webhook, Secret: r.Secret,
		Description: r.Description, CreatedAt: time.UnixMicro(r.CreatedAt),
	}, nil
}

// Catalog implements fsm.SubscriptionStore.
func (s *Store) Catalog() *fsm.Catalog { return s.catalog }

// CreateSubscription implements fsm.SubscriptionStore.
func (s *Store) CreateSubscription(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	now, err := s.now(ctx)
	if err != nil {
		return fsm.Subscription{}, false, err
	}
	sub.CreatedAt = now
	text, err := json.Marshal(record{
		ID: sub.ID, Generation: sub.Generation, Pattern: sub.Pattern, Webhook: sub.Webhook, Secret: sub.Secret,
		Description: sub.Description, CreatedAt: now.UnixMicro(),
	})
	if err != nil {
		return fsm.Subscription{}, false, fmt.Errorf("store subscription %s: %w", sub.ID, err)
	}
	v, err := s.call(ctx, scriptCreateSubscription,
		[]string{s.keys.subscriptions(), s.keys.version(), s.keys.backfills(), s.keys.changes()}, sub.ID, text, sub.Generation)
	r := &reply{items: []any{v}}
	there := r.text()
	if err == nil {
		err = r.bad
	}
	if err != nil {
		return fsm.Subscription{}, false, err
	}
	stored := sub
	if there != "" {
		if stored, err = decodeSubscription(there); err != nil {
			return fsm.Subscription{}, false, err
		}
	}
	switch {
	case stored.Generation == sub.Generation:
		// It is new, even if it was there: the client sends a script again whose reply got lost. An error would cost the
		// caller the secret for good, while Run reads the list again anyway.
		_ = s.RefreshCatalog(ctx)
		s.hints.tellSubscriptions()
		return stored, true, nil
	case stored.SameConfig(sub):
		return stored, false, nil
	}
	return fsm.Subscription{}, false, fsm.ErrConflict
}

// DeleteSubscription implements fsm.SubscriptionStore. It is in two steps, so that a crash in between cannot leave
// consumers behind: the list remembers what is to be removed until all is.
func (s *Store) DeleteSubscription(ctx context.Context, id string) error {
	_, err := s.call(ctx, scriptDeleteSubscription,
		[]string{s.keys.subscriptions(), s.keys.version(), s.keys.backfills(), s.keys.changes(), s.keys.dropping()}, id)
	if err != nil {
		return err
	}
	s.hints.tellSubscriptions()
	if err := s.RefreshCatalog(ctx); err != nil {
		return err
	}
	return s.finishDeletions(ctx)
}

// finishDeletions removes the consumers of subscriptions that are no longer on the list.
func (s *Store) finishDeletions(ctx context.Context) error {
	dropping, err := s.rdb.HGetAll(ctx, s.keys.dropping()).Result()
	if err = wrap(err); err != nil {
		return err
	}
	// First every partition is told of all of them, so that callbacks find the consumers gone at once; then they are cleared
	// away.
	for generation, id := range dropping {
		for p := range s.keys.partitions {
			if _, err := s.drop(ctx, p, id, generation); err != nil {
				return err
			}
		}
	}
	for generation, id := range dropping {
		for p := range s.keys.partitions {
			for left := int64(1); left > 0; {
				if left, err = s.drop(ctx, p, id, generation); err != nil {
					return err
				}
			}
		}
		if err := wrap(s.rdb.HDel(ctx, s.keys.dropping(), generation).Err()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) drop(ctx context.Context, partition int, id, generation string) (left int64, err error) {
	r, err := newReply(s.run(ctx, scriptDrop, partition, id, generation, dropBatch))
	if err != nil {
		return 0, err
	}
	left = r.int()
	o := r.outcome()
	s.metrics.ended(scriptDrop, o.Removed)
	s.noteEnded(o)
	return left, r.bad
}

// ResumeSubscription implements fsm.SubscriptionStore. It returns fsm.ErrNotFound for an unknown ID.
func (s *Store) ResumeSubscription(ctx context.Context, id string) error {
	if err := s.RefreshCatalog(ctx); err != nil {
		return err
	}
	sub, ok := s.catalog.Get(id)
	if !ok {
		return fsm.ErrNotFound
	}
	for p := range s.keys.partitions {
		for cursor := "0"; ; {
			v, err := s.run(ctx, scriptResume, p, sub.ID, sub.Generation, cursor)
			if err != nil {
				return err
			}
			r := &reply{items: []any{v}}
			if cursor = r.text(); r.bad != nil {
				return r.bad
			}
			if cursor == "0" {
				break
			}
		}
	}
	return nil
}

// RefreshCatalog implements fsm.SubscriptionStore.
func (s *Store) RefreshCatalog(ctx context.Context) error {
	// One at a time, so that a list that was read earlier never replaces a later one.
	select {
	case s.refreshing <- struct{}{}:
		defer func() { <-s.refreshing }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, ctx.Err())
	}
	since := ""
	if s.catalog.Loaded() {
		version, err := s.version(ctx)
		if err != nil || version == s.catalog.Version() {
			return err
		}
		since = strconv.FormatInt(s.catalog.Version(), 10)
	}
	r, err := newReply(s.call(ctx, scriptListSubscriptions,
		[]string{s.keys.subscriptions(), s.keys.version(), s.keys.changes()}, since))
	if err != nil {
		return err
	}
	version, whole := r.int(), r.int() == 1
	var subs []fsm.Subscription
	var gone []string
	var broken error
	r.within(func(l *reply) {
		id := ""
		if !whole {
			id = l.text()
		}
		text := l.text()
		if text == "" {
			gone = append(gone, id)
			return
		}
		sub, err := decodeSubscription(text)
		if err != nil {
			broken = err
		}
		subs = append(subs, sub)
	})
	switch {
	case r.bad != nil:
		return r.bad
	case broken != nil:
		return broken
	case whole:
		s.catalog.Replace(subs, version)
	default:
		s.catalog.Change(subs, gone, version)
	}
	return nil
}

func (s *Store) version(ctx context.Context) (int64, error) {
	v, err := s.rdb.Get(ctx, s.keys.version()).Result()
	if err = wrap(err); err != nil || v == "" {
		return 0, err
	}
	return strconv.ParseInt(v, 10, 64)
}

// Backfills implements fsm.SubscriptionStore.
func (s *Store) Backfills(ctx context.Context) (map[string]fsm.Backfill, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.backfills()).Result()
	if err = wrap(err); err != nil {
		return nil, err
	}
	under := make(map[string]fsm.Backfill, len(all))
	for id, text := range all {
		var generation string
		var b fsm.Backfill
		if _, err := fmt.Sscan(text, &generation, &b.Done, &b.Total); err != nil {
			return nil, fmt.Errorf("redis: the backfill of subscription %s is stored as %q", id, text)
		}
		under[id] = b
	}
	return under, nil
}

// SetBackfill implements fsm.SubscriptionStore.
func (s *Store) SetBackfill(ctx context.Context, sub fsm.Subscription, b fsm.Backfill) error {
	return s.setBackfill(ctx, sub, fmt.Sprintf("%d %d", b.Done, b.Total))
}

// EndBackfill implements fsm.SubscriptionStore.
func (s *Store) EndBackfill(ctx context.Context, sub fsm.Subscription) error {
	return s.setBackfill(ctx, sub, "")
}

func (s *Store) setBackfill(ctx context.Context, sub fsm.Subscription, text string) error {
	_, err := s.call(ctx, scriptSetBackfill, []string{s.keys.backfills()}, sub.ID, sub.Generation, text)
	return err
}
