package control

import (
	"context"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

const (
	// outboxLooked is how many events one page of a list looks at. A page that finds fewer than it may have then ends.
	outboxLooked = 2000
	// outboxAtATime is how many of them are read at once.
	outboxAtATime = 100
	// maxListedMetadata is after how many bytes of metadata a page ends.
	maxListedMetadata = 1 << 20
)

// OutboxQuery says which events a list has. An empty field matches all.
type OutboxQuery struct {
	Status               fsm.OutboxStatus
	Provider, Type, Host string
	// Since and Until bound when the events were handed over.
	Since, Until time.Time
}

func (q OutboxQuery) matches(e fsm.OutboxEntry) bool {
	return (q.Status == "" || q.Status == e.OutboxState.Status) &&
		(q.Provider == "" || q.Provider == e.Event.Provider) &&
		(q.Type == "" || q.Type == e.Event.Type) && (q.Host == "" || hasHost(e.Event.Target, q.Host))
}

// hasHost says whether a URL has a host, which may be without its port.
func hasHost(target, host string) bool {
	u, err := url.Parse(target)
	return err == nil && (strings.EqualFold(u.Host, host) || strings.EqualFold(u.Hostname(), host))
}

// List returns the events of a query that stand before a place, the latest first. The place next is where the list goes
// on; it is empty at the end of the list. A page may be short, or empty, although the list goes on.
func (o *Outbox) List(
	ctx context.Context, q OutboxQuery, before fsm.OutboxPlace, limit int,
) (list []Handed, next fsm.OutboxPlace, err error) {
	if until := fsm.OutboxPlaceOf(q.Until.UnixMilli(), ""); !q.Until.IsZero() && (before == "" || until < before) {
		before = until
	}
	walk := outboxWalk{outbox: o, lanes: make([]outboxLane, o.Store.Partitions())}
	for p := range walk.lanes {
		walk.lanes[p].span = fsm.OutboxSpan{
			Partition: p, Lists: fsm.OutboxListsOf(q.Status), Since: max(q.Since.UnixMilli(), 0), Before: before,
		}
	}
	walk.most = max(limit/len(walk.lanes), 4) * 2
	for looked, size := 0, 0; looked < outboxLooked; {
		places, entries, err := walk.read(ctx, outboxAtATime)
		switch {
		case err != nil && looked > 0 && ctx.Err() != nil: // the next request goes on from there
			return list, next, nil
		case err != nil:
			return nil, "", err
		}
		for _, place := range places {
			e, there := entries[place.ID()]
			if looked, next = looked+1, place; there && q.matches(e) {
				list = append(list, Handed{OutboxEntry: e})
				size += len(e.Event.Metadata)
			}
			if len(list) == limit || size > maxListedMetadata {
				return list, next, nil
			}
		}
		if len(places) < outboxAtATime {
			return list, "", nil
		}
	}
	return list, next, nil
}

// outboxWalk goes through the lists of all partitions at once, the latest first.
type outboxWalk struct {
	outbox *Outbox
	lanes  []outboxLane
	// most is how many places one call asks for.
	most int
}

// outboxLane is what the walk knows of the lists of one partition: the next places, and the span behind them.
type outboxLane struct {
	span   fsm.OutboxSpan
	places []fsm.OutboxPlace
	ended  bool
}

// read returns up to n places, and what is kept of their events, by ID. Fewer places are the last ones.
func (w *outboxWalk) read(
	ctx context.Context, n int,
) (places []fsm.OutboxPlace, entries map[string]fsm.OutboxEntry, err error) {
	if places, err = w.next(ctx, n); err != nil {
		return nil, nil, err
	}
	store, of := w.outbox.Store, map[int][]string{}
	for _, place := range places {
		if p, err := fsm.OutboxPartition(place.ID(), store.Partitions()); err == nil {
			of[p] = append(of[p], place.ID())
		}
	}
	entries = map[string]fsm.OutboxEntry{}
	for p, ids := range of {
		list, err := store.OutboxEvents(ctx, p, ids)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range list {
			entries[e.Event.ID] = e
		}
	}
	return places, entries, nil
}

// next returns up to n places. Fewer are the last ones.
func (w *outboxWalk) next(ctx context.Context, n int) (places []fsm.OutboxPlace, err error) {
	for len(places) < n {
		var latest *outboxLane
		for i := range w.lanes {
			lane := &w.lanes[i]
			if err := lane.fill(ctx, w.outbox.Store, w.most); err != nil {
				return nil, err
			}
			if len(lane.places) > 0 && (latest == nil || lane.places[0] > latest.places[0]) {
				latest = lane
			}
		}
		if latest == nil {
			return places, nil
		}
		places = append(places, latest.places[0])
		latest.places = latest.places[1:]
	}
	return places, nil
}

func (l *outboxLane) fill(ctx context.Context, store OutboxStore, most int) (err error) {
	if len(l.places) > 0 || l.ended {
		return nil
	}
	if l.places, err = store.ListEvents(ctx, l.span, most); err != nil {
		return err
	}
	if l.ended = len(l.places) < most; !l.ended {
		l.span.Before = l.places[most-1]
	}
	return nil
}

// Cancel cancels an event, and returns it. It must not be delivered, nor under way.
func (o *Outbox) Cancel(ctx context.Context, id string) (Handed, error) {
	cancelled, err := o.Store.CancelEvent(ctx, id)
	if err != nil {
		return Handed{}, err
	}
	if cancelled {
		o.Control.Did(ctx, fsm.Change{What: "event cancelled", About: id}, zap.String("event", id))
	}
	h, err := o.Event(ctx, id)
	if err == nil && !cancelled {
		err = refusal.New(fsm.CodeCancelRefused, "the event is %s: only what waits, or is dead, can be cancelled",
			h.OutboxState.Status)
	}
	return h, err
}
