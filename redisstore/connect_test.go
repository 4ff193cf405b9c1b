package redisstore_test

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// kinds are the kinds of Redis that a URL can name, each with the servers that make it up.
var kinds = map[string]func(t *testing.T, args ...string) (url string, nodes []*harness.Redis){
	"one server": func(t *testing.T, args ...string) (string, []*harness.Redis) {
		r := harness.StartRedis(t, args...)
		if r.TLSAddr != "" {
			return "rediss://" + r.TLSAddr, []*harness.Redis{r}
		}
		return r.URL, []*harness.Redis{r}
	},
	"cluster": func(t *testing.T, args ...string) (string, []*harness.Redis) {
		if len(args) == 0 {
			c := redisstore.EmptyCluster(t)
			return c.URL, c.Nodes
		}
		c := harness.StartRedisCluster(t, 3, 0, args...)
		return c.URL, c.Nodes
	},
	"sentinel": func(t *testing.T, args ...string) (string, []*harness.Redis) {
		if len(args) == 0 {
			s := redisstore.EmptySentinel(t)
			return s.URL, s.Nodes
		}
		s := harness.StartRedisSentinel(t, args...)
		return s.URL, s.Nodes
	},
}

// uses checks a Redis and runs a script on each of eight partitions.
func uses(t *testing.T, url string, ca *x509.CertPool) error {
	t.Helper()
	w := openWith(t, url, ca, redisstore.Options{Partitions: 8})
	err := w.Check(t.Context())
	for i := 0; i < 20 && err == nil; i++ {
		err = w.note(t.Context(), strings.Repeat("/a", i+1), false)
	}
	return err
}

func TestConnectionsAreEncryptedAndCertificatesChecked(t *testing.T) {
	t.Parallel()
	ca, other := harness.NewCA(t), harness.NewCA(t)
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := start(t, ca.RedisArgs()...)
			if err := uses(t, url, ca.Pool); err != nil {
				t.Errorf("with the authority's certificate: %v", err)
			}
			for what, pool := range map[string]*x509.CertPool{
				"the system's authorities": nil,
				"another authority":        other.Pool,
			} {
				if err := uses(t, url, pool); !errors.Is(err, redisstore.ErrIncompatible) ||
					!strings.Contains(err.Error(), "REVEILLE_REDIS_CA_FILE") {
					t.Errorf("with %s: %v", what, err)
				}
			}
		})
	}
}

func TestUserAndPassword(t *testing.T) {
	t.Parallel()
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, nodes := start(t)
			t.Cleanup(func() { // others use the servers
				for _, n := range nodes {
					admin := redis.NewClient(&redis.Options{Addr: n.Addr})
					if err := admin.Do(context.Background(), "ACL", "DELUSER", "re:ville").Err(); err != nil {
						t.Error(err)
					}
					_ = admin.Close()
				}
			})
			as := func(who string) string { return strings.Replace(url, "://", "://"+who+"@", 1) }
			allow := func(rules ...any) {
				t.Helper()
				for _, n := range nodes {
					if err := n.Client().Do(
						t.Context(), append([]any{"ACL", "SETUSER", "re:ville", "reset", "on"}, rules...)...,
					).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			allow(">p@ss/w:rd", "~rv:*", "&*", "+@all")
			if err := uses(t, as("re%3Aville:p%40ss%2Fw%3Ard"), nil); err != nil {
				t.Errorf("the right ones: %v", err)
			}
			apart, err := redisstore.WithPassword(as("re%3Aville"), "p@ss/w:rd")
			if err == nil {
				err = uses(t, apart, nil)
			}
			if err != nil {
				t.Errorf("the right ones, apart: %v", err)
			}
			for _, wrong := range []string{"re%3Aville:wrong", "nobody:p%40ss%2Fw%3Ard"} {
				err := uses(t, as(wrong), nil)
				if !errors.Is(err, redisstore.ErrIncompatible) ||
					!strings.Contains(err.Error(), "user or the password") || strings.Contains(err.Error(), "wrong") {
					t.Errorf("%s: %v", wrong, err)
				}
			}
			allow(">p@ss/w:rd", "~rv:*", "&*", "+@all", "-hsetnx")
			if err := uses(t, as("re%3Aville:p%40ss%2Fw%3Ard"), nil); !errors.Is(err, redisstore.ErrIncompatible) ||
				!strings.Contains(err.Error(), "hsetnx") {
				t.Errorf("one who may not do enough: %v", err)
			}
			// A password that changes while the program runs is not its end.
			allow(">p@ss/w:rd", "~rv:*", "&*", "+@all")
			w := open(t, as("re%3Aville:p%40ss%2Fw%3Ard"), 8)
			if err := w.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			allow(">another", "~rv:*", "&*", "+@all")
			for _, n := range nodes {
				n.Client().ClientKillByFilter(t.Context(), "USER", "re:ville")
			}
			if err := w.Ping(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("after the password was changed: %v", err)
			}
			allow(">p@ss/w:rd", "~rv:*", "&*", "+@all")
			harness.Eventually(t, harness.Wait, "it works again", func() error { return w.Ping(t.Context()) })
		})
	}
}

