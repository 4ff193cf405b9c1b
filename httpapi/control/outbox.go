package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
	"reveille/httpapi/refusal"
)

const (
	// handOverTime bounds one hand-over.
	handOverTime = 15 * time.Second
	// outboxRead is how many events one read brings that looks for an event in its stream.
	outboxRead = 100
)

// OutboxStore keeps what becomes of the events that were handed over, and their idempotency keys.
type OutboxStore interface {
	// ReserveKey is the transition of the same name. A key whose event is never handed over goes in time. TakeEvent
	// keeps the key of an event that it takes up.
	ReserveKey(ctx context.Context, key string, k fsm.OutboxKey) (fsm.OutboxKey, error)
	// KeepKey keeps a reserved key for as long as its event. It is fsm.ErrUnavailable if the key is not reserved.
	KeepKey(ctx context.Context, key, id string) error
	// EventOfKey returns the ID of the event that has a key, or fsm.ErrNotFound.
	EventOfKey(ctx context.Context, key string) (id string, err error)
	// AcceptEvent takes in that an event lies in its stream, of which this consumer is. made is false if the event was
	// kept before: it then stays as it is. It is fsm.ErrUnavailable if the stream is being removed.
	AcceptEvent(ctx context.Context, e fsm.OutboxEvent, stream, consumer string) (made bool, err error)
	// OutboxEvent returns what is kept of an event, and its present state, or fsm.ErrNotFound.
	OutboxEvent(ctx context.Context, id string) (fsm.OutboxEntry, error)
	// OutboxEvents returns the same of some events of a partition, without those that are not kept.
	OutboxEvents(ctx context.Context, partition int, ids []string) ([]fsm.OutboxEntry, error)
	// Room returns whether an event can be handed over to a stream, and the event if it is kept, otherwise nil.
	Room(ctx context.Context, stream, id string) (e *fsm.OutboxEntry, room fsm.OutboxRoom, err error)
	// ListEvents returns the last places of a span, the latest first.
	ListEvents(ctx context.Context, span fsm.OutboxSpan, most int) ([]fsm.OutboxPlace, error)
	// CountEvents counts the events of a partition by their present status.
	CountEvents(ctx context.Context, partition int) (fsm.OutboxCount, error)
	// OutboxHours returns what became of the events of a partition, from an hour through another one.
	OutboxHours(ctx context.Context, partition int, first, last int64) (map[fsm.OutboxHour]fsm.OutboxTally, error)
	// OutboxConfig returns how events are delivered. ChangeOutboxConfig changes it in one step, and returns it as it
	// was and as it is.
	OutboxConfig(ctx context.Context) (fsm.OutboxConfig, error)
	ChangeOutboxConfig(
		ctx context.Context, change func(fsm.OutboxConfig) (fsm.OutboxConfig, error),
	) (was, is fsm.OutboxConfig, err error)
	// CancelEvent is the transition of the same name.
	CancelEvent(ctx context.Context, id string) (cancelled bool, err error)
	// DuePartitions returns the partitions of this replica in which DueEvents may find events. After an error, some may
	// be missing.
	DuePartitions(ctx context.Context) ([]int, error)
	// DueEvents returns the IDs of the delayed events of a partition whose time has come, the first of them first. What
	// is not released comes up again after fsm.OutboxPutOff.
	DueEvents(ctx context.Context, partition, most int) (ids []string, err error)
	// ReleaseEvent is the transition of the same name. The argument lost is empty if the event lies in its stream
	// again.
	ReleaseEvent(ctx context.Context, id, lost string) error
	// UnusedStreams returns the streams in this replica's partitions that had events and of which none is kept, and
	// those whose removal has begun. After an error, some may be missing.
	UnusedStreams(ctx context.Context) (streams []string, err error)
	// BeginRemoval takes in that a stream is about to be removed from the stream server, which shows this tail, or
	// does not have the stream if it is empty. Events in the stream are not accepted from then on. It says no if the
	// stream must stay (spec.MayRemove).
	BeginRemoval(ctx context.Context, stream, consumer string, tail fsm.Offset) (begun bool, err error)
	// EndRemoval takes in that the stream server does not have the stream. It says no within fsm.OutboxRemoval of the
	// last BeginRemoval.
	EndRemoval(ctx context.Context, stream string) (ended bool, err error)
	Partitions() int
	PartitionOf(home string) int
}

// OutboxServer writes and reads the streams of the events.
type OutboxServer interface {
	StreamServer
	ReadBatch(
		ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64,
		matches func([]byte) bool,
	) (fsm.Batch, error)
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
	Delete(ctx context.Context, path string) error
}

// OutboxWrites hears of each write, and of each stream that was deleted. discovery.Discovery implements it.
type OutboxWrites interface {
	StreamWrites
	Deleted(ctx context.Context, path string) error
}

