package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/test/harness"
)

// fleet is an env with several replicas, each of which reaches the stream server through a proxy of its own.
type fleet struct {
	*env
	replicas []*harness.Reveille
	proxies  []*proxy
	gateways []*harness.Client
}

func startFleet(t *testing.T, n int, settings map[string]string) *fleet {
	t.Helper()
	f := &fleet{env: &env{t: t, redis: startRedis(t), ref: refServer(t, harness.RefOptions{})}}
	f.streams = harness.NewClient(t, f.ref.StreamRoot)
	for range n {
		p := newProxy(t, f.ref.StreamRoot)
		own := usual(p.URL, f.redis.URL, settings)
		own["REVEILLE_UPSTREAM_NAME"] = "the-one-behind"
		r := harness.NewReveille(t, own)
		r.Launch()
		f.replicas, f.proxies, f.gateways = append(f.replicas, r), append(f.proxies, p),
			append(f.gateways, harness.NewClient(t, r.URL))
	}
	for _, r := range f.replicas {
		harness.Eventually(t, soon, "a replica is ready", func() error { return r.Ready(t.Context()) })
	}
	f.rev, f.gateway = f.replicas[0], f.gateways[0]
	return f
}

// leases returns how many partitions each replica has the lease of.
func (f *fleet) leases() (map[string]int, error) {
	count := map[string]int{}
	c := f.redis.Client()
	for p := range 64 {
		owner, err := c.Get(f.t.Context(), fmt.Sprintf("rv:{%d}:lease", p)).Result()
		switch {
		case errors.Is(err, redis.Nil):
			count[""]++
		case err != nil:
			return nil, err
		default:
			count[owner[strings.LastIndex(owner, "/")+1:]]++
		}
	}
	return count, nil
}

// share waits until just these replicas have all the leases.
func (f *fleet) share(replicas ...int) {
	f.t.Helper()
	harness.Eventually(f.t, soon, "the partitions are shared", func() error {
		count, err := f.leases()
		if err != nil {
			return err
		}
		for _, i := range replicas {
			if count[strings.TrimPrefix(f.replicas[i].URL, "http://")] == 0 {
				return fmt.Errorf("replica %d has none: %v", i, count)
			}
		}
		if len(count) != len(replicas) {
			return fmt.Errorf("they are %v", count)
		}
		return nil
	})
}

// create makes streams through the replicas' gateways in turn and waits until their consumers are at rest.
func (f *fleet) create(w *fixture, folder string, n int) (tails map[string]string) {
	f.t.Helper()
	tails = map[string]string{}
	for i := range n {
		path := fmt.Sprintf("%s/%d", folder, i)
		tails[path] = f.gateways[i%len(f.gateways)].Create(path)
	}
	for path, tail := range tails {
		w.awaitIdle(path, tail)
	}
	return tails
}

