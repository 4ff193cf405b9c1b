package tailer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// modelStep is one step of a history. What its numbers mean depends on the kind.
type modelStep struct {
	Kind string
	// Path and Sub count streams and subscriptions, Replica the one that a request goes to.
	Path, Sub, Replica int
	// N is a size: how many calls, how slow.
	N int
	// Wait is how long it is until the next step, in milliseconds.
	Wait int
}

// modelKinds are the steps that a history is made of.
var modelKinds = []string{
	"create", "append", "past", "create past", "refused", "crash", "delete", "delete past",
	"subscribe", "subscribe from the start", "subscribe again", "unsubscribe", "leave", "leave one", "link", "name",
	"forget",
	"late heads", "slow heads", "quick heads", "lie", "lie for long", "mute", "down", "registry",
	"replace", "unanswered", "switch on", "close", "restart",
	"fail", "work", "die before", "die after", "revive", "outage", "lose", "store away", "little room",
}

// drawHistory draws a history. Each is of a few kinds, streams and subscriptions, for what goes wrong mostly takes
// several steps that have to do with each other.
func drawHistory(t *rapid.T) []modelStep {
	few := rapid.SliceOfNDistinct(rapid.SampledFrom(modelKinds), 3, 12, rapid.ID[string]).Draw(t, "kinds")
	kinds := append([]string{"create", "append", "subscribe"}, few...)
	paths := rapid.IntRange(1, len(modelPaths)).Draw(t, "paths")
	subs := rapid.IntRange(1, len(modelPatterns)).Draw(t, "subs")
	step := rapid.Custom(func(t *rapid.T) modelStep { return drawStep(t, kinds, paths, subs) })
	least := rapid.SampledFrom([]int{1, 4, 8, 12}).Draw(t, "steps") // rapid draws few more than it must
	history := rapid.SliceOfN(step, least, least+12).Draw(t, "history")
	if rapid.IntRange(0, 3).Draw(t, "slow backfill") == 0 {
		at := rapid.IntRange(0, len(history)).Draw(t, "at")
		history = slices.Insert(history, at, drawSlowBackfill(t, step, paths, subs)...)
	}
	if rapid.IntRange(0, 3).Draw(t, "thaw") == 0 {
		at := rapid.IntRange(0, len(history)).Draw(t, "at")
		history = slices.Insert(history, at, drawThaw(t, paths, subs)...)
	}
	if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
		at := rapid.IntRange(0, len(history)).Draw(t, "restart at")
		history = slices.Insert(history, at, drawRestart(t, step, paths, subs)...)
	}
	if rapid.IntRange(0, 3).Draw(t, "first reading") == 0 {
		history = append(drawFirstReading(t, paths, subs), history...)
	}
	return history
}

// drawFirstReading draws the usual first deployment: streams are there and so is the registry stream, the replicas
// begin with an empty store, somebody subscribes at once, and an event comes past the gateway. The registry may also be
// switched on later.
func drawFirstReading(t *rapid.T, paths, subs int) []modelStep {
	path, sub := rapid.IntRange(0, paths-1).Draw(t, "path"), rapid.IntRange(0, subs-1).Draw(t, "sub")
	steps := []modelStep{{Kind: "registry"}, {Kind: "old", Path: path, Wait: 20_000}}
	if rapid.Bool().Draw(t, "slow") {
		steps = append(steps, modelStep{Kind: "slow heads", N: rapid.IntRange(2, 4).Draw(t, "heads")})
	}
	steps = append(steps,
		modelStep{Kind: "start", Wait: rapid.SampledFrom([]int{0, 100, 3000}).Draw(t, "started for")},
		modelStep{
			Kind: "subscribe", Sub: sub, Replica: 1,
			Wait: rapid.SampledFrom([]int{100, 300, 3000}).Draw(t, "answered for"),
		},
		modelStep{Kind: "past", Path: path, Wait: rapid.SampledFrom([]int{100, 3000}).Draw(t, "landed for")},
	)
	if rapid.Bool().Draw(t, "later") {
		steps = append(steps, modelStep{Kind: "switch on"})
	}
	return steps
}

