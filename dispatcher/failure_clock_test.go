package dispatcher

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// gcAfter is how long a webhook fails in these tests before its consumers are given up.
const gcAfter = 2 * time.Hour

func givingUp() fsm.Timing {
	return timings(func(timing *fsm.Timing) { timing.GCAfter = gcAfter })
}

// givenUp lets the time pass until the consumer is given up, and checks which attempt caused that.
func (f *timed) givenUp(first time.Time) {
	f.t.Helper()
	f.until("it is given up", 2*gcAfter, func() bool { return f.consumer().State == fsm.GivenUp })
	all := f.hook.attempts()
	if last := all[len(all)-1].at.Sub(first); last < gcAfter || last > gcAfter+10*time.Minute {
		f.t.Errorf("it was given up by an attempt %s after the first failure, want %s", last, gcAfter)
	}
	if before := all[len(all)-2].at.Sub(first); before >= gcAfter+10*time.Minute {
		f.t.Errorf("an attempt %s after the first failure did not give it up", before)
	}
	if pass(gcAfter); len(f.hook.attempts()) > len(all) {
		f.t.Errorf("%d more attempts were made", len(f.hook.attempts())-len(all))
	}
}

func TestAWebhookThatFailsForLongIsGivenUp(t *testing.T) {
	for name, fail := range map[string]answering{
		"by an error status": func(_ int, w http.ResponseWriter, _ *http.Request) { fails(w) },
		"by a client error": func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
		},
		"by a redirect": func(_ int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"by a cut connection": func(int, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"by hanging":          func(_ int, _ http.ResponseWriter, r *http.Request) { hangs(r) },
	} {
		t.Run(name, func(t *testing.T) {
			timing := givingUp()
			timing.Waking = time.Minute // so that it is the request that ends first
			answers := fail
			inTime(t, timing, func(n int, w http.ResponseWriter, r *http.Request) { answers(n, w, r) },
				func(f *timed) {
					f.event("0001")
					wake := f.attempt(1)
					f.until("a failure", time.Hour, func() bool { return !f.consumer().FirstFailure.IsZero() })
					f.givenUp(f.consumer().FirstFailure)
					n := len(f.hook.attempts())
					f.event("0001") // is nothing new
					if pass(time.Hour); len(f.hook.attempts()) > n {
						t.Error("it was woken by what it was given up with")
					}
					answers = func(_ int, w http.ResponseWriter, _ *http.Request) { answersDone(w) }
					f.event("0002")
					again := f.attempt(n + 1)
					if again.Epoch != wake.Epoch+1 || again.offset() != wake.offset() {
						t.Errorf("the next event woke %+v, after %+v", again, wake)
					}
				})
		})
	}
}

func TestAnEndpointThatAnswers410IsLeftAloneUntilItIsResumed(t *testing.T) {
	inTime(t, givingUp(), func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
			return
		}
		answersDone(w)
	}, func(f *timed) {
		f.event("0001")
		wake := f.attempt(1)
		pass(2 * gcAfter)
		f.event("0002")
		if pass(gcAfter); len(f.hook.attempts()) > 1 {
			t.Fatalf("there were %d attempts", len(f.hook.attempts()))
		}
		_, out, err := f.store.other.ResumeSubscription(t.Context(), f.sub.ID)
		if err != nil {
			t.Fatal(err)
		}
		f.follow(out)
		f.sameWake(wake, f.attempt(2))
	})
}

func TestTheFailureClock(t *testing.T) {
	// One fails until it is told otherwise.
	failing := func(t *testing.T, test func(f *timed, answer *answering)) {
		t.Helper()
		answer := answering(func(_ int, w http.ResponseWriter, _ *http.Request) { fails(w) })
		inTime(t, givingUp(), func(n int, w http.ResponseWriter, r *http.Request) { answer(n, w, r) },
			func(f *timed) {
				f.event("0001")
				f.attempt(1)
				if f.consumer().FirstFailure.IsZero() {
					t.Fatalf("a failure did not start it: %+v", f.consumer())
				}
				test(f, &answer)
			})
	}
	done := func(f *timed) {
		f.callback(f.hook.attempts()[0].payload, func(cb *fsm.Callback) {
			cb.Acks, cb.Done = []fsm.Ack{{Path: timedStream, Offset: "0001"}}, true
		})
	}
	t.Run("starts anew after a 2xx, a done and a claim", func(t *testing.T) {
		for name, end := range map[string]func(f *timed, answer *answering){
			"a 2xx": func(_ *timed, answer *answering) {
				*answer = func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }
			},
			"a done": func(_ *timed, answer *answering) {
				*answer = func(_ int, w http.ResponseWriter, _ *http.Request) { answersDone(w) }
			},
			"a claim": func(f *timed, _ *answering) {
				f.callback(f.hook.attempts()[0].payload,
					func(cb *fsm.Callback) { cb.WakeID = f.consumer().WakeID })
			},
		} {
			failing(t, func(f *timed, answer *answering) {
				pass(time.Hour)
				end(f, answer)
				f.until(name+" clears it", time.Hour, func() bool { return f.consumer().FirstFailure.IsZero() })
				if c := f.consumer(); c.State == fsm.Waking {
					t.Errorf("after %s: %+v", name, c)
				}
			})
		}
	})
	t.Run("goes on over the end of a wake, and rests while there is nothing to deliver", func(t *testing.T) {
		failing(t, func(f *timed, _ *answering) {
			began := f.consumer().FirstFailure
			pass(time.Hour)
			done(f) // without a claim this says nothing about the endpoint
			if c := f.consumer(); c.State != fsm.Idle || !c.FirstFailure.Equal(began) {
				t.Fatalf("after done: %+v", c)
			}
			const rest = 3 * gcAfter
			pass(rest)
			f.event("0002")
			if c := f.consumer(); c.State != fsm.Waking || !c.FirstFailure.Equal(began) {
				t.Fatalf("woken again: %+v", c)
			}
			f.givenUp(began.Add(rest))
		})
	})
	t.Run("does not count the time in which no replica could try", func(t *testing.T) {
		failing(t, func(f *timed, answer *answering) {
			pass(gcAfter / 3)
			f.stop()
			pass(3 * gcAfter)
			wake, n := f.hook.attempts()[0], len(f.hook.attempts())
			f.run()
			f.sameWake(wake, f.attempt(n+1))
			pass(gcAfter / 3)
			if c := f.consumer(); c.State != fsm.Waking {
				t.Fatalf("it is %+v", c)
			}
			*answer = func(_ int, w http.ResponseWriter, _ *http.Request) { answersDone(w) }
			f.until("it is done", time.Hour, func() bool { return f.consumer().State == fsm.Idle })
		})
	})
	t.Run("does not count the time in which the subscription is paused", func(t *testing.T) {
		failing(t, func(f *timed, _ *answering) {
			began := f.consumer().FirstFailure
			pass(gcAfter / 3)
			f.store.pause(t, f.sub.ID)
			synctest.Wait()
			n, attempt, paused := len(f.hook.attempts()), f.consumer().Attempt, time.Now()
			if pass(3 * gcAfter); len(f.hook.attempts()) > n || f.consumer().Attempt > attempt {
				t.Errorf("%d attempts were made: %+v", len(f.hook.attempts())-n, f.consumer())
			}
			f.resume(t, f.sub.ID)
			if pass(f.cfg.DueInterval); len(f.hook.attempts()) != n+1 {
				t.Errorf("what came due in the pause waits on: %+v", f.consumer())
			}
			f.givenUp(began.Add(time.Since(paused)))
		})
	})
}
