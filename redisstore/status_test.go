package redisstore_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestTheStatusShowsWhichReplicasThereAre holds since when each of them is alive, and how many partitions they have.
func TestTheStatusShowsWhichReplicasThereAre(t *testing.T) {
	t.Parallel()
	for name, url := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			lasting := func(id string) redisstore.Options { return redisstore.Options{Lease: time.Hour, ReplicaID: id} }
			one := startReplica(t, at, lasting("one"))
			harness.Eventually(t, harness.Wait, "the only replica owns all", shared(one))
			first := statusOf(t, one)["one"]
			if !first.Alive || first.Since.IsZero() || first.Partitions != replicaPartitions {
				t.Errorf("the only replica is shown as %+v", first)
			}
			two := startReplica(t, at, lasting("two"))
			harness.Eventually(t, harness.Wait, "both own some", shared(one, two))
			all := statusOf(t, two)
			if len(all) != 2 || all["one"].Since != first.Since || all["two"].Since.Before(first.Since) ||
				all["one"].Partitions+all["two"].Partitions != replicaPartitions {
				t.Errorf("two are shown as %+v, the first by itself as %+v", all, first)
			}
			two.die() // without a word
			two = startReplica(t, at, lasting("two"))
			anew := "one that was started again is alive since then"
			harness.Eventually(t, harness.Wait, anew, harness.True(func() bool {
				again := statusOf(t, one)["two"]
				return again.Alive && again.Since.After(all["two"].Since)
			}, "it is not"))
			harness.Eventually(t, harness.Wait, "it has its leases again, to give back", shared(one, two))
			if err := two.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, harness.Wait, "the other owns all", shared(one))
			if all := statusOf(t, one); len(all) != 1 || all["one"] != first {
				t.Errorf("after one has left, they are shown as %+v", all)
			}
		})
	}
}

// TestAReplicaThatIsGoneIsShownWhileItHasLeases holds that its partitions are neither hidden nor another's.
func TestAReplicaThatIsGoneIsShownWhileItHasLeases(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	one, other := placed(t, server.URL, "one", time.Hour), placed(t, server.URL, "other", time.Hour)
	join(t, one)
	if _, unowned, err := one.Replicas(t.Context()); unowned != 1 || err != nil {
		t.Errorf("before any lease, %d partitions have no replica (%v)", unowned, err)
	}
	join(t, other)
	ctx := t.Context()
	if err := server.Client().Set(ctx, "rv:{0}:lease", "other", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	const longAgo = 1
	lapsed := goredis.Z{Score: longAgo, Member: "other"}
	if err := server.Client().ZAdd(ctx, "rv:{subs}:replicas", lapsed).Err(); err != nil {
		t.Fatal(err)
	}
	all := map[string]fsm.ReplicaStatus{}
	list, unowned, err := one.Replicas(ctx)
	for _, r := range list {
		all[r.ID] = r
	}
	if gone := (fsm.ReplicaStatus{ID: "other", Partitions: 1}); err != nil || unowned != 0 || len(all) != 2 ||
		all["other"] != gone || !all["one"].Alive {
		t.Errorf("they are shown as %+v, %d unowned (%v)", list, unowned, err)
	}
	if n := server.Client().HLen(ctx, "rv:{subs}:alive_since").Val(); n != 1 {
		t.Errorf("there are %d times of replicas, want that of the one", n)
	}
}

// TestTheStoreKnowsSinceWhenRedisIsAway holds that a heartbeat that fails changes that, and further ones do not.
func TestTheStoreKnowsSinceWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	var refused error
	s := placed(t, redisstore.EmptyRedis(t).URL, "one", time.Hour,
		before(func(context.Context, ...goredis.Cmder) error { return refused }))
	if up, since := s.Answers(); up || !since.IsZero() {
		t.Errorf("before the first heartbeat: %v, since %s", up, since)
	}
	join(t, s)
	up, answers := s.Answers()
	join(t, s)
	if again, same := s.Answers(); !up || answers.IsZero() || !again || same != answers {
		t.Errorf("it answers: %v since %s, later %v since %s", up, answers, again, same)
	}
	refused = goredis.ErrPoolTimeout
	for range 2 {
		if err := s.Join(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
			t.Fatal(err)
		}
		if up, since := s.Answers(); up || since.Before(answers) {
			t.Errorf("it is away: %v, since %s", up, since)
		}
	}
}

// statusOf returns what a replica says of all, by ID.
func statusOf(t *testing.T, r *replica) map[string]fsm.ReplicaStatus {
	t.Helper()
	list, unowned, err := r.Replicas(t.Context())
	if err != nil || unowned != 0 {
		t.Fatalf("%d partitions without a replica, %v", unowned, err)
	}
	all := map[string]fsm.ReplicaStatus{}
	for _, one := range list {
		all[one.ID] = one
	}
	return all
}

// TestTroublesAreNotedUntilTheyAreOver holds that each is noted by its key, as it was last. What cannot be read begins
// anew.
func TestTroublesAreNotedUntilTheyAreOver(t *testing.T) {
	t.Parallel()
	for name, url := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, url(t), 1)
			since := time.UnixMilli(1_700_000_000_123)
			want := map[string]fsm.Trouble{}
			type troubles = map[string]fsm.Trouble
			for _, step := range []struct {
				begun, noted troubles
				over         []string
			}{
				{nil, nil, nil},
				{nil, nil, []string{"a b c"}},
				{troubles{"a b c": {Since: since}, "a b d": {Since: since, Told: true}}, nil, nil},
				{troubles{"a b c": {Since: since.Add(time.Hour)}}, nil, nil}, // by another replica
				{nil, troubles{"a b c": {Since: since, Told: true}}, nil},
				{troubles{"e": {Since: since}}, nil, []string{"a b c", "a b d"}},
				{nil, nil, []string{"e"}},
			} {
				for key, trouble := range step.begun {
					if _, there := want[key]; !there {
						want[key] = trouble
					}
				}
				maps.Copy(want, step.noted)
				for _, key := range step.over {
					delete(want, key)
				}
				if err := w.NoteTroubles(t.Context(), step.begun, step.noted, step.over); err != nil {
					t.Fatal(err)
				}
				if got := must[map[string]fsm.Trouble](t)(w.Troubles(t.Context())); !maps.Equal(got, want) {
					t.Errorf("after %+v there are %v, want %v", step, got, want)
				}
			}
			w.rdb.HSet(t.Context(), "rv:{subs}:troubles", "a", "since long")
			if got := must[map[string]fsm.Trouble](t)(w.Troubles(t.Context())); got["a"] != (fsm.Trouble{}) {
				t.Errorf("what cannot be read is %v", got)
			}
		})
	}
}
