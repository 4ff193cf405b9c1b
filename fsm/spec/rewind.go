package spec

import "reveille/fsm"

// Rewind has the consumer read one of its streams again, from an offset that lies before what is acked. An operator
// has asked for that. A new wake fences off a worker that is at work; what it acks until then does not count. ok is
// false if the consumer has no such stream, or the offset does not lie before what is acked.
func Rewind(c fsm.Consumer, env Env, path string, to fsm.Offset) (_ fsm.Consumer, _ Effects, ok bool) {
	l, linked := c.Links[path]
	if !linked || !l.Acked.After(to) {
		return c, Effects{}, false
	}
	c = clone(c)
	l.Acked, l.Since = to, c.Epoch
	c.Links[path], c.Stalled = l, 0
	c, e := beginAgain(c, env, fsm.EndRewound)
	return c, e, true
}

// beginAgain ends the wake of a consumer that has gone back in a stream. It begins another wake if work is pending.
func beginAgain(c fsm.Consumer, env Env, cause fsm.EndCause) (fsm.Consumer, Effects) {
	var revived int64
	if c.State == fsm.GivenUp {
		revived = revive(&c)
	}
	end := ended(c, cause)
	idle(&c, env)
	return c, Effects{Delivery: wakeIfPending(&c, env), Idled: true, Ended: end, Revived: revived}
}
