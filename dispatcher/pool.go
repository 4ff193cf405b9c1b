package dispatcher

// maxIdleWorkers is how many goroutines that have nothing to do are kept.
const maxIdleWorkers = 64

// do has the pool do one piece of work. A goroutine that has made attempts before is preferred: its stack has grown to
// the size that requests take, and growing it costs more than many an attempt's own code.
func (d *Dispatcher) do(work func() bool) {
	d.attempts.Add(1)
	select {
	case d.work <- work:
	default:
		d.pool.Add(1)
		go d.worker(work)
	}
}

// worker does one piece of work, then others, until enough goroutines are idle or the program stops. Work that returns
// false is done by another goroutine, which has called worker in place of this one: it stands in the counts for it.
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
