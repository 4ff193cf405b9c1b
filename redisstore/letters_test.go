package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"reveille/fsm"
	"reveille/redisstore"
)

// die has n deliveries of a stream end for good, a second after each other. n is less than 10.
func (w *world) die(t *testing.T, sub fsm.Subscription, path string, n int) {
	t.Helper()
	wakes := must[fsm.Outcome](t)(w.Link(t.Context(), sub, path, fsm.Start, fsm.Offset(fmt.Sprint(n)))).Deliveries
	for i := range n {
		w.later(time.Second)
		to := fsm.Offset(fmt.Sprint(i + 1))
		wakes = must[fsm.Outcome](t)(w.Deliver(t.Context(), wakes[0].Ref(), fsm.Delivered{
			Path: path, To: to, Within: to, Profile: sub.Profile(), Dead: &fsm.DeadLetter{
				Subscription: sub.ID, Generation: sub.Generation, Stream: path, To: to, Reason: "status 400",
			},
		})).Deliveries
	}
}

// dropLetters drops all dead letters of partition 0, and returns how many there were.
func (w *world) dropLetters(t *testing.T) (all int) {
	t.Helper()
	for n := 1; n > 0; all += n {
		n = dropped(t)(w.DropDeadLetters(t.Context(), fsm.LetterSpan{Through: fsm.MaxLetterNumber},
			redisstore.DroppedAtATime))
	}
	return all
}

// letters returns where the events end of which a subscription, or any, has dead letters, with their streams.
func (w *world) letters(t *testing.T, sub string) (kept []string) {
	t.Helper()
	for p := range w.Partitions() {
		span := fsm.LetterSpan{Partition: p, Subscription: sub, Through: fsm.MaxLetterNumber}
		for _, l := range must[[]fsm.DeadLetter](t)(w.DeadLetters(t.Context(), span, 100)) {
			kept = append(kept, l.Stream+" "+string(l.To))
		}
	}
	slices.Sort(kept)
	return kept
}

