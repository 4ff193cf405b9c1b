package fsm

import (
	"crypto/sha256"
	"time"
)

// Trace is what the spans of one wake hang together by. Every replica finds it by itself, so a trace goes on over replicas and
// restarts without a record of it anywhere.
type Trace struct {
	// ID of the trace.
	ID [16]byte
	// Root is the ID of the span that stands for the whole wake.
	Root [8]byte
}

// TraceOf returns the trace of a consumer's wake.
func TraceOf(consumer, wakeID string) (t Trace) {
	sum := sha256.Sum256([]byte("trace:" + consumer + "\x00" + wakeID))
	copy(t.Root[:], sum[copy(t.ID[:], sum[:]):])
	return t
}

// WakeEnd is a wake that is over.
type WakeEnd struct {
	Consumer     string
	Subscription string
	Primary      string
	Epoch        int64
	WakeID       string
	// WokeAt is when it began, by the store's clock; zero if that was not noted.
	WokeAt time.Time
	Cause  EndCause
}

// EndCause is why a wake is over.
type EndCause string

// The causes.
const (
	// EndDone is: the worker has said that it is done.
	EndDone EndCause = "done"
	// EndSilent is: the worker was not heard of for the liveness timeout.
	EndSilent EndCause = "silent"
	// EndRestarted is: a stream of the consumer was made anew, and it starts over with another wake.
	EndRestarted EndCause = "restarted"
	// EndRemoved is: the consumer is gone.
	EndRemoved EndCause = "removed"
	// EndLost is: the store may have lost what came of the wake, and another takes its place.
	EndLost EndCause = "lost"
)

// Ended is the end of the wake that the consumer is in; nil if it is in none.
func (c Consumer) Ended(cause EndCause) *WakeEnd {
	if c.State == Idle {
		return nil
	}
	return &WakeEnd{
		Consumer: c.ID, Subscription: c.Subscription, Primary: c.Primary, Epoch: c.Epoch, WakeID: c.WakeID, WokeAt: c.WokeAt,
		Cause: cause,
	}
}