func TestReplicasShareTheWorkAndServeAnyCall(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, nil)
	f.share(0, 1, 2)
	w := f.subscriber("/shared/*")
	tails := f.create(w, "/shared", 24)
	t.Run("each stream is watched by one replica, and each replica watches some", func(t *testing.T) {
		harness.Eventually(t, soon, "one live request a stream", func() error {
			some := make([]int, len(f.proxies))
			for path := range tails {
				n := 0
				for i, p := range f.proxies {
					n += p.waiting(path)
					some[i] += p.waiting(path)
				}
				if n != 1 {
					return fmt.Errorf("%s has %d", path, n)
				}
			}
			for i, n := range some {
				if n == 0 {
					return fmt.Errorf("replica %d has none", i)
				}
			}
			return nil
		})
	})
	t.Run("events behind the gateways' back wake", func(t *testing.T) {
		for path, tail := range tails {
			tails[path] = w.wakesOnAppend(path, tail)
		}
	})
	t.Run("a callback may go to any replica", func(t *testing.T) {
		held := f.liveSubscriber("/held/*")
		for i := range 6 {
			path := fmt.Sprintf("/held/%d", i)
			f.gateways[i%3].Create(path)
			tail := f.streams.Append(path, `1`)
			wake := held.wake(path, 1)
			url := strings.Replace(wake.Callback, f.rev.URL, f.replicas[(i+1)%3].URL, 1)
			body := fmt.Sprintf(`{"epoch":%d,"wake_id":%q,"acks":[{"path":%q,"offset":%q}],"done":true}`, wake.Epoch,
				wake.WakeID, path, tail)
			if a := f.gateway.RawCallback(url, wake.Token, body); a.Status != http.StatusOK {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			held.awaitIdle(path, tail)
		}
	})
	t.Run("a subscription made at one replica is known at the others", func(t *testing.T) {
		late := harness.NewWorker(t)
		late.AnswerDone()
		f.gateways[1].Subscribe("/late/*", "late", late)
		for i, g := range f.gateways {
			harness.Eventually(t, soon, "it is listed", func() error {
				if _, ok := g.Subscription("late"); !ok {
					return fmt.Errorf("not by replica %d", i)
				}
				return nil
			})
		}
		f.gateways[2].Create("/late/1")
		f.gateways[0].Append("/late/1", `1`)
		late.Wake(1)
	})
	t.Run("a stream deleted through one replica is gone for all", func(t *testing.T) {
		for i, path := range []string{"/shared/0", "/shared/1", "/shared/2"} {
			f.gateways[(i+1)%3].DeleteStream(path)
			w.awaitRemoved(path, soon)
			before := len(w.wakes(path))
			f.gateways[(i+2)%3].Create(path)
			f.streams.Append(path, `"anew"`)
			w.wake(path, before+1)
		}
	})
	t.Run("a further stream deleted through any replica starts over for all", f.startsAFurtherStreamOver)
}

// TestReplicasActOnWhatNoHintTellsThemOf takes from them the channel that hints go by, which only make them quicker:
// half of what each is told here another has to watch.
func TestReplicasActOnWhatNoHintTellsThemOf(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2, nil)
	f.share(0, 1)
	f.redis.closeChannels()
	w := f.subscriber("/unheard/*")
	for path, tail := range f.create(w, "/unheard", 24) {
		w.wakesOnAppend(path, tail)
	}
}

func (f *fleet) startsAFurtherStreamOver(t *testing.T) {
	w := f.liveSubscriber("/first/*")
	const further = "/further/stream"
	f.gateway.Create(further)
	tail := f.gateway.Append(further, `"old"`)
	var primaries []string
	for i := range 12 { // in partitions of all replicas
		path := fmt.Sprintf("/first/%d", i)
		primaries = append(primaries, path)
		f.gateway.Create(path)
		wake := w.wake(path, 1)
		a := f.gateway.Callback(wake,
			harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID, Subscribe: []string{further}, Done: false})
		if a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		acks := append([]harness.StreamOffset(nil), a.Streams...)
		for n := range acks {
			if acks[n].Path == further {
				acks[n].Offset = tail
			} else {
				acks[n].Offset = f.streams.Tail(path)
			}
		}
		if a := f.gateway.Callback(wake, wake.Claim(true, acks...)); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	f.gateways[1].DeleteStream(further)
	f.gateways[2].Create(further)
	// As long as the old one was: only the deletion tells them apart.
	if again := f.streams.Append(further, `"new"`); again != tail {
		t.Fatalf("the new stream ends at %s, the old one at %s", again, tail)
	}
	for _, path := range primaries {
		if got := w.wake(path, 2).Offset(further); got != "-1" {
			t.Errorf("the consumer of %s was woken for %s after %s, want -1", path, further, got)
		}
	}
}

// The short form has the death of one of two replicas (TestTwoReplicasOnOneRedis), and what becomes of the leases of a
// dead one is held by the tests of package redisstore.
func TestAReplicaThatDiesIsReplaced(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	f := startFleet(t, 3, nil)
	f.share(0, 1, 2)
	w := f.subscriber("/mortal/*")
	tails := f.create(w, "/mortal", 24)
	f.replicas[2].Kill()
	for path := range tails {
		tails[path] = f.streams.Append(path, `"while nobody watches"`)
	}
	for path, tail := range tails {
		w.awaitIdle(path, tail)
	}
	f.share(0, 1)
	f.replicas[2].Start()
	f.share(0, 1, 2)
	for path, tail := range tails {
		w.wakesOnAppend(path, tail)
	}
}

