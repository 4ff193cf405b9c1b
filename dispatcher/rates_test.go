package dispatcher

import (
	"container/list"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// rated is a store with dispatchers on injected time, and an endpoint that notes when what came.
type rated struct {
	t     *testing.T
	store *memStore
	hook  *hook

	mu sync.Mutex
	// came has the times of the requests, by host, and streams their streams in turn.
	came    map[string][]time.Time
	streams []string
	// answered, if set, is called for each request.
	answered func(stream string)
}

// withRate runs a test on injected time. No attempt comes back by the waking timeout.
func withRate(t *testing.T, test func(r *rated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rated{t: t, store: newMemStore(), came: map[string][]time.Time{}}
		r.store.setWaking(never)
		r.hook = &hook{t: t, answer: func(n int, w http.ResponseWriter, req *http.Request) {
			stream := r.hook.attempts()[n-1].PrimaryStream
			r.mu.Lock()
			r.came[req.Host] = append(r.came[req.Host], time.Now())
			r.streams = append(r.streams, stream)
			answered := r.answered
			r.mu.Unlock()
			if answered != nil {
				answered(stream)
			}
			answersDone(w)
		}}
		test(r)
	})
}

func (r *rated) start(rate int) *fixture {
	f := start(r.t, r.store, func(c *Config) {
		c.WakingTimeout, c.parkAfter, c.DueInterval, c.ShutdownGrace = never, never, time.Second, time.Second
		c.MaxRate = rate
	}, without(r.t, r.hook))
	synctest.Wait()
	return f
}

// subscribe stores a subscription to an endpoint of its own, or of another host.
func (r *rated) subscribe(id, host string, rate int) fsm.Subscription {
	sub := r.store.addSubscription(id, "http://"+host+"/hook")
	sub.Rate = rate
	r.store.db.PutSubscription(sub)
	return sub
}

// events hands out deliveries to a dispatcher, for as many streams.
func (r *rated) events(f *fixture, sub fsm.Subscription, n int) {
	for i := range n {
		f.Deliver(r.store.event(sub, fmt.Sprintf("/%s/%d", sub.ID, i), "0001"))
	}
	synctest.Wait()
}

// to returns when requests came to a host.
func (r *rated) to(host string) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.came[host])
}

// most returns the largest number of times that are within a minute.
func most(times []time.Time) (n int) {
	for i := range times {
		end, _ := slices.BinarySearchFunc(times, times[i].Add(time.Minute), time.Time.Compare)
		n = max(n, end-i)
	}
	return n
}

const (
	hostA = "10.0.0.1"
	hostB = "10.0.0.2"
)

// TestWhatWaitsForARateCostsNothing has thousands of deliveries wait for a rate of ten a second. Each is parked once,
// and asked for once when its turn has come. Until then it has no slot and no call. No minute has more than the rate
// and one burst.
func TestWhatWaitsForARateCostsNothing(t *testing.T) {
	const rate = 600
	for all, ends := range map[int]bool{1000: true, 10_000: true, 100_000: false} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			if all > 1000 && testing.Short() {
				t.Skip("the long form has them")
			}
			withRate(t, func(r *rated) {
				f := r.start(rate)
				r.events(f, r.subscribe("s", hostA, 0), all)
				burst := fsm.Limit{Rate: rate}.Burst()
				sent, parked := len(r.to(hostA)), r.store.called("Park")
				if sent == 0 || sent > burst || sent+parked != all {
					t.Errorf("%d were sent at once, and %d parked", sent, parked)
				}
				last := r.store.consumer(fmt.Sprintf("s:%%2Fs%%2F%d", all-1))
				f.mu.Lock()
				taken := f.slots.inFlight + len(f.slots.queued)
				f.mu.Unlock()
				if last.Held != fsm.BlockedRate || last.Attempt != 0 || taken != 0 {
					t.Errorf("the last one is %+v; %d have a slot or wait for one", last, taken)
				}
				pass(time.Minute)
				came, turns := len(r.to(hostA)), r.store.called("TakeTurns")
				if came < rate || came > rate+burst || turns > came {
					t.Errorf("%d were sent within a minute, with %d calls for turns", came, turns)
				}
				if ends {
					pass(time.Duration(all) * time.Minute / rate)
					if came = len(r.to(hostA)); came != all {
						t.Errorf("%d were sent in the end", came)
					}
				}
				if n := most(r.to(hostA)); n > rate+burst {
					t.Errorf("%d were sent within a minute", n)
				}
				calls := map[string]int{"Park": parked, "Begin": came - sent, "Finish": came, "Fail": 0, "HandBack": 0}
				for call, want := range calls {
					if got := r.store.called(call); got != want {
						t.Errorf("%s was called %d times, want %d", call, got, want)
					}
				}
				f.stop()
			})
		})
	}
}

