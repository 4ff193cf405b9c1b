package tailer

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// asker asks the stream server. A look waits for a slot of the limiter. While upstream is down, one look at a time goes
// there, as a probe.
type asker struct {
	*upstream.Client
	health  *upstream.Health
	limiter *upstream.Limiter
}

// Look asks for a stream, in turn. Its answer is newer than the call.
func (a *asker) Look(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return a.look(ctx, path, true, a.HeadAnew)
}

// LookNow asks for a stream as Look does, but fails while upstream is down.
func (a *asker) LookNow(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return a.look(ctx, path, false, a.HeadAnew)
}

// Outages counts how often upstream went down.
func (a *asker) Outages() int64 { return a.health.Outages() }

// look asks for a stream with head, in turn with Reveille's other requests. While upstream is down, it waits if it is
// patient, and fails otherwise.
func (a *asker) look(
	ctx context.Context, path string, patient bool, head func(context.Context, string) (fsm.StreamInfo, error),
) (fsm.StreamInfo, error) {
	for {
		done, probes, err := a.health.Enter(ctx, path, patient)
		if err != nil {
			return fsm.StreamInfo{}, err
		}
		release, err := a.limiter.Acquire(ctx)
		if err != nil {
			done(err)
			return fsm.StreamInfo{}, err
		}
		if !probes && a.health.IsDown() { // upstream went down while this look waited for its turn
			release(upstream.NoAnswer)
			continue
		}
		began := time.Now()
		info, err := head(ctx, path)
		took := time.Since(began)
		if err != nil {
			took = upstream.NoAnswer
		}
		release(took)
		done(err)
		return info, err
	}
}
