package fault

import "time"

// A scenario that counts to so many events has so long for it, and says so often how far it has got.
const (
	countTimeout = 40 * time.Minute
	countEvery   = 30 * time.Second
)

// killOneReplica kills a replica, and has the others do without it for a while.
func killOneReplica(w *world) {
	r := w.replicas[w.random(replicas)]
	w.losingAnswers(r.Kill)
	w.pause(w.between(0, time.Second))
	r.Start()
}

// killRedisAlone kills Redis while no stream is created.
func killRedisAlone(w *world) { w.withoutCreations(func() { killRedisOnce(w) }) }

func killUpstream(w *world) {
	w.ref.Kill()
	w.pause(300 * time.Millisecond)
	w.ref.Restart()
}

// killAll kills the stream server, Redis and all replicas at the same time. Without a registry, replicas are ready
// before the stream server is.
func killAll(w *world) {
	w.ref.Kill()
	killEverything(w)
	w.ref.Restart()
}

// killByTurns kills a replica, Redis and the stream server, each once.
func killByTurns(w *world, span time.Duration) {
	kills := []func(*world){killOneReplica, killRedisAlone, killUpstream}
	for _, kill := range kills {
		w.pause(span / time.Duration(len(kills)))
		kill(w)
	}
}

// killUntilHandedOver kills one thing after the other until all events are handed over.
func killUntilHandedOver(w *world, _ time.Duration) {
	kills := []func(*world){killOneReplica, killRedisAlone, killUpstream, killAllReplicas, killAll}
	began, said := time.Now(), time.Now()
	for killed := 0; w.handedOver() < w.options.events; killed++ {
		if time.Since(began) > countTimeout {
			w.t.Errorf("only %d of %d events were handed over within %s", w.handedOver(), w.options.events,
				countTimeout)
			return
		}
		if time.Since(said) > countEvery {
			progress("  %d of %d events are handed over, after %d kills", w.handedOver(), w.options.events, killed)
			said = time.Now()
		}
		kills[killed%len(kills)](w)
		if !w.pause(w.between(2*time.Second, 6*time.Second)) {
			return
		}
	}
}
