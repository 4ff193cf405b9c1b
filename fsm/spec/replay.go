package spec

import "reveille/fsm"

// Replays says whether the consumer can replay a dead letter: its events are in the stream that the consumer has now.
// The letter of a consumer that was given up can be replayed only by that consumer (Revive).
func Replays(c fsm.Consumer, l fsm.DeadLetter) bool {
	switch {
	case OfGivenUp(l):
		return c.Letter == l.ID.Number
	case streamIsGone(l):
		return false
	}
	return l.Generation == c.Generation && l.Born == c.Born && l.Within.After(l.From)
}

// StartReplay makes the aside that delivers a span again, with its first attempt. If the consumer is retired, there is
// no attempt, because its endpoint gets nothing. The argument number is the number of the dead letter, or the number
// that names the span. An earlier aside of the same ID may have had epochs up to epoch: its replay may have been
// cancelled.
func StartReplay(c fsm.Consumer, env Env, number int64, span fsm.ReplaySpan, epoch int64) (fsm.Consumer, Effects) {
	aside := fsm.Consumer{
		ID: fsm.AsideID(c.ID, number), Subscription: c.Subscription, Generation: c.Generation, Primary: c.Primary,
		Owner: c.ID, Profile: c.Profile, Born: c.Born, Replay: number,
		Links:    map[string]fsm.Link{c.Primary: {Acked: span.From, Tail: span.To}},
		Lease:    fsm.Lease{State: fsm.Waking, Epoch: max(c.Epoch, epoch)},
		Attempts: fsm.Attempts{Retired: c.Retired},
	}
	begin(&aside, env)
	if aside.Retired {
		return aside, Effects{}
	}
	e := handOut(&aside, env)
	return aside, e
}
