package dispatcher

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// firstHangs makes the first attempt wait for a gate before it is answered, and the others fail.
func firstHangs(gate chan struct{}, answer func(http.ResponseWriter)) answering {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			fails(w)
			return
		}
		select {
		case <-gate:
			answer(w)
		case <-r.Context().Done():
		}
	}
}

// gated is a gate that is made within injected time.
func gated(t *testing.T, timing fsm.Timing, answer func(http.ResponseWriter), test func(f *timed, gate chan struct{})) {
	t.Helper()
	var gate chan struct{}
	inTime(t, timing, func(n int, w http.ResponseWriter, r *http.Request) { firstHangs(gate, answer)(n, w, r) },
		func(f *timed) {
			gate = make(chan struct{})
			test(f, gate)
		})
}

func TestAnAttemptThatIsNotAnswered(t *testing.T) {
	// A worker that has claimed the wake is left alone for longer than any test looks.
	patient := timings(func(timing *fsm.Timing) { timing.Liveness = 24 * time.Hour })
	accepts := func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }

	t.Run("is made again after the waking timeout, and a late 2xx of the first ends the retries", func(t *testing.T) {
		gated(t, patient, accepts, func(f *timed, gate chan struct{}) {
			f.event("0001")
			first, second := f.attempt(1), f.attempt(2)
			f.sameWake(first, second)
			after := second.at.Sub(first.at)
			if want := patient.Waking; after < want || after > want+spec.RetryDelay(1, 0)+2*f.cfg.DueInterval {
				t.Errorf("the second attempt came %s after the first, want %s", after, want)
			}
			close(gate)
			synctest.Wait()
			if c := f.consumer(); c.State != fsm.Live {
				t.Fatalf("after a late 2xx: %+v", c)
			}
			n := len(f.hook.attempts())
			if pass(2 * time.Hour); len(f.hook.attempts()) > n {
				t.Errorf("there were %d more attempts", len(f.hook.attempts())-n)
			}
		})
	})
	t.Run("is done for what it was sent with by its late done", func(t *testing.T) {
		gated(t, patient, answersDone, func(f *timed, gate chan struct{}) {
			f.event("0001")
			first := f.attempt(1)
			f.event("0002")
			f.sameWake(first, f.attempt(2))
			n := len(f.hook.attempts())
			close(gate)
			if next := f.attempt(n + 1); next.Epoch != first.Epoch+1 || next.offset() != "0001" {
				t.Errorf("the next wake is %+v", next)
			}
		})
	})
	t.Run("is not made again once the wake is claimed, though the request is open", func(t *testing.T) {
		gated(t, patient, accepts, func(f *timed, _ chan struct{}) {
			f.event("0001")
			f.callback(f.attempt(1).payload, func(cb *fsm.Callback) { cb.WakeID = f.consumer().WakeID })
			if pass(2 * time.Hour); len(f.hook.attempts()) > 1 {
				t.Errorf("there were %d attempts", len(f.hook.attempts()))
			}
			if c := f.consumer(); c.State != fsm.Live || !c.FirstFailure.IsZero() {
				t.Errorf("the request's end has changed the consumer: %+v", c)
			}
		})
	})
	t.Run("stays open for the webhook timeout and no longer", func(t *testing.T) {
		var open time.Duration
		inTime(t, patient, func(n int, w http.ResponseWriter, r *http.Request) {
			if began := time.Now(); n == 1 {
				hangs(r)
				open = time.Since(began)
				return
			}
			accepts(w)
		}, func(f *timed) {
			f.event("0001")
			pass(time.Hour)
			if open != f.cfg.RequestTimeout {
				t.Errorf("it was open for %s, want %s", open, f.cfg.RequestTimeout)
			}
		})
	})
}

