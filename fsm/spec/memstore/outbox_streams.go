package memstore

import (
	"context"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// keptIn counts the events of a stream that are kept.
func (p *partition) keptIn(stream string) (n int) {
	for _, e := range p.events {
		if e.Stream == stream && e.Status != fsm.OutboxExpired {
			n++
		}
	}
	return n
}

// UnusedStreams implements control.OutboxStore.
func (s *Store) UnusedStreams(ctx context.Context) (streams []string, err error) {
	err = s.call(ctx, func(t *tx) error {
		for _, p := range t.partitions {
			for stream := range p.eventStreams {
				if p.keptIn(stream) == 0 {
					streams = append(streams, stream)
				}
			}
		}
		return nil
	}, "UnusedStreams")
	slices.Sort(streams)
	return streams, err
}

// BeginRemoval implements control.OutboxStore.
func (s *Store) BeginRemoval(
	ctx context.Context, stream, consumer string, tail fsm.Offset,
) (begun bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(stream)
		since, there := p.eventStreams[stream]
		if there {
			begun = spec.MayRemove(p.consumers[consumer], stream, tail, p.keptIn(stream), len(p.replays[consumer]))
		}
		switch {
		case !there, begun && tail == "" && !since.IsZero():
		case !begun && t.now().Before(since.Add(fsm.OutboxRemoval)): // what was begun may still be under way
		case begun:
			p.eventStreams[stream] = t.now()
		default:
			p.eventStreams[stream] = time.Time{}
		}
	}, "BeginRemoval", stream, consumer, tail)
	return begun, err
}

// EndRemoval implements control.OutboxStore.
func (s *Store) EndRemoval(ctx context.Context, stream string) (ended bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(stream)
		since := p.eventStreams[stream]
		if ended = !since.IsZero() && !t.now().Before(since.Add(fsm.OutboxRemoval)); ended {
			delete(p.eventStreams, stream)
		}
	}, "EndRemoval", stream)
	return ended, err
}
