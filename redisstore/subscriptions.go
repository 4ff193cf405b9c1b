package redisstore

import (
	"context"
	"encoding/json"
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

// storedSubscription is the record of a subscription. A field that a change may empty is stored even if it is empty. If
// it were left out, it would stay as it was in the former record.
type storedSubscription struct {
	ID          string                 `json:"id"`
	Generation  string                 `json:"generation"`
	Owner       string                 `json:"owner,omitempty"` // never changes
	Pattern     string                 `json:"pattern"`
	Webhook     string                 `json:"webhook"`
	Secret      string                 `json:"secret"`
	Previous    string                 `json:"previous_secret"`
	Until       int64                  `json:"previous_secret_until"` // milliseconds; 0 without one
	Description string                 `json:"description"`
	Mode        fsm.Mode               `json:"mode"`
	Format      fsm.Format             `json:"format"`
	Signature   fsm.Signature          `json:"signature"`
	Start       fsm.Offset             `json:"start"`
	Batch       int                    `json:"batch"`
	Events      []string               `json:"events"`
	TypePath    string                 `json:"type_path"`
	Filter      map[string][]fsm.Value `json:"filter"`
	Ordering    fsm.Ordering           `json:"ordering"`
	Timeout     int64                  `json:"timeout"` // milliseconds
	Retry       []int64                `json:"retry"`   // milliseconds
	Headers     map[string]string      `json:"headers"`
	Auth        string                 `json:"authorization"`
	AuthQuery   string                 `json:"authorization_query"`
	Metadata    map[string]string      `json:"metadata"`
	CreatedAt   int64                  `json:"created_at"` // microseconds
	// Version is set by create_subscription.lua.
	Version int64 `json:"version,omitempty"`
	// Revision is compared by change_subscription.lua.
	Revision int64 `json:"revision"`
	Told     bool  `json:"told,omitempty"`
	Paused   bool  `json:"paused"`
	PausedAt int64 `json:"paused_at"` // milliseconds
}

// encodeSubscription returns the record of a subscription. From was, the former record if there is one, it keeps the
// fields that this version of the program does not know.
func encodeSubscription(s fsm.Subscription, was string) (string, error) {
	text, err := json.Marshal(storedSubscription{
		ID: s.ID, Generation: s.Generation, Owner: s.Owner, Pattern: s.Pattern, Webhook: s.Webhook, Secret: s.Secret,
		Description: s.Description, Mode: s.Mode, Format: s.Format, Signature: s.Signature,
		Start: s.Start, Batch: s.Batch, Ordering: s.Ordering, Timeout: s.Timeout.Milliseconds(),
		Events: s.Filter.Events, TypePath: s.Filter.TypePath, Filter: s.Filter.Values,
		Retry: inMillis(s.Retry), Headers: s.Headers,
		Previous: s.Previous.Secret, Until: untilMillis(s.Previous),
		Auth: s.Authorization.Secret, AuthQuery: s.Authorization.Query,
		Metadata: s.Metadata, CreatedAt: s.CreatedAt.UnixMicro(), Version: s.Version, Revision: s.Revision,
		Told: s.Told, Paused: s.Paused, PausedAt: millisOf(s.PausedAt),
	})
	if err == nil && was != "" {
		fields := map[string]json.RawMessage{}
		if err = json.Unmarshal([]byte(was), &fields); err == nil {
			err = json.Unmarshal(text, &fields)
		}
		if err == nil {
			text, err = json.Marshal(fields)
		}
	}
	if err != nil {
		return "", fmt.Errorf("store subscription %s: its record is not valid", s.ID) // the error may hold the secret
	}
	return string(text), nil
}

func decodeSubscription(s string) (fsm.Subscription, error) {
	var r storedSubscription
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		// The error must not contain the text, which holds secrets. The ID is known if only another field has a wrong
		// type.
		return fsm.Subscription{}, fmt.Errorf("redis: subscription %q cannot be read: its record is not valid", r.ID)
	}
	var previous fsm.PreviousSecret
	if r.Previous != "" {
		previous = fsm.PreviousSecret{Secret: r.Previous, Until: time.UnixMilli(r.Until)}
	}
	return fsm.Subscription{
		ID: r.ID, Generation: r.Generation, Owner: r.Owner, Pattern: r.Pattern, Webhook: r.Webhook, Secret: r.Secret,
		Previous: previous, Description: r.Description, Mode: r.Mode, Format: r.Format, Signature: r.Signature,
		Start: r.Start, Batch: r.Batch, Ordering: r.Ordering, Timeout: time.Duration(r.Timeout) * time.Millisecond,
		Filter: fsm.Filter{Events: r.Events, TypePath: r.TypePath, Values: r.Filter},
		Retry:  ofMillis(r.Retry), Headers: r.Headers,
		Authorization: fsm.Authorization{Query: r.AuthQuery, Secret: r.Auth},
		Metadata:      r.Metadata, CreatedAt: time.UnixMicro(r.CreatedAt), Version: r.Version,
		Revision: r.Revision, Told: r.Told, Paused: r.Paused, PausedAt: moment(r.PausedAt),
	}.WithDefaults(), nil // missing fields get the defaults of the mode
}

