package control

import (
	"fmt"
	"testing"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// TestAPageOfReplaysIsBounded holds that a list of replays ends once it has looked at so many queues, whether or not
// they are of the stream that is asked for, and goes on behind the last one.
func TestAPageOfReplaysIsBounded(t *testing.T) {
	h := ports.New(t)
	sub := h.Subscribe("s", 0)
	const n = 25
	for i := range n {
		c := spec.NewConsumer(sub, fmt.Sprint("/s/", i), "0009", 0)
		h.Store.DB.PutConsumer(c)
		span := fsm.ReplaySpan{From: fsm.Start, To: "0009"}
		if _, _, err := h.Store.ReplaySpan(t.Context(), c.Ref(), c.Born, span); err != nil {
			t.Fatal(err)
		}
	}
	s := &Service{View: NewView(h.Store, h.Rec)}
	for _, most := range []int{1, 4, n, n + 1} {
		for stream, want := range map[string]int{"": n, "/s/7": 1, "/s/none": 0} {
			which := s.LettersOf("")
			which.Stream = stream
			found, pages := 0, 0
			for at, more := (paging.Place{}), true; more; pages++ {
				looked := 0
				next, err := s.eachReplay(asItself(t.Context()), which, at, most, func(fsm.ReplayQueue) (bool, error) {
					looked++
					return true, nil
				})
				if err != nil || looked > most {
					t.Fatalf("a page has %d queues: %v", looked, err)
				}
				if found, more = found+looked, next != ""; more {
					if at, err = paging.ReadPlace(next, ports.Partitions); err != nil {
						t.Fatal(err)
					}
				}
			}
			if found != want || pages != (n+most-1)/most {
				t.Errorf("of %q, %d at a time: %d queues on %d pages, want %d", stream, most, found, pages, want)
			}
		}
	}
}
