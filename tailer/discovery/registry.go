package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
	"reveille/tailer/upstream"
)

const (
	// registryElementMax bounds one message of the registry stream in bytes.
	registryElementMax = 64 << 10
	// registryTime bounds the wait for an answer that exists already, and then each read of its body. Handling the
	// messages may take longer: the first reading of a registry can find thousands of streams.
	registryTime = 30 * time.Second
	// registryPace is the pause after an answer that shows nothing new.
	registryPace = 50 * time.Millisecond
	// renewedMax bounds the streams in renewed. Further deletions are handled again.
	renewedMax = 100_000
	// registryLooks bounds the looks under way for the registry, so that the queue has room for others.
	registryLooks = 1000
)

// registry reads the stream in which a server lists the streams it has (protocol, Registry stream).
type registry struct {
	d *Discovery
	// place is the store's place, where the next read begins; zero before the first read. cursor is from the last
	// answer.
	place  fsm.RegistryPlace
	cursor string
	// mark is the mark of place. known is false if place has none, or if upstream no longer keeps that part.
	mark  mark
	known bool
	// doubt is true if the registry may be another one than was read. It was last proved to be the same at the time
	// proved, after this many outages of upstream. next is what was read since.
	doubt   bool
	proved  time.Time
	outages int64
	next    unproved
	// goal is an end of the registry that a look has shown, until the registry is read up to it. A registry that grows
	// all the time may never be read to its present end.
	goal fsm.Offset
	// renewed are the streams that were renewed after goal was shown, with the losses of their partitions before that.
	// A message up to goal about their deletion is older, unless the store may have lost the renewal. Beyond goal, the
	// age of a message is unknown, and renewed is nil.
	renewed map[string]int64
	// first is true while replicas read the registry for the first time ever (catchUp).
	first bool
	// dealt is how many messages behind place were handled. If the rest must be read again, a deletion among them must
	// not hit the stream that was made after it.
	dealt int
	// looks are the looks under way at streams that messages behind place name.
	looks []chan error
	// Each limits the log lines about one failure. unread: a read failed. foreign: a body has no messages. odd: a
	// message has another form.
	unread, foreign, odd throttle.Trouble
}

// change is one message of the registry stream.
type change struct {
	Key   string `json:"key"`
	Value struct {
		Path string `json:"path"`
		// CreatedAt is a time in milliseconds, if it is a number.
		CreatedAt json.RawMessage `json:"createdAt"`
	} `json:"value"`
	Headers struct {
		Operation string `json:"operation"`
	} `json:"headers"`
}

var (
	// errMovedOn says that another replica has read on, or that the store has lost how far this one had read.
	errMovedOn = errors.New("the store has another offset of the registry stream than it was read from")
	// errForeign says that a body cannot be read as messages.
	errForeign = errors.New("not an array of messages")
)

