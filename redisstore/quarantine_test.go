package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// recordFields are the fields of a consumer's record that every script reads, as the library names them.
func recordFields(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("lua/library/consumer.lua")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)local RECORD = \{(.*?)\}`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the library does not list the fields of a record")
	}
	var fields []string
	for _, m := range regexp.MustCompile(`'(\w+)'`).FindAllSubmatch(list[1], -1) {
		fields = append(fields, string(m[1]))
	}
	if len(fields) < 15 {
		t.Fatalf("only %q: that cannot be all", fields)
	}
	return fields
}

// rareFields are those that some scripts read by themselves.
var rareFields = []string{
	"uncounted", "parked", "restarts", "span", "nudged", "ends", "replaying", "replayed",
	"letter", "error",
}

// broken is one way in which what is stored of a consumer is not as it should be.
type broken struct {
	name string
	// do is the command that does it.
	do func(consumer string) []any
}

const brokenPrefix = "rv:{0}:"

// waysToBreak are all of them: each field is missing, of another type, too large or too long, and each key is of
// another type.
func waysToBreak(t *testing.T) (ways []broken) {
	for _, field := range slices.Concat(recordFields(t), rareFields) {
		key := func(id string) string { return brokenPrefix + "c:" + id }
		ways = append(ways, broken{field + " missing", func(id string) []any { return []any{"HDEL", key(id), field} }})
		for _, value := range []string{
			"boredom", "", "-5", "1e400", "nan", "1 boredom", "1.5", strings.Repeat("7", 100_000),
		} {
			ways = append(ways, broken{fmt.Sprintf("%s %.10q", field, value), func(id string) []any {
				return []any{"HSET", key(id), field, value}
			}})
		}
	}
	for _, key := range []string{"c:", "l:", "x:", "r:", "rs:"} {
		ways = append(ways, broken{"another type of " + key, func(id string) []any {
			return []any{"SET", brokenPrefix + key + id, "boredom"}
		}})
	}
	return append(ways, broken{"an offset that is none", func(id string) []any {
		return []any{"HSET", brokenPrefix + "l:" + id, "/b", "\x00boredom/"}
	}}, broken{"no link", func(id string) []any { return []any{"DEL", brokenPrefix + "l:" + id} }})
}

// TestARecordThatCannotBeReadHarmsItsConsumerAlone breaks what is stored of one consumer, in each way, and has every
// script that sees to several consumers see to it and to its neighbours, of the same stream and of others.
func TestARecordThatCannotBeReadHarmsItsConsumerAlone(t *testing.T) {
	t.Parallel()
	url := redisstore.EmptyRedis(t).URL
	modes := []string{"woken", "failing", "live", "aside"}
	for i, mode := range modes {
		for n, way := range waysToBreak(t) {
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
	command := way.do(id)
	if command[0] == "SET" {
		ok("break", w.rdb.Del(ctx, command[1].(string)).Err())
	}
	ok("break", w.rdb.Do(ctx, command...).Err())

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
	handed := must[string](t)(w.rdb.HGet(ctx, key, "handed").Result())
	must[int64](t)(w.rdb.HDel(ctx, key, "handed").Result())
	w.later(time.Hour)
	o, _, err := w.Due(ctx, 0, 10)
	if err != nil || len(o.Quarantined) != 1 || !strings.Contains(o.Quarantined[0].Reason, "handed") {
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
	must[int64](t)(w.rdb.HSet(ctx, key, "handed", handed).Result())
	if n, _, err := w.ResumeSubscription(ctx, "s"); n != 1 || err != nil {
		t.Errorf("once it can be read a resumption has %d go on, %v", n, err)
	}
	o, _, err = w.Due(ctx, 0, 10)
	if err != nil || len(o.Deliveries) != 1 || o.Deliveries[0].WakeID != wake.WakeID ||
		o.Deliveries[0].At("/a") != "3" {
		t.Errorf("it goes on with %+v, %v", o, err)
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
