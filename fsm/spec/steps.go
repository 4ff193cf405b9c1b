package spec

import (
	"time"

	"reveille/fsm"
)

// The steps that transitions are made of.

// wakeIfPending ends every transition that leaves a consumer idle: pending work wakes it (L1), unless it is hidden.
func wakeIfPending(c *fsm.Consumer, env Env) *fsm.Delivery {
	if c.State != fsm.Idle {
		return nil
	}
	c.Deadline = time.Time{}
	if !c.HiddenAt.IsZero() {
		c.Deadline = c.HiddenAt.Add(env.Timing.GoneGrace)
		return nil
	}
	if !c.Pending() {
		return nil
	}
	c.State = fsm.Waking
	uncount(c, env, c.FirstFailure) // idle takes back what counted before
	begin(c, env)
	switch {
	case c.Retired: // nothing but a resumption ends that
		return nil
	case c.Stalled >= fsm.StallLimit:
		c.Deadline = env.Now.Add(RetryDelay(c.Stalled-fsm.StallLimit+1, env.Jitter))
		return nil
	}
	return handOut(c, env).Delivery
}

// begin makes the wake a new one.
func begin(c *fsm.Consumer, env Env) {
	c.Epoch, c.WakeID, c.WokeAt = max(c.Epoch, env.Base)+1, env.WakeID, env.Now
	c.Moved, c.Attempt, c.Handed, c.Sent, c.Span, c.Again = false, 0, 0, false, 0, false
	c.Nudged, c.Probed, c.Holder, c.Held = time.Time{}, false, fsm.Holder{}, ""
}

// beginAnew makes a wake that may be lost a new one. The delivery of a push is still the same: its attempts count on.
func beginAnew(c *fsm.Consumer, env Env) {
	attempt, span := c.Attempt, c.Span
	begin(c, env)
	if !c.Profile.IsZero() && attempt > 0 && span > 0 {
		c.Attempt, c.Span = attempt, span
	}
}

// handOut begins the next delivery attempt. A wake of an earlier incarnation of the server may have been over, and
// followed by others that are lost: it becomes a new one.
func handOut(c *fsm.Consumer, env Env) (e Effects) {
	uncountUnattempted(c, env)
	if c.Epoch <= env.Base {
		e.Ended = ended(*c, fsm.EndLost)
		beginAnew(c, env)
	}
	c.Attempt, c.Handed, c.Sent, c.Held = c.Attempt+1, c.Handed+1, true, ""
	c.Deadline = env.Now.Add(patience(*c, env.Timing))
	e.Delivery = deliveryNow(*c)
	e.Delivery.Nudged = env.Now.Before(c.Nudged)
	return e
}

func gone(c fsm.Consumer, cause fsm.RemovalCause) Effects {
	switch {
	case c.State == fsm.GivenUp:
		return Effects{}
	case c.IsAside():
		return Effects{Ended: ended(c, fsm.EndRemoved)}
	}
	return Effects{
		Removal: &fsm.Removal{
			Subscription: c.Subscription, Generation: c.Generation, Consumer: c.ID, Primary: c.Primary,
			Acked: c.Links[c.Primary].Acked, Cause: cause,
		},
		Ended: ended(c, fsm.EndRemoved),
	}
}

// giveUp keeps of a consumer what revive needs. Unless nothing is pending, it leaves a dead letter.
func giveUp(c fsm.Consumer) (fsm.Consumer, Effects) {
	e := gone(c, fsm.RemovedGivenUp)
	e.Dead = unwoken(c)
	c.State, c.Attempt, c.Stalled, c.Moved, c.Deadline = fsm.GivenUp, 0, 0, false, time.Time{}
	for path, l := range c.Links {
		l.Past = l.Tail
		c.Links[path] = l
	}
	return c, e
}

// news says whether the stream of a consumer that was given up has had an event since.
func news(l fsm.Link) bool { return l.Tail.Ahead(l.Past) }

// renewed says whether any stream of a consumer that was given up has had an event since.
func renewed(c fsm.Consumer) bool {
	for _, l := range c.Links {
		if news(l) {
			return true
		}
	}
	return false
}

// revive makes a consumer that was given up again, and returns the number of the dead letter that it had left. Its next
// wake is of a later epoch.
func revive(c *fsm.Consumer) (letter int64) {
	letter, c.Letter, c.State = c.Letter, 0, fsm.Idle
	delivered(c)
	for path, l := range c.Links {
		l.Past = ""
		c.Links[path] = l
	}
	return letter
}