// run reads the registry until the context ends, while this replica owns its partition.
func (r *registry) run(ctx context.Context) {
	if r.d.cfg.Registry == "" {
		return
	}
	ownership, partition := r.d.store.Ownership(), r.d.store.PartitionOf(r.d.cfg.Registry)
	failures := upstream.Backoff{Min: r.d.cfg.RetryMin, Max: r.d.cfg.RetryMax}
	for ctx.Err() == nil {
		changed := ownership.Changed()
		if !ownership.Owns(partition) {
			r.place = fsm.RegistryPlace{}
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		again, err := r.tick(ctx)
		switch {
		case err == nil:
			failures.Reset()
		case ctx.Err() == nil && !errors.Is(err, errMovedOn):
			r.doubt = true
			r.unread.Log(r.d.log, time.Now()).Warn(
				"the registry stream could not be read; it is read again", zap.Error(err))
			again = upstream.Jitter(failures.Next())
		}
		upstream.Sleep(ctx, again)
	}
}

// tick makes one read from the store's place and handles its messages. It returns the time until the next read.
func (r *registry) tick(ctx context.Context) (again time.Duration, err error) {
	place, err := r.d.store.RegistryPlace(ctx)
	if err != nil {
		return 0, err
	}
	read, err := r.d.store.RegistryRead(ctx)
	if err != nil {
		return 0, err
	}
	info, err := r.d.up.Look(ctx, r.d.cfg.Registry)
	if err != nil {
		return 0, err
	}
	if r.place != place {
		r.begin(place)
	}
	at := place.Offset
	switch {
	case !info.Exists && !read:
		r.doubt = true
		if info, err = r.d.up.HeadAnew(ctx, r.d.cfg.Registry); err == nil && !info.Exists {
			err = r.d.store.SetRegistryRead(ctx) // later messages were written after now
		}
		return upstream.Jitter(r.d.cfg.RetryMax), err
	case !info.Exists:
		r.doubt = true
		return upstream.Jitter(r.d.cfg.RetryMax), nil
	case at.After(info.Tail): // it may be an old answer
		if info, err = r.d.up.HeadAnew(ctx, r.d.cfg.Registry); err != nil || !info.Exists || !at.After(info.Tail) {
			return upstream.Jitter(r.d.cfg.RetryMax), err
		}
		return 0, r.startAgain(ctx, info.Tail, true)
	}
	switch same, err := r.isSame(ctx, info.Tail); {
	case err != nil:
		return 0, err
	case !same, !r.known && at == info.Tail: // first to its end: from there on, deletions concern present streams
		return 0, r.startAgain(ctx, info.Tail, !same)
	}
	live := at == info.Tail
	if live || r.goal == "" {
		r.goal, r.renewed = info.Tail, map[string]int64{}
	}
	if r.first = !read; !r.goal.After(at) {
		if r.first {
			if err := r.d.store.SetRegistryRead(ctx); err != nil {
				return 0, err
			}
		}
		r.first, r.goal = false, ""
	}
	again, err = r.read(ctx, live)
	if err == nil && r.unread.Over() {
		r.d.log.Info("the registry stream is read again")
	}
	return again, err
}

// read makes one request and handles its messages. The registry counts as read once its streams were looked at. A
// subscription that is created after that begins at the tails that they had.
func (r *registry) read(running context.Context, live bool) (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(running)
	defer cancel()
	patience := registryTime
	if live {
		// The answer may be lost. The look before the next read shows that.
		patience = upstream.Jitter(r.d.cfg.RegistryCheck)
	}
	timer := time.AfterFunc(patience, cancel)
	defer timer.Stop()
	from, m, next := r.place.Offset, r.mark, r.next
	a, err := r.d.up.Registry(ctx, r.d.cfg.Registry, from, live, r.cursor)
	if err == nil {
		defer a.Body.Close()
	}
	switch silent := !timer.Stop(); {
	case silent && live:
		return 0, nil
	case err != nil:
		return 0, err
	case a.Offset == "" || a.Offset == from:
		r.cursor = a.Cursor
		return registryPace, nil
	case !a.Offset.After(from):
		return 0, upstream.AnswerError{What: "its next offset lies behind the one that was asked for"}
	case !a.Empty:
		if a.Offset.After(r.goal) {
			r.renewed = nil
		}
		m, next, err = r.messages(running, timedBody{in: a.Body, timer: timer})
	}
	if errors.Is(err, errForeign) {
		r.foreign.Log(r.d.log, time.Now()).Warn(
			"the registry stream holds something else than messages in JSON; it is skipped up to the next offset",
			zap.String("offset", from.Value()), zap.String("next_offset", a.Offset.Value()), zap.Error(err))
		err = nil
	}
	if err == nil {
		err = r.looked(running)
	}
	if err == nil {
		err = r.goOn(running, a.Event, m, next)
	}
	return 0, err
}

// goOn moves the place behind an answer that was handled. If the answer goes beyond what is read again, the rest is
// read once more from there: that part is news.
func (r *registry) goOn(ctx context.Context, e upstream.Event, m mark, next unproved) error {
	to := fsm.RegistryPlace{Offset: e.Offset}
	if m.Again != "" && !m.Again.After(e.Offset) {
		to.Offset, m.Again = m.Again, ""
	}
	if to.Offset != e.Offset {
		e.Cursor, next.piece = "", piece{From: to.Offset}
	}
	if r.known {
		to.Mark = m.String()
	}
	err := r.moveTo(ctx, to)
	if err == nil {
		r.mark, r.next, r.cursor, r.dealt = m, next, e.Cursor, 0
	}
	return err
}

// looked waits until each stream that the registry names was looked at once. A stream that cannot be asked for delays
// nothing: it is on record and asked for again.
func (r *registry) looked(ctx context.Context) error {
	for ; len(r.looks) > 0; r.looks = r.looks[1:] {
		select {
		case err := <-r.looks[0]:
			r.d.complain(ctx, "a stream that the registry tells of", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// move tells the store how far the registry was read.
func (r *registry) move(ctx context.Context, to fsm.RegistryPlace, anew bool) error {
	moved, err := r.d.store.MoveRegistry(ctx, r.place, to, anew)
	if err == nil && !moved {
		err = errMovedOn
	}
	return err
}

// moveTo is move to a place from which this replica reads on.
func (r *registry) moveTo(ctx context.Context, to fsm.RegistryPlace) error {
	to.Since = r.place.Since
	err := r.move(ctx, to, false)
	if err == nil {
		r.place = to
	}
	return err
}