func TestAURLOfAnotherKindOfRedisIsRefused(t *testing.T) {
	t.Parallel()
	server, cluster, sentinel := redisstore.EmptyRedis(t), redisstore.EmptyCluster(t), redisstore.EmptySentinel(t)
	watchers := strings.TrimSuffix(strings.TrimPrefix(sentinel.URL, "redis+sentinel://"), "/main")
	for _, c := range []struct{ name, url, want string }{
		{"a server as a cluster", "redis+cluster://" + server.Addr, "not a cluster"},
		{"a node of a cluster as a server", cluster.Nodes[0].URL, "redis+cluster://"},
		{"a server as a sentinel", "redis+sentinel://" + server.Addr + "/main", "not a sentinel"},
		{"a sentinel as a server", "redis://" + strings.Split(watchers, ",")[0], "redis+sentinel://"},
		{"a sentinel as a cluster", "redis+cluster://" + watchers, "not a cluster"},
		{"a master that no sentinel knows", "redis+sentinel://" + watchers + "/other", "no master of that name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := open(t, c.url, 8).Check(t.Context())
			if !errors.Is(err, redisstore.ErrIncompatible) || !strings.Contains(err.Error(), c.want) ||
				strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestARedisThatIsNotReadyYetIsWaitedFor holds that a start then gives up on nothing.
func TestARedisThatIsNotReadyYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	free := harness.StartRedis(t)
	free.Kill()
	// A node of a cluster that nobody has given slots, and one of a cluster of which nobody serves the others.
	empty := harness.StartRedis(t, "--cluster-enabled", "yes")
	half := harness.StartRedis(t, "--cluster-enabled", "yes")
	if err := half.Client().ClusterAddSlotsRange(t.Context(), 0, 8000).Err(); err != nil {
		t.Fatal(err)
	}
	loading := harness.StartRedis(t, "--appendonly", "yes", "--enable-debug-command", "yes",
		"--loading-process-events-interval-bytes", "1024")
	if err := loading.Client().Eval(
		t.Context(), "for i = 1, 20000 do redis.call('SET', 'k' .. i, i) end return 1", nil,
	).Err(); err != nil {
		t.Fatal(err)
	}
	if err := loading.Client().ConfigSet(t.Context(), "key-load-delay", "500").Err(); err != nil {
		t.Fatal(err)
	}
	reloaded := make(chan error, 1)
	reload := loading.Client()
	go func() { reloaded <- reload.Do(t.Context(), "DEBUG", "LOADAOF").Err() }()
	harness.Eventually(t, harness.Wait, "it is loading", func() error {
		if info := loading.Client().Info(t.Context(), "persistence").Val(); !strings.Contains(info, "loading:1") {
			return errors.New(info)
		}
		return nil
	})
	refused := func(name, url string) {
		t.Run(name, func(t *testing.T) {
			if err := uses(t, url, nil); !errors.Is(err, fsm.ErrUnavailable) ||
				errors.Is(err, redisstore.ErrIncompatible) {
				t.Errorf("%v", err)
			}
		})
	}
	refused("a server that is loading", loading.URL) // before it is done
	for name, url := range map[string]string{
		"nobody answers": free.URL, "none of a cluster answers": "redis+cluster://" + free.Addr,
		"no sentinel answers":           "redis+sentinel://" + free.Addr + "/main",
		"a cluster without slots":       "redis+cluster://" + empty.Addr,
		"a cluster that lacks a master": "redis+cluster://" + half.Addr,
	} {
		refused(name, url)
	}
	loading.Kill()
	if err := <-reloaded; err == nil {
		t.Error("it has loaded all, so nobody was made to wait")
	}
}

func TestADatabaseBelongsToOneUpstream(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	check := func(upstream string) error {
		return openWith(t, server.URL, nil, redisstore.Options{Partitions: 8, Upstream: upstream}).Check(t.Context())
	}
	if err := check("http://streams:4437/v1"); err != nil {
		t.Fatal(err)
	}
	if err := check("http://streams:4437/v1"); err != nil {
		t.Errorf("the same again: %v", err)
	}
	const another = "http://renamed:4437/v1"
	err := check(another)
	if !errors.Is(err, redisstore.ErrIncompatible) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("another: %v", err)
	}
	for _, want := range []string{"http://streams:4437/v1", "REVEILLE_UPSTREAM_URL", another} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	// What it says to type does it.
	_, command, _ := strings.Cut(err.Error(), "redis-cli ")
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, strings.Trim(word, "'"))
	}
	if err := client(t, server).Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	if err := check(another); err != nil {
		t.Errorf("after it was renamed: %v", err)
	}
	if err := check("http://streams:4437/v1"); err == nil {
		t.Error("the old name is still accepted")
	}
}

func TestAPasswordGoesIntoAURLThatHasNone(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://redis":                "redis://:a%20%2Bb%40%2F%25@redis",
		"redis://redis:6379/2?x=y@z":   "redis://:a%20%2Bb%40%2F%25@redis:6379/2?x=y@z",
		"redis://me:@redis":            "redis://me:a%20%2Bb%40%2F%25@redis",
		"rediss+cluster://me@a:1,b:2":  "rediss+cluster://me:a%20%2Bb%40%2F%25@a:1,b:2",
		"redis+sentinel://@a:1,b/main": "redis+sentinel://:a%20%2Bb%40%2F%25@a:1,b/main",
	} {
		if got, err := redisstore.WithPassword(url, "a +b@/%"); err != nil || got != want {
			t.Errorf("%s: got %s, %v", url, got, err)
		}
	}
	for _, url := range []string{
		"redis://:hunter2@redis", "redis+cluster://me:hunt/hunter2@a", "redis+sentinel://me:@hunter2@a/main",
		redisstore.Embedded,
	} {
		if got, err := redisstore.WithPassword(url, "b"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %s, %v", url, got, err)
		}
	}
}
