package fault

import "time"

// lossWindow is how much of its latest changes a Redis with appendfsync everysec may not have written yet when it is
// killed: while the disk is slow it waits for up to two seconds.
const lossWindow = 2 * time.Second

// withoutCreations runs f while no stream is created. A Redis that loses its latest changes may lose that a stream
// exists. The replica that made it known looks for it again after five seconds; but if it is killed as well, or more
// than that is lost, nobody can tell of the stream: limits that are left alone.
func (w *world) withoutCreations(f func()) {
	w.creating.Lock()
	defer w.creating.Unlock()
	w.pause(500 * time.Millisecond)
	f()
}

func killRedis(w *world, span time.Duration) {
	for range 2 {
		w.pause(span / 2)
		killRedisOnce(w)
	}
	w.pause(span / 2)
}

func killRedisOnce(w *world) {
	killed := time.Now()
	w.redis.Kill()
	w.pause(300 * time.Millisecond)
	w.redis.Restart()
	w.journal.mark(redisLost, killed.Add(-lossWindow), time.Now())
}

// killEverything kills Redis and all replicas at the same time.
func killEverything(w *world) {
	w.withoutCreations(func() {
		killed := time.Now()
		w.losingAnswers(func() {
			for _, r := range w.replicas {
				r.Kill()
			}
			w.redis.Kill()
		})
		w.redis.Restart()
		w.journal.mark(redisLost, killed.Add(-lossWindow), time.Now())
		for _, r := range w.replicas {
			r.Start()
		}
	})
}

func rewindRedisOnce(w *world) {
	w.withoutCreations(func() { rewindRedis(w, 0, time.Second) })
}

// rewindRedis ends Redis and starts it with what it had a while before.
func rewindRedis(w *world, span, lost time.Duration) {
	w.pause(span / 3)
	var from time.Time
	var written int64
	// Where the machine had no time, more would be lost than the scenario is about: it begins again.
	for range 20 {
		from = time.Now()
		written = w.redis.WrittenSoFar()
		w.pause(lost)
		w.redis.Pause()
		if time.Since(from) < lost+time.Second {
			break
		}
		w.redis.Resume()
	}
	w.redis.Kill()
	w.redis.LoseSince(written)
	w.redis.Restart()
	w.journal.mark(redisLost, from.Add(-lossWindow), time.Now())
	w.pause(span / 3)
}

func restoreBackup(w *world, span time.Duration) {
	w.withoutCreations(func() { rewindRedis(w, span, span/2) })
}
