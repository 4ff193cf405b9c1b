package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

// acts notes what a Router has done.
type acts struct{ list []string }

func (a *acts) Deliver(wakes []fsm.Delivery) {
	for _, w := range wakes {
		a.list = append(a.list, fmt.Sprintf("deliver %s seen %t", w.Consumer, !w.Seen.At.IsZero()))
	}
}

func (a *acts) Idle(paths []string) { a.list = append(a.list, fmt.Sprint("idle ", paths)) }

func (a *acts) Hidden(path string) { a.list = append(a.list, "look at "+path) }

func TestARouterActsOnAllThatAnOutcomeAsksFor(t *testing.T) {
	t.Parallel()
	a := &acts{}
	r := New(Observer{Transition: func(o fsm.Outcome, seen fsm.Sighting) {
		a.list = append(a.list, fmt.Sprintf("tell of %d gone, %d over, %s", len(o.Removed), len(o.Ended), seen.Path))
	}}, Observer{}, Observer{Attempt: func(t fsm.Attempt) { a.list = append(a.list, "tell of an attempt, "+t.Host) }})
	r.Connect(a, a)
	r.Follow(fsm.Outcome{
		Deliveries: []fsm.Delivery{{Consumer: "s:%2Fa"}}, Idle: []string{"/b"}, Hidden: []string{"/c", "/c", "/d"},
		Removed: []fsm.Removal{{}}, Ended: []fsm.WakeEnd{{}, {}},
	}, fsm.Sighting{At: time.Now(), Path: "/a"})
	r.Follow(fsm.Outcome{Deliveries: []fsm.Delivery{{Consumer: "s:%2Fe"}}}, fsm.Sighting{})
	r.Follow(fsm.Outcome{}, fsm.Sighting{})
	r.Attempted(fsm.Attempt{Host: "example.com"})
	want := []string{
		"tell of 1 gone, 2 over, /a", "deliver s:%2Fa seen true", "idle [/b]", "look at /c", "look at /d",
		"tell of 0 gone, 0 over, ", "deliver s:%2Fe seen false", "tell of 0 gone, 0 over, ",
		"tell of an attempt, example.com",
	}
	if !slices.Equal(a.list, want) {
		t.Errorf("it did %q, want %q", a.list, want)
	}
}
