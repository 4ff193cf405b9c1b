package e2e

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/test/harness"
)

// maxBody is how large a request's body may be, in bytes.
const maxBody = 1 << 20

// rule is one of the webhook contract, on a stream server, a Redis and a Reveille that all tests share. What must not
// happen is shown by the order of events: the next wake is the nth, of the epoch after the last.
type rule struct {
	name  string
	holds func(t *testing.T, e *env)
}

// hold runs a test for each of the rules, all at a time.
func hold(t *testing.T, rules []rule) {
	t.Helper()
	t.Parallel()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.holds(t, shared(t))
		})
	}
}

// next checks that a wake is of the cycle right after another, from the offset of the stream that triggered it.
func (s *fixture) next(after, w harness.Wake, from harness.StreamOffset) {
	s.t.Helper()
	if w.Epoch != after.Epoch+1 || w.WakeID == after.WakeID {
		s.t.Errorf("the wake %s came after %s, want the next epoch and another wake_id", w, after)
	}
	if !slices.Equal(w.TriggeredBy, []string{from.Path}) || w.Offset(from.Path) != from.Offset {
		s.t.Errorf("the wake was triggered by %q, from the offsets %+v; want %+v", w.TriggeredBy, w.Streams, from)
	}
}

// rests checks that the consumer is idle since a wake was done.
func (s *fixture) rests(w harness.Wake) {
	s.t.Helper()
	if c := s.consumer(); c.State != fsm.Idle || c.Epoch != w.Epoch || !c.Deadline.IsZero() {
		s.t.Errorf("after %s was done: %+v", w, c)
	}
}

// pastTail is an ack beyond the tail of a stream.
func pastTail(path string) harness.StreamOffset { return at(path, beyond) }

// expired is a token of the wake that is as old as can be.
func (s *fixture) expired(w harness.Wake) string {
	s.t.Helper()
	own := s.parseToken(w.Token)
	return tokens(s.t, harness.TokenKey).Mint(own.Consumer, own.Generation, own.Epoch, time.Now().Add(-2*token.TTL))
}

// carriesToken says whether the answer to a refused callback has a token to go on with: the consumer is there and the
// presented token is its own.
var carriesToken = map[fsm.Code]bool{
	fsm.CodeTokenExpired: true, fsm.CodeStaleEpoch: true, fsm.CodeAlreadyClaimed: true, fsm.CodeInvalidOffset: true,
}

// unchanged has a callback refused, with the fields that an error has (webhook spec, Error Responses), and checks that
// this changed nothing of the consumer.
func (s *fixture) unchanged(fault, url, token, body string, code fsm.Code) {
	s.t.Helper()
	before := s.consumer()
	a := s.answer(url, token, body)
	if a.Status != refusals[code] || a.Error.Code != string(code) || a.Error.Message == "" || a.OK {
		s.t.Errorf("%s: the answer is %d %s, want %d %s and a message", fault, a.Status, a.Body, refusals[code], code)
	}
	var fields map[string]json.RawMessage
	a.Decode(s.t, &fields)
	want := []string{"error", "ok"}
	if carriesToken[code] {
		want = append(want, "token")
	}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		s.t.Errorf("%s: the answer has the fields %v, want %v: %s", fault, got, want, a.Body)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		s.t.Errorf("%s: Content-Type %q", fault, ct)
	}
	wantSame(s.t, before, s.consumer())
}

// settledLive is a live fixture in its second wake cycle whose tail is known and stays, so that nothing changes by
// itself.
func (e *env) settledLive(t *testing.T) (s *fixture, first, wake harness.Wake, tail string) {
	t.Helper()
	s, first = e.live(t)
	s.callback(first, first.Claim(true))
	wake = s.worker.Wake(2)
	s.awaitState(fsm.Live)
	tail = s.streams.Tail(s.path)
	s.awaitTail(s.path, tail)
	return s, first, wake, tail
}

// watched says whether any partition holds a consumer that is subscribed to a stream.
func (s *fixture) watched(path string) bool {
	s.t.Helper()
	for p := range s.store.Partitions() {
		var list []fsm.Watched
		harness.Eventually(s.t, soon, "the watched streams are read", func() (err error) {
			list, err = s.store.WatchedSince(s.t.Context(), p, 0)
			return err
		})
		for _, w := range list {
			if w.Path == path {
				return true
			}
		}
	}
	return false
}

// subscribes has a consumer that was woken claim the wake and subscribe to a second stream, which is outside the
// folder, and returns that stream and its tail.
func (s *fixture) subscribes(wake harness.Wake) (second, tail string) {
	s.t.Helper()
	second = s.folder + "-second/stream"
	tail = s.streams.Create(second)
	s.callback(wake, harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID, Subscribe: []string{second}})
	if !s.watched(second) {
		s.t.Fatal("the second stream is not watched")
	}
	return second, tail
}

// gone checks that callbacks of a wake find the consumer gone, and get no token to go on with.
func (s *fixture) gone(w harness.Wake) {
	s.t.Helper()
	for _, done := range []bool{false, true} {
		if a := s.refused(w, w.Claim(done), fsm.CodeConsumerGone); a.Token != "" {
			s.t.Errorf("a token came with %s", a.Body)
		}
	}
}

// removed checks that nothing is left of a consumer at the moment of the call, so that no event can wake it, and that
// its second stream is let go.
func (s *fixture) removed(w harness.Wake, second string) {
	s.t.Helper()
	if c, err := s.read(s.path); !errors.Is(err, fsm.ErrNotFound) {
		s.t.Errorf("there is still %+v (%v)", c, err)
	}
	s.gone(w)
	harness.Eventually(s.t, soon, "the second stream is let go",
		harness.True(func() bool { return !s.watched(second) }, "it is watched"))
}

// made creates streams of one event each, through the gateway.
func (s *fixture) made(paths []string) {
	s.t.Helper()
	for _, path := range paths {
		s.gateway.Create(path)
		s.gateway.Append(path, `{"event":true}`)
	}
}
