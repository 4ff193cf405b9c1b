package fsm

import "time"

// The steps that transitions are made of.

// wakeIfPending ends every transition that leaves a consumer idle: pending work wakes it (L1), unless it is hidden.
func (c *Consumer) wakeIfPending(env Env) *Wake {
	if c.State != Idle {
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
	c.State = Waking
	c.uncount(env, c.FirstFailure) // idle takes back what counted before
	c.begin(env)
	switch {
	case c.Retired: // nothing but a resumption ends that
		return nil
	case c.Stalled >= StallLimit:
		c.Deadline = env.Now.Add(RetryDelay(c.Stalled-StallLimit+1, env.Jitter))
		return nil
	}
	return c.handOut(env).Wake
}

// begin makes the wake a new one.
func (c *Consumer) begin(env Env) {
	c.Epoch, c.WakeID, c.WokeAt = max(c.Epoch, env.Base)+1, env.WakeID, env.Now
	c.Moved, c.Attempt, c.Handed, c.Sent, c.Span, c.Again = false, 0, 0, false, 0, false
	c.Nudged, c.Probed, c.Holder = time.Time{}, false, Holder{}
}

// beginAnew makes a wake that may be lost a new one. The delivery of a push is still the same: its attempts count on.
func (c *Consumer) beginAnew(env Env) {
	attempt, span := c.Attempt, c.Span
	c.begin(env)
	if !c.Profile.IsZero() && attempt > 0 && span > 0 {
		c.Attempt, c.Span = attempt, span
	}
}

// handOut begins the next delivery attempt. A wake of an earlier incarnation of the server may have been over, and
// followed by others that are lost: it becomes a new one.
func (c *Consumer) handOut(env Env) (e Effects) {
	c.uncountUnattempted(env)
	if c.Epoch <= env.Base {
		e.Ended = c.Ended(EndLost)
		c.beginAnew(env)
	}
	c.Attempt, c.Handed, c.Sent = c.Attempt+1, c.Handed+1, true
	c.Deadline = env.Now.Add(c.patience(env.Timing))
	e.Wake = c.wakeNow()
	e.Wake.Nudged = env.Now.Before(c.Nudged)
	return e
}

func (c Consumer) gone(cause RemovalCause) Effects {
	switch {
	case c.State == GivenUp:
		return Effects{}
	case c.IsAside():
		return Effects{Ended: c.Ended(EndRemoved)}
	}
	return Effects{
		Removal: &Removal{
			Subscription: c.Subscription, Generation: c.Generation, Consumer: c.ID, Primary: c.Primary,
			Acked: c.Links[c.Primary].Acked, Cause: cause,
		},
		Ended: c.Ended(EndRemoved),
	}
}

// giveUp keeps of a consumer what revive needs. Unless nothing is pending, it leaves a dead letter.
func (c Consumer) giveUp() (Consumer, Effects) {
	e := c.gone(RemovedGivenUp)
	e.Dead = c.unwoken()
	c.State, c.Attempt, c.Stalled, c.Moved, c.Deadline = GivenUp, 0, 0, false, time.Time{}
	for path, l := range c.Links {
		l.Past = l.Tail
		c.Links[path] = l
	}
	return c, e
}

// news says whether the stream of a consumer that was given up has had an event since.
func (l Link) news() bool { return l.Tail.Ahead(l.Past) }

// renewed says whether any stream of a consumer that was given up has had an event since.
func (c Consumer) renewed() bool {
	for _, l := range c.Links {
		if l.news() {
			return true
		}
	}
	return false
}

// revive makes a consumer that was given up again, and returns the number of the dead letter that it had left. Its next
// wake is of a later epoch.
func (c *Consumer) revive() (letter int64) {
	letter, c.Letter, c.State = c.Letter, 0, Idle
	c.delivered()
	for path, l := range c.Links {
		l.Past = ""
		c.Links[path] = l
	}
	return letter
}

// uncount takes the time since a moment, in which no attempt could be made, out of the failure clock. What lies before
// the FirstFailure is not in it.
func (c *Consumer) uncount(env Env, since time.Time) {
	if c.FirstFailure.IsZero() || since.IsZero() {
		return
	}
	if since.Before(c.FirstFailure) {
		since = c.FirstFailure
	}
	c.Uncounted += max(0, env.Now.Sub(since))
}

// uncountUnattempted takes the time out of the failure clock since the next attempt is due, or was parked.
func (c *Consumer) uncountUnattempted(env Env) {
	since := c.Deadline
	if !c.ParkedAt.IsZero() {
		since = c.ParkedAt
	}
	c.uncount(env, since)
	c.ParkedAt = time.Time{}
}

// rest takes a consumer that is done back to idle, counts whether it got anywhere, and wakes it again if work is
// pending (L2, L3).
func (c *Consumer) rest(env Env) *Wake {
	switch {
	case c.Moved || !c.Pending():
		c.Stalled = 0
	default:
		c.Stalled++
	}
	c.idle(env)
	return c.wakeIfPending(env)
}

// finished ends the wake that the consumer is in, if it is in one, and wakes it again if work is pending. An aside
// without any is removed.
func (c Consumer) finished(env Env) (Consumer, Effects) {
	if c.State == Idle {
		return c, Effects{Wake: c.wakeIfPending(env)}
	}
	end := c.Ended(EndDone)
	if c.IsAside() && !c.Pending() {
		return c, Effects{Ended: end, Removed: true}
	}
	return c, Effects{Wake: c.rest(env), Idled: true, Ended: end}
}

// idle has a consumer rest, and the failure clock with it.
func (c *Consumer) idle(env Env) {
	if c.State == Waking && !c.FirstFailure.IsZero() {
		c.uncount(env, c.ParkedAt)
		c.ParkedAt = time.Time{}
		c.Uncounted -= max(0, env.Now.Sub(c.FirstFailure))
	}
	c.State, c.Attempt, c.Sent = Idle, 0, false
}

// ack counts only in a wake that began after the stream's present incarnation came to be.
func (c *Consumer) ack(path string, to Offset) bool {
	l, ok := c.Links[path]
	if !ok || c.Epoch <= l.Since || !l.moves(to) {
		return false
	}
	l.Acked = to
	c.Links[path] = l
	c.Moved = true
	return true
}

// note notes a tail. The tail of an aside never moves: it is the aside's end.
func (c *Consumer) note(path string, tail Offset) {
	if l, ok := c.Links[path]; ok && !c.IsAside() && tail.After(l.Tail) {
		l.Tail = tail
		c.Links[path] = l
	}
}

// delivered notes what any 2xx and any claim prove: the endpoint takes wakes.
func (c *Consumer) delivered() {
	c.FirstFailure, c.Uncounted, c.Retired, c.LastError = time.Time{}, 0, false, ""
	c.ParkedAt = time.Time{}
}

// goLive starts the liveness timeout.
func (c *Consumer) goLive(env Env) {
	c.State, c.Attempt, c.Sent = Live, 0, false
	if c.HiddenAt.IsZero() {
		c.Deadline = env.Now.Add(env.Timing.Liveness)
	}
}

func (c *Consumer) show(env Env) {
	hidden := c.HiddenAt
	c.HiddenAt = time.Time{}
	switch c.State {
	case Waking:
		c.uncount(env, hidden)
		// What became of an attempt that was out meanwhile is not known; it is made again.
		c.takeBack()
		c.Sent, c.Deadline = false, env.Now
	case Live:
		c.Deadline = env.Now.Add(env.Timing.Liveness)
	case GivenUp:
		c.Deadline = time.Time{}
	case Idle, InQuarantine:
	}
}

// behind is the position behind the events of an attempt (Delivered). The events of an aside may end inside of what a
// read shows. An aside may also be led behind its end, where the server has dropped its events.
func (c Consumer) behind(to, within Offset) Offset {
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
func (c Consumer) stepsAside(env Env, f Failure) bool {
	l, linked := c.Links[c.Primary]
	to := c.behind(f.To, f.Within)
	return f.Profile.Aside && !f.Retired && !c.IsAside() && c.Asides < MaxAsides &&
		env.Asides < MaxSubscriptionAsides && linked && l.moves(f.Within) && l.moves(to) && !to.After(l.Tail)
}

// stepAside makes the aside that goes on with a failed attempt, and goes on behind what that has brought.
func (c Consumer) stepAside(env Env, f Failure) (Consumer, Effects) {
	aside := c
	aside.ID, aside.Asides, aside.Stalled, aside.Replaying, aside.Replayed = AsideID(c.ID, c.Epoch), 0, 0, 0, 0
	aside.Links = map[string]Link{c.Primary: {Acked: c.Links[c.Primary].Acked, Tail: f.Within}}
	own := env
	own.WakeID = env.AsideWakeID
	aside.begin(own)
	aside.Attempt, aside.Nudged, aside.Probed = c.Attempt, c.Nudged, c.Probed
	aside, _ = aside.failed(own, f, env.Now)
	aside.Span = f.Span
	c.Profile = f.Profile
	c.delivered()
	c.ack(c.Primary, c.behind(f.To, f.Within))
	c.Asides++
	c, e := c.finished(env)
	e.Aside = &aside
	return c, e
}

// failed gives the consumer up if the attempt was the last one of its profile, or began after failures had gone on for
// long enough. Time in which nothing was attempted does not count (D9). An endpoint that answered 410 gets nothing
// until it is resumed, however long that takes. A nudged attempt does not count: the next one is due as it was before.
// The failure counts from a moment that may lie ahead.
func (c Consumer) failed(env Env, f Failure, from time.Time) (Consumer, Effects) {
	began := c.Deadline.Add(-c.patience(env.Timing))
	if c.FirstFailure.IsZero() || c.FirstFailure.After(from) {
		c.FirstFailure = from
	}
	c.Sent, c.LastError, c.Profile = false, f.Reason, f.Profile
	if c.Attempt == 1 && !c.Profile.IsZero() {
		c.Span = f.Span
	}
	nudged, probed, wait := c.Nudged, c.Probed, min(f.RetryAfter, MaxRetryAfter)
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
		return c.giveUp()
	}
	c.Deadline = env.Now.Add(max(c.Profile.delay(c.Attempt, env.Jitter), wait))
	return c, Effects{}
}