// drawRestart draws a server in memory that restarts, with its registry stream, while a subscription has read the
// streams. The replicas may stand still meanwhile. A step of any kind may come before, and an event after.
func drawRestart(t *rapid.T, step *rapid.Generator[modelStep], paths, subs int) []modelStep {
	steps := []modelStep{
		{Kind: "registry"},
		{Kind: "subscribe", Sub: rapid.IntRange(0, subs-1).Draw(t, "sub"), Wait: 3000},
	}
	for path := range paths {
		kind := rapid.SampledFrom([]string{"create", "create past"}).Draw(t, "made")
		wait := rapid.SampledFrom([]int{100, 3000}).Draw(t, "made for")
		steps = append(steps, modelStep{Kind: kind, Path: path, Wait: wait})
	}
	steps = append(steps, rapid.SliceOfN(step, 0, 2).Draw(t, "before")...)
	steps = append(steps, modelStep{
		Kind: "restart", N: rapid.IntRange(0, 4).Draw(t, "events"),
		Wait: rapid.SampledFrom([]int{0, 100, 3000, 40_000}).Draw(t, "restarted for"),
	})
	event := rapid.SampledFrom([]string{"past", "append"}).Draw(t, "event")
	return append(steps, modelStep{Kind: event, Path: rapid.IntRange(0, paths-1).Draw(t, "path"), Wait: 3000})
}

// drawThaw draws a store that is away, for longer than a lease or not, while a stream is made through one replica, and
// an event that comes through the other one about when the store is back.
func drawThaw(t *rapid.T, paths, subs int) []modelStep {
	path, replica := rapid.IntRange(0, paths-1).Draw(t, "path"), rapid.IntRange(0, modelReplicas-1).Draw(t, "replica")
	away := modelStep{Kind: "store away"}
	takes, still := modelAway, rapid.SampledFrom([]int{0, 3000, 20_000, 35_000, 40_000}).Draw(t, "still for")
	if n := rapid.IntRange(0, 4).Draw(t, "seconds"); n > 0 {
		away.Kind, away.N, takes, still = "store away briefly", n, time.Duration(n)*time.Second, 0
	}
	away.Wait = still
	thawed := rapid.SampledFrom([]int{-10, 1, 100, 700, 3000}).Draw(t, "thawed for")
	return []modelStep{
		{Kind: "subscribe", Sub: rapid.IntRange(0, subs-1).Draw(t, "sub"), Wait: 3000},
		away,
		{Kind: "create", Path: path, Replica: replica, Wait: int(takes.Milliseconds()) - still + thawed},
		{Kind: "append", Path: path, Replica: 1 - replica, Wait: 3000},
	}
}

// drawSlowBackfill draws what steps by chance rarely come to: an event that lands when the 201 of a subscription was
// sent and its backfill still waits for a HEAD. A step of any kind may come between the two.
func drawSlowBackfill(t *rapid.T, step *rapid.Generator[modelStep], paths, subs int) []modelStep {
	path, sub := rapid.IntRange(0, paths-1).Draw(t, "path"), rapid.IntRange(0, subs-1).Draw(t, "sub")
	steps := []modelStep{
		{Kind: "create", Path: path, Wait: rapid.SampledFrom([]int{100, 3000, 20_000}).Draw(t, "known for")},
		{Kind: "slow heads", N: rapid.IntRange(2, 4).Draw(t, "slow")},
		{Kind: "subscribe", Sub: sub, Replica: 1, Wait: rapid.SampledFrom([]int{100, 300}).Draw(t, "answered for")},
	}
	steps = append(steps, rapid.SliceOfN(step, 0, 1).Draw(t, "between")...)
	event := rapid.SampledFrom([]string{"past", "append"}).Draw(t, "event")
	return append(steps, modelStep{Kind: event, Path: path})
}

