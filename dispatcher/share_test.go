package dispatcher

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// crowded has subscriptions that hang, beside one that works and, later, a new one. All are pushes.
type crowded struct {
	// Hanging is how many subscriptions hang. Each has as many streams as it may have slots. Each attempt hangs for
	// For.
	Hanging int
	For     time.Duration
	// Once says that the hanging subscriptions worked before.
	Once bool
	// Bytes is the size of each of their events.
	Bytes int
	// Streams is how many streams the working subscription has, Takes how long each of its attempts takes.
	Streams int
	Takes   time.Duration
	// New is when the new subscription has its first event.
	New time.Duration
}

// happening is what happens in a simulation at a time.
type happening struct {
	at time.Time
	do func()
}

type happenings []happening

func (h happenings) Len() int           { return len(h) }
func (h happenings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h happenings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)        { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// simulation gives and takes slots on injected time.
type simulation struct {
	s    *slots
	now  time.Time
	next happenings
	// begin has what begins with a slot, by its wake.
	begin map[string]func(sl slot)
}

func newSimulation() *simulation {
	return &simulation{
		s: newSlots(1024, 64, 100_000, maxInFlightBytes, newMetrics(nil, 10)), now: noon,
		begin: map[string]func(slot){},
	}
}

func (m *simulation) after(d time.Duration, do func()) {
	heap.Push(&m.next, happening{m.now.Add(d), do})
}

// wants makes a wake of a subscription wait for a slot.
func (m *simulation) wants(id, wake string, begin func(sl slot)) {
	m.begin[wake] = begin
	if m.s.enqueue(m.s.lane(laneKey{id: id}, pushSize), fsm.Delivery{Consumer: wake}) == nil {
		panic("the queue is full")
	}
	m.pump()
}

func (m *simulation) pump() {
	for {
		it, sl, ok := m.s.next(m.now)
		if !ok {
			return
		}
		m.begin[it.key.consumer](sl)
	}
}

// reading is how long a push reads its events.
const reading = 5 * time.Millisecond

// attempt lets an attempt read its events, and end after a while.
func (m *simulation) attempt(sl slot, bytes int, takes time.Duration, end ending, then func()) {
	m.after(reading, func() {
		m.s.resize(&sl, 2*bytes+eventSize)
		m.pump()
		m.after(takes, func() {
			m.s.ended(sl, end, m.now)
			m.s.release(sl)
			then()
			m.pump()
		})
	})
}

// run has time pass.
func (m *simulation) run(until time.Time) {
	for m.next.Len() > 0 && !m.next[0].at.After(until) {
		h := heap.Pop(&m.next).(happening)
		m.now = h.at
		h.do()
	}
	m.now = until
}

// play returns how many attempts of the working subscription were made within a time, and how long the new one waited.
func (c crowded) play(within time.Duration) (made int, waited time.Duration) {
	m := newSimulation()
	var looks func()
	looks = func() {
		m.pump()
		m.after(50*time.Millisecond, looks)
	}
	looks()
	taken := ending{answered: true, ok: true}
	for n := range c.Streams {
		wake := fmt.Sprint("works ", n)
		var again func()
		again = func() {
			m.wants("works", wake, func(sl slot) {
				m.attempt(sl, 100, c.Takes, taken, func() {
					if m.now.Sub(noon) > 2*time.Second {
						made++
					}
					m.after(0, again)
				})
			})
		}
		again()
	}
	for k := range c.Hanging {
		id := fmt.Sprint("hangs ", k)
		for n := range 64 {
			wake := fmt.Sprint(id, " ", n)
			var hang func()
			hang = func() {
				m.wants(id, wake, func(sl slot) {
					m.attempt(sl, c.Bytes, c.For, ending{}, func() { m.after(30*time.Second, hang) })
				})
			}
			if c.Once {
				m.wants(id, wake, func(sl slot) { m.attempt(sl, 100, 10*time.Millisecond, taken, func() {}) })
			}
			m.after(2*time.Second, hang)
		}
	}
	waited = within
	m.after(2*time.Second+c.New, func() {
		asked := m.now
		m.wants("new", "new", func(slot) { waited = m.now.Sub(asked) })
	})
	m.run(noon.Add(2*time.Second + within))
	return made, waited
}

// wrong says what is wrong with the slots that the hanging subscriptions leave to the others.
func (c crowded) wrong() string {
	const within = 20 * time.Second
	made, waited := c.play(within)
	alone := c.Streams * int(within/(c.Takes+reading))
	switch {
	case waited > time.Second:
		return fmt.Sprintf("the first event of a new subscription waited for %s", waited)
	case made < alone*9/10:
		return fmt.Sprintf("one that works made %d attempts, %d alone", made, alone)
	}
	return ""
}

func TestThoseThatHangTakeNothingFromTheOthers(t *testing.T) {
	for _, k := range []int{1, 2, 20, 100} {
		for _, once := range []bool{false, true} {
			for _, late := range []time.Duration{0, 7 * time.Second} {
				c := crowded{
					Hanging: k, For: 30 * time.Second, Once: once, Bytes: 200,
					Streams: 64, Takes: 400 * time.Millisecond, New: late,
				}
				if wrong := c.wrong(); wrong != "" {
					t.Errorf("%+v: %s", c, wrong)
				}
			}
		}
	}
}

// TestAnyThatHangTakeNothingFromTheOthers draws which subscriptions hang, and for how long.
func TestAnyThatHangTakeNothingFromTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of work")
	}
	rapid.Check(t, func(rt *rapid.T) {
		c := crowded{
			Hanging: rapid.IntRange(0, 100).Draw(rt, "hanging"),
			For:     time.Duration(rapid.IntRange(5, 60).Draw(rt, "for seconds")) * time.Second,
			Once:    rapid.Bool().Draw(rt, "worked once"),
			Bytes:   rapid.SampledFrom([]int{200, 20 << 10, 200 << 10}).Draw(rt, "bytes"),
			Streams: rapid.IntRange(1, 64).Draw(rt, "streams"),
			Takes:   time.Duration(rapid.IntRange(200, 3000).Draw(rt, "takes milliseconds")) * time.Millisecond,
			New:     time.Duration(rapid.IntRange(0, 18).Draw(rt, "new after seconds")) * time.Second,
		}
		if wrong := c.wrong(); wrong != "" {
			rt.Fatalf("%+v: %s", c, wrong)
		}
	})
}