// uncount takes the time since a moment, in which no attempt could be made, out of the failure clock. What lies before
// the FirstFailure is not in it.
func uncount(c *fsm.Consumer, env Env, since time.Time) {
	if c.FirstFailure.IsZero() || since.IsZero() {
		return
	}
	if since.Before(c.FirstFailure) {
		since = c.FirstFailure
	}
	c.Uncounted += max(0, env.Now.Sub(since))
}

// uncountUnattempted takes the time out of the failure clock since the next attempt is due, or was parked.
func uncountUnattempted(c *fsm.Consumer, env Env) {
	since := c.Deadline
	if !c.ParkedAt.IsZero() {
		since = c.ParkedAt
	}
	uncount(c, env, since)
	c.ParkedAt = time.Time{}
}

// rest takes a consumer that is done back to idle, counts whether it got anywhere, and wakes it again if work is
// pending (L2, L3).
func rest(c *fsm.Consumer, env Env) *fsm.Delivery {
	switch {
	case c.Moved || !c.Pending():
		c.Stalled = 0
	default:
		c.Stalled++
	}
	idle(c, env)
	return wakeIfPending(c, env)
}

// finished ends the wake that the consumer is in, if it is in one, and wakes it again if work is pending. An aside
// without any is removed.
func finished(c fsm.Consumer, env Env) (fsm.Consumer, Effects) {
	if c.State == fsm.Idle {
		return c, Effects{Delivery: wakeIfPending(&c, env)}
	}
	end := ended(c, fsm.EndDone)
	if c.IsAside() && !c.Pending() {
		return c, Effects{Ended: end, Removed: true}
	}
	return c, Effects{Delivery: rest(&c, env), Idled: true, Ended: end}
}

// idle has a consumer rest, and the failure clock with it.
func idle(c *fsm.Consumer, env Env) {
	if c.State == fsm.Waking && !c.FirstFailure.IsZero() {
		uncount(c, env, c.ParkedAt)
		c.ParkedAt = time.Time{}
		c.Uncounted -= max(0, env.Now.Sub(c.FirstFailure))
	}
	c.State, c.Attempt, c.Sent = fsm.Idle, 0, false
}

// ack counts only in a wake that began after the stream's present incarnation came to be.
func ack(c *fsm.Consumer, path string, to fsm.Offset) bool {
	l, ok := c.Links[path]
	if !ok || c.Epoch <= l.Since || !moves(l, to) {
		return false
	}
	l.Acked = to
	c.Links[path] = l
	c.Moved = true
	return true
}

// note notes a tail. The tail of an aside never moves: it is the aside's end.
func note(c *fsm.Consumer, path string, tail fsm.Offset) {
	if l, ok := c.Links[path]; ok && !c.IsAside() && tail.After(l.Tail) {
		l.Tail = tail
		c.Links[path] = l
	}
}

// delivered notes what any 2xx and any claim prove: the endpoint takes wakes.
func delivered(c *fsm.Consumer) {
	c.FirstFailure, c.Uncounted, c.Retired, c.LastError = time.Time{}, 0, false, ""
	c.ParkedAt = time.Time{}
}

// goLive starts the liveness timeout.
func goLive(c *fsm.Consumer, env Env) {
	c.State, c.Attempt, c.Sent = fsm.Live, 0, false
	if c.HiddenAt.IsZero() {
		c.Deadline = env.Now.Add(env.Timing.Liveness)
	}
}

func show(c *fsm.Consumer, env Env) {
	hidden := c.HiddenAt
	c.HiddenAt = time.Time{}
	switch c.State {
	case fsm.Waking:
		uncount(c, env, hidden)
		// What became of an attempt that was out meanwhile is not known; it is made again.
		takeBack(c)
		c.Sent, c.Deadline = false, env.Now
	case fsm.Live:
		c.Deadline = env.Now.Add(env.Timing.Liveness)
	case fsm.GivenUp:
		c.Deadline = time.Time{}
	case fsm.Idle, fsm.InQuarantine:
	}
}

// behind is the position behind the events of an attempt (Delivered). The events of an aside may end inside of what a
// read shows. An aside may also be led behind its end, where the server has dropped its events.
func behind(c fsm.Consumer, to, within fsm.Offset) fsm.Offset {
	switch end := c.Links[c.Primary].Tail; {
	case c.IsAside() && !to.After(end):
		return to
	case c.IsAside() && within.After(end):
		return end
	case c.IsAside() || c.Again:
		return within
	}
	return to
}

// stepsAside says whether what a failed attempt has brought steps aside.
func stepsAside(c fsm.Consumer, env Env, f fsm.Failure) bool {
	l, linked := c.Links[c.Primary]
	to := behind(c, f.To, f.Within)
	return f.Profile.Aside && !f.Retired && !c.IsAside() && c.Asides < fsm.MaxAsides &&
		env.Asides < fsm.MaxSubscriptionAsides && linked && moves(l, f.Within) && moves(l, to) && !to.After(l.Tail)
}

