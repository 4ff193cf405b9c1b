package dispatcher

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/token"
)

// TestEachAttemptIsMadeOfWhatIsKnownThen holds that an attempt has the offsets of its moment, and a token and a
// signature of its own. It has the epoch and wake_id of the first attempt. Its done acks the tails of its moment.
func TestEachAttemptIsMadeOfWhatIsKnownThen(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	store := newMemStore()
	store.now = clock
	f := start(t, store, func(c *Config) { c.Clock = clock })
	type attempt struct {
		payload
		at        time.Time
		body      []byte
		signature string
	}
	attempts := make(chan attempt, 2)
	var sub fsm.Subscription
	sub = store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		a := attempt{at: clock(), signature: r.Header.Get(format.SignatureHeader)}
		a.body, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(a.body, &a.payload); err != nil {
			t.Error(err)
		}
		attempts <- a
		if len(attempts) == 2 {
			_, _ = io.WriteString(w, `{"done":true}`)
			return
		}
		store.event(sub, "/s/1", "0009")
		store.db.ChangeConsumer("s:%2Fs%2F1", func(c *fsm.Consumer) {
			c.Links["/s/1"] = fsm.Link{Acked: "0005", Tail: "0009"}
		})
		mu.Lock()
		now = now.Add(time.Minute)
		mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
	}))
	f.Deliver(store.event(sub, "/s/1", "0005"))
	store.untilCalls(t, "Fail", 1)
	mu.Lock()
	now = now.Add(time.Minute) // the retry is due
	mu.Unlock()
	store.untilCalls(t, "Finish", 1)
	first, second := <-attempts, <-attempts
	if second.Epoch != first.Epoch || second.WakeID != first.WakeID {
		t.Errorf("the second attempt has epoch %d and wake_id %s, the first %d and %s", second.Epoch, second.WakeID,
			first.Epoch, first.WakeID)
	}
	if first.Streams[0].Offset != "-1" || second.Streams[0].Offset != "0005" {
		t.Errorf("the offsets are %+v, then %+v", first.Streams, second.Streams)
	}
	for n, a := range []attempt{first, second} {
		said, err := f.cfg.Tokens.Parse(a.Token)
		if want := a.at.Add(token.TTL).Truncate(time.Second); err != nil || !said.Expires.Equal(want) {
			t.Errorf("the token of attempt %d expires at %s, want %s (%v)", n+1, said.Expires, want, err)
		}
		if e := format.Examine(sub.Secret, a.signature, a.body, a.at, time.Second); !e.OK() {
			t.Errorf("the signature of attempt %d: %+v", n+1, e)
		}
	}
	if c := store.consumer("s:%2Fs%2F1"); c.State != fsm.Idle || c.Links["/s/1"].Acked != "0009" {
		t.Errorf("after the second attempt's done: %+v", c)
	}
}

func TestAnAnswerAfterItsSubscriptionWasDeletedChangesNothing(t *testing.T) {
	store, let := newMemStore(), make(chan struct{})
	f := start(t, store, nil)
	sub := store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		store.deleteSubscription(t, "s")
		close(let)
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	f.Deliver(store.event(sub, "/s/1", "0005"))
	<-let
	store.untilCalls(t, "Finish", 1)
	f.stop()
	if left := store.db.Consumers(); len(left) > 0 {
		t.Errorf("there is %+v", left)
	}
}

// unbuildable is a format that cannot make a request.
type unbuildable struct{ format.Format }

func (unbuildable) Request(format.Content) (http.Header, []byte, error) {
	return nil, nil, errors.New("no type")
}

// TestARequestThatCannotBeMadeIsNotTriedAgain holds that events block no stream if no request can be made of them: they
// are dead at once. The worker of a wake reads events itself, so nothing of a wake is acked.
func TestARequestThatCannotBeMadeIsNotTriedAgain(t *testing.T) {
	d := &Dispatcher{cfg: Config{Clock: time.Now}}
	for mode, want := range map[fsm.Mode]fsm.AttemptResult{
		fsm.ModePush: fsm.AttemptDead, fsm.ModeWake: fsm.AttemptFailed,
	} {
		a := &attempt{sub: fsm.Subscription{Mode: mode}, format: unbuildable{}}
		if d.build(t.Context(), a) || a.verdict.Result != want || a.verdict.Class != format.ClassNotBuilt {
			t.Errorf("%s: the verdict is %+v", mode, a.verdict)
		}
	}
}
