package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// heard is what a replica hears of the set at a time in leases; live is "" if Redis does not answer.
type heard struct {
	at         float64
	live, left string
	// says is what it logs then.
	says string
}

// TestAReplicaThatIsLostIsToldFromOneThatStops plays what a replica, "a", hears of the others.
func TestAReplicaThatIsLostIsToldFromOneThatStops(t *testing.T) {
	for name, steps := range map[string][]heard{
		"one that stops has left": {
			{0, "a b", "", "joined a b"},
			{1, "a b", "", ""},
			{1.2, "a", "b", "left b"},
			{3, "a", "b", ""},
		},
		"one that dies is lost once it is silent for a lease": {
			{0, "a b", "", "joined a b"},
			{1, "a", "", "silent b"},
			{1.9, "a", "", ""},
			{2, "a", "", "lost b"},
			{9, "a", "", ""},
		},
		"one that is cut off for a while is back": {
			{0, "a b", "", "joined a b"},
			{1, "a", "", "silent b"},
			{1.9, "a b", "", "back b"},
			{9, "a b", "", ""},
		},
		"one that was lost is forgotten after a day": {
			{0, "a b", "", "joined a b"}, {1, "a", "", "silent b"}, {2, "a", "", "lost b"}, {24*60 + 2, "a", "", ""},
		},
		"one that comes back after it was lost has joined": {
			{0, "a b", "", "joined a b"},
			{1, "a", "", "silent b"},
			{2, "a", "", "lost b"},
			{3, "a b", "", "joined b"},
		},
		"one that says late that it stops has left": {
			{0, "a b", "", "joined a b"}, {1, "a", "", "silent b"}, {1.5, "a", "b", "left b"}, {9, "a", "b", ""},
		},
		"after an outage all have a lease to come back": {
			{0, "a b c", "", "joined a b c"},
			{1, "", "", ""},
			{9, "", "", ""},
			{10, "a", "", "silent b c"},
			{10.5, "a b", "", "back b"},
			{11, "a b", "", "lost c"},
		},
		"those that are silent when an outage begins, too": {
			{0, "a b", "", "joined a b"},
			{1, "a", "", "silent b"},
			{1.5, "", "", ""},
			{9, "a", "", ""},
			{9.9, "a", "", ""},
			{10, "a", "", "lost b"},
		},
		"a database that was emptied loses no replica": {
			{0, "a b", "", "joined a b"}, {0.1, "a", "", "silent b"}, {0.3, "a b", "", "back b"}, {9, "a b", "", ""},
		},
		"one that stopped before and was started again has joined": {
			{0, "a", "b", "joined a"}, {1, "a b", "", "joined b"}, {2, "a", "", "silent b"}, {3, "a", "", "lost b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			const lease = time.Minute
			s := New(nil, Options{Partitions: 1, Logger: zap.New(core), Lease: lease})
			r, began, lost := newReplicas(s, "a"), time.Now(), 0
			remembered := map[string]bool{}
			for _, h := range steps {
				if h.live == "" {
					r.cutOff = true
					continue
				}
				at := began.Add(time.Duration(h.at * float64(lease)))
				r.noteSet(replicaSet{live: strings.Fields(h.live), left: strings.Fields(h.left), now: at})
				if said := saidOf(logs.TakeAll()); said != h.says {
					t.Errorf("after %g leases it says %q, want %q", h.at, said, h.says)
				}
				if id, is := strings.CutPrefix(h.says, "lost "); is {
					lost++
					remembered[id] = true
				}
				for _, id := range strings.Fields(h.live) {
					delete(remembered, id)
				}
				if time.Duration(h.at)*lease > rememberLost {
					clear(remembered)
				}
				for id := range remembered {
					if _, is := r.lost[id]; !is || len(r.lost) != len(remembered) {
						t.Errorf("after %g leases it remembers %v, want %v", h.at, r.lost, remembered)
					}
				}
			}
			if len(r.lost) != len(remembered) {
				t.Errorf("in the end it remembers %v, want %v", r.lost, remembered)
			}
			if n := testutil.ToFloat64(s.metrics.replicasLost); n != float64(lost) {
				t.Errorf("%g are counted as lost, want %d", n, lost)
			}
		})
	}
}

// saidOf puts log lines of the replica set in a few words.
func saidOf(lines []observer.LoggedEntry) string {
	var said []string
	for _, line := range lines {
		fields := line.ContextMap()
		if strings.HasPrefix(line.Message, "a replica was lost") {
			said = append(said, fmt.Sprint("lost ", fields["replica"]))
		}
		for _, what := range []string{"joined", "left", "silent", "back"} {
			if list, _ := fields[what].([]any); len(list) > 0 {
				said = append(said, strings.Trim(fmt.Sprint(what, " ", list), "[]"))
			}
		}
	}
	return strings.ReplaceAll(strings.Join(said, ", "), "[", "")
}

// TestAReplicaSaysThatItStops holds that Redis keeps that for the others, until the replica is back.
func TestAReplicaSaysThatItStops(t *testing.T) {
	t.Parallel()
	server, ctx := EmptyRedis(t), t.Context()
	open := func(id string) (*Store, *observer.ObservedLogs) {
		t.Helper()
		rdb, closeRedis, err := ConnectPatiently(server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closeRedis() })
		core, logs := observer.New(zap.InfoLevel)
		opts := Options{Partitions: 1, ReplicaID: id, Lease: time.Hour, Logger: zap.New(core)}
		return New(rdb, opts.Patient()), logs
	}
	do := func(what func(context.Context) error) {
		t.Helper()
		if err := what(ctx); err != nil {
			t.Fatal(err)
		}
	}
	one, logs := open("one")
	two, _ := open("two")
	do(two.Join)
	expect := func(when, want string) {
		t.Helper()
		do(one.replicas.beat)
		if said := saidOf(logs.TakeAll()); said != want {
			t.Errorf("%s, the other says %q, want %q", when, said, want)
		}
	}
	expect("when both are there", "joined one two")
	do(two.Resign)
	expect("when it has stopped", "left two")
	two, _ = open("two")
	do(two.Join)
	expect("when it is started again", "joined two")
	if err := server.Client().ZAdd(ctx, one.keys.replicas(), redis.Z{Score: 1, Member: "two"}).Err(); err != nil {
		t.Fatal(err)
	}
	expect("when its place has lapsed", "silent two")
	do(two.Join)
	expect("when it is heard of", "back two")
	if err := server.Client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	expect("when all is lost", "silent two")
}