func drawStep(t *rapid.T, kinds []string, paths, subs int) modelStep {
	below := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	return modelStep{
		Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Path: below(paths, "path"), Sub: below(subs, "sub"),
		Replica: below(modelReplicas, "replica"), N: below(5, "n"),
		Wait: rapid.SampledFrom([]int{0, 1, 100, 700, 3000, 20_000, 100_000}).Draw(t, "wait"),
	}
}

func written(steps []modelStep) string {
	var b strings.Builder
	for _, s := range steps {
		_, _ = fmt.Fprintf(&b, "\t{Kind: %q, Path: %d, Sub: %d, Replica: %d, N: %d, Wait: %d},\n",
			s.Kind, s.Path, s.Sub, s.Replica, s.N, s.Wait)
	}
	return b.String()
}

// travel is how long a write is on its way.
func (s modelStep) travel() time.Duration {
	return []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 4 * time.Second}[s.N]
}

// modelHead is how long the slowest HEAD takes that is waited for.
const modelHead = 2500 * time.Millisecond

// lag is by how much the registry stream lags behind.
func (s modelStep) lag() time.Duration {
	return []time.Duration{0, 10 * time.Millisecond, 2 * time.Second, 20 * time.Second, 90 * time.Second}[s.N]
}

// do makes the step and waits for as long as it says.
func (s modelStep) do(m *model) (err error) {
	defer func() { time.Sleep(time.Duration(s.Wait) * time.Millisecond) }()
	path, sub := modelPaths[s.Path], fmt.Sprint("s", s.Sub)
	switch s.Kind {
	case "create":
		m.client(s.Replica, func(r *modelReplica) { m.write(r, path, true, true, s.travel()) })
	case "append":
		m.client(s.Replica, func(r *modelReplica) { m.write(r, path, false, true, s.travel()) })
	case "refused":
		m.client(s.Replica, func(r *modelReplica) {
			w := m.announce(r, path, true)
			time.Sleep(3 * s.travel())
			if r.ctx.Err() == nil {
				r.d.Refused(w)
			}
		})
	case "crash":
		// The replica dies while a write is on its way, which arrives or not. Nobody is told.
		m.client(s.Replica, func(r *modelReplica) {
			if m.mayDie() {
				m.crash(r, path, s.N%2 == 1)
			}
		})
	case "past":
		if m.up.there(path) > 0 {
			if at, incarnation, err := m.up.land(path, false, "2"); err == nil {
				m.landed(path, at, incarnation)
			}
		}
	case "create past", "old":
		m.createPast(path)
	case "replace":
		m.client(s.Replica, func(r *modelReplica) { m.replace(r, path, s.N, s.travel()) })
	case "restart":
		m.restartServer(s.N)
	case "close":
		m.closeAnew(path, s.N)
	case "unanswered":
		m.client(s.Replica, func(r *modelReplica) { m.write(r, path, true, false, s.travel()) })
	case "start":
		err = m.revive()
	case "switch on":
		if m.mayDie() {
			err = m.switchOn()
		}
	case "subscribe":
		m.client(s.Replica, func(r *modelReplica) { m.subscribe(r, sub, modelPatterns[s.Sub], "") })
	case "subscribe from the start":
		m.client(s.Replica, func(r *modelReplica) { m.subscribe(r, sub, modelPatterns[s.Sub], fsm.Start) })
	case "subscribe again":
		m.client(s.Replica, func(r *modelReplica) { m.subscribeAgain(r, sub) })
	case "unsubscribe":
		m.client(s.Replica, func(r *modelReplica) { m.unsubscribe(r, sub) })
	case "leave":
		m.client(s.Replica, func(r *modelReplica) { m.leave(r, path) })
	case "name":
		m.client(s.Replica, func(r *modelReplica) { m.name(r, path) })
	case "forget":
		m.client(s.Replica, func(r *modelReplica) { m.forget(r, path) })
	case "link":
		other := modelPaths[(s.Path+1+s.N)%len(modelPaths)]
		m.client(s.Replica, func(r *modelReplica) { m.link(r, path, other) })
	case "leave one":
		m.client(s.Replica, func(r *modelReplica) { m.leaveOne(r, path) })
	case "delete":
		m.client(s.Replica, func(r *modelReplica) { m.remove(r, path, s.travel()) })
	case "delete past":
		m.clients.Wait()
		m.removePast(path)
	case "registry":
		// There is a registry from the start if a history has this step.
		m.up.set(func() { m.up.lag = s.lag() })
	case "late heads", "slow heads":
		// Longer than modelHead is as good as no answer.
		m.up.set(func() { m.up.headDelay, m.up.early = min(s.travel(), modelHead), s.Kind == "late heads" })
	case "quick heads":
		m.up.set(func() { m.up.headDelay = 0 })
	case "lie":
		m.lie(5 * time.Second)
	case "lie for long":
		m.lieForLong(40*time.Second + 10*s.travel())
	case "store away":
		m.storeAway(time.Duration(s.N)*time.Second, modelAway)
	case "store away briefly":
		m.storeAway(0, time.Duration(s.N)*time.Second)
	case "mute":
		m.up.set(func() { m.up.mute = true })
		time.Sleep(5 * time.Second)
		m.up.set(func() { m.up.mute = false })
	case "down":
		m.up.set(func() { m.up.down = true })
		time.Sleep(5 * time.Second)
		m.up.set(func() { m.up.down = false })
	case "fail":
		m.fail(true)
		time.AfterFunc(2*time.Minute, func() { m.fail(false) })
	case "work":
		m.fail(false)
	case "die before", "die after":
		m.doom(s)
	case "little room":
		// All replicas have it from the start if a history has this step.
	case "revive":
		err = m.revive()
	case "lose":
		if m.mayLose() && time.Duration(s.Wait)*time.Millisecond <= time.Second {
			time.Sleep(10 * time.Millisecond)
			m.lose()
		}
	case "outage":
		if m.mayDie() {
			err = m.outage()
		}
	}
	return err
}

