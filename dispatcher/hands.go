package dispatcher

// spareHands is how many goroutines that have nothing to do are kept.
const spareHands = 64

// do has one attempt made, by a goroutine that has made others if one is free: its stack has grown to the size that requests take, which
// costs more than many an attempt's own code.
func (d *Dispatcher) do(attempt func()) {
	d.attempts.Add(1)
	select {
	case d.work <- attempt:
	default:
		d.hands.Go(func() { d.workOn(attempt) })
	}
}

// workOn makes one attempt, and others until there are enough who wait for one.
func (d *Dispatcher) workOn(attempt func()) {
	for {
		attempt()
		d.attempts.Done()
		if d.spare.Add(1) > spareHands {
			d.spare.Add(-1)
			return
		}
		select {
		case attempt = <-d.work:
			d.spare.Add(-1)
		case <-d.reports.Done():
			return
		}
	}
}
