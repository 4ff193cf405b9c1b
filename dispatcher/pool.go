package dispatcher

// maxIdleWorkers is how many idle goroutines are kept.
const maxIdleWorkers = 64

// do gives the pool one piece of work. It prefers a goroutine that has made attempts before: the stack of that
// goroutine already has the size that requests need. Growing a stack often costs more than the code of an attempt.
func (d *Dispatcher) do(work func() bool) {
	d.attempts.Add(1)
	select {
	case d.work <- work:
	default:
		d.pool.Add(1)
		go d.worker(work)
	}
}

// worker does one piece of work, then others, until enough goroutines are idle or the program stops. If work returns
// false, another goroutine has called worker to do the rest: it takes the place of this one in the counts.
func (d *Dispatcher) worker(work func() bool) {
	for {
		if !work() {
			return
		}
		d.attempts.Done()
		if d.idle.Add(1) > maxIdleWorkers {
			d.idle.Add(-1)
			d.pool.Done()
			return
		}
		select {
		case work = <-d.work:
			d.idle.Add(-1)
		case <-d.reports.Done():
			d.pool.Done()
			return
		}
	}
}
