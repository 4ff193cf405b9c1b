package redisstore

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/cache"
)

// Catalog is this replica's view of the subscriptions.
func (s *Store) Catalog() *cache.Catalog { return s.catalog }

// CreateSubscription implements discovery.Store.
func (s *Store) CreateSubscription(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	now, err := s.now(ctx)
	if err != nil {
		return fsm.Subscription{}, false, err
	}
	sub = sub.WithDefaults()
	sub.CreatedAt = now
	text, err := encodeSubscription(sub, "")
	if err != nil {
		return fsm.Subscription{}, false, err
	}
	r := s.call(ctx, scriptCreateSubscription,
		[]string{s.keys.subscriptions(), s.keys.version(), s.keys.backfills(), s.keys.changes()},
		sub.ID, text, sub.Generation, s.versionSeen.Load(), versionDraw())
	there := r.text()
	if r.bad != nil {
		return fsm.Subscription{}, false, r.bad
	}
	stored, err := decodeSubscription(there)
	if err != nil {
		return fsm.Subscription{}, false, err
	}
	switch {
	case stored.Generation == sub.Generation:
		// The subscription is new, even if the script found it: the Redis client repeats a script whose reply was lost.
		// A failed refresh is no error, because the caller would never get the secret. Run reads the list again anyway.
		_ = s.RefreshCatalog(ctx)
		s.hints.tellSubscriptions()
		return stored, true, nil
	case stored.SameConfig(sub):
		return s.tell(ctx, stored)
	}
	return fsm.Subscription{}, false, stored.Conflict(sub)
}

// tell notes that a client was told of an existing subscription (fsm.Subscription.Told), and returns the subscription.
func (s *Store) tell(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error) {
	if sub.Told {
		return sub, false, nil
	}
	stored, err = s.ChangeSubscription(ctx, sub.ID, func(now fsm.Subscription) (fsm.Subscription, error) {
		if !now.SameConfig(sub) {
			return now, now.Conflict(sub)
		}
		return now, nil
	})
	if errors.Is(err, fsm.ErrNotFound) { // deleted since
		return sub, false, nil
	}
	return stored, false, err
}

// ChangeSubscription implements control.Store.
func (s *Store) ChangeSubscription(
	ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
) (fsm.Subscription, error) {
	return s.changeAt(ctx, id, func(sub fsm.Subscription, _ clock) (fsm.Subscription, error) {
		next, err := change(sub)
		next.Told = true
		return next, err
	})
}

// ChangeConsent implements dispatcher.Store.
func (s *Store) ChangeConsent(
	ctx context.Context, sub fsm.Subscription, change func(fsm.Consent, time.Time) (fsm.Consent, error),
) (fsm.Subscription, error) {
	var stored *fsm.Consent
	return s.changeAt(ctx, sub.ID, func(now fsm.Subscription, clock clock) (fsm.Subscription, error) {
		switch {
		case now.Generation != sub.Generation, now.Webhook != sub.Webhook:
			return now, fsm.ErrNotFound
		case stored != nil && now.Consent.Equal(*stored): // the reply of the call that has stored it was lost
			return now, nil
		}
		at, err := clock()
		if err != nil {
			return now, err
		}
		now.Consent, err = change(now.Consent, at.Truncate(time.Millisecond)) // as it is stored
		stored = &now.Consent
		return now, err
	})
}

// RetireSubscription implements dispatcher.Store.
func (s *Store) RetireSubscription(ctx context.Context, sub fsm.Subscription) error {
	_, err := s.changeAt(ctx, sub.ID, func(now fsm.Subscription, _ clock) (fsm.Subscription, error) {
		if now.Generation != sub.Generation || now.Webhook != sub.Webhook {
			return now, fsm.ErrNotFound
		}
		now.Retired = true
		return now, nil
	})
	return err
}

// DisableSubscription implements dispatcher.Store.
func (s *Store) DisableSubscription(ctx context.Context, sub fsm.Subscription) error {
	_, err := s.changeAt(ctx, sub.ID, func(now fsm.Subscription, _ clock) (fsm.Subscription, error) {
		return now.DisabledAs(sub)
	})
	return err
}

// clock returns the time. It asks Redis in the first call only.
type clock = func() (time.Time, error)