func TestAnAnswerToAnOlderWakeChangesNothingInTheCurrentOne(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"done":    answersDone,
		"2xx":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"failure": fails,
		"410":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) },
	} {
		t.Run(name, func(t *testing.T) {
			var gate chan struct{}
			inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					hangs(r) // the current wake stays WAKING
					return
				}
				<-gate
				answer(w)
			}, func(f *timed) {
				gate = make(chan struct{})
				f.event("0001")
				old := f.attempt(1)
				f.callback(old.payload, func(cb *fsm.Callback) {
					cb.WakeID, cb.Done = old.WakeID, true
					cb.Acks = []fsm.Ack{{Path: timedStream, Offset: "0001"}}
				})
				f.event("0002")
				if next := f.attempt(2); next.Epoch != old.Epoch+1 || next.offset() != "0001" {
					t.Fatalf("the current wake is %+v", next)
				}
				before, told := f.consumer(), f.store.told()
				close(gate)
				synctest.Wait()
				if f.store.told() == told {
					t.Fatal("the answer was not reported")
				}
				if after := f.consumer(); after.State != fsm.Waking || !reflect.DeepEqual(before, after) {
					t.Errorf("the consumer has changed\nfrom %+v\nto   %+v", before, after)
				}
			})
		})
	}
}

func TestTheLivenessTimeoutIsCountedFromTheLastCallback(t *testing.T) {
	inTime(t, timings(func(*fsm.Timing) {}), func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}, func(f *timed) {
		f.event("0001")
		wake := f.attempt(1)
		for range 10 {
			pass(40 * time.Second)
			f.callback(wake.payload, func(*fsm.Callback) {})
		}
		if n := len(f.hook.attempts()); n > 1 {
			t.Fatalf("a worker that calls back was woken %d times more", n-1)
		}
		last := time.Now()
		again := f.attempt(2)
		if after := again.at.Sub(last); after < 45*time.Second || after > 50*time.Second {
			t.Errorf("a worker that fell silent was woken again after %s, want 45s", after)
		}
		if again.Epoch != wake.Epoch+1 || again.offset() != wake.offset() {
			t.Errorf("it was woken with %+v after %+v", again, wake)
		}
	})
}

func TestAnAnswerThatTakesItsTime(t *testing.T) {
	slowly := func(text string, every time.Duration, write func(string) error) {
		for _, c := range text {
			if write(string(c)) != nil {
				return
			}
			time.Sleep(every) // the pace of the endpoint
		}
	}
	const header = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
	t.Run("of which the header is there has the wake, though its body comes after the waking timeout",
		func(t *testing.T) {
			inTime(t, timings(func(*fsm.Timing) {}), func(_ int, w http.ResponseWriter, _ *http.Request) {
				slowly(`{"done":true}`, 2*time.Second, func(s string) error {
					_, _ = w.Write([]byte(s))
					return http.NewResponseController(w).Flush()
				})
			}, func(f *timed) {
				f.event("0001")
				f.until("it is done", time.Minute, func() bool { return f.consumer().State == fsm.Idle })
				if n := len(f.hook.attempts()); n != 1 || f.consumer().Links[timedStream].Acked != "0001" {
					t.Errorf("there were %d attempts, and the consumer is %+v", n, f.consumer())
				}
			})
		})
	t.Run("of which the header is not there by the waking timeout is made again", func(t *testing.T) {
		inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, _ *http.Request) {
			if n > 1 {
				w.WriteHeader(http.StatusOK)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			slowly(header, time.Second, func(s string) error { _, err := conn.Write([]byte(s)); return err })
		}, func(f *timed) {
			f.event("0001")
			f.sameWake(f.attempt(1), f.attempt(2))
			if c := f.consumer(); c.State != fsm.Live {
				t.Errorf("after a plain 2xx: %+v", c)
			}
		})
	})
}

func TestAnAnswerThatIsThereInTimeIsToldOnce(t *testing.T) {
	inTime(t, timings(func(*fsm.Timing) {}), func(_ int, w http.ResponseWriter, _ *http.Request) { answersDone(w) },
		func(f *timed) {
			f.event("0001")
			f.attempt(1)
			if pass(time.Minute); f.store.called("Finish") != 1 || f.store.told() != 1 {
				t.Errorf("the store was told %d times, and %d times that it is done", f.store.told(),
					f.store.called("Finish"))
			}
		})
}

