package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
)

// rareFields are those that few consumers have.
var rareFields = []string{"restarts", "span", "nudged", "replaying", "replayed", "letter", "error"}

// broken is one way in which what is stored of a consumer is not as it should be.
type broken struct {
	name string
	// do breaks what is stored of a consumer.
	do func(ctx context.Context, rdb redis.UniversalClient, consumer string) error
}

const brokenPrefix = "rv:{0}:"

// changeRecord changes a part of a consumer's record.
func changeRecord(ctx context.Context, rdb redis.UniversalClient, key, part, is string) error {
	record, err := rdb.Get(ctx, key).Result()
	if err != nil {
		return err
	}
	return rdb.Set(ctx, key, redisstore.WithPart(record, part, is), 0).Err()
}

// waysToBreak are all of them. Each part of a record and each field is of another type, too large or too long. Each key
// is of another type.
func waysToBreak() (ways []broken) {
	values := []string{
		"boredom", "", "-5", "1e400", "nan", "1 boredom", "1.5", "=", "=\x00boredom/", "9007199254740992",
		strings.Repeat("7", 20), strings.Repeat("7", 100_000),
	}
	for _, part := range redisstore.RecordParts {
		for _, value := range values {
			ways = append(ways, broken{fmt.Sprintf("%s %.10q", part, value), func(
				ctx context.Context, rdb redis.UniversalClient, id string,
			) error {
				return changeRecord(ctx, rdb, brokenPrefix+"c:"+id, part, value)
			}})
		}
	}
	do := func(name string, command ...any) {
		ways = append(ways, broken{name, func(ctx context.Context, rdb redis.UniversalClient, id string) error {
			command := slices.Clone(command)
			command[1] = brokenPrefix + command[1].(string) + id
			if command[0] == "SET" || command[2] == "boredom" {
				if err := rdb.Del(ctx, command[1].(string)).Err(); err != nil {
					return err
				}
			}
			return rdb.Do(ctx, command...).Err()
		}})
	}
	for _, field := range rareFields {
		for _, value := range values {
			do(fmt.Sprintf("%s %.10q", field, value), "HSET", "f:", field, value)
		}
	}
	do("a record that is none", "SET", "c:", "boredom")
	ways = append(ways, broken{"a record that is none, beside links", func(
		ctx context.Context, rdb redis.UniversalClient, id string,
	) error {
		return errors.Join(rdb.HSet(ctx, brokenPrefix+"l:"+id, "/other", "3").Err(),
			rdb.Set(ctx, brokenPrefix+"c:"+id, "boredom", 0).Err())
	}})
	do("another type of c:", "HSET", "c:", "boredom", "1")
	for _, key := range []string{"f:", "l:", "x:", "r:", "rs:"} {
		do("another type of "+key, "SET", key, "boredom")
	}
	return ways
}

// TestARecordThatCannotBeReadHarmsItsConsumerAlone breaks what is stored of one consumer, in each way, and has every
// script that sees to several consumers see to it and to its neighbours, of the same stream and of others.
func TestARecordThatCannotBeReadHarmsItsConsumerAlone(t *testing.T) {
	t.Parallel()
	url := redisstore.EmptyRedis(t).URL
	modes := []string{"woken", "failing", "live", "aside"}
	for i, mode := range modes {
		for n, way := range waysToBreak() {
			if testing.Short() && n%len(modes) != i { // each way in one mode
				continue
			}
			w := open(t, url, 1)
			if err := w.rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			w.breakOne(t, mode+", "+way.name, mode, way)
			if t.Failed() {
				return
			}
		}
	}
}

