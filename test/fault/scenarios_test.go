package fault

import (
	"testing"
	"time"

	"reveille/test/harness"
)

// scenario is one thing that goes wrong, while writers write and workers work.
type scenario struct {
	name string
	// short has it played by TestFaultsShort too.
	short bool
	// share of FAULT_MINUTES that it lasts; 0 for longSpan.
	share   float64
	options options
	// prepare completes the options with what takes time to make.
	prepare func(t *testing.T, o *options)
	// faults has things go wrong for about a span. What it leaves broken is mended after it.
	faults func(w *world, span time.Duration)
}

var scenarios = []scenario{
	{name: "baseline", short: true, faults: nothing},
	{name: "replica killed mid-delivery", short: true, faults: killReplicas},
	{name: "rolling restart of all replicas", short: true, faults: rollingRestart},
	{name: "replica frozen and resumed", short: true, faults: freezeReplica},
	{name: "Redis restarted", faults: restartRedis},
	{name: "Redis killed, AOF everysec", short: true, faults: killRedis},
	{
		name: "Redis loses its last second", short: true,
		faults: func(w *world, span time.Duration) { rewindRedis(w, span, time.Second) },
	},
	{name: "Redis restored from an older backup", faults: restoreBackup},
	{name: "Redis out of reach of one replica", faults: swallowOne(linkRedis)},
	{name: "cluster, masters killed", options: options{cluster: true}, faults: killMasters},
	{name: "cluster, masters frozen and resumed", options: options{cluster: true}, faults: freezeMasters},
	{name: "cluster, a master out of reach", options: options{cluster: true}, faults: swallowNode},
	{name: "cluster, latency and resets", options: options{cluster: true}, faults: badLinks(linkRedis)},
	{name: "upstream restarted", faults: restartUpstream},
	{name: "upstream swallows everything", faults: swallowAll(linkUpstream)},
	{name: "upstream out of reach of one replica", faults: swallowOne(linkUpstream)},
	{name: "upstream answers 404 for less than the grace", faults: loseUpstream},
	{name: "upstream answers 404 while receivers take their time", faults: loseUpstreamAgainAndAgain},
	{name: "latency and resets, redis links", faults: badLinks(linkRedis)},
	{name: "latency and resets, upstream links", faults: badLinks(linkUpstream)},
	{name: "latency and resets, webhook links", faults: badLinks(linkWebhook)},
	{name: "latency and resets, callback links", faults: badLinks(linkAPI)},
	{name: "latency and resets, writers and readers", faults: badLinks(linkWriter, linkReader)},
	{
		name: "latency and resets, all links", short: true,
		faults: badLinks(linkRedis, linkUpstream, linkWebhook, linkAPI, linkWriter, linkReader),
	},
	{name: "workers crash after the claim", short: true, faults: misbehave(behaviour{crash: 0.5})},
	{name: "workers stall and come back as zombies", faults: misbehave(behaviour{stall: 0.4})},
	{name: "workers answer 500", faults: misbehave(behaviour{status: 500})},
	{name: "receivers answer with what is no HTTP", faults: misbehave(behaviour{broken: 0.2})},
	{name: "the proxy refuses, cuts and swallows", faults: misbehave(behaviour{proxy: 0.2})},
	{name: "all replicas killed in the middle of replays", short: true, faults: inReplays(killAllReplicas)},
	{name: "a replica frozen in the middle of replays", faults: inReplays(freezeOneReplica)},
	{name: "Redis restarted in the middle of replays", faults: inReplays(restartRedisOnce)},
	{name: "Redis killed in the middle of replays", faults: inReplays(killRedisOnce)},
	{name: "Redis and all replicas killed in the middle of replays", faults: inReplays(killEverything)},
	{name: "Redis loses its last second, in the middle of replays", faults: inReplays(rewindRedisOnce)},
	{
		name: "cluster, a master killed in the middle of replays", options: options{cluster: true},
		faults: inReplays(func(w *world) { killMaster(w, 0) }),
	},
	{
		name: "events are handed over, and everything is killed by turns", short: true, options: options{targets: 2},
		faults: killByTurns,
	},
	{
		name: "events are handed over, and Redis loses its last second", options: options{targets: 2},
		faults: func(w *world, span time.Duration) {
			w.withoutCreations(func() { rewindRedis(w, span, time.Second) })
		},
	},
	{
		name: "events are handed over, latency and resets, all links", options: options{targets: 2},
		faults: badLinks(linkRedis, linkUpstream, linkWebhook, linkAPI, linkWriter, linkReader),
	},
	{
		name:    "10,000 events are handed over, and everything is killed again and again",
		options: options{targets: 3, events: 10_000, calm: true}, faults: killUntilHandedOver,
	},
	{name: "clock of a replica jumps", prepare: jumpingClock, faults: jumpClock},
	{name: "everything at random", share: 1, prepare: jumpingClock, faults: anything},
	{
		name: "registry, everything at random", share: 0.5, options: options{registry: true}, prepare: jumpingClock,
		faults: anything,
	},
	{
		name: "cluster, everything at random", share: 0.5, options: options{cluster: true}, prepare: jumpingClock,
		faults: anything,
	},
}

