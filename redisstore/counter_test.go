package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/redisstore"
	"reveille/test/harness"
)

// counting is a replica that counts delivery attempts.
type counting struct {
	*world
	outcomes *router.Router
}

func openCounting(t *testing.T, url string) *counting {
	t.Helper()
	c := &counting{outcomes: router.New()}
	c.world = openWith(t, url, nil, redisstore.Options{
		Partitions: 8, Embedded: url == redisstore.Embedded, Outcomes: c.outcomes,
	})
	return c
}

func (c *counting) write(t *testing.T) {
	t.Helper()
	if err := c.WriteCounts(t.Context()); err != nil {
		t.Error(err)
	}
}

// counted returns the sum of the minutes and that of the hours.
func (c *counting) counted(t *testing.T, sub fsm.Subscription) (minutes, hours fsm.AttemptTally) {
	t.Helper()
	return sums(must[fsm.AttemptCounts](t)(c.CountedAttempts(t.Context(), sub)))
}

func (c *counting) countedOfAll(t *testing.T) (minutes, hours fsm.AttemptTally) {
	t.Helper()
	return sums(must[fsm.AttemptCounts](t)(c.AllCountedAttempts(t.Context())))
}

func sums(counts fsm.AttemptCounts) (minutes, hours fsm.AttemptTally) {
	for _, m := range counts.Minutes {
		minutes.Add(m)
	}
	for _, h := range counts.Hours {
		hours.Add(h)
	}
	return minutes, hours
}