// TestARateHoldsBackItsEndpointOnly holds that a delivery to another endpoint does not wait, that all subscriptions of
// one endpoint have its rate together and take turns, and so do the consumers of each.
func TestARateHoldsBackItsEndpointOnly(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		crowd, other := r.subscribe("crowd", "HOST.test", 0), r.subscribe("other", hostB, 0)
		twin := r.subscribe("twin", "host.test.:080", 0)
		tails := map[string]int{}
		r.answered = func(stream string) { // each stream has another event at once
			r.mu.Lock()
			tails[stream]++
			n := tails[stream] + 1
			r.mu.Unlock()
			if sub := map[byte]fsm.Subscription{'c': crowd, 't': twin}[stream[1]]; sub.ID != "" {
				go func() {
					time.Sleep(time.Millisecond) // once this one is done
					f.Deliver(r.store.event(sub, stream, fsm.Offset(fmt.Sprintf("%04d", n))))
				}()
			}
		}
		r.events(f, crowd, 9)
		r.events(f, twin, 1)
		pass(time.Second / 2)
		r.events(f, other, 1)
		if came := r.to(hostB); len(came) != 1 || time.Since(came[0]) > 0 {
			t.Errorf("the other endpoint got its deliveries at %v", came)
		}
		pass(100 * time.Second)
		all := slices.Concat(r.to("HOST.test"), r.to("host.test.:080"))
		slices.SortFunc(all, time.Time.Compare)
		if len(all) < 95 || most(all) > 61 {
			t.Errorf("%d came, at most %d within a minute", len(all), most(all))
		}
		r.mu.Lock()
		for stream, n := range tails {
			least, most := 4, 7 // of the crowd
			switch stream[1] {
			case 't':
				least, most = 45, 55
			case 'o':
				continue
			}
			if n < least || n > most {
				t.Errorf("%s had %d turns of 100", stream, n)
			}
		}
		r.mu.Unlock()
		f.stop()
	})
}

// TestTheLeastRateHolds holds that a delivery passes both its subscription's own limit and that of the endpoint.
func TestTheLeastRateHolds(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		slow, fast := r.subscribe("slow", hostA, 6), r.subscribe("fast", hostA, 6000)
		r.events(f, slow, 100)
		r.events(f, fast, 200)
		pass(2 * time.Minute)
		r.mu.Lock()
		n := 0
		for _, stream := range r.streams {
			if stream[:6] == "/slow/" {
				n++
			}
		}
		r.mu.Unlock()
		came := r.to(hostA)
		if len(came) < 118 || most(came) > 61 || n < 9 || n > 13 {
			t.Errorf("%d came, at most %d within a minute, %d of them of the slow one", len(came), most(came), n)
		}
		f.stop()
	})
}

