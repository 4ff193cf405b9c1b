package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"reveille/fsm"
)

// A call that hands out attempts may be carried out without its caller being answered: Redis stood still, or a
// connection broke. The attempts are then out, and no replica has them. So such a call is sent again, as the same call,
// until it is answered, and what it asks for is followed then. The scripts know a call that they have carried out by
// its nonce.

const (
	// maxUnanswered bounds the calls that are kept. Beyond it, the deadlines of their attempts bring them back.
	maxUnanswered = 4096
	// unansweredFor is how long a call is kept: longer than the deadline of an attempt is off.
	unansweredFor = 2 * time.Minute
	// observedFor is that for an observation of a stream, which may be another one later.
	observedFor = 10 * time.Second
	// unansweredPause is how long it takes until they are sent again.
	unansweredPause = 500 * time.Millisecond
)

// handsOut are the scripts that hand out attempts and know a call that they have carried out, and how to read what is
// to be followed of their replies. Of Begin, the dispatcher repeats the call.
var handsOut = map[*script]func(*reply) fsm.Outcome{
	scriptFail: (*reply).outcome, scriptFinish: (*reply).outcome, scriptDeliver: (*reply).outcome,
	scriptDue: func(r *reply) (o fsm.Outcome) {
		r.list(func(l *reply) {
			l.int()
			o = l.outcome()
		})
		return o
	},
	scriptObserve: func(r *reply) (o fsm.Outcome) {
		r.list(func(l *reply) {
			l.yes()
			l.yes()
			l.text()
			l.yes()
			l.text()
			o = l.outcome()
		})
		return o
	},
	scriptLinkStream: func(r *reply) (o fsm.Outcome) {
		r.list(func(l *reply) {
			l.int()
			l.stream("")
			o = l.outcome()
		})
		return o
	},
}

// unanswered keeps such calls.
type unanswered struct {
	// kept is false if what they ask for is followed by no one. ready is signalled when some are kept.
	kept  bool
	ready chan struct{}

	mu    sync.Mutex
	calls []sentCall
}

// sentCall is a call that may have been carried out.
type sentCall struct {
	script    *script
	partition int
	args      []any
	asked     time.Time
}

// keep keeps a call that was not answered, if it hands out attempts and may have reached Redis.
func (u *unanswered) keep(c sentCall, err error) {
	var network *net.OpError
	if !u.kept || handsOut[c.script] == nil || !errors.Is(err, fsm.ErrUnavailable) ||
		errors.As(err, &network) && network.Op == "dial" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.calls) < maxUnanswered {
		u.calls = append(u.calls, c)
		signal(u.ready)
	}
}

// take takes all calls that are not too old.
func (u *unanswered) take() (calls []sentCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.calls {
		limit := unansweredFor
		if c.script == scriptObserve {
			limit = observedFor
		}
		if time.Since(c.asked) < limit {
			calls = append(calls, c)
		}
	}
	u.calls = nil
	return calls
}

// repeatUnanswered sends the calls again that were not answered, until ctx is done.
func (s *Store) repeatUnanswered(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unanswered.ready:
		}
		pause := time.NewTimer(unansweredPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		s.repeatOnce(ctx)
	}
}

// repeatOnce sends all of them once. Those of a partition that does not answer are kept.
func (s *Store) repeatOnce(ctx context.Context) {
	silent := map[int]bool{}
	for _, c := range s.unanswered.take() {
		if silent[c.partition] {
			s.unanswered.keep(c, fsm.ErrUnavailable)
			continue
		}
		r := s.remember(c.partition, s.call(ctx, c.script, s.keys.guard(c.partition), c.args...))
		r.asked = c.asked
		if o := handsOut[c.script](r); r.bad == nil {
			s.opts.Outcomes.Follow(o, fsm.Sighting{})
		} else {
			silent[c.partition] = true
			s.unanswered.keep(c, r.bad)
		}
	}
}