// Outbox hands events over to the streams of their targets, from which they are delivered. All fields are required. It
// is safe for concurrent use.
type Outbox struct {
	Control *Service
	Store   OutboxStore
	Server  OutboxServer
	Writes  OutboxWrites
	// Root is the canonical path that the streams lie below.
	Root string
	// Roll is for how long new events of a target go to the same streams. These are removed once their events are gone.
	Roll time.Duration

	// These limit the log lines about events that the stream server did not take, that were not released, and for which
	// there was no room, and about streams that were not removed.
	untaken, unreleased, full, unremoved throttle.Trouble

	mu sync.Mutex
	// missing is since when delayed events are not found in their streams, by ID.
	missing map[string]time.Time
}

// Handed is an event that was handed over, as a client sees it.
type Handed struct {
	fsm.OutboxEntry
	// New is false if the event was there before.
	New bool
}

// HandOver hands over an event that lacks its ID, and may lack its Key. When it returns, the event lies in its stream
// and is delivered from then on. The same key again returns the same event. If the key is of another event, the refusal
// names what differs. A hand-over that was cut short is made up for by the same request again. That may put the event
// into its stream twice; it is delivered once.
func (o *Outbox) HandOver(ctx context.Context, e fsm.OutboxEvent) (Handed, error) {
	if e.Key == "" {
		e.Key = fsm.KeyPrefix + uuid.NewString()
	}
	e.CreatedAt = o.Control.Clock().UnixMilli()
	if e.DeliverAt <= e.CreatedAt {
		e.DeliverAt = 0
	}
	if e.RetentionMs == 0 {
		e.RetentionMs = o.Config().RetentionMs
	}
	e.ID = o.idOf(e, o.endOf(e))
	asked := digests(e)
	e.Digest = digestOf(asked)
	text, err := outboxText(e)
	if err == nil && e.DeliverAt > 0 {
		_, err = releasedText(e)
	}
	if err != nil {
		return Handed{}, err
	}
	// A client that goes away does not cut it short.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverTime)
	defer cancel()
	sub, err := o.subscribe(ctx, e.Target)
	if err != nil {
		return Handed{}, err
	}
	kept, err := o.kept(ctx, e, asked)
	if err != nil {
		return Handed{}, err
	}
	if kept != nil {
		e.ID = kept.Event.ID
	}
	k, err := o.Store.ReserveKey(ctx, e.Key, fsm.OutboxKey{ID: e.ID, Asked: asked})
	if err != nil {
		return Handed{}, err
	}
	if differs := differing(k.Asked, asked); len(differs) > 0 {
		return Handed{}, conflictOver(differs)
	}
	if !k.New && (kept == nil || k.ID != e.ID) {
		if kept, err = o.keptAs(ctx, e, k.ID); err != nil {
			return Handed{}, err
		}
	}
	if kept != nil {
		return Handed{OutboxEntry: *kept}, o.Store.KeepKey(ctx, e.Key, k.ID)
	}
	if e.ID = k.ID; !k.New {
		if text, err = outboxText(e); err != nil {
			return Handed{}, err
		}
	}
	stream := o.streamOf(e.Target, e.ID)
	if err := (Writer{o.Server, o.Writes}).Append(ctx, stream, text); err != nil {
		return Handed{}, o.refused(e, stream, err)
	}
	if err := o.Store.KeepKey(ctx, e.Key, e.ID); err != nil {
		return Handed{}, err
	}
	made, err := o.Store.AcceptEvent(ctx, e, stream, fsm.ConsumerID(sub.ID, stream))
	if err != nil {
		return Handed{}, err
	}
	if made {
		r := fsm.OutboxRecord{Event: e, Stream: stream, Status: fsm.OutboxPending}
		entry := fsm.OutboxEntry{OutboxRecord: r, OutboxState: r.State(fsm.OutboxBearer{})}
		return Handed{OutboxEntry: entry, New: k.New}, nil
	}
	h, err := o.Event(ctx, e.ID)
	if err == nil && h.Event.Digest != e.Digest { // the store has just lost its key
		err = conflict("it differs")
	}
	h.New = k.New
	return h, err
}

// hostOf returns the host of a target. The rest of its URL may hold a secret.
func hostOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return u.Host
}