// stepAside makes the aside that goes on with a failed attempt, and goes on behind what that has brought.
func stepAside(c fsm.Consumer, env Env, f fsm.Failure) (fsm.Consumer, Effects) {
	aside := c
	aside.ID, aside.Owner = fsm.AsideID(c.ID, c.Epoch), c.ID
	aside.Asides, aside.Stalled, aside.Replaying, aside.Replayed = 0, 0, 0, 0
	aside.Links = map[string]fsm.Link{c.Primary: {Acked: c.Links[c.Primary].Acked, Tail: f.Within}}
	own := env
	own.WakeID = env.AsideWakeID
	begin(&aside, own)
	aside.Attempt, aside.Nudged, aside.Probed = c.Attempt, c.Nudged, c.Probed
	aside, _ = failed(aside, own, f, env.Now)
	aside.Span = f.Span
	c.Profile = f.Profile
	delivered(&c)
	ack(&c, c.Primary, behind(c, f.To, f.Within))
	c.Asides++
	c, e := finished(c, env)
	e.Aside = &aside
	return c, e
}

// failed gives the consumer up if the attempt was the last one of its profile, or began after failures had gone on for
// long enough. Time in which nothing was attempted does not count (D9). An endpoint that answered 410 gets nothing
// until it is resumed, however long that takes. A nudged attempt does not count: the next one is due as it was before.
// The failure counts from a moment that may lie ahead.
func failed(c fsm.Consumer, env Env, f fsm.Failure, from time.Time) (fsm.Consumer, Effects) {
	began := c.Deadline.Add(-patience(c, env.Timing))
	if c.FirstFailure.IsZero() || c.FirstFailure.After(from) {
		c.FirstFailure = from
	}
	c.Sent, c.LastError, c.Profile = false, f.Reason, f.Profile
	if c.Attempt == 1 && !c.Profile.IsZero() {
		c.Span = f.Span
	}
	nudged, probed, wait := c.Nudged, c.Probed, min(f.RetryAfter, fsm.MaxRetryAfter)
	c.Nudged, c.Probed = time.Time{}, false
	switch {
	case f.Retired:
		c.Retired, c.Deadline = true, time.Time{}
		return c, Effects{}
	case began.Before(nudged):
		c.Attempt, c.Deadline = c.Attempt-1, env.Now.Add(max(nudged.Sub(env.Now), wait))
		if !probed {
			c.Nudged = env.Now
		}
		return c, Effects{}
	case c.Profile.Lasting:
	case c.Profile.Last(c.Attempt),
		len(c.Profile.Delays) == 0 && !began.Before(c.FirstFailure.Add(c.Uncounted+env.Timing.GCAfter)):
		return giveUp(c)
	}
	c.Deadline = env.Now.Add(max(delay(c.Profile, c.Attempt, env.Jitter), wait))
	return c, Effects{}
}

// takeBack takes back an attempt that is out and was not reported, if only reported failures count. The attempt is then
// made again.
func takeBack(c *fsm.Consumer) {
	if c.Sent && len(c.Profile.Delays) > 0 {
		c.Attempt, c.Sent, c.Again = c.Attempt-1, false, true
	}
}

// requestEnds is when the request of the attempt that is out must have ended. If the Profile says how long an attempt
// may be out, that is the deadline.
func requestEnds(c fsm.Consumer, t fsm.Timing) time.Time {
	if c.Profile.Attempt > 0 {
		return c.Deadline
	}
	return c.Deadline.Add(t.Open() - t.Waking)
}

// patience is how long an attempt of the consumer may be out.
func patience(c fsm.Consumer, t fsm.Timing) time.Duration {
	if c.Profile.Attempt > 0 {
		return c.Profile.Attempt
	}
	return t.Waking
}

// ended returns the end of the wake that the consumer is in; nil if it is in none.
func ended(c fsm.Consumer, cause fsm.EndCause) *fsm.WakeEnd {
	if c.State != fsm.Waking && c.State != fsm.Live {
		return nil
	}
	return &fsm.WakeEnd{
		Consumer: c.ID, Subscription: c.Subscription, Primary: c.Primary, Epoch: c.Epoch, WakeID: c.WakeID,
		WokeAt: c.WokeAt, Cause: cause,
	}
}

// moves says whether an ack moves the link forward.
func moves(l fsm.Link, to fsm.Offset) bool { return to.Ahead(l.Acked) && !to.Other(l.Tail) }
