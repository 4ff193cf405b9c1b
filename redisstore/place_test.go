package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/redisstore"
	"reveille/test/harness"
)

// placed is a store that does not run: its heartbeats are made by Join.
func placed(t *testing.T, url, id string, lease time.Duration, hooks ...redis.Hook) *redisstore.Store {
	t.Helper()
	rdb, closeRedis, err := redisstore.ConnectPatiently(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeRedis() })
	for _, h := range hooks {
		rdb.AddHook(h)
	}
	opts := redisstore.Options{Partitions: 1, Timing: timing, ReplicaID: id, Lease: lease}
	return redisstore.New(rdb, opts.Patient())
}

// through returns what counts as older than unnoted writes.
func through(t *testing.T, s *redisstore.Store) int64 {
	t.Helper()
	version, err := s.UnnotedThrough(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// latest makes a subscription and returns its version.
func latest(t *testing.T, s *redisstore.Store, id string) int64 {
	t.Helper()
	sub, _, err := s.CreateSubscription(t.Context(), subscription(id))
	if err != nil {
		t.Fatal(err)
	}
	return sub.Version
}

func join(t *testing.T, s *redisstore.Store) {
	t.Helper()
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAPlaceThatLapsesIsAReasonToFearUnnotedWritesAndOneThatIsGivenUpIsNone(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	one, two := placed(t, server.URL, "one", time.Hour), placed(t, server.URL, "two", time.Hour)
	join(t, one)
	join(t, two)
	if err := two.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := through(t, one); v != 0 {
		t.Errorf("after one has resigned, subscriptions up to %d count as older than unnoted writes", v)
	}
	two = placed(t, server.URL, "two", time.Hour)
	join(t, two)
	const longAgo = 1
	err := server.Client().ZAdd(t.Context(), "rv:{subs}:replicas", redis.Z{Score: longAgo, Member: "two"}).Err()
	if err != nil {
		t.Fatal(err)
	}
	join(t, one) // what its heartbeat finds is stored
	join(t, two)
	if v, sub := through(t, one), latest(t, one, "a"); v < sub {
		t.Errorf("subscriptions up to %d count as older, not that of version %d", v, sub)
	}
}

func TestAWriteMayPassUnnotedOnceRedisWasToldThatThereAreSuch(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	one, other := placed(t, server.URL, "one", time.Hour), placed(t, server.URL, "other", time.Hour)
	expect := func(when string, want bool) {
		t.Helper()
		if may := one.MayWriteUnnoted(); may != want {
			t.Errorf("%s: it may is %v", when, may)
		}
	}
	join(t, one)
	expect("there are none", false)
	one.SetUnnoted(true)
	expect("Redis was not told", false)
	join(t, one)
	expect("Redis was told", true)
	if v, sub := through(t, other), latest(t, other, "a"); v < sub {
		t.Errorf("subscriptions up to %d count as older, not that of version %d", v, sub)
	}
	one.SetUnnoted(false)
	expect("they were noted", false)
	one.SetUnnoted(true)
	expect("there are some again", false)
}

func TestWithoutRedisAWriteMayPassUnnotedOnceItsReplicasPlaceHasLapsed(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	const lease = 50 * time.Millisecond
	for name, tc := range map[string]struct {
		lease  time.Duration
		before func(*redisstore.Store)
		may    bool
	}{
		"it has lapsed":       {lease, func(s *redisstore.Store) { join(t, s) }, true},
		"it has not":          {time.Hour, func(s *redisstore.Store) { join(t, s) }, false},
		"there never was one": {lease, func(*redisstore.Store) {}, false},
		"it was given up": {lease, func(s *redisstore.Store) {
			join(t, s)
			if err := s.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := placed(t, server.URL, name, tc.lease)
			tc.before(s)
			s.SetUnnoted(true)
			if tc.may {
				harness.Eventually(t, harness.Wait, "it may pass", harness.True(s.MayWriteUnnoted, "it may not"))
				return
			}
			time.Sleep(3 * lease) // longer changes nothing
			if s.MayWriteUnnoted() {
				t.Error("it may pass")
			}
		})
	}
}

// What a Redis that stood still finds in its sockets must not give a place to a replica that counts on having none.
func TestAHeartbeatThatArrivesLateKeepsNoPlace(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	const lease = 100 * time.Millisecond
	var late func(context.Context)
	hold := false
	one := placed(t, server.URL, "one", lease, before(func(ctx context.Context, cmds ...redis.Cmder) error {
		if hold && beginsBeat(cmds) {
			args := cmds[0].Args()
			late = func(ctx context.Context) { _ = server.Client().Do(ctx, args...).Err() }
			return context.DeadlineExceeded
		}
		return nil
	}))
	join(t, one)
	hold = true
	if one.Join(t.Context()) == nil || late == nil {
		t.Fatal("the heartbeat was not held up")
	}
	one.SetUnnoted(true)
	harness.Eventually(t, harness.Wait, "a write may pass", harness.True(one.MayWriteUnnoted, "it may not"))
	late(t.Context())
	n, err := server.Client().ZCard(t.Context(), "rv:{subs}:replicas").Result()
	if err != nil || n != 0 {
		t.Errorf("%d replicas count as alive, %v", n, err)
	}
}