func (w *world) breakOne(t *testing.T, name, mode string, way broken) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %s: %v", name, what, err)
		}
	}
	make := func(id string) fsm.Subscription {
		sub := subscription(id)
		if mode == "aside" || mode == "failing" {
			sub = unordered(id)
		}
		if mode == "failing" {
			sub.Ordering = fsm.OrderingStream
		}
		made, _, err := w.CreateSubscription(ctx, sub)
		ok("create", err)
		return made
	}
	s, other := make("s"), make("s2")
	wakes := map[string]fsm.Delivery{}
	for _, path := range []string{"/a", "/b", "/c"} {
		for _, sub := range []fsm.Subscription{s, other} {
			o, err := w.Link(ctx, sub, path, fsm.Start, "9")
			ok("link", err)
			wakes[sub.ID+path] = o.Deliveries[0]
		}
	}
	for _, wake := range wakes {
		switch mode {
		case "failing":
			_, err := w.Fail(ctx, wake.Ref(), fsm.Failure{Reason: "status 500", Profile: s.Profile()})
			ok("fail", err)
		case "aside":
			w.failOne(t, s, wake)
		case "live":
			_, err := w.Accept(ctx, wake.Ref())
			ok("accept", err)
		}
	}
	id := fsm.ConsumerID("s", "/b")
	ok("break", way.do(ctx, w.rdb, id))

	var due fsm.Outcome
	for range 2 { // first an attempt fails, and then the next one is made
		w.later(10 * time.Hour)
		o, _, err := w.Due(ctx, 0, 100)
		ok("due", err)
		due.Add(o)
	}
	neighbours := map[string]bool{}
	for _, wake := range due.Deliveries {
		if wake.Consumer != id {
			neighbours[wake.Primary+wake.Subscription] = true
		}
	}
	if len(neighbours) < len(wakes)-1 {
		t.Errorf("%s: of %d neighbours %v go on", name, len(wakes)-1, neighbours)
	}
	for _, q := range due.Quarantined {
		if !strings.HasPrefix(q.Consumer, id) || q.Reason == "" || len(q.Reason) > 200 {
			t.Errorf("%s: in quarantine is %+v", name, q)
		}
	}
	o, err := w.Observe(ctx, 0, "/b", "99", false)
	ok("observe", err)
	again, _, err := w.Due(ctx, 0, 100)
	ok("due", err)
	if len(again.Quarantined) > 0 {
		t.Errorf("%s: it is put in quarantine again: %+v", name, again.Quarantined)
	}
	_, err = w.ReleaseHeld(ctx, s, fsm.BlockedDown)
	ok("release", err)
	_, err = w.RetrySubscription(ctx, "s")
	ok("retry", err)
	_, err = w.TallyConsumers(ctx, []fsm.Subscription{s, other})
	ok("tally", err)
	shown := map[string]fsm.State{}
	for cursor := "0"; ; {
		list, next, err := w.ScanConsumers(ctx, s, 0, cursor, 100)
		ok("scan", err)
		for _, c := range list {
			shown[c.ID] = c.State
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	if len(due.Quarantined)+len(o.Quarantined) > 0 && shown[id] != fsm.InQuarantine {
		t.Errorf("%s: it is in quarantine and shown as %v", name, shown)
	}
	if shown[fsm.ConsumerID("s", "/a")] == fsm.InQuarantine || shown[fsm.ConsumerID("s", "/c")] == "" {
		t.Errorf("%s: its neighbours are %v", name, shown)
	}
	_, _ = w.Consumer(ctx, fsm.RefOf("s", "/b")) // it may say what is wrong, but must not panic
	_, err = w.ReplayQueues(ctx, 0, "", "", 10)
	ok("replays", err)
	_, _, err = w.ResumeSubscription(ctx, "s")
	ok("resume", err)
	_, err = w.Hide(ctx, "/b", fsm.Missing)
	ok("hide", err)
	_, err = w.Observe(ctx, 0, "/b", "99", false)
	ok("observe", err)
	_, err = w.Restart(ctx, 0, "/b", "99", "1")
	ok("restart", err)
	o, err = w.Observe(ctx, 0, "/b", "2", false)
	ok("observe", err)
	_, err = w.Deleted(ctx, 0, "/b", fsm.Deletion{})
	ok("deleted", err)
	ok("delete", w.DeleteSubscription(ctx, "s"))
	for _, key := range []string{"b:s:" + s.Generation, "c:" + id, "quarantined"} {
		n, err := w.rdb.Exists(ctx, brokenPrefix+key).Result()
		if ok("exists", err); n > 0 {
			t.Errorf("%s: of a deleted subscription %s is left", name, key)
		}
	}
}

// TestAConsumerInQuarantineGoesOnOnceItCanBeRead holds that a callback for one is an error of its own, that nothing is
// made in its place, and that a resumption has it go on from where it was.
func TestAConsumerInQuarantineGoesOnOnceItCanBeRead(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/a", "3", "9")).Deliveries[0]
	key := brokenPrefix + "c:" + wake.Consumer
	record := must[string](t)(w.rdb.Get(ctx, key).Result())
	if err := changeRecord(ctx, w.rdb, key, "handed", "boredom"); err != nil {
		t.Fatal(err)
	}
	w.later(time.Hour)
	o, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(o.Quarantined) != 1 || o.Quarantined[0].Reason != "its record has another form" {
		t.Fatalf("it asks for %+v, %v", o, err)
	}
	_, err = w.Callback(ctx, fsm.Callback{
		Consumer: fsm.RefOf("s", "/a"), Primary: "/a", Generation: sub.Generation, Epoch: wake.Epoch,
		TokenEpoch: wake.Epoch, MaxStreams: 1,
	})
	if err == nil || errors.Is(err, fsm.ErrUnavailable) || !strings.Contains(err.Error(), "quarantine") {
		t.Errorf("a callback is answered with %v", err)
	}
	if _, err := w.Link(ctx, sub, "/a", "9", "9"); err != nil {
		t.Error(err)
	}
	if n, o, err := w.ResumeSubscription(ctx, "s"); n != 0 || len(o.Deliveries) != 0 || err != nil {
		t.Errorf("a resumption has %d go on, with %+v, %v", n, o, err)
	}
	must[string](t)(w.rdb.Set(ctx, key, record, 0).Result())
	if n, _, err := w.ResumeSubscription(ctx, "s"); n != 1 || err != nil {
		t.Errorf("once it can be read a resumption has %d go on, %v", n, err)
	}
	o, _, err = w.Due(ctx, 0, 10)
	if err != nil || len(o.Deliveries) != 1 || o.Deliveries[0].WakeID != wake.WakeID ||
		o.Deliveries[0].At("/a") != "3" {
		t.Errorf("it goes on with %+v, %v", o, err)
	}
}

// TestANumberThatLuaCannotCountWithIsNotRead holds that a record with a number of 2^53 or more goes into quarantine:
// the scripts would go on with another number.
func TestANumberThatLuaCannotCountWithIsNotRead(t *testing.T) {
	t.Parallel()
	w, sub := open(t, redisstore.EmptyRedis(t).URL, 1), subscription("s")
	ctx, n := t.Context(), 0
	for _, part := range []string{
		"epoch", "woke", "attempt", "handed", "due", "born", "replay",
		"failing", "uncounted", "parked", "stalled", "hidden", "since", "again", "more",
	} {
		for _, number := range []string{"9007199254740992", "-9007199254740992"}[:1+strings.Count(part, "uncounted")] {
			n++
			path := fmt.Sprint("/", n)
			must[fsm.Outcome](t)(w.Link(ctx, sub, path, "3", "9"))
			if err := changeRecord(ctx, w.rdb, brokenPrefix+"c:"+fsm.ConsumerID("s", path), part, number); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.later(time.Hour)
	o, _, err := w.Due(ctx, 0, 100)
	for _, q := range o.Quarantined {
		if q.Reason != "its record has a number that is too large" {
			t.Errorf("%s is in quarantine: %s", q.Consumer, q.Reason)
		}
	}
	if len(o.Quarantined) != n || err != nil {
		t.Errorf("%d of %d are in quarantine, %v", len(o.Quarantined), n, err)
	}
}

// TestTheRecordOfAStreamThatCannotBeReadHarmsNoOther holds that the others are listed.
func TestTheRecordOfAStreamThatCannotBeReadHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	for _, path := range []string{"/a", "/b", "/c"} {
		if err := w.note(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", "boredom", "1,2,3", strings.Repeat(",", 8), "?"} {
		must[int64](t)(w.rdb.HSet(t.Context(), brokenPrefix+"known", "/b", text).Result())
		streams, _, err := w.ScanStreams(t.Context(), 0, "0")
		if err != nil || len(streams) != 2 {
			t.Errorf("%q: there are %+v, %v", text, streams, err)
		}
	}
}

// TestDataOfAnotherLayoutIsRefused holds that a start says which version it is of, and what to do.
func TestDataOfAnotherLayoutIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	for range 2 { // a new database, and one that was used before
		if err := w.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, layout := range []string{"0", "2", "boredom", strings.Repeat("9", 1000)} {
		must[int64](t)(w.rdb.HSet(t.Context(), "rv:{subs}:meta", "layout", layout).Result())
		err := w.Check(t.Context())
		if !errors.Is(err, redisstore.ErrIncompatible) || len(err.Error()) > 300 ||
			!strings.Contains(err.Error(), `layout "`+layout[:min(len(layout), 20)]) ||
			!strings.Contains(err.Error(), "use another database") {
			t.Errorf("layout %.20q is %v", layout, err)
		}
	}
}