func TestAReplicaThatStopsHandsOverWhatItHasAtOnce(t *testing.T) {
	t.Parallel()
	// One request at a time for each subscription: the other wakes wait in line. Those that are not handed over come
	// when the waking time-out is over, which is longer than the test waits.
	f := startFleet(t, 2, map[string]string{
		"REVEILLE_MAX_IN_FLIGHT": "2", "REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": "1",
		"REVEILLE_WAKING_TIMEOUT": "10m",
	})
	f.share(0, 1)
	w := f.liveSubscriber("/queued/*")
	begun, end := make(chan string, 1), make(gate)
	// The first hangs, and the others wait behind it, but for those that the replica that stays may come by: these are
	// done at once.
	w.worker.Answer(func(rw http.ResponseWriter, r *http.Request, wake harness.Wake) {
		if wake.PrimaryStream == "/queued/0" {
			select {
			case begun <- wake.Callback:
			default:
			}
			end.wait(r)
		}
		answerDone(rw)
	})
	// The replica whose gateway a stream is created through makes its wake, unless the other reads of the stream in the
	// registry stream before. A wake names the replica that makes it, since each has a public URL of its own.
	tails := map[string]string{"/queued/0": f.gateways[1].Create("/queued/0")}
	stops, stays := 1, 0
	if strings.HasPrefix(<-begun, f.replicas[0].URL+"/") {
		stops, stays = 0, 1
	}
	for i := range 5 {
		path := fmt.Sprintf("/queued/%d", i+1)
		tails[path] = f.gateways[stops].Create(path)
	}
	harness.Eventually(t, soon, "all of them are woken", func() error {
		for path := range tails {
			if c, err := w.consumerOf(path); err != nil || c.Epoch == 0 {
				return fmt.Errorf("%s: epoch %d (%w)", path, c.Epoch, err)
			}
		}
		return nil
	})
	// The one in flight goes on, while the others are made by the other replica.
	stopped := make(chan error, 1)
	go func() { stopped <- f.replicas[stops].Stop() }()
	for path, tail := range tails {
		if path != "/queued/0" {
			w.awaitIdle(path, tail)
		}
	}
	f.share(stays)
	close(end)
	if err := <-stopped; err != nil {
		t.Errorf("it stopped with %v", err)
	}
}

// A replica that goes on although others have taken its partitions is held by the tests of package redisstore and by
// the model of discovery, in package tailer.
func TestAReplicaThatWasFrozenDoesNoHarm(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	f := startFleet(t, 3, nil)
	f.share(0, 1, 2)
	w := f.subscriber("/frozen/*")
	tails := f.create(w, "/frozen", 24)
	f.replicas[2].Pause()
	for path := range tails {
		tails[path] = f.streams.Append(path, `"while it is frozen"`)
	}
	for path, tail := range tails {
		w.awaitIdle(path, tail)
	}
	f.share(0, 1)
	f.replicas[2].Resume()
	f.share(0, 1, 2)
	for path, tail := range tails {
		w.wakesOnAppend(path, tail)
	}
}

// TestWhatRedisHasLostOfAStreamLosesNoEvent is about a Redis that loses that a stream is known at all, together with
// the one replica that could tell (README, what is guaranteed).
func TestWhatRedisHasLostOfAStreamLosesNoEvent(t *testing.T) {
	t.Parallel()
	redis := ownRedis(t, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	e := with(t, redis, nil)
	other := harness.StartReveille(t, e.settings(nil))
	w := e.subscriber("/lost/*")
	w.awaitIdle("/lost/before", e.gateway.Create("/lost/before"))
	var written []int64
	for _, s := range redis.servers {
		written = append(written, s.WrittenSoFar())
	}
	const path = "/lost/stream"
	e.gateway.Create(path)
	w.awaitIdle(path, e.gateway.Append(path, `"acknowledged"`))
	e.rev.Kill()
	redis.Kill()
	for i, s := range redis.servers {
		s.LoseSince(written[i])
	}
	n := len(w.wakes(path))
	redis.Restart()
	tail := harness.NewClient(t, other.URL).Append(path, `"the next"`)
	if got := w.wake(path, n+1).Offset(path); got != "-1" {
		t.Errorf("after Redis had lost that the stream was known, its next wake was from %s, want -1", got)
	}
	w.awaitIdle(path, tail)
}
