package fsm

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Timing is the set of times that transitions depend on.
type Timing struct {
	// Waking is how long a delivery attempt may stay without a 2xx or a claim (webhook spec, WAKING Timeout).
	Waking time.Duration
	// Request is how long the request of an attempt may stay open, whether or not Waking has passed (webhook spec,
	// Webhook Request Timeout).
	Request time.Duration
	// Liveness is how long a live consumer may stay without a callback (webhook spec, Liveness Timeout).
	Liveness time.Duration
	// GoneGrace is how long the primary stream must stay away before its consumers are removed.
	GoneGrace time.Duration
	// GCAfter is how long deliveries may fail without a break; an attempt made later that fails, too, is the last
	// (webhook spec, Garbage Collection).
	GCAfter time.Duration
}

// Open is how long after an attempt was handed out its request may be open, in whole milliseconds. The request begins
// within half of Waking (Wake.GoodUntil).
func (t Timing) Open() time.Duration { return (t.Waking/2 + t.Request).Truncate(time.Millisecond) }

// Env is what a transition needs of the world.
type Env struct {
	Now time.Time
	// WakeID is the ID of the new wake, should there be one.
	WakeID string
	// Base is what the epoch of a new wake lies above (Fence).
	Base int64
	// Asides is how many asides the consumer's subscription has in its partition.
	Asides int
	// Away is true if the consumer is an aside of one that is hidden.
	Away bool
	// AsideWakeID is the ID of the wake of an aside, should there be one.
	AsideWakeID string
	Jitter      Jitter
	Timing      Timing
}

// Effects is what a transition asks its caller to do.
type Effects struct {
	// Wake is a delivery attempt to make now.
	Wake *Wake
	// Removal is the consumer, if it is gone for workers from now on.
	Removal *Removal
	// Removed is true if nothing of it is to be kept. Cause is why; empty for an aside that is done.
	Removed bool
	Cause   RemovalCause
	// Idled is true if the consumer has come to rest: its streams are of interest again.
	Idled bool
	// Hidden is true if the consumer has been hidden for a while: the caller must look whether its primary stream is
	// back.
	Hidden bool
	// Ended is a wake that is over. Wake, if there is one, is then another.
	Ended *WakeEnd
	// Aside is a consumer that is made (IsAside).
	Aside *Consumer
	// Dead is a dead letter to keep. It lacks ID and DeadAt. If the consumer is given up, Consumer.Letter is its
	// number. The letter of a consumer that is Removed comes after the letters of its asides.
	Dead *DeadLetter
	// Revived is the number of a dead letter to drop, if it is still there: what it tells of is delivered after all.
	Revived int64
}

// NewConsumer is the consumer that a subscription gets for a stream, before anything happened to it. An earlier
// consumer of the same ID may have had epochs up to epoch.
func NewConsumer(sub Subscription, primary string, acked Offset, epoch int64) Consumer {
	c := Consumer{
		ID: ConsumerID(sub.ID, primary), Subscription: sub.ID, Generation: sub.Generation, Primary: primary,
		State: Idle, Epoch: epoch, Links: map[string]Link{primary: {Acked: acked}},
	}
	return c.goBy(sub.Profile())
}

// Anew is the consumer that takes the place of c, whose primary stream was made anew.
func (c Consumer) Anew() Consumer {
	sub := Subscription{ID: c.Subscription, Generation: c.Generation}
	return NewConsumer(sub, c.Primary, Start, c.Epoch).goBy(c.Profile)
}

// goBy gives a new consumer its profile.
func (c Consumer) goBy(p Profile) Consumer {
	if c.Profile = p; !p.IsZero() {
		c.Born = c.Epoch
	}
	return c
}

func (c Consumer) clone() Consumer {
	c.Links = maps.Clone(c.Links)
	return c
}

// IsAside says whether the consumer is an aside: it goes on with a delivery of another consumer, which has stepped
// aside (Profile.Aside). Its only stream ends for it where that delivery did, whatever follows: the Tail of its Link
// never changes. It is removed once everything is delivered or dead. It is never hidden, but waits while the other
// consumer is hidden (Env.Away). It is removed with the other consumer, and no Removal reports it.
func (c Consumer) IsAside() bool {
	_, aside := AsideOf(c.ID)
	return aside
}

// Pending says whether any subscribed stream has unprocessed events (webhook spec, Pending Work).
func (c Consumer) Pending() bool {
	for _, l := range c.Links {
		if l.Pending() {
			return true
		}
	}
	return false
}

// Wakeable says whether an event of a stream that the consumer is subscribed to would wake it.
func (c Consumer) Wakeable() bool {
	return (c.State == Idle || c.State == GivenUp) && c.HiddenAt.IsZero()
}