// TestReplicasHaveOneRate holds that the rate is of all replicas together, and that each has a share of it.
func TestReplicasHaveOneRate(t *testing.T) {
	withRate(t, func(r *rated) {
		a, b := r.start(60), r.start(60)
		r.events(a, r.subscribe("a", hostA, 0), 100)
		r.events(b, r.subscribe("b", hostA, 0), 100)
		pass(100 * time.Second)
		of := map[byte]int{}
		r.mu.Lock()
		for _, stream := range r.streams {
			of[stream[1]]++
		}
		r.mu.Unlock()
		if came := r.to(hostA); len(came) < 95 || most(came) > 61 || of['a'] < 40 || of['b'] < 40 {
			t.Errorf("%d came, at most %d within a minute; %v", len(came), most(came), of)
		}
		a.stop()
		b.stop()
	})
}

// TestWhatWaitsForARateOutlivesTheReplica holds that another replica goes on with it at once and at that rate. Few
// deliveries are handed back for that: the others come up by their deadlines.
func TestWhatWaitsForARateOutlivesTheReplica(t *testing.T) {
	const rate, all = 600, 2000
	withRate(t, func(r *rated) {
		f := r.start(rate)
		r.events(f, r.subscribe("s", hostA, 0), all)
		pass(10 * time.Second)
		f.stop()
		if n := r.store.called("HandBack"); n == 0 || n > maxRateBack+1 {
			t.Errorf("%d were handed back", n)
		}
		f = r.start(rate)
		had := len(r.to(hostA))
		pass(10 * time.Second)
		if n := len(r.to(hostA)) - had; n < 80 {
			t.Errorf("%d came within ten seconds of the change", n)
		}
		pass(all*time.Minute/rate + rateSlack)
		if came := r.to(hostA); len(came) != all || most(came) > rate+rate/60 {
			t.Errorf("%d came, at most %d within a minute", len(came), most(came))
		}
		f.stop()
	})
}

// TestARateThatIsNotReachedHoldsNothingBack has many subscriptions with few deliveries each. A replica takes no turns
// ahead that it does not use.
func TestARateThatIsNotReachedHoldsNothingBack(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(6000)
		var subs []fsm.Subscription
		for i := range 20 {
			subs = append(subs, r.subscribe(fmt.Sprintf("s%02d", i), hostA, 0))
		}
		for i := range 20 {
			for _, sub := range subs {
				f.Deliver(r.store.event(sub, fmt.Sprintf("/%s/%d", sub.ID, i), "0001"))
				pass(15 * time.Millisecond)
			}
		}
		if n := r.store.called("Park"); n > 0 || len(r.to(hostA)) != 400 {
			t.Errorf("%d of 400 came; %d were parked", len(r.to(hostA)), n)
		}
		f.stop()
	})
}

// TestTurnsAreTakenForWhatCanGoOutOnly holds that a subscription whose deliveries hang, one that is paused and one that
// has been asked to wait take no turns from another of the same endpoint, and that nothing of them is begun in vain.
func TestTurnsAreTakenForWhatCanGoOutOnly(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(600)
		hangs, paused := r.subscribe("hangs", hostA, 0), r.subscribe("paused", hostA, 0)
		asked := r.subscribe("asked", hostA, 0)
		r.answered = func(stream string) {
			if strings.HasPrefix(stream, "/hangs/") {
				time.Sleep(time.Hour)
			}
		}
		for _, sub := range []fsm.Subscription{hangs, paused, asked} {
			r.events(f, sub, 300)
		}
		r.store.pause(t, paused.ID)
		wait := fsm.EndpointFailure{RetryAfter: time.Hour}
		if _, err := r.store.FailEndpoint(r.t.Context(), asked, wait); err != nil {
			t.Error(err)
		}
		retried := r.subscribe("retried", hostA, 0) // that ends the wait for the others
		if _, err := r.store.RetrySubscription(r.t.Context(), retried.ID); err != nil {
			t.Error(err)
		}
		if err := r.store.RefreshCatalog(r.t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Minute)
		had, begun, parked := len(r.to(hostA)), r.store.called("Begin"), r.store.called("Park")
		r.events(f, r.subscribe("s", hostA, 0), 600)
		pass(70 * time.Second)
		if n := len(r.to(hostA)) - had; n < 590 {
			t.Errorf("%d of 600 came", n)
		}
		begun, parked = r.store.called("Begin")-begun, r.store.called("Park")-parked
		if begun > 1200 || parked > 2400 { // its own 600, and deadlines of the others
			t.Errorf("%d were begun, and %d parked", begun, parked)
		}
		f.stop()
	})
}

