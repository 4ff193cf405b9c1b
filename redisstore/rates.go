package redisstore

import (
	"context"
	"time"

	"reveille/fsm"
)

// TakeTurns implements dispatcher.Store. If its reply is lost and the call is sent again, turns are lost, too.
func (s *Store) TakeTurns(ctx context.Context, limits []fsm.Limit, most int) (turns fsm.Turns, err error) {
	args := []any{s.draw().millis(), most}
	for _, l := range limits {
		args = append(args, l.Interval().Microseconds(), l.Stored(), l.Share())
	}
	r := s.call(ctx, scriptTakeTurns, s.keys.limits(limits), args...)
	r.list(func(r *reply) {
		turns = fsm.Turns{N: int(r.int()), Wait: time.Duration(r.int()) * time.Microsecond}
	})
	return turns, r.bad
}
