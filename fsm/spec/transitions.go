package spec

import (
	"maps"
	"time"

	"reveille/fsm"
)

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
	Jitter      fsm.Jitter
	Timing      fsm.Timing
}

// Effects is what a transition asks its caller to do.
type Effects struct {
	// Delivery is an attempt to make now.
	Delivery *fsm.Delivery
	// Removal is the consumer, if it is gone for workers from now on.
	Removal *fsm.Removal
	// Removed is true if nothing of it is to be kept. Cause is why; empty for an aside that is done.
	Removed bool
	Cause   fsm.RemovalCause
	// Idled is true if the consumer has come to rest: its streams are of interest again.
	Idled bool
	// Hidden is true if the consumer has been hidden for a while: the caller must look whether its primary stream is
	// back.
	Hidden bool
	// Ended is a wake that is over. Delivery, if there is one, is then of another.
	Ended *fsm.WakeEnd
	// Aside is a consumer that is made (IsAside).
	Aside *fsm.Consumer
	// Dead is a dead letter to keep. It lacks ID and DeadAt. If the consumer is given up, Consumer.Letter is its
	// number. The letter of a consumer that is Removed comes after the letters of its asides.
	Dead *fsm.DeadLetter
	// Revived is the number of a dead letter to drop, if it is still there: what it tells of is delivered after all.
	Revived int64
}

// NewConsumer is the consumer that a subscription gets for a stream, before anything happened to it. An earlier
// consumer of the same ID may have had epochs up to epoch.
func NewConsumer(sub fsm.Subscription, primary string, acked fsm.Offset, epoch int64) fsm.Consumer {
	c := fsm.Consumer{
		ID: fsm.ConsumerID(sub.ID, primary), Subscription: sub.ID, Generation: sub.Generation, Primary: primary,
		Links: map[string]fsm.Link{primary: {Acked: acked}},
		Lease: fsm.Lease{State: fsm.Idle, Epoch: epoch},
	}
	return goBy(c, sub.Profile())
}

// Anew is the consumer that takes the place of c, whose primary stream was made anew.
func Anew(c fsm.Consumer) fsm.Consumer {
	sub := fsm.Subscription{ID: c.Subscription, Generation: c.Generation}
	return goBy(NewConsumer(sub, c.Primary, fsm.Start, c.Epoch), c.Profile)
}

// goBy gives a new consumer its profile.
func goBy(c fsm.Consumer, p fsm.Profile) fsm.Consumer {
	if c.Profile = p; !p.IsZero() {
		c.Born = c.Epoch
	}
	return c
}

func clone(c fsm.Consumer) fsm.Consumer {
	c.Links = maps.Clone(c.Links)
	return c
}

// Wakeable says whether an event of a stream that the consumer is subscribed to would wake it.
func Wakeable(c fsm.Consumer) bool {
	return (c.State == fsm.Idle || c.State == fsm.GivenUp) && c.HiddenAt.IsZero()
}

// Current says whether the reference is to the wake that the consumer is in, or was in last.
func Current(c fsm.Consumer, r fsm.DeliveryRef) bool {
	return c.Epoch == r.Epoch && c.WakeID == r.WakeID && c.State != fsm.GivenUp
}

func deliveryNow(c fsm.Consumer) *fsm.Delivery {
	w := &fsm.Delivery{
		Consumer: c.ID, Subscription: c.Subscription, Generation: c.Generation, Primary: c.Primary,
		Owner: c.Owner, Epoch: c.Epoch, WakeID: c.WakeID, WokeAt: c.WokeAt, Attempt: c.Attempt, Handed: c.Handed,
	}
	if !c.Profile.IsZero() {
		w.Born, w.Patience, w.Replay = c.Born, c.Profile.Attempt, c.Replay != 0
		if c.Attempt > 1 {
			w.Span = c.Span
		}
	}
	for p, l := range c.Links {
		w.Streams = append(w.Streams, fsm.StreamTail{Path: p, Acked: l.Acked, Tail: l.Tail})
	}
	fsm.SortStreams(c.Primary, w.Streams)
	return w
}

// Remove ends the consumer, whatever its state. A consumer that was given up was already reported as gone. One that
// goes with its stream may leave a dead letter.
func Remove(c fsm.Consumer, cause fsm.RemovalCause) Effects {
	e := gone(c, cause)
	e.Removed, e.Cause, e.Dead = true, cause, lost(c, cause)
	return e
}

