package fsm

import "time"

// MaxRate is the highest rate that a limit can have, in requests a minute.
const MaxRate = 1_000_000

// Limit is how many requests all replicas together may send, to an endpoint or for a subscription.
type Limit struct {
	// Name tells the limit from others.
	Name string
	// Rate is in requests a minute, from 1 to MaxRate.
	Rate int
}

// Interval is the time from one request to the next, rounded up to microseconds.
func (l Limit) Interval() time.Duration {
	rate := time.Duration(l.Rate)
	return (time.Minute + rate*time.Microsecond - 1) / rate / time.Microsecond * time.Microsecond
}

// Burst is how many requests may come at once after a pause: those of a second, and at least one. So any minute has at
// most the rate and one burst.
func (l Limit) Burst() int { return max(1, l.Rate/60) }

// Share is how many turns a replica takes in one call at most. It may use them within Keep.
func (l Limit) Share() int { return max(1, l.Burst()/4) }

// Stored is how many turns the store gives at once after a pause. The rest of the burst is for turns that replicas have
// taken and not used yet.
func (l Limit) Stored() int { return max(1, l.Burst()-l.Share()) }

// Keep is how long a turn may be used. Keep and Stored go together: the turns of Keep are no more than the rest of the
// burst.
func (l Limit) Keep() time.Duration { return max(time.Second/4, min(l.Interval(), time.Second)) }

// Turns are what limits give a replica: N requests, which may be sent after a wait. Without any, it is to ask again
// after that wait.
type Turns struct {
	N    int
	Wait time.Duration
}