// changeAt is ChangeSubscription with a change that may need the time, and sets Told.
func (s *Store) changeAt(
	ctx context.Context, id string, change func(fsm.Subscription, clock) (fsm.Subscription, error),
) (fsm.Subscription, error) {
	for {
		clock := sync.OnceValues(func() (time.Time, error) { return s.now(ctx) })
		text, err := s.rdb.HGet(ctx, s.keys.subscriptions(), id).Result()
		if err = wrap(err); err != nil {
			return fsm.Subscription{}, err
		}
		if text == "" {
			return fsm.Subscription{}, fsm.ErrNotFound
		}
		was, err := decodeSubscription(text)
		if err != nil {
			return fsm.Subscription{}, err
		}
		next, err := change(was, clock)
		if err != nil {
			return fsm.Subscription{}, err
		}
		if next = next.ConsentAsOf(was); next.Equal(was) {
			return was, nil
		}
		if next.Previous.Secret != "" || next.Reopens(was) {
			now, err := clock()
			if err != nil {
				return fsm.Subscription{}, err
			}
			next.Previous = next.Previous.Unexpired(now)
			next = next.PausedAsOf(now, was)
		}
		next.Revision++
		if text, err = encodeSubscription(next, text); err != nil {
			return fsm.Subscription{}, err
		}
		r := s.call(ctx, scriptChangeSubscription,
			[]string{s.keys.subscriptions(), s.keys.version(), s.keys.changes()},
			id, text, was.Generation, was.Revision, s.versionSeen.Load(), versionDraw())
		switch changed := r.yes(); {
		case r.bad != nil:
			return fsm.Subscription{}, r.bad
		case changed:
			_ = s.RefreshCatalog(ctx) // Run reads the list again anyway
			s.hints.tellSubscriptions()
			return next, nil
		}
	}
}

// RotateSecret implements control.Store.
func (s *Store) RotateSecret(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error) {
	return s.changeAt(ctx, id, func(sub fsm.Subscription, clock clock) (fsm.Subscription, error) {
		now, err := clock()
		sub.Told = true
		return sub.Rotate(r, now), err
	})
}

// ResumeSubscription implements control.Store. A replica that does not know of the change yet may hold back an
// attempt of a consumer that was visited. After that, it looks again whether the subscription is paused
// (dispatcher/pause.go).
func (s *Store) ResumeSubscription(ctx context.Context, id string) (n int, o fsm.Outcome, err error) {
	if err := s.RefreshCatalog(ctx); err != nil {
		return 0, o, err
	}
	sub, ok := s.catalog.Get(id)
	if !ok {
		return 0, o, fsm.ErrNotFound
	}
	if sub.Stopped() {
		sub, err = s.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
			return now.Resumed(), nil
		})
		if err != nil {
			return 0, o, err
		}
	}
	err = s.ofSubscription(ctx, scriptResume, sub, func(l *reply) {
		n += int(l.int())
		o.Add(l.outcome())
	}, flag(false))
	return n, o, err
}

// RetrySubscription implements control.Store.
func (s *Store) RetrySubscription(ctx context.Context, id string) (n int, err error) {
	if err := s.RefreshCatalog(ctx); err != nil {
		return 0, err
	}
	sub, ok := s.catalog.Get(id)
	if !ok {
		return 0, fsm.ErrNotFound
	}
	if err := s.retryEndpoint(ctx, sub); err != nil {
		return 0, err
	}
	err = s.ofSubscription(ctx, scriptRetry, sub, func(l *reply) { n += int(l.int()) })
	return n, err
}

// retryEndpoint comes before the deliveries are retried: otherwise they would find the endpoint unchanged and wait
// again.
func (s *Store) retryEndpoint(ctx context.Context, sub fsm.Subscription) error {
	_, _, changed, err := s.ofEndpoint(ctx, scriptRetryEndpoint, sub, true)
	if changed {
		s.hints.tellEndpoints()
	}
	return err
}

// RetryDelivery implements control.Store.
func (s *Store) RetryDelivery(ctx context.Context, sub fsm.Subscription, w fsm.DeliveryRef) (waited bool, err error) {
	if err := s.retryEndpoint(ctx, sub); err != nil {
		return false, err
	}
	r := s.run(ctx, scriptRetryDelivery, s.PartitionOf(w.Consumer.Home), w.Consumer.ID, w.Epoch, w.WakeID)
	return r.yes(), r.err()
}

// Rewind implements control.Store.
func (s *Store) Rewind(
	ctx context.Context, sub fsm.Subscription, c fsm.ConsumerRef, path string, to fsm.Offset,
) (from fsm.Offset, o fsm.Outcome, err error) {
	for done := int64(-2); done == -2; {
		r := s.run(ctx, scriptRewind, s.PartitionOf(c.Home), c.ID, sub.Generation, path, string(to))
		done, from = r.int(), fsm.Offset(r.text())
		o.Add(r.outcome())
		switch err = r.err(); {
		case err != nil:
			return "", o, err
		case done == -1:
			return "", o, fsm.ErrNotFound
		case done == 0:
			return "", o, fsm.ErrNotBefore
		}
	}
	return from, o, nil
}