// Observe notes that the tail of a stream is at least this. A tail behind the one noted is old news. Pending work on
// the stream wakes an idle consumer; the call that raises the tail of another of its streams wakes it for that one. Any
// tail of the primary stream ends the consumer's hiding.
func Observe(c fsm.Consumer, env Env, path string, tail fsm.Offset) (fsm.Consumer, Effects) {
	c = clone(c)
	note(&c, path, tail)
	switch {
	case c.HiddenAt.IsZero():
		if l := c.Links[path]; !l.Pending() || c.State == fsm.GivenUp && !news(l) {
			return c, Effects{}
		}
	case path != c.Primary:
		return c, Effects{}
	default:
		show(&c, env)
	}
	var revived int64
	if c.State == fsm.GivenUp && renewed(c) {
		revived = revive(&c)
	}
	return c, Effects{Delivery: wakeIfPending(&c, env), Revived: revived}
}

// Hide takes in that upstream reports the primary stream as gone. The consumer keeps its offsets until upstream has
// reported it for all of the grace. A time in which upstream could not be asked and may well have had the stream
// interrupts the grace.
func Hide(c fsm.Consumer, env Env, a fsm.Absence) (fsm.Consumer, Effects) {
	switch {
	case c.HiddenAt.IsZero(), a == fsm.MissingAnew:
		switch {
		case c.State != fsm.Waking:
		case c.HiddenAt.IsZero():
			uncountUnattempted(&c, env)
		default:
			uncount(&c, env, c.HiddenAt)
		}
		c.HiddenAt = env.Now
		c.Deadline = env.Now.Add(env.Timing.GoneGrace)
	case a == fsm.MissingStill && !env.Now.Before(c.HiddenAt.Add(env.Timing.GoneGrace)):
		return c, Remove(c, fsm.RemovedStreamGone)
	}
	return c, Effects{Hidden: a == fsm.Missing}
}

// Restart makes the consumer start over at Start in a stream that was deleted and made anew: its acks were for the old
// stream. If the stream was only deleted, tail is empty. The stream is not the primary. A new wake fences off a worker
// that is at work on the old stream; what it acks until then does not count. A primary stream that is made anew gets a
// new consumer instead.
func Restart(c fsm.Consumer, env Env, path string, tail fsm.Offset) (fsm.Consumer, Effects) {
	c = clone(c)
	if _, ok := c.Links[path]; !ok {
		return c, Effects{}
	}
	c.Links[path] = fsm.Link{Acked: fsm.Start, Tail: tail, Since: c.Epoch}
	if tail == "" {
		return c, Effects{}
	}
	return beginAgain(c, env, fsm.EndRestarted)
}

// Due acts on the deadline, which has passed (webhook spec, State Transitions and Failure Handling). What is aside
// waits while its consumer is hidden: there is nothing to read.
func Due(c fsm.Consumer, env Env) (fsm.Consumer, Effects) {
	c = clone(c)
	if env.Away && c.State == fsm.Waking && !c.Retired {
		c.Deadline = env.Now.Add(min(env.Timing.GoneGrace, fsm.RetryCap))
		return c, Effects{}
	}
	if c.HiddenAt.IsZero() && c.State == fsm.Waking {
		takeBack(&c)
	}
	switch {
	case !c.HiddenAt.IsZero():
		// Only upstream's answer ends it (Hide): the watcher may not have been able to ask.
		c.Deadline = env.Now.Add(env.Timing.GoneGrace)
		return c, Effects{Hidden: true}
	case c.State == fsm.Waking && c.Sent:
		uncount(&c, env, c.Deadline)
		fails := env.Now
		if ends := requestEnds(c, env.Timing); ends.After(fails) {
			fails = ends
		}
		return failed(c, env, fsm.Failure{Reason: fsm.ReasonTimeout, Profile: c.Profile}, fails)
	case c.State == fsm.Waking && !c.Retired:
		e := handOut(&c, env)
		return c, e
	case c.State == fsm.Live:
		end := ended(c, fsm.EndSilent)
		c.State = fsm.Idle
		return c, Effects{Delivery: wakeIfPending(&c, env), Idled: true, Ended: end}
	}
	c.Deadline = time.Time{}
	return c, Effects{}
}

