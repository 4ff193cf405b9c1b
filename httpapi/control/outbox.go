package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
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
	// ReserveKey is the transition of the same name. A key whose event is never handed over goes in time.
	ReserveKey(ctx context.Context, key string, k fsm.OutboxKey) (fsm.OutboxKey, error)
	// KeepKey keeps a reserved key for as long as its event. It is fsm.ErrUnavailable if the key is not reserved.
	KeepKey(ctx context.Context, key, id string) error
	// EventOfKey returns the ID of the event that has a key, or fsm.ErrNotFound.
	EventOfKey(ctx context.Context, key string) (id string, err error)
	// AcceptEvent takes in that an event lies in its stream, of which this consumer is. made is false if the event was
	// kept before: it then stays as it is.
	AcceptEvent(ctx context.Context, e fsm.OutboxEvent, stream, consumer string) (made bool, err error)
	// OutboxEvent returns what is kept of an event, and its present state, or fsm.ErrNotFound.
	OutboxEvent(ctx context.Context, id string) (fsm.OutboxEntry, error)
	// OutboxEvents returns the same of some events of a partition, without those that are not kept, and how full the
	// partition is.
	OutboxEvents(ctx context.Context, partition int, ids []string) ([]fsm.OutboxEntry, fsm.OutboxFill, error)
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
}

// Outbox hands events over to the streams of their targets, from which they are delivered. All fields are required. It
// is safe for concurrent use.
type Outbox struct {
	Control *Service
	Store   OutboxStore
	Server  OutboxServer
	Writes  StreamWrites
	// Root is the canonical path that the streams lie below.
	Root string

	// These limit the log lines about events that the stream server did not take, that were not released, and for which
	// there was no room.
	untaken, unreleased, full throttle.Trouble

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
	e.ID = o.idOf(e)
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
	kept, there, err := o.kept(ctx, e, asked)
	if err != nil {
		return Handed{}, err
	}
	k, err := o.Store.ReserveKey(ctx, e.Key, fsm.OutboxKey{ID: e.ID, Asked: asked})
	if err != nil {
		return Handed{}, err
	}
	switch differs := differing(k.Asked, asked); {
	case len(differs) > 0:
		return Handed{}, conflictOver(differs)
	case there && k.ID == e.ID:
		return kept, o.Store.KeepKey(ctx, e.Key, e.ID)
	case !k.New:
		switch h, err := o.Event(ctx, k.ID); {
		case err == nil:
			return h, o.Store.KeepKey(ctx, e.Key, k.ID)
		case errors.Is(err, fsm.ErrNotFound) && k.ID != e.ID:
			return Handed{}, conflict("it was handed over below another path")
		case !errors.Is(err, fsm.ErrNotFound):
			return Handed{}, err
		}
	}
	stream := o.streamOf(e)
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

// kept returns the event if the store keeps it, which is refused if it differs. The store may have lost its key. Then
// the key must not go to another event. A new event is refused if there is no room for it.
func (o *Outbox) kept(
	ctx context.Context, e fsm.OutboxEvent, asked map[string]string,
) (h Handed, there bool, err error) {
	list, fill, err := o.Store.OutboxEvents(ctx, o.Store.PartitionOf(o.streamOf(e)), []string{e.ID})
	switch {
	case err != nil:
		return h, false, err
	case len(list) > 0:
		if h.OutboxEntry = list[0]; h.Event.Digest != e.Digest {
			return h, false, conflictOver(differing(digestsOf(h.Event, asked), asked))
		}
		return h, true, nil
	case fill.Full():
		o.full.Log(o.Control.Log, o.Control.Clock()).Warn("no more events are taken for direct delivery",
			zap.String("target", hostOf(e.Target)), zap.Int64("waiting", fill.Open), zap.Int64("dead", fill.Dead))
		return h, false, refusal.New(fsm.CodeTooManyRequests, "there is no room for the event: %d events beside it "+
			"wait, and %d are dead; the dead go once they are cancelled", fill.Open, fill.Dead)
	}
	return h, false, nil
}

// hostOf returns the host of a target. The rest of its URL may hold a secret.
func hostOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return u.Host
}

func conflict(why string) error {
	return refusal.New(fsm.CodeIdempotencyConflict, "another event has this idempotency key: %s", why)
}

func conflictOver(fields []string) error {
	return conflict("it has another " + strings.Join(fields, ", "))
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
	ctx = As(ctx, everything)
	want := fsm.Subscription{
		ID: fsm.OutboxSubscription(o.hashOf(target)), Pattern: o.Root + "/" + o.hashOf(target) + "/*", Webhook: target,
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

// streamOf returns the stream of an event: the last digit of its ID says which one.
func (o *Outbox) streamOf(e fsm.OutboxEvent) string {
	return o.Root + "/" + o.hashOf(e.Target) + "/" + e.ID[len(e.ID)-1:]
}

// idOf returns the ID of an event, which its key and its target decide. The last digit says over which stream of the
// target it goes. So a hand-over that is repeated leads to the same place, whatever the store has lost.
func (o *Outbox) idOf(e fsm.OutboxEvent) string {
	sum := sha256.Sum256([]byte(e.Key + "\n" + e.Target))
	e.ID = hex.EncodeToString(sum[:10]) + fmt.Sprint(sum[10]%fsm.OutboxLanes)
	return fsm.NewOutboxID(o.Store.PartitionOf(o.streamOf(e)), e.ID)
}

// hashOf names a target in the path of its streams.
func (o *Outbox) hashOf(target string) string {
	sum := sha256.Sum256([]byte(o.Root + "\n" + target))
	return hex.EncodeToString(sum[:12])
}

// digests are of what a client asks for, however its JSON is written.
func digests(e fsm.OutboxEvent) map[string]string {
	of, payload := map[string]string{}, bytes.Buffer{}
	_ = json.Compact(&payload, []byte(e.Payload)) // it was read as JSON
	for name, value := range map[string]string{
		"target_url": e.Target, "event_type": e.Type, "provider": e.Provider, "payload": payload.String(),
	} {
		sum := sha256.Sum256([]byte(value))
		of[name] = hex.EncodeToString(sum[:8])
	}
	return of
}

// digestsOf are those of an event that is kept without its payload. Its digest says whether it has the asked one.
func digestsOf(kept fsm.OutboxEvent, asked map[string]string) map[string]string {
	of := digests(kept)
	if of["payload"] = asked["payload"]; digestOf(of) != kept.Digest {
		of["payload"] = ""
	}
	return of
}

// digestOf is one digest of all.
func digestOf(digests map[string]string) string {
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		_, _ = fmt.Fprintln(all, name, digests[name])
	}
	return hex.EncodeToString(all.Sum(nil)[:8])
}

// differing returns the names of the fields that differ.
func differing(a, b map[string]string) (names []string) {
	for name, digest := range b {
		if a[name] != digest {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
	if err == nil && again.Event.ReplayOf != e.ReplayOf {
		err = conflict("it is no replay of this one")
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