func TestAnAnswerThatBreaksOff(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for _, tt := range []struct {
		name, answer string
		fails        bool
	}{
		{"at once has failed", "", true},
		{"in its header has failed", ok[:20], true},
		{"in the body of a 2xx has taken the wake", ok + "Content-Length: 100\r\n\r\n{\"done\":true}", false},
		{"and never was HTTP has failed", "220 mail.example.com ESMTP\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					hangs(r)
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Write([]byte(tt.answer))
				_ = conn.Close()
			}, func(f *timed) {
				f.event("0001")
				first := f.attempt(1)
				if c := f.consumer(); tt.fails == c.FirstFailure.IsZero() || tt.fails == (c.State == fsm.Live) {
					t.Errorf("it is %+v", c)
				}
				if tt.fails {
					f.sameWake(first, f.attempt(2))
				}
			})
		})
	}
}

func TestRetryAfterOfA429Or503IsWaitedFor(t *testing.T) {
	const wait = 20 * time.Minute
	date := func() string { return time.Now().Add(wait).UTC().Format(http.TimeFormat) }
	for _, tt := range []struct {
		name   string
		status int
		header func() string
		least  time.Duration
		most   time.Duration
	}{
		{"429 in seconds", 429, func() string { return "1200" }, wait, wait},
		{"503 in seconds", 503, func() string { return "1200" }, wait, wait},
		{"429 as a date", 429, date, wait, wait},
		{"503 as a date", 503, date, wait, wait},
		{"503 that asks for a day is waited for an hour", 503, func() string { return "86400" }, time.Hour, time.Hour},
		{"500 has none", 500, func() string { return "86400" }, 0, spec.RetryDelay(1, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inTime(t, timings(func(*fsm.Timing) {}), func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					w.Header().Set("Retry-After", tt.header())
					w.WriteHeader(tt.status)
				}
			}, func(f *timed) {
				f.event("0001")
				first := f.attempt(1)
				f.until("another attempt", 2*time.Hour, func() bool { return len(f.hook.attempts()) > 1 })
				second := f.attempt(2)
				f.sameWake(first, second)
				after := second.at.Sub(first.at)
				if after < tt.least || after > tt.most+2*f.cfg.DueInterval {
					t.Errorf("it came after %s, want %s to %s", after, tt.least, tt.most)
				}
			})
		})
	}
}

// TestEndpointsThatHangForHours holds that an endpoint that hangs takes no more than its share, however often the
// waking timeout asks for more. Another endpoint does not notice.
func TestEndpointsThatHangForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inAll, perSubscription, hooks, streams = 20, 4, 5, 10
		store, open := newMemStore(), &openRequests{open: map[string]int{}}
		f := start(t, store, func(c *Config) {
			c.MaxInFlight, c.MaxInFlightPerSubscription, c.ShutdownGrace = inAll, perSubscription, time.Second
			c.DueInterval = time.Second
		}, without(t, open))
		for i := range hooks {
			id := fmt.Sprint("hang", i)
			sub := store.addSubscription(id, hookURL+"?"+id)
			for n := range streams {
				f.Deliver(store.event(sub, fmt.Sprintf("/%s/%d", id, n), "0001"))
			}
		}
		healthy := store.addSubscription("ok", hookURL)
		for n := range 600 {
			f.Deliver(store.event(healthy, "/ok/1", fsm.Offset(fmt.Sprintf("%04d", n))))
			synctest.Wait()
			if c := store.consumer("ok:%2Fok%2F1"); c.State != fsm.Idle || !c.FirstFailure.IsZero() {
				t.Fatalf("round %d: the endpoint that answers was not reached at once: %+v", n, c)
			}
			all, each := open.now()
			for id, n := range each {
				if n > perSubscription {
					t.Errorf("%d requests of %s hang at once, want %d at most", n, id, perSubscription)
				}
			}
			if all > inAll || len(each) < hooks {
				t.Errorf("%d requests hang at once, want %d at most, and some of each: %v", all, inAll, each)
			}
			pass(10 * time.Second)
		}
		f.stop()
	})
}