func (m *model) fail(failing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = failing
}

// doom has a replica die at one of its next calls.
func (m *model) doom(s modelStep) {
	if !m.mayDie() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.replicas[s.Replica]; !r.dead {
		m.dying, m.calls, m.after = r, s.N, s.Kind == "die after"
	}
}

// mayLose is the same of the store. What has no room in the memory of the replicas is not made up for.
func (m *model) mayLose() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.room == 0 && m.dying == nil && time.Since(m.died) > time.Minute && m.storeLasts()
}

// mayDie says whether a replica may die now, and that it may: not while what the store has lost is only known to
// the replicas.
func (m *model) mayDie() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	may := time.Since(m.lost) > time.Minute && m.storeLasts()
	if may {
		m.died = time.Now()
	}
	return may
}

// outage stops all replicas for longer than deliveries may fail.
func (m *model) outage() error {
	for _, r := range m.replicas {
		r.die()
	}
	m.clients.Wait()
	time.Sleep(modelTiming.GCAfter + time.Minute)
	m.fail(false)
	return m.revive()
}

// modelAway is for how long the store is away, unless that is brief.
const modelAway = 45 * time.Second

// storeAway has the store be away from a time on, for so long, while the history goes on: not while what replicas that
// died or changes that are lost have left is found.
func (m *model) storeAway(from, long time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dying != nil || time.Since(m.died) < time.Minute || time.Since(m.lost) < time.Minute || !m.storeLasts() {
		return
	}
	m.back = time.Now().Add(from + long)
	time.AfterFunc(from, func() { m.db.SetDown(true) })
	time.AfterFunc(from+long, func() { m.db.SetDown(false) })
}

// storeLasts says whether the store is neither away nor about to be, nor was it lately. m.mu is held.
func (m *model) storeLasts() bool { return time.Since(m.back) > time.Minute }
