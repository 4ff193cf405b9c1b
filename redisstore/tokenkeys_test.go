package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/redisstore"
	"reveille/test/harness"
)

// TestAReplicaStartsOnlyWithATokenKeyOfTheOthers holds that no token of one replica is refused by another by chance.
func TestAReplicaStartsOnlyWithATokenKeyOfTheOthers(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	replica := func(id string, keys ...string) *world {
		return openWith(t, server.URL, nil,
			redisstore.Options{Partitions: 1, ReplicaID: id, TokenKeys: keys, Lease: time.Hour})
	}
	starts := func(w *world, want bool) {
		t.Helper()
		err := w.Check(t.Context())
		var fault *redisstore.SettingError
		switch {
		case want && err != nil:
			t.Errorf("it does not start: %v", err)
		case !want && (!errors.Is(err, redisstore.ErrIncompatible) || !errors.As(err, &fault) ||
			fault.Setting != "REVEILLE_TOKEN_KEY"):
			t.Errorf("it starts, or does not say why not: %v", err)
		}
	}
	stops := func(w *world) {
		t.Helper()
		if err := w.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	}
	a, b := replica("a", "01"), replica("b", "01")
	starts(a, true)
	starts(b, true)
	starts(replica("c", "02"), false)
	starts(replica("a", "02"), false) // not started again under its name either, while another has the key
	// The key is changed, a replica at a time.
	stops(a)
	a = replica("a", "01", "02")
	starts(a, true)
	stops(b)
	b = replica("b", "02", "01")
	starts(b, true)
	stops(a)
	a = replica("a", "02")
	starts(a, true)
	stops(b)
	b = replica("b", "02")
	starts(b, true)
	starts(replica("c", "01"), false) // nobody has it any more
	stops(a)
	stops(b)
	starts(replica("c", "03"), true) // there is nobody to differ from
}

// TestTheStartWarnsOfARedisThatEvicts holds that what the guide asks for is looked at.
func TestTheStartWarnsOfARedisThatEvicts(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"noeviction": 0, "allkeys-lru": 1, "volatile-ttl": 1} {
		t.Run(policy, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			w := openWith(t, harness.StartRedis(t, "--maxmemory-policy", policy).URL, nil,
				redisstore.Options{Partitions: 1, Logger: zap.New(core)})
			if err := w.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := logs.FilterMessageSnippet("evicts").Len(); n != want {
				t.Errorf("%d warnings, want %d", n, want)
			}
		})
	}
}
