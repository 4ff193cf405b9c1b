package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/fsm/spec"
)

// backfill is a backfill under way, and the generation of its subscription.
type backfill struct {
	generation string
	progress   fsm.Backfill
}

// Catalog is this replica's view of the subscriptions.
func (s *Store) Catalog() *cache.Catalog { return s.catalog }

// readSubscriptions reads the subscriptions anew if they have changed; db.mu is held.
func (s *Store) readSubscriptions() {
	st := &s.db.state
	if !s.catalog.Loaded() || s.catalog.Version() != st.version {
		s.catalog.DeliverBy(st.outbox)
		s.catalog.Replace(slices.Collect(maps.Values(st.subs)), st.version)
	}
}

// relist gives the list of subscriptions a new version. A lost list and the list that replaces it must not share a
// version. So the version is a time, as in the scripts.
func (t *tx) relist() {
	t.db.listed = max(t.now().UnixMilli()*fsm.VersionsPerMilli, t.db.listed+1)
	t.version = t.db.listed
	t.refresh = true
}

// CreateSubscription implements discovery.Store.
func (s *Store) CreateSubscription(
	ctx context.Context, sub fsm.Subscription,
) (stored fsm.Subscription, created bool, err error) {
	sub = sub.WithDefaults()
	err = s.call(ctx, func(t *tx) error {
		there, taken := t.subs[sub.ID]
		switch {
		case taken && !there.SameConfig(sub):
			return there.Conflict(sub)
		case taken:
			stored = t.changed(there, there)
			return nil
		}
		sub.CreatedAt = time.UnixMicro(t.draw.Now.UnixMicro())
		t.relist()
		sub.Version = t.version
		stored, created = sub, true
		t.subs[sub.ID] = sub
		t.backfills[sub.ID] = backfill{generation: sub.Generation}
		return nil
	}, "CreateSubscription", sub)
	return stored, created, err
}

// ChangeSubscription implements control.Store.
func (s *Store) ChangeSubscription(
	ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
) (stored fsm.Subscription, err error) {
	err = s.call(ctx, func(t *tx) error {
		there, known := t.subs[id]
		if !known {
			return fsm.ErrNotFound
		}
		next, err := change(there)
		if err == nil {
			stored = t.changed(there, next)
		}
		return err
	}, "ChangeSubscription", id)
	return stored, err
}

// ChangeConsent implements dispatcher.Store.
func (s *Store) ChangeConsent(
	ctx context.Context, sub fsm.Subscription, change func(fsm.Consent, time.Time) (fsm.Consent, error),
) (stored fsm.Subscription, err error) {
	err = s.call(ctx, func(t *tx) error {
		there, known := t.subs[sub.ID]
		if !known || there.Generation != sub.Generation || there.Webhook != sub.Webhook {
			return fsm.ErrNotFound
		}
		next := there
		if next.Consent, err = change(there.Consent, t.now().Truncate(time.Millisecond)); err == nil {
			stored = t.change(there, next)
		}
		return err
	}, "ChangeConsent", sub)
	return stored, err
}

// RetireSubscription implements dispatcher.Store.
func (s *Store) RetireSubscription(ctx context.Context, sub fsm.Subscription) error {
	return s.call(ctx, func(t *tx) error {
		there, known := t.subs[sub.ID]
		if !known || there.Generation != sub.Generation || there.Webhook != sub.Webhook {
			return fsm.ErrNotFound
		}
		next := there
		next.Retired = true
		t.change(there, next)
		return nil
	}, "RetireSubscription", sub)
}

// DisableSubscription implements dispatcher.Store.
func (s *Store) DisableSubscription(ctx context.Context, sub fsm.Subscription) error {
	return s.call(ctx, func(t *tx) error {
		there, known := t.subs[sub.ID]
		if !known {
			return fsm.ErrNotFound
		}
		next, err := there.DisabledAs(sub)
		if err == nil {
			t.change(there, next)
		}
		return err
	}, "DisableSubscription", sub)
}

// RotateSecret implements control.Store.
func (s *Store) RotateSecret(ctx context.Context, id string, r fsm.Rotation) (stored fsm.Subscription, err error) {
	err = s.call(ctx, func(t *tx) error {
		there, known := t.subs[id]
		if !known {
			return fsm.ErrNotFound
		}
		stored = t.changed(there, there.Rotate(r, t.now()))
		return nil
	}, "RotateSecret", id)
	return stored, err
}

// changed stores another form of a subscription that a client has been told of.
func (t *tx) changed(was, next fsm.Subscription) fsm.Subscription {
	next.Told = true
	return t.change(was, next)
}

