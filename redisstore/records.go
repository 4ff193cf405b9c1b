package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// linksAtATime is how many consumers one call of link_stream.lua makes, if the existing ones have few links.
const linksAtATime = 100

// recordOf decodes a stream's record as stream_of in lua/library/streams.lua stores it.
func recordOf(path, text string) (fsm.Stream, error) {
	s := fsm.Stream{Path: path, State: fsm.StreamPresent}
	text, awaited := strings.CutPrefix(text, "?")
	if awaited {
		s.State = fsm.StreamAwaited
	}
	fields := strings.Split(text, ",")
	numbers := []*int64{new(int64), &s.Noted, &s.Linked, &s.Stamp, new(int64), &s.Lost}
	if len(fields) != len(numbers)+3 {
		return s, fmt.Errorf("redis: the record of stream %s has %d fields", path, len(fields))
	}
	for i, number := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return s, fmt.Errorf("redis: the record of stream %s has no number where one belongs", path)
		}
		*number = n
	}
	s.First, s.Until = time.UnixMicro(*numbers[0]), time.UnixMicro(*numbers[4])
	s.Begin, s.Tail = fsm.Offset(fields[6]), fsm.Offset(fields[7])
	return s, nil
}

// stream reads what stream_reply in lua/library/streams.lua returns.
func (r *reply) stream(path string) (s fsm.Stream) {
	r.list(func(l *reply) {
		text, removed, lost := l.text(), l.int(), l.int()
		s = fsm.Stream{Path: path, Stamp: removed, Lost: lost}
		if l.bad == nil && text != "" {
			s, l.bad = recordOf(path, text)
		}
	})
	return s
}

// Stream implements discovery.RecordStore.
func (s *Store) Stream(ctx context.Context, path string) (fsm.Stream, error) {
	r := s.run(ctx, scriptStream, s.PartitionOf(path), path)
	return r.stream(path), r.err()
}

// NoteStream implements discovery.RecordStore.
func (s *Store) NoteStream(ctx context.Context, n fsm.Stream, span time.Duration) (fsm.Stream, bool, error) {
	stamp := ""
	if n.Present() {
		stamp = strconv.FormatInt(n.Stamp, 10)
	}
	var done bool
	var stream fsm.Stream
	r := s.run(ctx, scriptNoteStream, s.PartitionOf(n.Path), n.Path, stamp, string(n.Tail), string(n.Begin),
		span.Milliseconds(), n.Lost)
	done, stream = r.yes(), r.stream(n.Path)
	return stream, done, r.bad
}

// LinkStream implements discovery.RecordStore.
func (s *Store) LinkStream(ctx context.Context, path string, l fsm.Linking) (linked fsm.LinkReply, err error) {
	links, size, asked := l.Links, linksAtATime, ""
	for {
		batch := links[:min(len(links), size)]
		last := len(batch) == len(links)
		args := []any{
			path, l.Stamp, string(l.Tail), l.Version, l.Look.Milliseconds(), flag(last), asked, len(batch),
		}
		for _, n := range batch {
			sub := n.Subscription
			args = append(args, sub.ID, sub.Generation, fsm.ConsumerID(sub.ID, path), string(n.Acked),
				sub.Profile().String())
		}
		r := s.run(ctx, scriptLinkStream, s.PartitionOf(path), args...)
		var code int64
		var number int
		if code, linked.Stream = r.code(0, 1, 2, 3), r.stream(path); code == 3 {
			asked = r.text()
		} else {
			number = int(r.int())
		}
		linked.Add(r.outcome())
		linked.Done = code == 1
		switch {
		case r.bad != nil || code == 0:
			return linked, r.bad
		case code == 2:
			size = number
			continue
		case code == 3: // repeats only if one of these is deleted meanwhile
			left, err := s.listed(ctx, batch)
			if err != nil {
				return linked, err
			}
			links, size = slices.Concat(left, links[len(batch):]), len(left)
			continue
		}
		linked.Linked += number
		if last {
			return linked, nil
		}
		links, size = links[len(batch):], linksAtATime
	}
}

// listed returns the links whose subscriptions are on the list of subscriptions now.
func (s *Store) listed(ctx context.Context, links []fsm.NewLink) (left []fsm.NewLink, err error) {
	if err := s.RefreshCatalog(ctx); err != nil {
		return nil, err
	}
	for _, n := range links {
		if sub, there := s.catalog.Get(n.Subscription.ID); there && sub.Generation == n.Subscription.Generation {
			left = append(left, n)
		}
	}
	return left, nil
}

// ForgetStream implements discovery.RecordStore.
func (s *Store) ForgetStream(ctx context.Context, path string, stamp int64, readByOthers bool) (bool, error) {
	r := s.run(ctx, scriptForgetStream, s.PartitionOf(path), path, stamp, flag(readByOthers))
	return r.yes(), r.err()
}

// scanBatch is about how many records one call reads.
const scanBatch = 500

// ScanStreams implements discovery.RecordStore.
func (s *Store) ScanStreams(
	ctx context.Context, partition int, cursor string,
) (streams []fsm.Stream, next string, err error) {
	r := s.run(ctx, scriptScanStreams, partition, cursor, scanBatch)
	next = r.text()
	r.each(func(records *reply) {
		path, text, tail := records.text(), records.text(), records.text()
		if records.bad != nil {
			return
		}
		stream, err := recordOf(path, text)
		if err != nil { // the other streams go on
			s.unreadableStream.Log(s.opts.Logger, time.Now()).Error(
				"the record of a stream cannot be read and is ignored", zap.String("stream", path), zap.Error(err))
			return
		}
		stream.NotedTail = fsm.Offset(tail)
		streams = append(streams, stream)
	})
	return streams, next, r.bad
}