// TestAttemptsAreCountedOverReplicas holds that the counts of a subscription, and of all, are exact, and go with the
// subscription.
func TestAttemptsAreCountedOverReplicas(t *testing.T) {
	t.Parallel()
	for name, url := range serversAndEmbedded {
		t.Run(name, func(t *testing.T) {
			at := url(t)
			first := openCounting(t, at)
			replicas := []*counting{first}
			if at != redisstore.Embedded { // a second one would be another Redis
				replicas = append(replicas, openCounting(t, at))
			}
			var subs []fsm.Subscription
			for i := range 12 { // on all nodes of a cluster
				sub, _, err := first.CreateSubscription(t.Context(), subscription(fmt.Sprint("s", i)))
				if err != nil {
					t.Fatal(err)
				}
				subs = append(subs, sub)
			}
			nth := func(sub fsm.Subscription, n int) fsm.Attempt {
				a := attempt(sub, n, fsm.AttemptDone)
				a.Exchanged = time.Duration(n) * 10 * time.Millisecond
				if n%3 == 0 {
					a.Result, a.Class = fsm.AttemptFailed, fmt.Sprint("class ", n%2)
				}
				return a
			}
			var one, all fsm.AttemptTally
			for n := range 30 {
				one.Count(nth(subs[0], n))
			}
			for _, r := range replicas {
				if err := r.RefreshCatalog(t.Context()); err != nil {
					t.Fatal(err)
				}
				var tasks sync.WaitGroup
				tasks.Go(func() {
					for range 20 {
						r.write(t)
					}
				})
				for _, sub := range subs {
					all.Add(one)
					tasks.Go(func() {
						for n := range 30 {
							r.outcomes.Attempted(nth(sub, n))
						}
					})
				}
				tasks.Wait()
				r.write(t)
			}
			ofEach := fsm.AttemptTally{}
			for range replicas {
				ofEach.Add(one)
			}
			for _, sub := range subs {
				minutes, hours := first.counted(t, sub)
				if !reflect.DeepEqual(minutes, ofEach) || !reflect.DeepEqual(hours, ofEach) {
					t.Errorf("of %s it has %+v, by hour %+v, want %+v", sub.ID, minutes, hours, ofEach)
				}
			}
			minutes, hours := first.countedOfAll(t)
			if !reflect.DeepEqual(minutes, all) || !reflect.DeepEqual(hours, all) {
				t.Errorf("of all it has %+v, by hour %+v, want %+v", minutes, hours, all)
			}

			// What is deleted has no counts, also not those that waited meanwhile. All together keep what there was.
			for _, r := range replicas {
				r.outcomes.Attempted(attempt(subs[0], 0, fsm.AttemptDone))
				all.Count(attempt(subs[0], 0, fsm.AttemptDone))
			}
			if err := first.DeleteSubscription(t.Context(), subs[0].ID); err != nil {
				t.Fatal(err)
			}
			for _, r := range replicas {
				if err := r.RefreshCatalog(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.write(t)
			}
			if minutes, hours := first.counted(t, subs[0]); minutes.Attempts()+hours.Attempts() > 0 {
				t.Errorf("of a deleted one it has %+v and %+v", minutes, hours)
			}
			if got, _ := first.countedOfAll(t); !reflect.DeepEqual(got, all) {
				t.Errorf("of all it has %+v, want %+v", got, all)
			}
		})
	}
}

// TestCountsAreKeptForTheirTime holds that an attempt counts in its minute and in its hour, and that both end.
func TestCountsAreKeptForTheirTime(t *testing.T) {
	t.Parallel()
	c := openCounting(t, redisstore.EmptyRedis(t).URL)
	sub, _, err := c.CreateSubscription(t.Context(), subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	c.outcomes.Attempted(attempt(sub, 1, fsm.AttemptDone))
	c.write(t)
	for _, step := range []struct {
		later          time.Duration
		minutes, hours int64
	}{
		{0, 1, 1},
		{(fsm.CountedMinutes - 1) * time.Minute, 1, 1},
		{time.Minute, 0, 1},
		{(fsm.CountedHours - 2) * time.Hour, 0, 1},
		{time.Hour, 0, 0},
	} {
		c.later(step.later)
		minutes, hours := c.counted(t, sub)
		if minutes.Attempts() != step.minutes || hours.Attempts() != step.hours {
			t.Errorf("after another %s: %d and %d, want %d and %d", step.later, minutes.Attempts(), hours.Attempts(),
				step.minutes, step.hours)
		}
	}
	keys := must[[]string](t)(c.rdb.Keys(t.Context(), "rv:*:counts:*").Result())
	for _, key := range keys {
		lives := must[time.Duration](t)(c.rdb.PTTL(t.Context(), key).Result())
		if lives < time.Hour || lives > (fsm.CountedHours+1)*time.Hour {
			t.Errorf("%s lives for %s", key, lives)
		}
	}
	if len(keys) != 4 { // the hour and the minute of the subscription, and those of all
		t.Errorf("there are %q", keys)
	}
}

// unheard is a hook: what counts attempts is not carried out, or is carried out and not answered in time.
type unheard struct {
	mu         sync.Mutex
	lost, late int
}

func (*unheard) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*unheard) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// next says whether the next call is carried out, and whether it is answered.
func (u *unheard) next() (made, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.lost > 0:
		u.lost--
		return false, false
	case u.late > 0:
		u.late--
		return true, false
	}
	return true, true
}

func (u *unheard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "evalsha" {
			return next(ctx, cmds)
		}
		made, answered := u.next()
		if answered {
			return next(ctx, cmds)
		}
		if made {
			own := make([]redis.Cmder, len(cmds))
			for i, c := range cmds {
				own[i] = redis.NewCmd(ctx, c.Args()...)
			}
			_ = next(ctx, own)
		}
		for _, c := range cmds {
			c.SetErr(io.EOF)
		}
		return io.EOF
	}
}