// TestAFullQueueDelaysNoOtherEndpoint holds that a backlog leaves places to the deliveries of other endpoints.
func TestAFullQueueDelaysNoOtherEndpoint(t *testing.T) {
	withRate(t, func(r *rated) {
		f := start(r.t, r.store, func(c *Config) {
			c.WakingTimeout, c.parkAfter, c.DueInterval, c.ShutdownGrace = never, never, time.Second, time.Second
			c.MaxQueued = 100
		}, without(r.t, r.hook))
		synctest.Wait()
		sub := r.subscribe("s", hostA, 6)
		for i := range 300 {
			f.Deliver(r.store.event(sub, fmt.Sprintf("/s/%d", i), "0001"))
			synctest.Wait()
		}
		f.rates.mu.Lock()
		waiting := f.rates.waiting
		f.rates.mu.Unlock()
		if waiting == 0 || waiting > 51 {
			t.Errorf("%d of 300 wait in memory", waiting)
		}
		r.events(f, r.subscribe("other", hostB, 60), 5)
		pass(6 * time.Second)
		if n := len(r.to(hostB)); n != 5 {
			t.Errorf("%d of 5 came to the other endpoint", n)
		}
		f.stop()
	})
}

// TestAChangedRateCounts holds that it counts for what waits already, and that without a rate nothing waits any more.
func TestAChangedRateCounts(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(0)
		sub := r.subscribe("s", hostA, 1)
		r.events(f, sub, 1500)
		change := func(rate int) {
			sub.Rate = rate
			r.store.db.PutSubscription(sub)
			if err := r.store.RefreshCatalog(r.t.Context()); err != nil {
				t.Error(err)
			}
		}
		pass(time.Second)
		change(60)
		pass(time.Minute)
		if n := len(r.to(hostA)); n < 50 || n > 62 {
			t.Errorf("%d came at the higher rate", n)
		}
		change(0)
		pass(10 * time.Second)
		if n := len(r.to(hostA)); n != 1500 {
			t.Errorf("%d came without a rate", n)
		}
		f.stop()
	})
}

// TestWhatIsGoneTakesNoTurn holds that the deliveries of a deleted subscription and of a paused one, and wakes that
// have ended otherwise, leave their turns to others.
func TestWhatIsGoneTakesNoTurn(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		gone, paused := r.subscribe("gone", hostA, 0), r.subscribe("paused", hostA, 0)
		over, sub := r.subscribe("over", hostA, 0), r.subscribe("s", hostA, 0)
		for _, s := range []fsm.Subscription{gone, paused, over} {
			r.events(f, s, 200)
		}
		r.events(f, sub, 20)
		had := len(r.to(hostA))
		r.store.deleteSubscription(t, gone.ID)
		r.store.pause(t, paused.ID)
		if err := r.store.RefreshCatalog(r.t.Context()); err != nil {
			t.Error(err)
		}
		for i := range 200 {
			r.store.db.ChangeConsumer(fmt.Sprintf("over:%%2Fover%%2F%d", i), func(c *fsm.Consumer) {
				c.State, c.Deadline = fsm.Idle, time.Time{}
			})
		}
		pass(25 * time.Second)
		if n := len(r.to(hostA)) - had; n != 20 {
			t.Errorf("%d of 20 came", n)
		}
		f.stop()
	})
}

