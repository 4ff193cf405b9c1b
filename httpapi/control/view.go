package control

import (
	"context"
	"errors"
	"maps"
	"slices"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// Streams makes subscriptions, and changes which streams are known.
type Streams interface {
	// Subscribe stores a subscription (discovery.Store, CreateSubscription). If it creates one, it begins the
	// backfill. It then returns when the backfill is over, or has taken longer than a caller can wait.
	Subscribe(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
	// Name makes streams known; those that exist upstream are linked from fsm.Start, the others are awaited.
	Name(ctx context.Context, paths []string) error
	// Forget removes streams and their consumers from what is known.
	Forget(ctx context.Context, paths []string) error
}

// View is the state as the principal of a context sees it (As). What the principal does not see, is not there. It sees
//   - a subscription if one of its patterns covers that of the subscription,
//   - a consumer and its replays if it sees the subscription and the primary stream,
//   - a dead letter if it sees the consumer and the stream,
//   - a stream if one of its patterns matches it.
//
// Without a principal, a context sees nothing.
type View struct {
	wholeStore
	foundStore
	store   Store
	streams Streams
}

// NewView returns a view.
func NewView(store Store, streams Streams) *View {
	return &View{wholeStore: store, foundStore: store, store: store, streams: streams}
}

// requester is who asks for something. It is itself if this program does something that nobody has asked for.
type requester struct {
	principal fsm.Principal
	from      string
	itself    bool
}

type requesterKey struct{}

// As returns the context of a request by a principal, from an address.
func As(ctx context.Context, p fsm.Principal, from string) context.Context {
	return context.WithValue(ctx, requesterKey{}, requester{principal: p, from: from})
}

// Has says whether who asks has a role.
func Has(ctx context.Context, role fsm.Role) bool { return principalOf(ctx).Has(role) }

// asItself returns the context of what this program does by itself.
func asItself(ctx context.Context) context.Context {
	return context.WithValue(ctx, requesterKey{}, requester{principal: everything, itself: true})
}

func requesterOf(ctx context.Context) requester {
	r, _ := ctx.Value(requesterKey{}).(requester)
	return r
}

func principalOf(ctx context.Context) fsm.Principal { return requesterOf(ctx).principal }

// seen returns the entries of a list for which sees is true. The list is the store's: it stays as it is.
func seen[T any](ctx context.Context, list []T, sees func(T) bool) []T {
	if principalOf(ctx).SeesAll() {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(entry T) bool { return !sees(entry) })
}

// Subscription returns the subscription of an ID, as this replica knows it.
func (v *View) Subscription(ctx context.Context, id string) (fsm.Subscription, bool) {
	sub, there := v.store.Catalog().Get(id)
	if !there || !principalOf(ctx).SeesPattern(sub.Pattern) {
		return fsm.Subscription{}, false
	}
	return sub, true
}

// Subscriptions returns all subscriptions, as this replica knows them, by ID. If loaded is false, it does not know them
// yet. The caller must not change the list.
func (v *View) Subscriptions(ctx context.Context) (all []fsm.Subscription, loaded bool) {
	catalog := v.store.Catalog()
	return seen(ctx, catalog.All(), func(sub fsm.Subscription) bool {
		return principalOf(ctx).SeesPattern(sub.Pattern)
	}), catalog.Loaded()
}

// Matching returns the subscriptions whose patterns match a stream, as this replica knows them.
func (v *View) Matching(ctx context.Context, path string) []fsm.Subscription {
	return seen(ctx, v.store.Catalog().Match(path), func(sub fsm.Subscription) bool {
		return principalOf(ctx).SeesPattern(sub.Pattern)
	})
}

// seesSubscription says whether this replica knows the subscription of an ID, and the principal sees it.
func (v *View) seesSubscription(ctx context.Context, id string) bool {
	_, there := v.Subscription(ctx, id)
	return there
}

// seesConsumer says whether the principal sees the consumer of an ID, if there is one.
func (v *View) seesConsumer(ctx context.Context, id string) bool {
	p := principalOf(ctx)
	if p.SeesAll() {
		return true
	}
	subscription, primary, ok := fsm.ParseAnyConsumerID(id)
	return ok && p.Sees(primary) && v.seesSubscription(ctx, subscription)
}

// named returns fsm.ErrNotFound if the principal does not see the subscription of an ID.
func (v *View) named(ctx context.Context, id string) error {
	if principalOf(ctx).SeesAll() {
		return nil
	}
	if err := v.RefreshCatalog(ctx); err != nil {
		return err
	}
	if !v.seesSubscription(ctx, id) {
		return fsm.ErrNotFound
	}
	return nil
}

// subscribe is Streams.Subscribe, for a pattern that the principal sees. The subscription gets its owner. If one that
// the principal does not see has the ID, or has left dead letters under it, the error says no more than that the ID is
// taken.
func (v *View) subscribe(
	ctx context.Context, sub fsm.Subscription,
) (stored fsm.Subscription, created bool, err error) {
	switch err := v.named(ctx, sub.ID); {
	case errors.Is(err, fsm.ErrNotFound):
		counts, err := v.store.LettersOf(ctx, []string{sub.ID})
		if err != nil {
			return stored, false, err
		}
		for _, c := range counts {
			if c.Of[sub.ID] > 0 {
				return stored, false, &fsm.ConflictError{}
			}
		}
	case err != nil:
		return stored, false, err
	}
	sub.Owner = principalOf(ctx).Name
	stored, created, err = v.streams.Subscribe(ctx, sub)
	var conflict *fsm.ConflictError
	if errors.As(err, &conflict) && v.named(ctx, sub.ID) != nil {
		err = &fsm.ConflictError{}
	}
	return stored, created, err
}

// ChangeSubscription is cut by what is changed, not by what this replica knows.
func (v *View) ChangeSubscription(
	ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
) (fsm.Subscription, error) {
	return v.store.ChangeSubscription(ctx, id, func(now fsm.Subscription) (fsm.Subscription, error) {
		if !principalOf(ctx).SeesPattern(now.Pattern) {
			return now, fsm.ErrNotFound
		}
		return change(now)
	})
}

// BackfillsOf is Store.BackfillsOf, for the subscriptions that the principal sees.
func (v *View) BackfillsOf(ctx context.Context, ids []string) (map[string]fsm.Backfill, error) {
	return v.store.BackfillsOf(ctx, v.seenIDs(ctx, ids))
}

// Consumer is Store.Consumer. Of its links, there are only those to streams that the principal sees.
func (v *View) Consumer(ctx context.Context, r fsm.ConsumerRef) (fsm.Consumer, error) {
	if !v.seesConsumer(ctx, r.ID) {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	c, err := v.store.Consumer(ctx, r)
	if p := principalOf(ctx); err == nil && !p.SeesAll() {
		c.Links = maps.Clone(c.Links)
		maps.DeleteFunc(c.Links, func(path string, _ fsm.Link) bool { return !p.Sees(path) })
	}
	return c, err
}

// ScanStreams leaves out the streams that the principal does not see.
func (v *View) ScanStreams(ctx context.Context, partition int, cursor string) ([]fsm.Stream, string, error) {
	list, next, err := v.store.ScanStreams(ctx, partition, cursor)
	return seen(ctx, list, func(st fsm.Stream) bool { return principalOf(ctx).Sees(st.Path) }), next, err
}

// WatchedSince leaves out the streams that the principal does not see. An empty list is the end.
func (v *View) WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error) {
	for {
		list, err := v.store.WatchedSince(ctx, partition, seq)
		some := seen(ctx, list, func(w fsm.Watched) bool { return principalOf(ctx).Sees(w.Path) })
		if err != nil || len(list) == 0 || len(some) > 0 {
			return some, err
		}
		seq = list[len(list)-1].Seq
	}
}

// Name is Streams.Name.
func (v *View) Name(ctx context.Context, paths []string) error {
	return ofSeen(ctx, paths, v.streams.Name)
}

// Forget is Streams.Forget.
func (v *View) Forget(ctx context.Context, paths []string) error {
	return ofSeen(ctx, paths, v.streams.Forget)
}

// ofSeen does something to streams. It refuses all if the principal does not see one, whether or not there is such a
// stream.
func ofSeen(ctx context.Context, paths []string, do func(context.Context, []string) error) error {
	for _, path := range paths {
		if !principalOf(ctx).Sees(path) {
			return refusal.New(fsm.CodeForbidden, "the stream %s is not within the paths that this request may use",
				refusal.Clipped(path))
		}
	}
	return do(ctx, paths)
}

// DeadLetters is Store.DeadLetters.
func (v *View) DeadLetters(ctx context.Context, span fsm.LetterSpan, most int) ([]fsm.DeadLetter, error) {
	return fill(ctx, most, func(last *fsm.DeadLetter) ([]fsm.DeadLetter, error) {
		if last != nil {
			span.From = last.ID.Number + 1
		}
		return v.store.DeadLetters(ctx, span, most)
	}, func(l fsm.DeadLetter) bool { return principalOf(ctx).Sees(l.Stream) && v.seesConsumer(ctx, l.Consumer) })
}

// fill reads a list, from behind its last entry on, until it has as many entries that are seen as most says.
func fill[T any](
	ctx context.Context, most int, read func(last *T) ([]T, error), sees func(T) bool,
) (some []T, err error) {
	var last *T
	for {
		list, err := read(last)
		if err != nil {
			return nil, err
		}
		if some = append(some, seen(ctx, list, sees)...); len(some) >= most || len(list) < most {
			return some[:min(len(some), most)], nil
		}
		last = &list[len(list)-1]
	}
}

// LettersOf is Store.LettersOf, for the subscriptions that the principal sees.
func (v *View) LettersOf(ctx context.Context, ids []string) (byPartition []fsm.LetterCounts, err error) {
	return v.store.LettersOf(ctx, v.seenIDs(ctx, ids))
}

// seenIDs leaves the IDs of subscriptions that the principal sees.
func (v *View) seenIDs(ctx context.Context, ids []string) []string {
	return seen(ctx, ids, func(id string) bool { return v.seesSubscription(ctx, id) })
}

// DropDeadLetters is Store.DropDeadLetters, for the letters of one subscription, or for one letter.
func (v *View) DropDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (w fsm.LetterWork, o fsm.Outcome, err error) {
	if sees, err := v.seesSpan(ctx, span); !sees || err != nil {
		return w, o, err
	}
	return v.store.DropDeadLetters(ctx, span, most)
}

// ReplayDeadLetters is Store.ReplayDeadLetters, for the same letters as DropDeadLetters.
func (v *View) ReplayDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (w fsm.LetterWork, o fsm.Outcome, err error) {
	if sees, err := v.seesSpan(ctx, span); !sees || err != nil {
		return w, o, err
	}
	return v.store.ReplayDeadLetters(ctx, span, most)
}

// seesSpan says whether the principal sees the letters of a span. A letter about another stream of a consumer counts
// with the consumer's.
func (v *View) seesSpan(ctx context.Context, span fsm.LetterSpan) (bool, error) {
	switch {
	case principalOf(ctx).SeesAll():
		return true, nil
	case span.Subscription != "":
		return v.seesSubscription(ctx, span.Subscription), nil
	case span.From != span.Through:
		return false, nil
	}
	list, err := v.DeadLetters(ctx, span, 1)
	return len(list) > 0, err
}

// ReplaySpan is Store.ReplaySpan.
func (v *View) ReplaySpan(
	ctx context.Context, r fsm.ConsumerRef, born int64, span fsm.ReplaySpan,
) (number int64, o fsm.Outcome, err error) {
	if !v.seesConsumer(ctx, r.ID) {
		return 0, o, fsm.ErrNotFound
	}
	return v.store.ReplaySpan(ctx, r, born, span)
}

// ReplayQueues is Store.ReplayQueues.
func (v *View) ReplayQueues(
	ctx context.Context, partition int, subscription, after string, most int,
) ([]fsm.ReplayQueue, error) {
	return fill(ctx, most, func(last *fsm.ReplayQueue) ([]fsm.ReplayQueue, error) {
		if last != nil {
			after = last.Consumer
		}
		return v.store.ReplayQueues(ctx, partition, subscription, after, most)
	}, func(q fsm.ReplayQueue) bool { return v.seesConsumer(ctx, q.Consumer) })
}

// CancelReplays is Store.CancelReplays.
func (v *View) CancelReplays(ctx context.Context, r fsm.ConsumerRef) (cancelled int, o fsm.Outcome, err error) {
	if !v.seesConsumer(ctx, r.ID) {
		return 0, o, nil
	}
	return v.store.CancelReplays(ctx, r)
}