// unheardCounting is a replica whose calls are not heard as it is told.
func unheardCounting(t *testing.T) (*counting, *unheard, fsm.Subscription) {
	t.Helper()
	c := openCounting(t, redisstore.EmptyRedis(t).URL)
	sub, _, err := c.CreateSubscription(t.Context(), subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := redisstore.LoadScripts(t.Context(), c.rdb); err != nil {
		t.Fatal(err)
	}
	u := &unheard{}
	c.rdb.AddHook(u)
	return c, u, sub
}

// TestCountsThatWereNotAnsweredAreCountedOnce holds that the counts are exact whatever becomes of calls and answers,
// also if a minute, or an hour, has ended meanwhile.
func TestCountsThatWereNotAnsweredAreCountedOnce(t *testing.T) {
	t.Parallel()
	c, u, sub := unheardCounting(t)
	c.later(time.Hour - c.now.Sub(c.now.Truncate(time.Hour)) - 150*time.Second)
	n := 0
	for _, step := range []struct{ lost, late int }{
		{}, {late: 1}, {late: 1}, {}, {lost: 1}, {}, {lost: 1}, {late: 1}, {late: 1}, {},
	} {
		c.outcomes.Attempted(attempt(sub, n, fsm.AttemptDone))
		n++
		u.lost, u.late = step.lost, step.late
		if err := c.WriteCounts(t.Context()); errors.Is(err, fsm.ErrUnavailable) != (step.late+step.lost > 0) {
			t.Fatalf("step %d: %v", n, err)
		}
		c.later(40 * time.Second)
	}
	c.write(t)
	for of, counted := range map[string]func() (minutes, hours fsm.AttemptTally){
		"one": func() (_, _ fsm.AttemptTally) { return c.counted(t, sub) },
		"all": func() (_, _ fsm.AttemptTally) { return c.countedOfAll(t) },
	} {
		if minutes, hours := counted(); minutes.Attempts() != int64(n) || hours.Attempts() != int64(n) {
			t.Errorf("of %s there are %d by minute, %d by hour, want %d", of, minutes.Attempts(), hours.Attempts(), n)
		}
	}
}

// TestNoCountWaitsForAnotherAttempt holds that what came while a batch was out is written without anything else
// happening, and that a stop writes it, too.
func TestNoCountWaitsForAnotherAttempt(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"while it runs": false, "at a stop": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, u, sub := unheardCounting(t)
			c.outcomes.Attempted(attempt(sub, 0, fsm.AttemptDone))
			u.late = 1
			if err := c.WriteCounts(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
				t.Fatal(err)
			}
			c.outcomes.Attempted(attempt(sub, 1, fsm.AttemptDone))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			if stop {
				cancel()
			}
			go func() {
				defer close(ended)
				c.RunCounter(ctx)
			}()
			defer func() {
				cancel()
				<-ended
			}()
			if stop {
				<-ended
			}
			harness.Eventually(t, harness.Wait, "both are counted", func() error {
				if minutes, _ := c.counted(t, sub); minutes.Attempts() != 2 {
					return fmt.Errorf("%d are", minutes.Attempts())
				}
				return nil
			})
		})
	}
}

// TestWhatWaitsIsCountedOverAll holds that what is pending, and since when, is the sum of what the subscriptions show.
func TestWhatWaitsIsCountedOverAll(t *testing.T) {
	t.Parallel()
	for name, start := range serversAndEmbedded {
		url := start(t)
		w := open(t, url, 4)
		if pending, since, err := w.CountPending(t.Context()); pending != 0 || !since.IsZero() || err != nil {
			t.Errorf("%s: of none, %d are pending since %s, %v", name, pending, since, err)
		}
		var subs []fsm.Subscription
		for _, id := range []string{"retired", "waiting", "aside", "live"} {
			sub := subscription(id)
			if id == "aside" {
				sub.Mode, sub.Ordering, sub.Retry = fsm.ModePush, fsm.OrderingNone, []time.Duration{time.Hour}
			}
			sub, _, err := w.CreateSubscription(t.Context(), sub.WithDefaults())
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
			wake := must[fsm.Outcome](t)(w.Link(t.Context(), sub, "/"+id, "1", "2")).Deliveries[0]
			failure := fsm.Failure{Reason: "status 500", Profile: sub.Profile()}
			switch id {
			case "retired":
				failure.Retired = true
				must[fsm.Outcome](t)(w.Fail(t.Context(), wake.Ref(), failure))
			case "aside":
				w.failOne(t, sub, wake)
			case "live":
				must[fsm.Outcome](t)(w.Accept(t.Context(), wake.Ref()))
			}
			w.later(time.Minute)
		}
		var want fsm.Tally
		for _, tally := range must[[]fsm.Tally](t)(w.TallyConsumers(t.Context(), subs)) {
			want.Add(tally)
		}
		pending, since, err := w.CountPending(t.Context())
		if err != nil || pending != want.Pending || pending < 3 || !since.Equal(want.WaitingSince) {
			t.Errorf("%s: %d are pending, since %s, %v, want %+v", name, pending, since, err, want)
		}
	}
}
