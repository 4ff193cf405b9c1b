package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/test/ports"
)

// as is the context of a principal with these paths.
func as(t *testing.T, paths ...string) context.Context {
	t.Helper()
	p := fsm.Principal{Name: "acme"}
	for _, path := range paths {
		pattern, err := fsm.ParsePattern(path)
		if err != nil {
			t.Fatal(err)
		}
		p.Paths = append(p.Paths, pattern)
	}
	return control.As(t.Context(), p, "192.0.2.7")
}

// mixed has dead letters, replays and streams of /b between those of /a, in every partition.
func mixed(t *testing.T, n int) (*ports.Harness, *control.View) {
	t.Helper()
	h := ports.New(t)
	for range n {
		for _, id := range []string{"b", "a", "b"} {
			for i := range 2 * ports.Partitions {
				path := "/" + id + "/" + string(rune('a'+i))
				h.Store.DB.PutLetter(fsm.DeadLetter{
					Subscription: id, Generation: "g-" + id, Consumer: fsm.ConsumerID(id, path), Stream: path,
				})
			}
		}
	}
	for _, id := range []string{"b", "a", "c"} {
		sub := h.Subscribe(id, 0)
		for i := range 2 * ports.Partitions {
			c := spec.NewConsumer(sub, "/"+id+"/"+string(rune('a'+i)), fsm.Start, 0)
			c.Links["/x"] = fsm.Link{}
			h.Store.DB.PutConsumer(c)
		}
	}
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, control.NewView(h.Store, h.Rec)
}

// TestAListIsFilledFromBehindWhatIsNotSeen holds that a list is as long as the same one without what is not seen.
func TestAListIsFilledFromBehindWhatIsNotSeen(t *testing.T) {
	const each = 3
	_, v := mixed(t, each)
	for name, c := range map[string]struct {
		ctx  context.Context
		want int
	}{
		"a principal of /a": {as(t, "/a/**"), 2 * ports.Partitions * each},
		"one that sees all": {as(t, fsm.AllStreams), 2 * ports.Partitions * each * 3},
		"none":              {t.Context(), 0},
	} {
		for _, most := range []int{1, 2, 100} {
			letters, watched := 0, 0
			for p := range ports.Partitions {
				for from, more := int64(0), true; more; {
					span := fsm.LetterSpan{Partition: p, From: from, Through: fsm.MaxLetterNumber}
					list, err := v.DeadLetters(c.ctx, span, most)
					if err != nil || len(list) > most {
						t.Fatal(len(list), err)
					}
					if more = len(list) == most; more {
						from = list[most-1].ID.Number + 1
					}
					letters += len(list)
				}
				for seq := int64(0); ; {
					list, err := v.WatchedSince(c.ctx, p, seq)
					if err != nil {
						t.Fatal(err)
					}
					if len(list) == 0 {
						break
					}
					watched, seq = watched+len(list), list[len(list)-1].Seq
				}
			}
			if letters != c.want || (watched > 0) != (c.want > 0) {
				t.Errorf("%s, %d at a time: %d letters, want %d, and %d streams", name, most, letters, c.want, watched)
			}
		}
	}
	counts, err := v.LettersOf(as(t, "/a/**"), []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		if c.Of["b"] > 0 || c.Of["a"] == 0 && c.All > 0 {
			t.Errorf("counted are %v", c.Of)
		}
	}
}

// TestWhatAConsumerIsLinkedToIsCut holds that a consumer shows only the streams that the principal sees, and that the
// store keeps the others.
func TestWhatAConsumerIsLinkedToIsCut(t *testing.T) {
	h, v := mixed(t, 0)
	ref := fsm.ConsumerRef{ID: fsm.ConsumerID("a", "/a/a"), Home: "/a/a"}
	for path, want := range map[string][]string{"/a/**": {"/a/a"}, fsm.AllStreams: {"/a/a", "/x"}} {
		c, err := v.Consumer(as(t, path), ref)
		var got []string
		for path := range c.Links {
			got = append(got, path)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: it has %q, %v; want %q", path, got, err, want)
		}
	}
	if c, _ := h.Store.Lookup(ref.ID); len(c.Links) != 2 {
		t.Errorf("the store has %v", c.Links)
	}
	for _, ctx := range []context.Context{t.Context(), as(t, "/b/**"), as(t, "/a/b")} {
		if _, err := v.Consumer(ctx, ref); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("another principal: %v", err)
		}
	}
}

// TestTheLettersOfAllSubscriptionsAreNotOneWork holds that only one who sees all works on the letters of all at once.
func TestTheLettersOfAllSubscriptionsAreNotOneWork(t *testing.T) {
	_, v := mixed(t, 1)
	for name, do := range map[string]func(context.Context, fsm.LetterSpan, int) (fsm.LetterWork, fsm.Outcome, error){
		"drop": v.DropDeadLetters, "replay": v.ReplayDeadLetters,
	} {
		for p := range ports.Partitions {
			w, _, err := do(as(t, "/a/**"), fsm.LetterSpan{Partition: p, Through: fsm.MaxLetterNumber}, 100)
			if err != nil || w.Looked > 0 {
				t.Errorf("%s: looked at %d, %v", name, w.Looked, err)
			}
		}
	}
}

// TestAnIDWithDeadLettersOfAnotherIsTaken holds that no principal gets at the letters of an earlier subscription.
func TestAnIDWithDeadLettersOfAnotherIsTaken(t *testing.T) {
	h, v := mixed(t, 1)
	if err := h.Store.DeleteSubscription(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	h.Store.DB.PutLetter(fsm.DeadLetter{Subscription: "b", Consumer: fsm.ConsumerID("b", "/b/a"), Stream: "/b/a"})
	s := &control.Service{View: v, Outcomes: router.New(), Log: zap.NewNop(), Differences: fields.Differences}
	sub := fsm.Subscription{ID: "b", Pattern: "/a/x"}
	var conflict *fsm.ConflictError
	if _, _, err := s.Subscribe(as(t, "/a/**"), sub); !errors.As(err, &conflict) || len(conflict.Fields) > 0 {
		t.Errorf("made anew: %v", err)
	}
	if _, created, err := s.Subscribe(as(t, fsm.AllStreams), sub); !created || err != nil {
		t.Errorf("by one that sees all: %t, %v", created, err)
	}
}
