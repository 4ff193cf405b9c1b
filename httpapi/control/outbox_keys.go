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
	"slices"
	"strings"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// kept returns the event if the store keeps it, which is refused if it differs; otherwise nil. The store may have lost
// its key. Then the key must not go to another event. A new event is refused if there is no room for it.
func (o *Outbox) kept(
	ctx context.Context, e fsm.OutboxEvent, asked map[string]string,
) (kept *fsm.OutboxEntry, err error) {
	if id := o.earlierID(e); id != "" {
		switch h, err := o.Event(ctx, id); {
		case err == nil:
			kept = &h.OutboxEntry
		case !errors.Is(err, fsm.ErrNotFound):
			return nil, err
		}
	}
	if kept == nil {
		kept, err = o.room(ctx, e.Target, e.ID)
	}
	if err != nil { // an earlier event needs no room
		if id, failed := o.Store.EventOfKey(ctx, e.Key); failed == nil && id != e.ID {
			if h, failed := o.Event(ctx, id); failed == nil {
				kept, err = &h.OutboxEntry, nil
			}
		}
	}
	if err == nil && kept != nil && kept.Event.Digest != e.Digest {
		err = conflictOver(differing(digestsOf(kept.Event, asked), asked))
	}
	return kept, err
}

// keptAs returns the event of this ID, which its key has, or nil if the store does not keep it, and it is to be handed
// over as that one.
func (o *Outbox) keptAs(ctx context.Context, e fsm.OutboxEvent, id string) (*fsm.OutboxEntry, error) {
	if id == o.idOf(e, endOfID(id)) {
		return o.room(ctx, e.Target, id)
	}
	h, err := o.Event(ctx, id)
	if errors.Is(err, fsm.ErrNotFound) {
		err = conflict("it was handed over below another path")
	}
	return &h.OutboxEntry, err
}

// room returns the event of an ID if the store keeps it; otherwise nil, or a refusal if it cannot be handed over now.
func (o *Outbox) room(ctx context.Context, target, id string) (*fsm.OutboxEntry, error) {
	kept, room, err := o.Store.Room(ctx, o.streamOf(target, id), id)
	switch {
	case err != nil, kept != nil:
	case room.Removing:
		err = refusal.New(fsm.CodeUnavailable, "the stream of an earlier event is being removed; try again")
	case room.Full():
		o.full.Log(o.Control.Log, o.Control.Clock()).Warn("no more events are taken for direct delivery",
			zap.String("target", hostOf(target)), zap.Int64("waiting", room.Open), zap.Int64("dead", room.Dead))
		err = refusal.New(fsm.CodeTooManyRequests, "there is no room for the event: %d events beside it "+
			"wait, and %d are dead; the dead go once they are cancelled", room.Open, room.Dead)
	}
	return kept, err
}

func conflict(why string) error {
	return refusal.New(fsm.CodeIdempotencyConflict, "another event has this idempotency key: %s", why)
}

func conflictOver(fields []string) error {
	return conflict("it has another " + strings.Join(fields, ", "))
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