// Out says whether the reference is to the attempt that is out.
func Out(c fsm.Consumer, r fsm.DeliveryRef) bool {
	return Current(c, r) && c.State == fsm.Waking && c.Sent && c.Handed == r.Handed && c.HiddenAt.IsZero()
}

// Counts says whether what an attempt tells of a delivery counts. What was sent does as long as its wake goes on.
func Counts(c fsm.Consumer, r fsm.DeliveryRef, d fsm.Delivered) bool {
	return Current(c, r) && (!d.Unsent || Out(c, r))
}

// Fail books a delivery attempt that failed (webhook spec, Failure Handling). What it has brought may step aside.
func Fail(c fsm.Consumer, env Env, r fsm.DeliveryRef, f fsm.Failure) (fsm.Consumer, Effects) {
	if !Out(c, r) {
		return c, Effects{}
	}
	c = clone(c)
	note(&c, c.Primary, f.Tail)
	if stepsAside(c, env, f) {
		return stepAside(c, env, f)
	}
	return failed(c, env, f, env.Now)
}

// Park takes back the attempt that was handed out and not begun: it waits for this long, unless Begin hands it out.
// Parked again, it waits from then on. Without a reason, it is handed back.
func Park(
	c fsm.Consumer, env Env, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration,
) (fsm.Consumer, Effects) {
	if !Current(c, r) || c.State != fsm.Waking || c.Handed != r.Handed || !c.HiddenAt.IsZero() {
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
	c.Held, c.Deadline = why, env.Now.Add(wait)
	return c, Effects{}
}

// Begin hands out the attempt of a reference anew, as a slot is free for it. The attempt was parked, or is out and was
// not begun. It gets another number, so that a late call of Park does nothing. The same call again gets the same
// attempt: by identifies the caller. Without a Delivery there is nothing to deliver any more, or the attempt belongs to
// another caller.
func Begin(c fsm.Consumer, env Env, r fsm.DeliveryRef, by string) (fsm.Consumer, Effects) {
	if c.State != fsm.Waking || c.Retired || !c.HiddenAt.IsZero() {
		return c, Effects{}
	}
	if c.Sent && c.Holder == (fsm.Holder{Handed: c.Handed, By: by}) {
		c.Deadline = env.Now.Add(patience(c, env.Timing))
		w := deliveryNow(c)
		w.Nudged = env.Now.Before(c.Nudged)
		return c, Effects{Delivery: w}
	}
	if !Current(c, r) || c.Handed != r.Handed || !c.Sent && c.Attempt != r.Attempt-1 {
		return c, Effects{}
	}
	c = clone(c)
	if c.Sent {
		c.Attempt, c.Sent = c.Attempt-1, false
	}
	e := handOut(&c, env)
	c.Holder = fsm.Holder{Handed: c.Handed, By: by}
	return c, e
}

// Accept takes in that an attempt was answered 2xx without "done". It stops the retries, whichever attempt it was.
func Accept(c fsm.Consumer, env Env, r fsm.DeliveryRef) (fsm.Consumer, Effects) {
	if !Current(c, r) {
		return c, Effects{}
	}
	delivered(&c)
	if c.State == fsm.Waking {
		goLive(&c, env)
	}
	return c, Effects{}
}

// Finish takes in that an attempt was answered 2xx with "done" (webhook spec, Synchronous Done). It acks everything up
// to the tails that the attempt was sent with, and no more: the worker has not seen what landed later. A tail beyond
// the noted one belongs to a stream that was deleted since.
func Finish(c fsm.Consumer, env Env, r fsm.DeliveryRef, seen []fsm.StreamTail) (fsm.Consumer, Effects) {
	if !Current(c, r) {
		return c, Effects{}
	}
	c = clone(c)
	delivered(&c)
	for _, s := range seen {
		if !s.Tail.After(c.Links[s.Path].Tail) {
			ack(&c, s.Path, s.Tail)
		}
	}
	return finished(c, env)
}

// Deliver takes in that the events of an attempt were delivered, or are dead: the consumer goes on behind them. Dead
// events leave a letter, once. The read of the events has shown how far the stream goes, which may be news to the
// store.
func Deliver(c fsm.Consumer, env Env, r fsm.DeliveryRef, d fsm.Delivered) (fsm.Consumer, Effects) {
	if !Counts(c, r, d) {
		return c, Effects{}
	}
	c = clone(c)
	failing := c.FirstFailure
	delivered(&c)
	c.Profile = d.Profile
	note(&c, d.Path, d.Tail)
	var dead *fsm.DeadLetter
	if to := behind(c, d.To, d.Within); !to.After(c.Links[d.Path].Tail) && ack(&c, d.Path, to) && d.Dead != nil {
		letter := *d.Dead
		letter.FirstFailure, dead = failing, &letter
	}
	c, e := finished(c, env)
	e.Dead = dead
	return c, e
}

// Resume resumes deliveries to the consumer: the subscription's endpoint takes them again. What was held back
// meanwhile is due at once. What waits for its retry, or for a reason that stays, goes on waiting. ok is false if
// nothing was held back.
func Resume(c fsm.Consumer, env Env) (_ fsm.Consumer, _ Effects, ok bool) {
	return resume(c, env, false)
}

// ResumeLost is Resume where nobody asks for it: the store may have lost that a resumption, or a consent, has reached
// the consumer. What was given up stays so.
func ResumeLost(c fsm.Consumer, env Env) (_ fsm.Consumer, _ Effects, ok bool) {
	return resume(c, env, true)
}

func resume(c fsm.Consumer, env Env, lost bool) (_ fsm.Consumer, _ Effects, ok bool) {
	switch {
	case heldBack(c) && c.Deadline.After(env.Now) && (!c.Held.Stays() || lost && c.Held == fsm.BlockedConsent):
		c.Deadline = env.Now
		return c, Effects{}, true
	case c.State == fsm.GivenUp && !lost:
		c, e := Revive(c, env)
		return c, e, true
	case !c.Retired || c.State == fsm.GivenUp:
		return c, Effects{}, false
	}
	delivered(&c)
	c.Attempt = 0
	if c.State == fsm.Waking && c.HiddenAt.IsZero() {
		c.Deadline = env.Now
	}
	return c, Effects{}, true
}

// Revive has a consumer that was given up go on where it stood, at once.
func Revive(c fsm.Consumer, env Env) (fsm.Consumer, Effects) {
	c = clone(c)
	revived := revive(&c)
	return c, Effects{Delivery: wakeIfPending(&c, env), Revived: revived}
}

// ReleaseHeld makes the next attempt of the consumer's wake due at once, as the reason ended has ended. If that is
// BlockedConsent, it is for what waits for it and nothing else. Otherwise the endpoint is up again. A delivery that was
// held back then just comes sooner, unless its reason stays. A delivery that has failed before is nudged: its schedule
// stands (Consumer.Nudged). Otherwise an endpoint that takes some deliveries and fails others, and so is up
// again every other second, would use up the attempts.
func ReleaseHeld(c fsm.Consumer, env Env, ended fsm.BlockReason) fsm.Consumer {
	switch {
	case !waits(c, env):
		return c
	case ended == fsm.BlockedConsent:
		if c.Held == ended {
			c.Deadline = env.Now
		}
		return c
	case c.Held.Stays():
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
func Probe(c fsm.Consumer, env Env) (_ fsm.Consumer, ok bool) {
	switch {
	case !waits(c, env):
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
func waits(c fsm.Consumer, env Env) bool {
	return c.State == fsm.Waking && !c.Sent && !c.Retired && c.HiddenAt.IsZero() && c.Deadline.After(env.Now)
}

// Retry has the next attempt of the consumer's wake made at once, as an operator has asked for. It counts as any. ok is
// false if none waits.
func Retry(c fsm.Consumer, env Env) (_ fsm.Consumer, ok bool) {
	if !waits(c, env) {
		return c, false
	}
	c.Deadline, c.Nudged, c.Probed = env.Now, time.Time{}, false
	return c, true
}

// heldBack says whether the next attempt of the wake waits though its time had come: it was handed out, and is parked.
func heldBack(c fsm.Consumer) bool {
	return c.State == fsm.Waking && !c.Sent && c.Handed > 0 && (c.Attempt == 0 || !c.ParkedAt.IsZero()) && !c.Retired &&
		c.HiddenAt.IsZero()
}