// outboxText returns an event as it lies in its stream.
func outboxText(e fsm.OutboxEvent) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	if text.Len() > fsm.MaxDeliveryBytes {
		return nil, refusal.New(fsm.CodeBodyTooLarge, "the event is larger than %d bytes", fsm.MaxDeliveryBytes)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// releasedText returns a delayed event as it lies in its stream from its DeliverAt on.
func releasedText(e fsm.OutboxEvent) ([]byte, error) {
	e.Released = true
	return outboxText(e)
}

// refused is the error for an event that the stream server did not take, as far as is known.
func (o *Outbox) refused(e fsm.OutboxEvent, stream string, err error) error {
	o.untaken.Log(o.Control.Log, o.Control.Clock()).Warn("the stream server takes no events for direct delivery",
		zap.String("stream", stream), zap.Error(err))
	return refusal.New(fsm.CodeUnavailable,
		"the stream server does not take the event now; try again with the idempotency key %s",
		refusal.Clipped(e.Key))
}

// everything is the program itself as a principal: the subscriptions of targets are nobody else's.
var everything = func() fsm.Principal {
	all, _ := fsm.ParsePattern(fsm.AllStreams)
	return fsm.Principal{Paths: []fsm.Pattern{all}}
}()

// subscribe returns the subscription that delivers the events of a target. It is made with the first one, and begins at
// the start of its streams: an event that has expired is not sent again.
func (o *Outbox) subscribe(ctx context.Context, target string) (fsm.Subscription, error) {
	ctx = asItself(ctx)
	want := fsm.Subscription{
		ID: fsm.OutboxSubscription(hashOf(o.Root, target)), Pattern: o.pathOf(target) + "/*", Webhook: target,
		Mode: fsm.ModePush, Format: fsm.FormatOutbox, Ordering: fsm.OrderingNone, Start: fsm.Start,
		Retry: fsm.DefaultOutboxConfig.Backoffs(), Timeout: fsm.DefaultOutboxConfig.Timeout(),
	}.WithDefaults()
	fits := func(sub fsm.Subscription) bool {
		return sub.Format == fsm.FormatOutbox && sub.Webhook == target && sub.Pattern == want.Pattern
	}
	sub, there := o.Control.View.Subscription(ctx, want.ID)
	if there && fits(sub) {
		return sub, nil
	}
	targets, all := 0, []fsm.Subscription(nil)
	all, _ = o.Control.View.Subscriptions(ctx)
	for _, sub := range all {
		if sub.Format == fsm.FormatOutbox {
			targets++
		}
	}
	if targets >= fsm.MaxOutboxTargets {
		return sub, refusal.New(fsm.CodeTooManyRequests,
			"events were handed over for %d targets, and no more are taken", targets)
	}
	sub, _, err := o.Control.Subscribe(ctx, want)
	if errors.As(err, new(*fsm.ConflictError)) { // another version has made it
		if sub, there, err = o.Control.Find(ctx, want.ID); err == nil && (!there || !fits(sub)) {
			err = &fsm.ConflictError{}
		}
	}
	return sub, err
}

// Config is how events are delivered, as this replica knows it.
func (o *Outbox) Config() fsm.OutboxConfig { return o.Control.View.store.Catalog().OutboxConfig() }

// Event returns an event, or fsm.ErrNotFound.
func (o *Outbox) Event(ctx context.Context, id string) (h Handed, err error) {
	h.OutboxEntry, err = o.Store.OutboxEvent(ctx, id)
	return h, err
}

// EventOfKey returns the event that has an idempotency key, or fsm.ErrNotFound.
func (o *Outbox) EventOfKey(ctx context.Context, key string) (Handed, error) {
	id, err := o.Store.EventOfKey(ctx, key)
	if err != nil {
		return Handed{}, err
	}
	return o.Event(ctx, id)
}

// Find returns the event that has an ID or an idempotency key, or fsm.ErrNotFound. Events are for those who may use all
// paths.
func (o *Outbox) Find(ctx context.Context, q string) (Handed, error) {
	if !principalOf(ctx).SeesAll() {
		return Handed{}, fsm.ErrNotFound
	}
	h, err := o.Event(ctx, q)
	if errors.Is(err, fsm.ErrNotFound) {
		h, err = o.EventOfKey(ctx, q)
	}
	return h, err
}

// Replay hands over an event again, as a new one with a key of its own, which may be named. The old one stays. Only
// what is over can be replayed.
func (o *Outbox) Replay(ctx context.Context, h Handed, key string) (Handed, error) {
	if !h.OutboxState.Status.Over() {
		return h, refusal.New(fsm.CodeReplayRefused,
			"the event is %s: only what is delivered, dead or cancelled can be replayed", h.OutboxState.Status)
	}
	payload, err := o.Payload(ctx, h)
	if errors.Is(err, fsm.ErrNotFound) || errors.Is(err, fsm.ErrNoStream) {
		return h, refusal.New(fsm.CodeReplayRefused, "the stream server does not keep the payload any more")
	}
	if err != nil {
		return h, refusal.New(fsm.CodeUnavailable, "the payload cannot be read now; try again")
	}
	e := h.Event
	e.ID, e.Key, e.ReplayOf, e.Payload, e.DeliverAt = "", key, h.Event.ID, payload, 0
	again, err := o.HandOver(ctx, e)
	switch {
	case err != nil:
	case again.Event.ReplayOf != e.ReplayOf:
		err = conflict("it is no replay of this one")
	case again.New:
		o.Control.Did(ctx, fsm.Change{What: "event replayed", About: e.ReplayOf}, zap.String("event", e.ReplayOf))
	}
	return again, err
}

// Payload reads the payload of an event from its stream.
func (o *Outbox) Payload(ctx context.Context, h Handed) (string, error) {
	for at := h.From(); ; {
		b, err := o.Server.ReadBatch(ctx, "outbox "+h.Event.ID, h.Stream, at, "", outboxRead, 0, nil)
		if err != nil {
			return "", err
		}
		for _, text := range b.Events {
			var e fsm.OutboxEvent
			if json.Unmarshal(text, &e) == nil && e.ID == h.Event.ID {
				return e.Payload, nil
			}
		}
		if at = b.To; len(b.Events) == 0 {
			return "", fsm.ErrNotFound
		}
	}
}