// change stores another form of a subscription, unless it is unchanged. It returns what is stored.
func (t *tx) change(was, next fsm.Subscription) fsm.Subscription {
	if next = next.ConsentAsOf(was); !next.Equal(was) {
		next.Previous = next.Previous.Unexpired(t.now())
		next = next.PausedAsOf(t.now(), was)
		next.Revision++
		t.relist()
		t.subs[next.ID] = next
	}
	return next
}

// DeleteSubscription implements control.Store. It takes two steps, so that a replica that dies in between
// leaves no consumer behind. The list remembers the subscription until all of its consumers are removed.
func (s *Store) DeleteSubscription(ctx context.Context, id string) error {
	err := s.do(ctx, func(t *tx) {
		if sub, there := t.subs[id]; there {
			t.dropping[sub.Generation] = id
			delete(t.subs, id)
			delete(t.backfills, id)
			delete(t.logs, sub.Generation)
			delete(t.counts, sub.Generation)
			if _, kept := t.endpoints[sub.Generation]; kept {
				t.putEndpoint(fsm.EndpointState{Generation: sub.Generation})
			}
			t.relist()
		}
	}, "DeleteSubscription", id)
	if err != nil {
		return err
	}
	return s.finishDeletions(ctx)
}

// finishDeletions removes the consumers of subscriptions that are no longer on the list.
func (s *Store) finishDeletions(ctx context.Context) error {
	s.db.mu.Lock()
	dropping := maps.Clone(s.db.state.dropping)
	s.db.mu.Unlock()
	for _, generation := range slices.Sorted(maps.Keys(dropping)) {
		for n := range s.db.opts.Partitions {
			if err := s.drop(ctx, n, dropping[generation], generation); err != nil {
				return err
			}
		}
		s.db.mu.Lock()
		if !s.dead {
			delete(s.db.state.dropping, generation)
		}
		s.db.mu.Unlock()
	}
	return nil
}

// drop bars a generation from new consumers in a partition, and removes its consumers and dead letters there.
func (s *Store) drop(ctx context.Context, n int, id, generation string) error {
	var o fsm.Outcome
	err := s.do(ctx, func(t *tx) {
		p := t.partitions[n]
		p.deleted[generation] = struct{}{}
		for _, c := range p.all() {
			if _, still := p.consumers[c.ID]; still && c.Subscription == id && c.Generation == generation {
				t.put(p, c, spec.Remove(c, fsm.RemovedSubscriptionDeleted), &o)
			}
		}
		p.letters = slices.DeleteFunc(slices.Clone(p.letters), func(l fsm.DeadLetter) bool {
			return l.Generation == generation
		})
	}, "Drop", n, id, generation)
	if s.db.opts.Outcomes != nil {
		s.db.opts.Outcomes.Follow(o, fsm.Sighting{})
	}
	return err
}

// each calls a function with each consumer of a subscription.
func (t *tx) each(sub fsm.Subscription, f func(*partition, fsm.Consumer)) {
	for _, p := range t.partitions {
		for _, c := range p.all() {
			if c.Subscription == sub.ID && c.Generation == sub.Generation {
				f(p, c)
			}
		}
	}
}

// ResumeSubscription implements control.Store.
func (s *Store) ResumeSubscription(ctx context.Context, id string) (n int, o fsm.Outcome, err error) {
	err = s.call(ctx, func(t *tx) error {
		s.readSubscriptions()
		sub, there := t.subs[id]
		if !there {
			return fsm.ErrNotFound
		}
		if sub.Stopped() {
			t.changed(sub, sub.Resumed())
		}
		t.each(sub, func(p *partition, c fsm.Consumer) {
			if c, e, ok := spec.Resume(c, t.env(p, c.ID)); ok {
				n++
				t.put(p, c, e, &o)
			}
		})
		return nil
	}, "ResumeSubscription", id)
	return n, o, err
}

// ResumeLost does what redisstore does by itself once a partition has lost changes.
func (s *Store) ResumeLost(ctx context.Context, number int) (o fsm.Outcome, err error) {
	err = s.call(ctx, func(t *tx) error {
		s.readSubscriptions()
		for _, id := range slices.Sorted(maps.Keys(t.subs)) {
			sub := t.subs[id]
			if !sub.MayHaveResumed() {
				continue
			}
			t.each(sub, func(p *partition, c fsm.Consumer) {
				if c, e, ok := spec.ResumeLost(c, t.env(p, c.ID)); ok && p == t.partitions[number] {
					t.put(p, c, e, &o)
				}
			})
		}
		return nil
	}, "ResumeLost", number)
	return o, err
}

