package dispatcher

// maxIdleWorkers is how many goroutines that have nothing to do are kept.
const maxIdleWorkers = 64

// do has the pool do one piece of work. A goroutine that has made attempts before is preferred: its stack has grown to
// the size that requests take, and growing it costs more than many an attempt's own code.
func (d *Dispatcher) do(work func()) {
	d.attempts.Add(1)
	select {
	case d.work <- work:
	default:
		d.pool.Go(func() { d.worker(work) })
	}
}

// worker does one piece of work, then others, until enough goroutines are idle or the program stops.
func (d *Dispatcher) worker(work func()) {
	for {
		work()
		d.attempts.Done()
		if d.idle.Add(1) > maxIdleWorkers {
			d.idle.Add(-1)
			return
		}
		select {
		case work = <-d.work:
			d.idle.Add(-1)
		case <-d.reports.Done():
			return
		}
	}
}
