package fault

import "time"

// anything has one thing after the other go wrong, drawn from the seed, while links are bad at random, too.
func anything(w *world, span time.Duration) {
	kinds := []string{linkRedis, linkUpstream, linkAPI, linkWebhook, linkWriter, linkReader}
	short := func(f func(*world, time.Duration)) func() {
		return func() { f(w, w.between(time.Second, 5*time.Second)) }
	}
	alone := func(f func(*world, time.Duration)) func() { return func() { w.withoutCreations(short(f)) } }
	events := []happening{
		{"nothing", short(nothing)},
		{"replicas are killed", short(killReplicas)},
		{"all replicas restart", short(rollingRestart)},
		{"a replica is frozen", func() {
			w.freezeFor(w.replicas[w.random(replicas)], w.between(time.Second, 15*time.Second))
		}},
		{"upstream restarts", short(restartUpstream)},
		{"upstream swallows everything", short(swallowAll(linkUpstream))},
		{"upstream answers 404", short(loseUpstream)},
		{"workers crash", short(misbehave(behaviour{crash: 0.3}))},
		{"workers stall", short(misbehave(behaviour{stall: 0.3}))},
		{"workers answer 500", short(misbehave(behaviour{status: 500}))},
		{"receivers answer with what is no HTTP", short(misbehave(behaviour{broken: 0.2}))},
		{"the proxy refuses", short(misbehave(behaviour{proxy: 0.2}))},
		{"a clock jumps", func() { jumpClock(w, 6*time.Second) }},
	}
	if w.cluster != nil {
		events = append(events, []happening{
			{"masters are killed", alone(killMasters)},
			{"masters are frozen", alone(freezeMasters)},
			{"a node is out of reach", short(swallowNode)},
		}...)
	} else {
		events = append(events, []happening{
			{"redis restarts", short(restartRedis)},
			{"redis is killed", alone(killRedis)},
			{"redis loses its last second", alone(func(w *world, d time.Duration) { rewindRedis(w, d, time.Second) })},
			{"redis is out of reach of one replica", short(swallowOne(linkRedis))},
		}...)
	}
	for until := time.Now().Add(span); time.Now().Before(until) && w.ctx.Err() == nil; {
		e := events[w.random(len(events))]
		kind := kinds[w.random(len(kinds))]
		bad := w.chance(0.5)
		if bad {
			for _, c := range w.some(kind, -1) {
				c.bad(w.random(200), 10, w.random(6))
			}
		}
		if bad {
			progress("  %s, with bad %s links", e.name, kind)
		} else {
			progress("  %s", e.name)
		}
		e.do()
		w.revive()
		w.pause(w.between(0, 2*time.Second))
	}
	// A reference server that has lost count of an interrupted append finds it again at its start.
	_ = w.ref.Stop()
	w.ref.Restart()
}

// happening is one of the things that go wrong at random.
type happening struct {
	name string
	do   func()
}
