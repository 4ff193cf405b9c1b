package tailer

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
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

// modelKinds are the steps that a history is made of; the common ones are there several times.
var modelKinds = []string{
	"create", "create", "append", "append", "past", "past", "subscribe", "subscribe", "unsubscribe", "leave", "delete",
	"delete past", "late heads", "slow heads", "quick heads", "lie", "mute", "down", "fail", "work", "die before",
	"die after", "crash", "revive", "lose", "refused", "outage",
}

// drawStep draws a step.
func drawStep(t *rapid.T) modelStep {
	below := func(n int, label string) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	return modelStep{
		Kind: rapid.SampledFrom(modelKinds).Draw(t, "kind"), Path: below(len(modelPaths), "path"),
		Sub: below(len(modelPatterns), "sub"), Replica: below(modelReplicas, "replica"), N: below(5, "n"),
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

// do makes the step and waits for as long as it says.
func (s modelStep) do(m *model) (err error) {
	defer func() { time.Sleep(time.Duration(s.Wait) * time.Millisecond) }()
	path, sub := modelPaths[s.Path], fmt.Sprint("s", s.Sub)
	switch s.Kind {
	case "create":
		m.client(s.Replica, func(r *modelReplica) { m.write(r, path, true, s.travel()) })
	case "append":
		m.client(s.Replica, func(r *modelReplica) { m.write(r, path, false, s.travel()) })
	case "refused":
		m.client(s.Replica, func(r *modelReplica) {
			w := r.d.BeforeWrite(r.ctx, path, true)
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
		// A stream that nobody can know of is not made past the gateway.
		if m.up.there(path) > 0 {
			if at, incarnation, err := m.up.land(path, "2", false); err == nil {
				m.landed(path, at, incarnation)
			}
		}
	case "subscribe":
		m.client(s.Replica, func(r *modelReplica) { m.subscribe(r, sub, modelPatterns[s.Sub]) })
	case "unsubscribe":
		m.client(s.Replica, func(r *modelReplica) { m.unsubscribe(r, sub) })
	case "leave":
		m.client(s.Replica, func(r *modelReplica) { m.leave(r, path) })
	case "delete":
		m.client(s.Replica, func(r *modelReplica) { m.remove(r, path) })
	case "delete past":
		m.clients.Wait()
		m.remove(nil, path)
		time.Sleep(3 * time.Minute) // one that is made anew sooner passes for the old one
	case "late heads", "slow heads":
		m.up.set(func() { m.up.headDelay, m.up.early = s.travel(), s.Kind == "late heads" })
	case "quick heads":
		m.up.set(func() { m.up.headDelay = 0 })
	case "lie":
		m.lie(5 * time.Second)
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

// lie has the server say of every stream that there is none, for less than the grace.
func (m *model) lie(d time.Duration) {
	if time.Since(m.lied) < 2*modelTiming.GoneGrace {
		return
	}
	m.up.set(func() { m.up.lies = true })
	time.Sleep(d)
	m.up.set(func() { m.up.lies = false })
	m.lied = time.Now()
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

// mayLose is the same of the store.
func (m *model) mayLose() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dying == nil && time.Since(m.died) > time.Minute
}

// mayDie says whether a replica may die now, and that it may: not while what the store has lost is only known to
// the replicas.
func (m *model) mayDie() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	may := time.Since(m.lost) > time.Minute
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
