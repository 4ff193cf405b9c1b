package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/fsm/bell"
)

// Redis may carry out a call that hands out attempts although its caller gets no answer: Redis hung, or a connection
// broke. Then the attempts are out, but no replica has them. So the store sends the same call again until it is
// answered, and then follows the outcome. The scripts recognise a call that they have carried out by its nonce.

const (
	// maxUnanswered bounds the calls that are kept. Beyond it, deadlines bring the attempts back.
	maxUnanswered = 4096
	// unansweredFor is how long a call is kept. By then, the deadlines of its attempts have passed.
	unansweredFor = 2 * time.Minute
	// observedFor is the same for an observation of a stream. Later, there may be another stream of that name.
	observedFor = 10 * time.Second
	// unansweredPause is how long the store waits before it sends such calls again.
	unansweredPause = 500 * time.Millisecond
)

// handsOut are the scripts that hand out attempts and recognise a call that they have carried out. Begin is not among
// them, because the dispatcher repeats that call itself.
var handsOut = []*script{scriptFail, scriptFinish, scriptDeliver, scriptDue, scriptObserve, scriptLinkStream}

// unanswered keeps calls that were not answered.
type unanswered struct {
	// If kept is false, no calls are kept, because no part of the program follows their outcomes. ready rings when
	// some are kept.
	kept  bool
	ready bell.Bell

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

// keep keeps an unanswered call if it hands out attempts and may have reached Redis.
func (u *unanswered) keep(c sentCall, err error) {
	var network *net.OpError
	if !u.kept || !slices.Contains(handsOut, c.script) || !errors.Is(err, fsm.ErrUnavailable) ||
		errors.As(err, &network) && network.Op == "dial" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.calls) < maxUnanswered {
		u.calls = append(u.calls, c)
		u.ready.Ring()
	}
}

// take takes all calls, and returns the calls that are not too old.
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

// repeatUnanswered sends unanswered calls again, until ctx is done.
func (s *Store) repeatUnanswered(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unanswered.ready:
		}
		if bell.Sleep(ctx, unansweredPause) {
			s.repeatOnce(ctx)
		}
	}
}

// repeatOnce sends each call once. If a partition does not answer, its calls are kept.
func (s *Store) repeatOnce(ctx context.Context) {
	silent := map[int]bool{}
	for _, c := range s.unanswered.take() {
		if silent[c.partition] {
			s.unanswered.keep(c, fsm.ErrUnavailable)
			continue
		}
		r := s.remember(c.partition, s.call(ctx, c.script, s.keys.guard(c.partition), c.args...))
		r.asked = c.asked
		if o := r.outcome(); r.bad == nil {
			s.opts.Outcomes.Follow(o, fsm.Sighting{})
		} else {
			silent[c.partition] = true
			s.unanswered.keep(c, r.bad)
		}
	}
}
