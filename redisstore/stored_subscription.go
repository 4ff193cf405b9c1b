package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"reveille/fsm"
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
	Timeout     int64                  `json:"timeout"`       // milliseconds
	Retry       []int64                `json:"retry"`         // milliseconds
	Disable     int64                  `json:"disable_after"` // milliseconds; 0 for never
	Rate        int                    `json:"rate"`          // requests a minute; 0 for any
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
	Disabled bool  `json:"disabled"`
	Retired  bool  `json:"retired"`
	OpenedAt int64 `json:"opened_at"` // milliseconds
	// Consent is null if it was never asked for.
	Consent *storedConsent `json:"consent"`
}

// storedConsent has times in milliseconds.
type storedConsent struct {
	State      fsm.ConsentState `json:"state"`
	Origin     string           `json:"origin"`
	Webhook    string           `json:"webhook"`
	Rate       int              `json:"rate,omitempty"`
	ByCallback bool             `json:"by_callback,omitempty"`
	AskedAt    int64            `json:"asked_at"`
	Until      int64            `json:"until"`
	Failures   int              `json:"failures,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Key        string           `json:"key,omitempty"`
	KeyUntil   int64            `json:"key_until,omitempty"`
}

func storeConsent(c fsm.Consent) *storedConsent {
	if c.State == "" {
		return nil
	}
	return &storedConsent{
		State: c.State, Origin: c.Origin, Webhook: c.Webhook, Rate: c.Rate, ByCallback: c.ByCallback,
		AskedAt: millisOf(c.AskedAt), Until: millisOf(c.Until), Failures: c.Failures, Reason: c.Reason, Key: c.Key,
		KeyUntil: millisOf(c.KeyUntil),
	}
}

func (r *storedConsent) read() (c fsm.Consent) {
	if r == nil {
		return c
	}
	return fsm.Consent{
		State: r.State, Origin: r.Origin, Webhook: r.Webhook, Rate: r.Rate, ByCallback: r.ByCallback,
		AskedAt: moment(r.AskedAt), Until: moment(r.Until), Failures: r.Failures, Reason: r.Reason, Key: r.Key,
		KeyUntil: moment(r.KeyUntil),
	}
}

// encodeSubscription returns the record of a subscription. From was, the former record if there is one, it keeps the
// fields that this version of the program does not know.
func encodeSubscription(s fsm.Subscription, was string) (string, error) {
	text, err := json.Marshal(storedSubscription{
		ID: s.ID, Generation: s.Generation, Owner: s.Owner, Pattern: s.Pattern, Webhook: s.Webhook, Secret: s.Secret,
		Description: s.Description, Mode: s.Mode, Format: s.Format, Signature: s.Signature,
		Start: s.Start, Batch: s.Batch, Ordering: s.Ordering, Timeout: s.Timeout.Milliseconds(),
		Events: s.Filter.Events, TypePath: s.Filter.TypePath, Filter: s.Filter.Values,
		Retry: inMillis(s.Retry), Rate: s.Rate, Headers: s.Headers,
		Previous: s.Previous.Secret, Until: untilMillis(s.Previous),
		Auth: s.Authorization.Secret, AuthQuery: s.Authorization.Query,
		Metadata: s.Metadata, CreatedAt: s.CreatedAt.UnixMicro(), Version: s.Version, Revision: s.Revision,
		Told: s.Told, Paused: s.Paused, PausedAt: millisOf(s.PausedAt), Disabled: s.Disabled, Retired: s.Retired,
		OpenedAt: millisOf(s.OpenedAt), Disable: s.DisableAfter.Milliseconds(),
		Consent: storeConsent(s.Consent),
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
		Retry:  ofMillis(r.Retry), Rate: r.Rate, Headers: r.Headers,
		Authorization: fsm.Authorization{Query: r.AuthQuery, Secret: r.Auth},
		Metadata:      r.Metadata, CreatedAt: time.UnixMicro(r.CreatedAt), Version: r.Version,
		Revision: r.Revision, Told: r.Told, Paused: r.Paused, PausedAt: moment(r.PausedAt), Disabled: r.Disabled,
		Retired: r.Retired, OpenedAt: moment(r.OpenedAt), DisableAfter: time.Duration(r.Disable) * time.Millisecond,
		Consent: r.Consent.read(),
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

// Backfills implements discovery.BackfillStore.
func (s *Store) Backfills(ctx context.Context) (map[string]fsm.Backfill, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.backfills()).Result()
	if err = wrap(err); err != nil {
		return nil, err
	}
	return readBackfills(all)
}

// BackfillsOf implements control.Store.
func (s *Store) BackfillsOf(ctx context.Context, ids []string) (map[string]fsm.Backfill, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	values, err := s.rdb.HMGet(ctx, s.keys.backfills(), ids...).Result()
	if err = wrap(err); err != nil {
		return nil, err
	}
	some := map[string]string{}
	for i, value := range values {
		if text, there := value.(string); there {
			some[ids[i]] = text
		}
	}
	return readBackfills(some)
}

func readBackfills(all map[string]string) (map[string]fsm.Backfill, error) {
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
