package redisstore_test

import (
	"errors"
	"testing"

	"reveille/fsm"
	"reveille/fsm/memstore"
	"reveille/redisstore"
)

// TestASubscriptionIsToldFromTheFirstRepetitionOn holds of both stores that whoever reads a version of the list after
// somebody was told of a subscription that he has not created finds that in it.
func TestASubscriptionIsToldFromTheFirstRepetitionOn(t *testing.T) {
	t.Parallel()
	db := memstore.New(memstore.Options{})
	server := redisstore.EmptyRedis(t)
	for name, replicas := range map[string][2]fsm.Store{
		"redis":  {open(t, server.URL, 4), open(t, server.URL, 4)},
		"memory": {db.Replica("a"), db.Replica("b")},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, creator, other := t.Context(), replicas[0], replicas[1]
			told := func() (bool, int64) {
				t.Helper()
				version, err := creator.Version(ctx)
				if err == nil {
					err = creator.RefreshCatalog(ctx)
				}
				sub, there := creator.Catalog().Get("s")
				if err != nil || !there || creator.Catalog().Version() != version {
					t.Fatal(err, there)
				}
				return sub.Told, version
			}
			sub, created, err := creator.CreateSubscription(ctx, subscription("s"))
			if err != nil || !created || sub.Told {
				t.Fatal(sub, created, err)
			}
			if told, _ := told(); told {
				t.Error("it is told by its creation")
			}
			again := subscription("s")
			again.Generation, again.Pattern = "of another", "/a"
			if _, _, err := other.CreateSubscription(ctx, again); !errors.Is(err, fsm.ErrConflict) {
				t.Fatal(err)
			}
			if told, _ := told(); told {
				t.Error("it is told by a refusal")
			}
			again.Pattern = subscription("s").Pattern
			sub, created, err = other.CreateSubscription(ctx, again)
			if err != nil || created || sub.Generation != subscription("s").Generation {
				t.Fatal(sub, created, err)
			}
			is, version := told()
			if !is {
				t.Error("it is not told by its repetition")
			}
			if now, _ := creator.Catalog().Get("s"); now.Version != sub.Version || now.Version >= version {
				t.Errorf("its version is %d, was %d, that of the list is %d", now.Version, sub.Version, version)
			}
			if _, _, err := other.CreateSubscription(ctx, again); err != nil {
				t.Fatal(err)
			}
			if _, now := told(); now != version {
				t.Error("another repetition changes the list")
			}
		})
	}
}
