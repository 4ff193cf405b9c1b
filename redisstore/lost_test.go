package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

var allLetters = fsm.LetterSpan{Through: fsm.MaxLetterNumber}

// TestAStreamWithManyConsumersLeavesALetterOfEach holds that what is yet to be pushed of a stream that goes has a
// letter, also where it has too many consumers for one script to see to, and the caller dies after the first.
func TestAStreamWithManyConsumersLeavesALetterOfEach(t *testing.T) {
	t.Parallel()
	const consumers = 120
	for name, goes := range map[string]func(*testing.T, *world) (fsm.Outcome, error){
		"stream_deleted": func(t *testing.T, w *world) (fsm.Outcome, error) {
			return w.Deleted(t.Context(), 0, "/a", fsm.Deletion{})
		},
		"stream_recreated": func(t *testing.T, w *world) (fsm.Outcome, error) {
			return w.Restart(t.Context(), 0, "/a", "9", "3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, redisstore.EmptyRedis(t).URL, 1)
			ctx := t.Context()
			for i := range consumers {
				must[fsm.Outcome](t)(w.Link(ctx, push(fmt.Sprint("s", i)), "/a", fsm.Start, "9"))
			}
			must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/none", fsm.Deletion{})) // the scripts are loaded by this
			must[fsm.Outcome](t)(w.Restart(ctx, 0, "/none", "", "0"))
			h := sever(w)
			h.left.Store(1)
			all, err := goes(t, w)
			if !errors.Is(err, fsm.ErrUnavailable) || len(all.Left) == 0 || len(all.Left) == consumers {
				t.Fatalf("cut short after %d: %v", len(all.Left), err)
			}
			h.left.Store(-1)
			w.later(time.Hour)
			for n := 1; n > 0; {
				var o fsm.Outcome
				if o, n, err = w.Due(ctx, 0, 1000); err != nil {
					t.Fatal(err)
				}
				all.Add(o)
			}
			of := map[string]bool{}
			for _, l := range must[[]fsm.DeadLetter](t)(w.DeadLetters(ctx, allLetters, 2*consumers)) {
				of[l.Consumer] = true
				if l.From != fsm.Start || l.To != "9" || l.Within != "9" || l.Class != name ||
					l.Events != 0 || l.Reason == "" {
					t.Errorf("a letter is %+v", l)
				}
			}
			if len(of) != consumers || len(all.Left) != consumers {
				t.Errorf("%d consumers have letters, and %d are told of", len(of), len(all.Left))
			}
			for at := (fsm.LetterWork{Last: 1}); at.Last > 0; {
				span := fsm.LetterSpan{From: at.Last + 1, Through: fsm.MaxLetterNumber}
				if at, _, err = w.ReplayDeadLetters(ctx, span, 50); err != nil || at.Done > 0 {
					t.Errorf("they are replayed: %+v, %v", at, err)
				}
			}
			if n := w.dropLetters(t); n != consumers {
				t.Errorf("there are %d letters", n)
			}
		})
	}
}

// TestAStreamThatIsDeletedAgainLeavesALetterOfEach holds that a consumer that was not visited leaves its letter though
// there is no tail any more when the stream is said to be deleted once more.
func TestAStreamThatIsDeletedAgainLeavesALetterOfEach(t *testing.T) {
	t.Parallel()
	const consumers = 120
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	for i := range consumers {
		must[fsm.Outcome](t)(w.Link(ctx, push(fmt.Sprint("s", i)), "/a", fsm.Start, "9"))
	}
	must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/none", fsm.Deletion{})) // the script is loaded by this
	h := sever(w)
	h.left.Store(1)
	first, err := w.Deleted(ctx, 0, "/a", fsm.Deletion{})
	if !errors.Is(err, fsm.ErrUnavailable) || len(first.Left) == 0 || len(first.Left) == consumers {
		t.Fatalf("the first deletion is cut short after %d: %v", len(first.Left), err)
	}
	h.left.Store(-1)
	w.later(time.Minute)
	must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/a", fsm.Deletion{}))
	l := must[[]fsm.DeadLetter](t)(w.DeadLetters(ctx, allLetters, 2*consumers))
	if len(l) != consumers || l[consumers-1].To != "9" {
		t.Errorf("%d of %d consumers left a letter, the last one %+v", len(l), consumers, l[len(l)-1])
	}
}

// push is a subscription of ModePush.
func push(id string) fsm.Subscription {
	sub := subscription(id)
	sub.Mode = fsm.ModePush
	return sub.WithDefaults()
}

// TestAConsumerThatIsGivenUpTellsOfOneStream holds of which, in the order of their bytes.
func TestAConsumerThatIsGivenUpTellsOfOneStream(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub := subscription("s")
	sub.Retry = []time.Duration{time.Second}
	for i, tt := range []struct {
		events []string // besides those of the primary stream, if it is among them
		want   string
	}{
		{[]string{"/a", "/m", "/z"}, "/m"},
		{[]string{"/z", "/B", "/a"}, "/B"},
		{[]string{"/z"}, "/z"},
	} {
		path := func(name string) string { return fmt.Sprint(name, i) }
		wake := must[fsm.Outcome](t)(w.Link(ctx, sub, path("/m"), fsm.Start, "1")).Deliveries[0]
		cb := of(wake)
		cb.Done, cb.MaxStreams, cb.Acks = true, 9, []fsm.Ack{{Path: path("/m"), Offset: "1"}}
		for _, name := range []string{"/a", "/B", "/z"} {
			cb.Subscribe = append(cb.Subscribe, fsm.Subscribe{Path: path(name), From: fsm.Start})
		}
		must[fsm.CallbackReply](t)(w.Callback(ctx, cb))
		var wakes []fsm.Delivery
		for _, name := range tt.events {
			wakes = append(wakes, must[fsm.Observation](t)(w.Observe(ctx, 0, path(name), "5", false)).Deliveries...)
		}
		for attempt := range 2 {
			f := fsm.Failure{Reason: "status 500", Profile: sub.Profile()}
			must[fsm.Outcome](t)(w.Fail(ctx, wakes[attempt].Ref(), f))
			w.later(time.Minute)
			o, _, err := w.Due(ctx, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			wakes = append(wakes, o.Deliveries...)
		}
		l := must[[]fsm.DeadLetter](t)(w.DeadLetters(ctx, allLetters, 10))
		if len(l) != 1 || l[0].Stream != path(tt.want) || l[0].To != "5" || l[0].Attempts != 2 ||
			l[0].Class != "given_up" {
			t.Errorf("%v: the letter is %+v", tt.events, l)
		}
		c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer))
		if c.State != fsm.GivenUp || len(l) != 1 || c.Letter != l[0].ID.Number {
			t.Errorf("%v: it is %+v", tt.events, c)
		}
		w.dropLetters(t) // the consumer goes on without it
		if o := must[fsm.Observation](t)(w.Observe(ctx, 0, path("/m"), "6", false)); len(o.Deliveries) != 1 {
			t.Errorf("%v: an event wakes %+v", tt.events, o)
		}
	}
}