// TestDeadLettersAreBounded holds that those that are too old go, and the oldest of a subscription that has too many,
// whichever partitions they are in.
func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{
		Partitions: 8, MaxLetters: 3, LetterRetention: time.Hour,
	})
	w.Ownership().Replace(fsm.AllPartitions(8))
	many, few := unordered("many"), unordered("few")
	for _, sub := range []fsm.Subscription{many, few, unordered("more")} {
		if _, _, err := w.CreateSubscription(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
	if w.PartitionOf("/a") == w.PartitionOf("/b") {
		t.Fatal("/a and /b are in one partition")
	}
	last := ""
	for i := range redisstore.DroppedAtATime/9 + 2 { // more than are dropped at a time
		last = fmt.Sprint("/m/", i)
		w.die(t, unordered("more"), last, 9)
	}
	if err := w.BoundLetters(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := w.letters(t, "more"), []string{last + " 7", last + " 8", last + " 9"}; !slices.Equal(got, want) {
		t.Errorf("of far too many, %q are kept, want %q", got, want)
	}
	for p := range w.Partitions() {
		dropped(t)(w.DropDeadLetters(t.Context(), fsm.LetterSpan{
			Partition: p, Subscription: "more", Through: fsm.MaxLetterNumber,
		}, 3))
	}
	w.die(t, few, "/a", 2)
	w.die(t, many, "/b", 2)
	w.die(t, many, "/a", 2)
	if err := w.BoundLetters(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := w.letters(t, ""), []string{"/a 1", "/a 1", "/a 2", "/a 2", "/b 2"}; !slices.Equal(got, want) {
		t.Errorf("with too many of one subscription, %q are kept, want %q", got, want)
	}
	w.later(time.Hour - 2*time.Second) // all but the last two are as old as may be then
	if err := w.BoundLetters(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := w.letters(t, ""), []string{"/a 1", "/a 2"}; !slices.Equal(got, want) {
		t.Errorf("of those that are too old, %q are kept, want %q", got, want)
	}
	if got := w.letters(t, "few"); len(got) > 0 {
		t.Errorf("of the subscription with few, %q are kept", got)
	}
	for p, counts := range must[[]fsm.LetterCounts](t)(w.CountDeadLetters(t.Context())) {
		want := map[string]int{}
		if p == w.PartitionOf("/a") {
			want["many"] = 2
		}
		if fmt.Sprint(counts.Of) != fmt.Sprint(want) {
			t.Errorf("partition %d counts %v, want %v", p, counts, want)
		}
	}
}

// TestDeadLettersGoWithTheirSubscription holds that nobody fills the store by new names, and that another subscription
// by the name of one that is deleted keeps its own dead letters.
func TestDeadLettersGoWithTheirSubscription(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 2)
	ctx := t.Context()
	former, other := unordered("former"), unordered("other")
	create := func(sub fsm.Subscription) {
		t.Helper()
		if _, _, err := w.CreateSubscription(ctx, sub); err != nil {
			t.Fatal(err)
		}
	}
	create(former)
	create(other)
	for i := range 30 { // more than a script drops, and with those of the other one between them
		w.die(t, former, fmt.Sprint("/a/", i), 9)
	}
	w.die(t, other, "/b", 1)
	if err := w.DeleteSubscription(ctx, "none"); err != nil { // the script is loaded by this
		t.Fatal(err)
	}
	h := sever(w)
	h.left.Store(1) // the call ends when the subscription is off the list
	if err := w.DeleteSubscription(ctx, former.ID); !errors.Is(err, fsm.ErrUnavailable) {
		t.Fatalf("the deletion was not cut short: %v", err)
	}
	h.left.Store(-1)
	next := former
	next.Generation = "g-next"
	create(next)
	w.die(t, next, "/c", 2)
	w.Ownership().Replace(fsm.AllPartitions(2))
	if err := w.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := w.letters(t, ""), []string{"/b 1", "/c 1", "/c 2"}; !slices.Equal(got, want) {
		t.Errorf("%q are kept, want %q", got, want)
	}
	if err := w.DeleteSubscription(ctx, former.ID); err != nil {
		t.Fatal(err)
	}
	if got, want := w.letters(t, ""), []string{"/b 1"}; !slices.Equal(got, want) {
		t.Errorf("after another deletion, %q are kept, want %q", got, want)
	}
}

func TestADeadLetterIsKeptOnceAndWhole(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	sub := unordered("s")
	wake := must[fsm.Outcome](t)(w.Link(t.Context(), sub, "/a", fsm.Start, "5")).Deliveries[0]
	letter := fsm.DeadLetter{
		Subscription: "s", Generation: sub.Generation, Consumer: wake.Consumer, Stream: "/a", DeliveryID: "evt_1_0-2",
		From: fsm.Start, To: fsm.Start.At(3, "5"), Within: fsm.Start.At(3, "5"), Events: 3, Attempts: 4,
		Class: "client_error", Reason: "status 400", Status: 400, Answer: "{\"no\":\"\u2028 \\\"\n",
	}
	d := fsm.Delivered{
		Path: "/a", To: letter.To, Within: letter.Within, Tail: "5", Profile: sub.Profile(), Dead: &letter,
	}
	for range 2 { // the second one as if the first one's reply was lost
		must[fsm.Outcome](t)(w.Deliver(t.Context(), wake.Ref(), d))
	}
	all := fsm.LetterSpan{Subscription: "s", Through: fsm.MaxLetterNumber}
	kept := must[[]fsm.DeadLetter](t)(w.DeadLetters(t.Context(), all, 10))
	if len(kept) != 1 {
		t.Fatalf("%d are kept: %+v", len(kept), kept)
	}
	want := letter
	want.ID, want.DeadAt = kept[0].ID, w.now
	if kept[0].ID.Number < w.now.UnixMicro() || kept[0].DeadAt.Truncate(time.Millisecond) != w.now {
		t.Errorf("it has the ID %s and came at %s", kept[0].ID, kept[0].DeadAt)
	}
	kept[0].DeadAt = w.now
	if kept[0] != want {
		t.Errorf("kept is\n%+v, want\n%+v", kept[0], want)
	}
}

// TestALetterThatCannotBeReadHoldsUpNoOther holds that it is listed, and can be dropped, with those that can be read.
func TestALetterThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	w.die(t, unordered("s"), "/a", 3)
	span := fsm.LetterSpan{Subscription: "s", Through: fsm.MaxLetterNumber}
	second := must[[]fsm.DeadLetter](t)(w.DeadLetters(t.Context(), span, 10))[1].ID
	if err := w.rdb.HSet(t.Context(), "rv:{0}:letters", second.Number, "0 s {").Err(); err != nil {
		t.Fatal(err)
	}
	list := must[[]fsm.DeadLetter](t)(w.DeadLetters(t.Context(), span, 10))
	if len(list) != 3 || list[1].ID != second || !strings.Contains(list[1].Reason, "cannot be read") {
		t.Errorf("listed are %+v", list)
	}
	if n := dropped(t)(w.DropDeadLetters(t.Context(), second.Only(), 1)); n != 1 {
		t.Errorf("%d were dropped", n)
	}
	if n := must[[]fsm.LetterCounts](t)(w.CountDeadLetters(t.Context()))[0].Of["s"]; n != 2 {
		t.Errorf("%d are left", n)
	}
}

// TestWhatALetterKeepsIsBounded holds that an answer is cut, and stays text.
func TestWhatALetterKeepsIsBounded(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	sub := unordered("s")
	wake := must[fsm.Outcome](t)(w.Link(t.Context(), sub, "/a", fsm.Start, "5")).Deliveries[0]
	must[fsm.Outcome](t)(w.Deliver(t.Context(), wake.Ref(), fsm.Delivered{
		Path: "/a", To: "5", Within: "5", Profile: sub.Profile(), Dead: &fsm.DeadLetter{
			Subscription: "s", Stream: "/a", Reason: strings.Repeat("r", 2*fsm.MaxReason),
			Answer: strings.Repeat("ä", fsm.MaxLetterAnswer),
		},
	}))
	span := fsm.LetterSpan{Subscription: "s", Through: fsm.MaxLetterNumber}
	l := must[[]fsm.DeadLetter](t)(w.DeadLetters(t.Context(), span, 1))[0]
	if len(l.Reason) != fsm.MaxReason || len(l.Answer) > fsm.MaxLetterAnswer || !utf8.ValidString(l.Answer) ||
		strings.Trim(l.Answer, "ä") != "" {
		t.Errorf("kept are %d bytes of the reason and %d of the answer: %q", len(l.Reason), len(l.Answer), l.Answer)
	}
}

// TestLettersOfAStreamAreReplayedOneAfterTheOther holds their order, and that those of an earlier stream are refused.
func TestLettersOfAStreamAreReplayedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx, sub := t.Context(), unordered("s")
	all := fsm.LetterSpan{Subscription: "s", Through: fsm.MaxLetterNumber}
	wakes := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "3")).Deliveries
	for i := range 3 {
		wakes = w.dead(t, sub, wakes[0], fsm.Offset(fmt.Sprint(i+1))).Deliveries
	}
	work, o, err := w.ReplayDeadLetters(ctx, all, 10)
	for i, to := range []fsm.Offset{"1", "2"} {
		if err != nil || work.Done != 3 || len(o.Deliveries) != 1 || o.Deliveries[0].End() != to {
			t.Fatalf("replay %d of %+v is %+v, %v", i, work, o.Deliveries, err)
		}
		o = must[fsm.Outcome](t)(w.Deliver(ctx, o.Deliveries[0].Ref(), fsm.Delivered{
			Path: "/a", To: to, Within: to, Profile: sub.Profile(),
		}))
	}
	must[fsm.Outcome](t)(w.Deleted(ctx, 0, "/a", fsm.Deletion{}))
	must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", fsm.Start, "9"))
	work, o, err = w.ReplayDeadLetters(ctx, all, 10)
	if err != nil || work.Refused != 1 || work.Done != 0 || len(o.Deliveries) != 0 {
		t.Errorf("the replay of one of an earlier stream: %+v, %+v, %v", work, o, err)
	}
}

// dropped returns how many letters a call has dropped.
func dropped(t *testing.T) func(fsm.LetterWork, fsm.Outcome, error) int {
	return func(w fsm.LetterWork, _ fsm.Outcome, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w.Done
	}
}