// ofSubscription calls a script for all consumers of a subscription, and reads the replies as eachBatch does.
func (s *Store) ofSubscription(
	ctx context.Context, sc *script, sub fsm.Subscription, read func(*reply), more ...any,
) error {
	args := append([]any{sub.ID, sub.Generation}, more...)
	for p := range s.keys.partitions {
		if err := s.eachBatch(ctx, sc, p, read, args...); err != nil {
			return err
		}
	}
	return nil
}

// RefreshCatalog implements discovery.Store.
func (s *Store) RefreshCatalog(ctx context.Context) error {
	// One refresh runs at a time, so an older list never replaces a newer one. A refresh that began after this call
	// came is good for this call, too. So callers that wait share one.
	came := s.refreshBegun.Load()
	select {
	case s.refreshing <- struct{}{}:
		defer func() { <-s.refreshing }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, ctx.Err())
	}
	if s.refreshed.Load() > came {
		return nil
	}
	begun := s.refreshBegun.Add(1)
	err := s.refreshCatalog(ctx)
	if err == nil {
		s.refreshed.Store(begun)
	}
	return err
}

func (s *Store) refreshCatalog(ctx context.Context) error {
	since := ""
	if s.catalog.Loaded() {
		version, err := s.Version(ctx)
		if err != nil || version == s.catalog.Version() {
			return err
		}
		since = strconv.FormatInt(s.catalog.Version(), 10)
	}
	var version int64
	var whole, anew bool
	var subs []fsm.Subscription
	var gone []string
	r := s.call(ctx, scriptListSubscriptions,
		[]string{s.keys.subscriptions(), s.keys.version(), s.keys.changes()}, since)
	r.list(func(l *reply) {
		version = l.int()
		what := l.code(0, 1, 2)
		whole, anew = what > 0, what == 2
		l.each(func(changed *reply) {
			id := ""
			if !whole {
				id = changed.text()
			}
			text := changed.text()
			if changed.bad != nil {
				return
			}
			if sub, ok := s.readable(text); ok {
				subs = append(subs, sub)
			} else {
				gone = append(gone, id)
			}
		})
	})
	if r.bad != nil {
		return r.bad
	}
	outbox, err := s.OutboxConfig(ctx) // later than the list: a change since has made another version
	if err != nil {
		return err
	}
	raise(&s.versionSeen, version)
	if whole && (anew || version < s.catalog.Version()) {
		s.noteLostSubscriptions(subs)
	}
	s.catalog.DeliverBy(outbox)
	if whole {
		s.catalog.Replace(subs, version)
	} else {
		s.catalog.Change(subs, gone, version)
	}
	return nil
}

// lostNamed is how many of the lost subscriptions the log names.
const lostNamed = 20

// noteLostSubscriptions reports the subscriptions that are no longer on the list, because Redis lost the list or its
// latest changes.
func (s *Store) noteLostSubscriptions(there []fsm.Subscription) {
	kept := map[string]bool{}
	for i := range there {
		kept[there[i].ID] = true
	}
	var lost []string
	for _, sub := range s.catalog.All() {
		if !kept[sub.ID] {
			lost = append(lost, sub.ID)
		}
	}
	if len(lost) == 0 {
		return
	}
	s.metrics.subscriptionsLost.Add(float64(len(lost)))
	s.opts.Logger.Error("redis has lost subscriptions: nothing is delivered for them until they are made again",
		zap.Int("subscriptions", len(lost)), zap.Strings("ids", lost[:min(len(lost), lostNamed)]))
}

// readable decodes a stored subscription. It returns false if the subscription is gone or cannot be read. The other
// subscriptions go on without it.
func (s *Store) readable(text string) (sub fsm.Subscription, ok bool) {
	if text == "" {
		return sub, false
	}
	sub, err := decodeSubscription(text)
	if err == nil {
		return sub, true
	}
	s.unreadable.Log(s.opts.Logger, time.Now()).Error(
		"a stored subscription cannot be read and is ignored", zap.Error(err))
	return sub, false
}

// Version implements discovery.Store.
func (s *Store) Version(ctx context.Context) (int64, error) {
	v, err := s.rdb.Get(ctx, s.keys.version()).Result()
	if err = wrap(err); err != nil || v == "" {
		return 0, err
	}
	version, err := strconv.ParseInt(v, 10, 64)
	raise(&s.versionSeen, version)
	return version, err
}

// versionDraw draws the number that distinguishes two versions of the same millisecond (lua/changed.lua).
func versionDraw() uint32 { return mrand.Uint32N(fsm.VersionsPerMilli) }