// TestAnEndpointThatIsUpAgainDoesNotEndTheWaitForItsRate holds the same of a resumption: either would have everything
// handed out and parked again.
func TestAnEndpointThatIsUpAgainDoesNotEndTheWaitForItsRate(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		sub := r.subscribe("s", hostA, 0)
		r.events(f, sub, 50)
		parked := r.store.called("Park")
		out, err := r.store.other.ReleaseHeld(r.t.Context(), sub, fsm.BlockedDown)
		if err != nil {
			t.Error(err)
		}
		f.follow(out)
		f.resume(t, sub.ID)
		pass(2 * time.Second)
		if n := r.store.called("Park") - parked; n != 0 {
			t.Errorf("%d were parked again", n)
		}
		f.stop()
	})
}

// TestATestDeliveryHasARate holds that it takes a turn, and is refused where there is none.
func TestATestDeliveryHasARate(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		sub := r.subscribe("s", hostA, 0)
		for n, refused := range []bool{false, true} {
			got, err := f.Test(r.t.Context(), sub)
			if err != nil || (got.Failure == fsm.BlockedRate.Rule().Says) != refused {
				t.Errorf("test %d: %+v %v", n+1, got, err)
			}
		}
		f.stop()
	})
}

// TestAStoreThatDoesNotAnswerForARate holds that deliveries go on when it answers again.
func TestAStoreThatDoesNotAnswerForARate(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(60)
		r.store.mu.Lock()
		silent := true
		r.store.err = func(op string) error {
			if silent && op == "TakeTurns" {
				return fmt.Errorf("%w: no answer", fsm.ErrUnavailable)
			}
			return nil
		}
		r.store.mu.Unlock()
		r.events(f, r.subscribe("s", hostA, 0), 10)
		pass(time.Minute)
		if n := len(r.to(hostA)); n != 0 {
			t.Errorf("%d came without a turn", n)
		}
		r.store.mu.Lock()
		silent = false
		r.store.mu.Unlock()
		pass(20 * time.Second)
		if n := len(r.to(hostA)); n != 10 {
			t.Errorf("%d of 10 came", n)
		}
		f.stop()
	})
}

// TestATurnThatWasNotUsedStopsNoGate has a turn left over when Redis does not answer for the next one. What waits then
// comes up once Redis answers again.
func TestATurnThatWasNotUsedStopsNoGate(t *testing.T) {
	withRate(t, func(r *rated) {
		f := r.start(0)
		sub := r.subscribe("a", hostA, 600)
		r.events(f, sub, 1) // takes two turns, and uses one
		pass(fsm.Limit{Rate: sub.Rate}.Keep())
		away := func(err error) {
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			r.store.err = func(op string) error {
				if op == "TakeTurns" {
					return err
				}
				return nil
			}
		}
		away(fsm.ErrUnavailable)
		f.Deliver(r.store.event(sub, "/a/later", "0001"))
		pass(time.Minute)
		away(nil)
		pass(time.Minute)
		if came := r.to(hostA); len(came) != 2 {
			r.t.Errorf("%d deliveries came", len(came))
		}
		f.stop()
	})
}

// TestWhatIsDeliveredAgainYieldsAtAGate holds that replays and asides have one of four turns while others wait.
func TestWhatIsDeliveredAgainYieldsAtAGate(t *testing.T) {
	r, g := &rates{}, &gate{places: map[deliveryKey]*list.Element{}}
	for i := range 4 {
		again := fsm.Delivery{Consumer: fmt.Sprintf("s:replay%d", i), Owner: "s", Replay: true}
		r.put(g, waiter{delivery: again}, false)
		r.put(g, waiter{delivery: fsm.Delivery{Consumer: fmt.Sprintf("s:aside%d", i), Owner: "s"}}, false)
	}
	for i := range 6 {
		r.put(g, waiter{delivery: fsm.Delivery{Consumer: fmt.Sprintf("s:new%d", i)}}, false)
	}
	var got []string
	for range 9 {
		got = append(got, strings.TrimPrefix(r.next(g).delivery.Consumer, "s:"))
	}
	want := "[new0 new1 new2 replay0 new3 new4 new5 aside0 replay1]"
	if fmt.Sprint(got) != want || r.waiting != 5 {
		t.Errorf("%v, and %d wait; want %s", got, r.waiting, want)
	}
}
