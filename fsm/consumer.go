package fsm

// IsAside says whether the consumer is an aside: it goes on with a delivery of another consumer, which has stepped
// aside (Profile.Aside). Its only stream ends for it where that delivery did, whatever follows: the Tail of its Link
// never changes. It is removed once everything is delivered or dead. It is never hidden, but waits while the other
// consumer is hidden (spec.Env.Away). It is removed with the other consumer, and no Removal reports it.
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