func untilMillis(p fsm.PreviousSecret) int64 {
	if p.Secret == "" {
		return 0
	}
	return p.Until.UnixMilli()
}

func inMillis(delays []time.Duration) (millis []int64) {
	for _, d := range delays {
		millis = append(millis, d.Milliseconds())
	}
	return millis
}

func ofMillis(millis []int64) (delays []time.Duration) {
	for _, ms := range millis {
		delays = append(delays, time.Duration(ms)*time.Millisecond)
	}
	return delays
}

// Catalog is this replica's view of the subscriptions.
func (s *Store) Catalog() *cache.Catalog { return s.catalog }

// CreateSubscription implements fsm.SubscriptionStore.
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

// ChangeSubscription implements fsm.SubscriptionStore.
func (s *Store) ChangeSubscription(
	ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
) (fsm.Subscription, error) {
	return s.changeAt(ctx, id, func(sub fsm.Subscription, _ clock) (fsm.Subscription, error) { return change(sub) })
}

// clock returns the time. It asks Redis in the first call only.
type clock = func() (time.Time, error)

// changeAt is ChangeSubscription with a change that may need the time.
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
		if next.Told = true; next.Equal(was) {
			return was, nil
		}
		if next.Previous.Secret != "" || next.Paused != was.Paused {
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

// RotateSecret implements fsm.SubscriptionStore.
func (s *Store) RotateSecret(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error) {
	return s.changeAt(ctx, id, func(sub fsm.Subscription, clock clock) (fsm.Subscription, error) {
		now, err := clock()
		return sub.Rotate(r, now), err
	})
}

// ResumeSubscription implements fsm.SubscriptionStore. A replica that does not know of the change yet may hold back an
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
	if sub.Paused {
		sub, err = s.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
			now.Paused = false
			return now, nil
		})
		if err != nil {
			return 0, o, err
		}
	}
	err = s.ofSubscription(ctx, scriptResume, sub, func(l *reply) {
		n += int(l.int())
		o.Add(l.outcome())
	})
	return n, o, err
}

// RetrySubscription implements fsm.SubscriptionStore.
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
	_, _, changed, err := s.ofEndpoint(ctx, scriptRetryEndpoint, sub)
	if changed {
		s.hints.tellEndpoints()
	}
	return err
}

// RetryWake implements fsm.SubscriptionStore.
func (s *Store) RetryWake(ctx context.Context, sub fsm.Subscription, w fsm.WakeRef) (waited bool, err error) {
	if err := s.retryEndpoint(ctx, sub); err != nil {
		return false, err
	}
	r := s.run(ctx, scriptRetryWake, s.PartitionOf(w.Consumer.Home), w.Consumer.ID, w.Epoch, w.WakeID)
	return r.yes(), r.err()
}

// ofSubscription calls a script for all consumers of a subscription, and reads the replies as eachBatch does.
func (s *Store) ofSubscription(ctx context.Context, sc *script, sub fsm.Subscription, read func(*reply)) error {
	for p := range s.keys.partitions {
		if err := s.eachBatch(ctx, sc, p, read, sub.ID, sub.Generation); err != nil {
			return err
		}
	}
	return nil
}

// RefreshCatalog implements fsm.SubscriptionStore.
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
	raise(&s.versionSeen, version)
	if whole && (anew || version < s.catalog.Version()) {
		s.noteLostSubscriptions(subs)
	}
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
	if times, log := s.unreadable.Happened(time.Now()); log {
		s.opts.Logger.Error("a stored subscription cannot be read and is ignored", zap.Int("times", times),
			zap.Error(err))
	}
	return sub, false
}

// Version implements fsm.SubscriptionStore.
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

// Backfills implements discovery.BackfillStore.
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

// SetBackfill implements discovery.BackfillStore.
func (s *Store) SetBackfill(ctx context.Context, sub fsm.Subscription, b fsm.Backfill) error {
	return s.setBackfill(ctx, sub, fmt.Sprintf("%d %d", b.Done, b.Total))
}

// EndBackfill implements discovery.BackfillStore.
func (s *Store) EndBackfill(ctx context.Context, sub fsm.Subscription) error {
	return s.setBackfill(ctx, sub, "")
}

func (s *Store) setBackfill(ctx context.Context, sub fsm.Subscription, text string) error {
	r := s.call(ctx, scriptSetBackfill, []string{s.keys.backfills()}, sub.ID, sub.Generation, text)
	r.yes() // no: the subscription was deleted since
	return r.bad
}