// RetrySubscription implements control.Store.
func (s *Store) RetrySubscription(ctx context.Context, id string) (n int, err error) {
	err = s.call(ctx, func(t *tx) error {
		s.readSubscriptions()
		sub, there := t.subs[id]
		if !there {
			return fsm.ErrNotFound
		}
		t.retryEndpoint(s, sub)
		t.each(sub, func(p *partition, c fsm.Consumer) {
			if c, waited := spec.Retry(c, t.env(p, c.ID)); waited {
				n++
				t.put(p, c, spec.Effects{}, &fsm.Outcome{})
			}
		})
		return nil
	}, "RetrySubscription", id)
	return n, err
}

// RetryDelivery implements control.Store.
func (s *Store) RetryDelivery(ctx context.Context, sub fsm.Subscription, r fsm.DeliveryRef) (waited bool, err error) {
	err = s.do(ctx, func(t *tx) {
		t.retryEndpoint(s, sub)
		waited = t.hasten(r, spec.Retry)
	}, "RetryDelivery", sub.ID, r)
	return waited, err
}

// Rewind implements control.Store.
func (s *Store) Rewind(
	ctx context.Context, sub fsm.Subscription, r fsm.ConsumerRef, path string, to fsm.Offset,
) (from fsm.Offset, o fsm.Outcome, err error) {
	err = s.call(ctx, func(t *tx) error {
		p := t.home(r.Home)
		c, there := p.standing(r.ID)
		if !there || c.Generation != sub.Generation {
			return fsm.ErrNotFound
		}
		was := c.Links[path].Acked
		c, e, ok := spec.Rewind(c, t.env(p, c.ID), path, to)
		if !ok {
			return fsm.ErrNotBefore
		}
		from = was
		t.put(p, c, e, &o)
		return nil
	}, "Rewind", sub.ID, r, path, to)
	return from, o, err
}

// hasten makes a transition of a consumer that waits, unless it is in another wake.
func (t *tx) hasten(r fsm.DeliveryRef, f func(fsm.Consumer, spec.Env) (fsm.Consumer, bool)) (waited bool) {
	p := t.home(r.Consumer.Home)
	c, there := p.consumers[r.Consumer.ID]
	if !there || !spec.Current(c, r) {
		return false
	}
	if c, waited = f(c, t.env(p, c.ID)); waited {
		t.put(p, c, spec.Effects{}, &fsm.Outcome{})
	}
	return waited
}

func (t *tx) retryEndpoint(s *Store, sub fsm.Subscription) {
	if _, paused := t.pauses[sub.Origin()]; paused {
		delete(t.pauses, sub.Origin())
		t.changeEndpoints()
	}
	e := t.endpoints[sub.Generation]
	if next := spec.RetryEndpoint(e.Endpoint, t.now()); next != e.Endpoint {
		t.putEndpoint(fsm.EndpointState{Endpoint: next, Generation: sub.Generation})
	}
	t.tellEndpoint(s, sub, true)
}

// RefreshCatalog implements discovery.Store.
func (s *Store) RefreshCatalog(ctx context.Context) error {
	return s.do(ctx, func(*tx) {
		s.readSubscriptions()
	}, "RefreshCatalog")
}

// Backfills implements discovery.BackfillStore.
func (s *Store) Backfills(ctx context.Context) (under map[string]fsm.Backfill, err error) {
	err = s.do(ctx, func(t *tx) {
		under = make(map[string]fsm.Backfill, len(t.backfills))
		for id, b := range t.backfills {
			under[id] = b.progress
		}
	}, "Backfills")
	return under, err
}

// BackfillsOf implements control.Store.
func (s *Store) BackfillsOf(ctx context.Context, ids []string) (map[string]fsm.Backfill, error) {
	under, err := s.Backfills(ctx)
	maps.DeleteFunc(under, func(id string, _ fsm.Backfill) bool { return !slices.Contains(ids, id) })
	return under, err
}

// SetBackfill implements discovery.BackfillStore.
func (s *Store) SetBackfill(ctx context.Context, sub fsm.Subscription, b fsm.Backfill) error {
	return s.do(ctx, func(t *tx) {
		if there, under := t.backfills[sub.ID]; under && there.generation == sub.Generation {
			t.backfills[sub.ID] = backfill{sub.Generation, b}
		}
	}, "SetBackfill", sub, b)
}

// EndBackfill implements discovery.BackfillStore.
func (s *Store) EndBackfill(ctx context.Context, sub fsm.Subscription) error {
	return s.do(ctx, func(t *tx) {
		if there, under := t.backfills[sub.ID]; under && there.generation == sub.Generation {
			delete(t.backfills, sub.ID)
		}
	}, "EndBackfill", sub)
}
