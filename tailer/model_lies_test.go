package tailer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// lie has the server say of every stream that there is none, for less than the grace.
func (m *model) lie(d time.Duration) {
	m.mu.Lock()
	lately := m.lying || time.Since(m.lied) < 2*modelTiming.GoneGrace
	m.mu.Unlock()
	if lately {
		return
	}
	m.up.set(func() { m.up.lies = true })
	time.Sleep(d)
	m.up.set(func() { m.up.lies = false })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lied = time.Now()
}

// lieForLong has it say so for longer than the grace, while the history goes on.
func (m *model) lieForLong(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lying {
		return
	}
	m.lying = true
	m.up.set(func() { m.up.lies = true })
	time.AfterFunc(d, m.tellTruth)
}

// tellTruth ends a lie for long. Consumers may be gone by now, with what was pending and their further streams, and
// nobody may know of their streams any more until these are written to or named; those who left may be back. What a
// pattern without a wildcard names is found, and read from its start.
func (m *model) tellTruth() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.lying {
		return
	}
	m.lying, m.lied = false, time.Now()
	m.up.set(func() { m.up.lies = false })
	clear(m.heard)
	for l := range m.left {
		m.left[l] = false
	}
	m.dropLinks(func(modelLink) bool { return true })
	m.excuse(func(_ modelEvent, l modelLink) bool { return !m.isLiteral(l.generation) })
}

// gone judges that a consumer was removed because its stream is gone: it is, or the server said so for long.
func (m *model) gone(g fsm.Removal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lied := m.lying || time.Since(m.lied) < modelTold
	if g.Cause == fsm.RemovedStreamGone && !lied && m.up.age(g.Primary) > modelTold {
		m.faults = append(m.faults,
			fmt.Sprintf("removed although its stream is there: %s at %s", g.Consumer, clock(time.Now())))
	}
}

// modelTold is how long it takes at most until the store is told what a HEAD says.
const modelTold = 5 * time.Second

// isLiteral says whether the pattern of a subscription has no wildcard. m.mu is held.
func (m *model) isLiteral(generation string) bool {
	for _, s := range m.subs {
		if p, err := fsm.ParsePattern(s.Pattern); s.Generation == generation {
			return err == nil && p.Literal()
		}
	}
	return false
}

// TestAnUpstreamThatFlapsForLongerThanTheGraceRemovesNobody has a server say that there is no stream, then nothing of
// use, and now and then the truth, for much longer than the grace in all.
func TestAnUpstreamThatFlapsForLongerThanTheGraceRemovesNobody(t *testing.T) {
	for name, truth := range map[string]bool{"with the truth in between": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(nil)
				if err := m.revive(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				for _, s := range []modelStep{{Kind: "subscribe", Wait: 3000}, {Kind: "create", Wait: 3000}} {
					if err := s.do(m); err != nil {
						t.Fatal(err)
					}
				}
				hidden := false
				say := func(lies, down bool) {
					m.up.set(func() { m.up.lies, m.up.down = lies, down })
					time.Sleep(10 * time.Second)
					for _, c := range m.db.Consumers() {
						hidden = hidden || !c.HiddenAt.IsZero()
					}
				}
				for range 20 {
					say(true, false)
					say(false, true)
					if truth {
						say(false, false)
					}
					if n := len(m.db.Consumers()); n != 1 {
						t.Fatalf("there are %d consumers", n)
					}
				}
				if !hidden {
					t.Error("nobody took in that the stream seemed gone")
				}
				if err := m.quiet(); err != nil {
					t.Fatal(err)
				}
				m.judge()
				for _, r := range m.replicas {
					r.die()
					r.wg.Wait()
				}
				m.clients.Wait()
				m.up.stop()
				time.Sleep(2 * modelLease)
				for _, f := range m.faults {
					t.Error(f)
				}
			})
		})
	}
}