func nothing(w *world, span time.Duration) { w.pause(span) }

func killReplicas(w *world, span time.Duration) {
	for i := range 2 {
		w.losingAnswers(w.replicas[i].Kill)
		w.pause(span / 2)
		w.replicas[i].Start()
	}
}

func rollingRestart(w *world, span time.Duration) {
	for _, r := range w.replicas {
		if err := r.Stop(); err != nil {
			w.t.Errorf("a replica did not end in order: %v", err)
		}
		r.Start()
		w.pause(span / replicas)
	}
}

// freezeReplica takes at least as long as wakes and streams take to be given up by others; half a minute in the long
// form.
func freezeReplica(w *world, span time.Duration) {
	if span >= longSpan {
		span = 30 * time.Second
	} else {
		span = 2 * livenessTimeout
	}
	w.freezeFor(w.replicas[0], span)
	w.pause(livenessTimeout)
}

// freezeFor stops a replica as it stands for a time.
func (w *world) freezeFor(r *harness.Reveille, span time.Duration) {
	w.losingAnswers(func() {
		r.Pause()
		w.pause(span)
		r.Resume()
	})
}

// losingAnswers does what may keep the answers of receivers from being noted.
func (w *world) losingAnswers(f func()) {
	began := time.Now()
	f()
	w.journal.mark(answersLost, began, time.Now())
}

// killAllReplicas kills all of them at the same time.
func killAllReplicas(w *world) {
	w.losingAnswers(func() {
		for _, r := range w.replicas {
			r.Kill()
		}
	})
	for _, r := range w.replicas {
		r.Start()
	}
}

func freezeOneReplica(w *world) { w.freezeFor(w.replicas[w.random(replicas)], 2*livenessTimeout) }

func restartRedis(w *world, span time.Duration) {
	for range 2 {
		restartRedisOnce(w)
		w.pause(span / 2)
	}
}

func restartRedisOnce(w *world) {
	w.losingAnswers(func() {
		if err := w.redis.Stop(); err != nil {
			w.t.Errorf("redis did not end in order: %v", err)
		}
		w.pause(500 * time.Millisecond)
		w.redis.Restart()
	})
}

func restartUpstream(w *world, span time.Duration) {
	for range 2 {
		_ = w.ref.Stop()
		w.pause(span / 6)
		w.ref.Restart()
		w.pause(span / 3)
	}
}

func swallowAll(kind string) func(*world, time.Duration) {
	return func(w *world, span time.Duration) { swallowFor(w, w.some(kind, -1), span) }
}

func swallowOne(kind string) func(*world, time.Duration) {
	return func(w *world, span time.Duration) { swallowFor(w, w.some(kind, w.random(replicas)), span) }
}

func swallowFor(w *world, links []*connection, span time.Duration) {
	for _, c := range links {
		c.swallow()
	}
	w.pause(span)
	for _, c := range links {
		c.heal()
	}
}

func loseUpstream(w *world, span time.Duration) {
	began := time.Now()
	for _, c := range w.some(linkUpstream, -1) {
		c.leadTo(w.missing.Listener.Addr().String())
	}
	w.pause(min(span, goneGrace/10))
	for _, c := range w.some(linkUpstream, -1) {
		c.heal()
	}
	w.journal.mark(missing, began, time.Now())
	// What is hidden is shown again once a replica has looked, which it may have no time for.
	w.journal.mark(maybeGone, began, time.Now().Add(goneGrace))
}

// loseUpstreamAgainAndAgain has deliveries be out while their stream is hidden, and shown again.
func loseUpstreamAgainAndAgain(w *world, span time.Duration) {
	misbehave(behaviour{linger: pushTimeout / 2})(w, span/6)
	for range 4 {
		loseUpstream(w, 500*time.Millisecond)
		w.pause(span / 6)
	}
}

// badLinks delays every answer by 200 ms and resets connections at 5% of what passes.
func badLinks(kinds ...string) func(*world, time.Duration) {
	return func(w *world, span time.Duration) {
		for _, kind := range kinds {
			for _, c := range w.some(kind, -1) {
				c.bad(200, 20, 5)
			}
		}
		w.pause(span)
	}
}

func misbehave(b behaviour) func(*world, time.Duration) {
	return func(w *world, span time.Duration) {
		for _, k := range w.workers {
			k.behave(b)
		}
		for _, r := range w.receivers {
			r.behave(b)
		}
		for _, r := range w.targets {
			r.behave(b)
		}
		w.proxy.behave(b)
		w.pause(span)
	}
}

// clockError is what the clock of a replica jumps by.
const clockError = 10 * time.Minute

func jumpClock(w *world, span time.Duration) {
	for _, d := range []time.Duration{clockError, -clockError, 0} {
		w.jump(0, d)
		w.pause(span / 3)
	}
}