// Current says whether the reference is to the wake that the consumer is in, or was in last.
func (c Consumer) Current(r WakeRef) bool {
	return c.Epoch == r.Epoch && c.WakeID == r.WakeID && c.State != GivenUp
}

func (c Consumer) wakeNow() *Wake {
	w := &Wake{
		Consumer: c.ID, Subscription: c.Subscription, Generation: c.Generation, Primary: c.Primary,
		Epoch: c.Epoch, WakeID: c.WakeID, WokeAt: c.WokeAt, Attempt: c.Attempt, Handed: c.Handed,
	}
	if !c.Profile.IsZero() {
		w.Born, w.Patience, w.Replay = c.Born, c.Profile.Attempt, c.Replay != 0
		if c.Attempt > 1 {
			w.Span = c.Span
		}
	}
	for p, l := range c.Links {
		w.Streams = append(w.Streams, StreamTail{Path: p, Acked: l.Acked, Tail: l.Tail})
	}
	SortStreams(c.Primary, w.Streams)
	return w
}

// SortStreams orders the streams of a consumer: the primary first, then the others by path.
func SortStreams(primary string, streams []StreamTail) {
	slices.SortFunc(streams, func(a, b StreamTail) int {
		switch {
		case a.Path == primary:
			return -1
		case b.Path == primary:
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
}

// Remove ends the consumer, whatever its state. A consumer that was given up was already reported as gone. One that
// goes with its stream may leave a dead letter.
func (c Consumer) Remove(cause RemovalCause) Effects {
	e := c.gone(cause)
	e.Removed, e.Cause, e.Dead = true, cause, c.lost(cause)
	return e
}

// Observe notes that the tail of a stream is at least this. A tail behind the one noted is old news. Pending work on
// the stream wakes an idle consumer; the call that raises the tail of another of its streams wakes it for that one. Any
// tail of the primary stream ends the consumer's hiding.
func (c Consumer) Observe(env Env, path string, tail Offset) (Consumer, Effects) {
	c = c.clone()
	c.note(path, tail)
	switch {
	case c.HiddenAt.IsZero():
		if l := c.Links[path]; !l.Pending() || c.State == GivenUp && !l.news() {
			return c, Effects{}
		}
	case path != c.Primary:
		return c, Effects{}
	default:
		c.show(env)
	}
	var revived int64
	if c.State == GivenUp && c.renewed() {
		revived = c.revive()
	}
	return c, Effects{Wake: c.wakeIfPending(env), Revived: revived}
}

// Absence is what is known of a stream that upstream said is gone.
type Absence int

const (
	// Missing is the answer to a caller that asked once.
	Missing Absence = iota
	// MissingAnew is the first such answer to a watcher that goes on asking; what upstream had before is not known.
	MissingAnew
	// MissingStill is a later answer to a watcher that has asked without a gap since MissingAnew and had no other
	// answer.
	MissingStill
)

// Hide records that upstream reports the primary stream as gone. The consumer keeps its offsets until upstream has
// reported it for all of the grace. A time in which upstream could not be asked and may well have had the stream
// interrupts the grace.
func (c Consumer) Hide(env Env, a Absence) (Consumer, Effects) {
	switch {
	case c.HiddenAt.IsZero(), a == MissingAnew:
		switch {
		case c.State != Waking:
		case c.HiddenAt.IsZero():
			c.uncountUnattempted(env)
		default:
			c.uncount(env, c.HiddenAt)
		}
		c.HiddenAt = env.Now
		c.Deadline = env.Now.Add(env.Timing.GoneGrace)
	case a == MissingStill && !env.Now.Before(c.HiddenAt.Add(env.Timing.GoneGrace)):
		return c, c.Remove(RemovedStreamGone)
	}
	return c, Effects{Hidden: a == Missing}
}

// Restart makes the consumer start over at Start in a stream that was deleted and made anew: its acks were for the old
// stream. If the stream was only deleted, tail is empty. The stream is not the primary. A new wake fences off a worker
// that is at work on the old stream; what it acks until then does not count. A primary stream that is made anew gets a
// new consumer instead.
func (c Consumer) Restart(env Env, path string, tail Offset) (Consumer, Effects) {
	c = c.clone()
	if _, ok := c.Links[path]; !ok {
		return c, Effects{}
	}
	c.Links[path] = Link{Acked: Start, Tail: tail, Since: c.Epoch}
	if tail == "" {
		return c, Effects{}
	}
	var revived int64
	if c.State == GivenUp {
		revived = c.revive()
	}
	end := c.Ended(EndRestarted)
	c.idle(env)
	return c, Effects{Wake: c.wakeIfPending(env), Idled: true, Ended: end, Revived: revived}
}

// Due acts on the deadline, which has passed (webhook spec, State Transitions and Failure Handling). What is aside
// waits while its consumer is hidden: there is nothing to read.
func (c Consumer) Due(env Env) (Consumer, Effects) {
	c = c.clone()
	if env.Away && c.State == Waking && !c.Retired {
		c.Deadline = env.Now.Add(min(env.Timing.GoneGrace, RetryCap))
		return c, Effects{}
	}
	if c.HiddenAt.IsZero() && c.State == Waking {
		c.takeBack()
	}
	switch {
	case !c.HiddenAt.IsZero():
		// Only upstream's answer ends it (Hide): the watcher may not have been able to ask.
		c.Deadline = env.Now.Add(env.Timing.GoneGrace)
		return c, Effects{Hidden: true}
	case c.State == Waking && c.Sent:
		c.uncount(env, c.Deadline)
		fails := env.Now
		if ends := c.requestEnds(env.Timing); ends.After(fails) {
			fails = ends
		}
		return c.failed(env, Failure{Reason: ReasonTimeout, Profile: c.Profile}, fails)
	case c.State == Waking && !c.Retired:
		e := c.handOut(env)
		return c, e
	case c.State == Live:
		end := c.Ended(EndSilent)
		c.State = Idle
		return c, Effects{Wake: c.wakeIfPending(env), Idled: true, Ended: end}
	}
	c.Deadline = time.Time{}
	return c, Effects{}
}

// Out says whether the reference is to the attempt that is out.
func (c Consumer) Out(r WakeRef) bool {
	return c.Current(r) && c.State == Waking && c.Sent && c.Handed == r.Handed && c.HiddenAt.IsZero()
}

// Counts says whether what an attempt tells of a delivery counts. What was sent does as long as its wake goes on.
func (c Consumer) Counts(r WakeRef, d Delivered) bool { return c.Current(r) && (!d.Unsent || c.Out(r)) }

// Fail books a delivery attempt that failed (webhook spec, Failure Handling). What it has brought may step aside.
func (c Consumer) Fail(env Env, r WakeRef, f Failure) (Consumer, Effects) {
	if !c.Out(r) {
		return c, Effects{}
	}
	c = c.clone()
	c.note(c.Primary, f.Tail)
	if c.stepsAside(env, f) {
		return c.stepAside(env, f)
	}
	return c.failed(env, f, env.Now)
}

// Park takes back the attempt that was handed out and not begun: it waits for this long, unless Begin hands it out.
// Parked again, it waits from then on.
func (c Consumer) Park(env Env, r WakeRef, wait time.Duration) (Consumer, Effects) {
	if !c.Current(r) || c.State != Waking || c.Handed != r.Handed || !c.HiddenAt.IsZero() {
		return c, Effects{}
	}
	switch {
	case c.Sent:
		c.Attempt, c.Sent = c.Attempt-1, false
		if !c.FirstFailure.IsZero() {
			c.ParkedAt = env.Now
		}
	case c.Retired || c.Attempt != r.Attempt-1:
		return c, Effects{}
	}
	c.Deadline = env.Now.Add(wait)
	return c, Effects{}
}

// Begin hands out the attempt of a reference anew, as a slot is free for it. The attempt was parked, or is out and was
// not begun. It gets another number, so that a late call of Park does nothing. The same call again gets the same
// attempt: by identifies the caller. Without a Wake there is nothing to deliver any more, or the attempt belongs to
// another caller.
func (c Consumer) Begin(env Env, r WakeRef, by string) (Consumer, Effects) {
	if c.State != Waking || c.Retired || !c.HiddenAt.IsZero() {
		return c, Effects{}
	}
	if c.Sent && c.Holder == (Holder{Handed: c.Handed, By: by}) {
		c.Deadline = env.Now.Add(c.patience(env.Timing))
		w := c.wakeNow()
		w.Nudged = env.Now.Before(c.Nudged)
		return c, Effects{Wake: w}
	}
	if !c.Current(r) || c.Handed != r.Handed || !c.Sent && c.Attempt != r.Attempt-1 {
		return c, Effects{}
	}
	c = c.clone()
	if c.Sent {
		c.Attempt, c.Sent = c.Attempt-1, false
	}
	e := c.handOut(env)
	c.Holder = Holder{Handed: c.Handed, By: by}
	return c, e
}

// Accept takes in that an attempt was answered 2xx without "done". It stops the retries, whichever attempt it was.
func (c Consumer) Accept(env Env, r WakeRef) (Consumer, Effects) {
	if !c.Current(r) {
		return c, Effects{}
	}
	c.delivered()
	if c.State == Waking {
		c.goLive(env)
	}
	return c, Effects{}
}

// Finish records that an attempt was answered 2xx with "done" (webhook spec, Synchronous Done). It acks everything up
// to the tails that the attempt was sent with, and no more: the worker has not seen what landed later. A tail beyond
// the noted one belongs to a stream that was deleted since.
func (c Consumer) Finish(env Env, r WakeRef, seen []StreamTail) (Consumer, Effects) {
	if !c.Current(r) {
		return c, Effects{}
	}
	c = c.clone()
	c.delivered()
	for _, s := range seen {
		if !s.Tail.After(c.Links[s.Path].Tail) {
			c.ack(s.Path, s.Tail)
		}
	}
	return c.finished(env)
}

// Deliver records that the events of an attempt were delivered, or are dead: the consumer goes on behind them. Dead
// events leave a letter, once. The read of the events has shown how far the stream goes, which may be news to the
// store.
func (c Consumer) Deliver(env Env, r WakeRef, d Delivered) (Consumer, Effects) {
	if !c.Counts(r, d) {
		return c, Effects{}
	}
	c = c.clone()
	failing := c.FirstFailure
	c.delivered()
	c.Profile = d.Profile
	c.note(d.Path, d.Tail)
	var dead *DeadLetter
	if to := c.behind(d.To, d.Within); !to.After(c.Links[d.Path].Tail) && c.ack(d.Path, to) && d.Dead != nil {
		letter := *d.Dead
		letter.FirstFailure, dead = failing, &letter
	}
	c, e := c.finished(env)
	e.Dead = dead
	return c, e
}

// Resume resumes deliveries to the consumer: the subscription's endpoint takes them again. What was held back meanwhile
// is due at once; what waits for its retry goes on waiting. ok is false if nothing was held back.
func (c Consumer) Resume(env Env) (_ Consumer, _ Effects, ok bool) {
	switch {
	case c.heldBack() && c.Deadline.After(env.Now):
		c.Deadline = env.Now
		return c, Effects{}, true
	case c.State == GivenUp:
		c, e := c.Revive(env)
		return c, e, true
	case !c.Retired:
		return c, Effects{}, false
	}
	c.delivered()
	c.Attempt = 0
	if c.State == Waking && c.HiddenAt.IsZero() {
		c.Deadline = env.Now
	}
	return c, Effects{}, true
}

// Revive has a consumer that was given up go on where it stood, at once.
func (c Consumer) Revive(env Env) (Consumer, Effects) {
	c = c.clone()
	revived := c.revive()
	return c, Effects{Wake: c.wakeIfPending(env), Revived: revived}
}

// ReleaseHeld makes the next attempt of the consumer's wake due at once, as its endpoint is up again. A delivery that
// was held back just comes sooner. A delivery that has failed before is nudged: its schedule stands (Consumer.Nudged).
// Otherwise an endpoint that takes some deliveries and fails others, and so is up again every other second, would use
// up the attempts.
func (c Consumer) ReleaseHeld(env Env) Consumer {
	switch {
	case !c.waits(env):
		return c
	case c.Attempt == 0:
	case c.Nudged.IsZero():
		c.Nudged = c.Deadline
	case !c.Nudged.After(env.Now): // that attempt was made, or is due by itself
		return c
	}
	c.Deadline, c.Probed = env.Now, false
	return c
}

// Probe makes the next attempt of the consumer's wake due at once, to find out whether its endpoint is up again. If it
// fails, it does not count and its schedule stands, unless it is the first attempt or its time has come. The result ok
// is false if no attempt waits.
func (c Consumer) Probe(env Env) (_ Consumer, ok bool) {
	switch {
	case !c.waits(env):
		return c, false
	case c.Attempt == 0:
	case c.Nudged.After(env.Now):
		c.Probed = true
	case c.ParkedAt.IsZero():
		c.Nudged, c.Probed = c.Deadline, true
	}
	c.Deadline = env.Now
	return c, true
}

// waits says whether the next attempt of the consumer's wake is to be made later.
func (c Consumer) waits(env Env) bool {
	return c.State == Waking && !c.Sent && !c.Retired && c.HiddenAt.IsZero() && c.Deadline.After(env.Now)
}

// Retry has the next attempt of the consumer's wake made at once, as an operator has asked for. It counts as any. ok is
// false if none waits.
func (c Consumer) Retry(env Env) (_ Consumer, ok bool) {
	if !c.waits(env) {
		return c, false
	}
	c.Deadline, c.Nudged, c.Probed = env.Now, time.Time{}, false
	return c, true
}

// heldBack says whether the next attempt of the wake waits though its time had come: it was handed out, and is parked.
func (c Consumer) heldBack() bool {
	return c.State == Waking && !c.Sent && c.Handed > 0 && (c.Attempt == 0 || !c.ParkedAt.IsZero()) && !c.Retired &&
		c.HiddenAt.IsZero()
}
