package e2e

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/test/harness"
)

// beyond is an offset that lies behind every tail of these tests.
const beyond = "9999999999999999_9999999999999999"

// refusals are the statuses of refused callbacks (webhook spec, Error Responses).
var refusals = map[fsm.Code]int{
	fsm.CodeInvalidRequest: http.StatusBadRequest,
	fsm.CodeTokenExpired:   http.StatusUnauthorized,
	fsm.CodeTokenInvalid:   http.StatusUnauthorized,
	fsm.CodeAlreadyClaimed: http.StatusConflict,
	fsm.CodeInvalidOffset:  http.StatusConflict,
	fsm.CodeStaleEpoch:     http.StatusConflict,
	fsm.CodeConsumerGone:   http.StatusGone,
}

// answer sends a callback and returns what it is answered. A 503 says to try again: it is what becomes of a callback
// while Redis pauses, as any process may.
func (s *fixture) answer(url, token, body string) (a harness.CallbackAnswer) {
	s.t.Helper()
	_ = harness.Poll(soon, func() error {
		a = s.gateway.RawCallback(url, token, body)
		return harness.True(func() bool { return a.Status != http.StatusServiceUnavailable }, "try again")()
	})
	return a
}

// callback sends a callback that must succeed.
func (s *fixture) callback(w harness.Wake, cb harness.Callback) harness.CallbackAnswer {
	s.t.Helper()
	a := s.answer(w.Callback, w.Token, jsonOf(s.t, cb))
	if a.Status != http.StatusOK || !a.OK {
		s.t.Fatalf("callback %+v: %d %s, want 200", cb, a.Status, a.Body)
	}
	return a
}

// refused sends a callback that must be refused with a code.
func (s *fixture) refused(w harness.Wake, cb harness.Callback, code fsm.Code) harness.CallbackAnswer {
	s.t.Helper()
	a, want := s.answer(w.Callback, w.Token, jsonOf(s.t, cb)), refusals[code]
	if a.Status != want || a.OK || a.Error.Code != string(code) || a.Error.Message == "" {
		s.t.Errorf("callback %+v: %d %s, want %d %s and a message", cb, a.Status, a.Body, want, code)
	}
	return a
}

// ack of the fixture's stream.
func (s *fixture) ack(offset string) harness.StreamOffset {
	return harness.StreamOffset{Path: s.path, Offset: offset}
}

// offsetsOf returns the offsets of an answer by stream.
func offsetsOf(a harness.CallbackAnswer) map[string]string {
	m := map[string]string{}
	for _, st := range a.Streams {
		m[st.Path] = st.Offset
	}
	return m
}

// wantStreams checks the streams of an answer.
func (s *fixture) wantStreams(a harness.CallbackAnswer, want ...harness.StreamOffset) {
	s.t.Helper()
	if a.Streams == nil || !slices.Equal(a.Streams, want) {
		s.t.Errorf("the answer has the streams %+v, want %+v", a.Streams, want)
	}
}

// wantWakes checks that the consumer of a stream was woken n times, and that no other wake is on its way: that would
// have an epoch of its own.
func (s *fixture) wantWakes(path string, n int) {
	s.t.Helper()
	c, err := s.consumerOf(path)
	if err != nil {
		s.t.Errorf("the consumer of %s: %v", path, err)
	}
	list := s.wakes(path)
	another := c.WakeID != ""
	if len(list) > 0 {
		another = c.Epoch != list[len(list)-1].Epoch
	}
	if len(list) != n || another {
		s.t.Errorf("the consumer of %s is %+v and was woken by %v; want %d wakes", path, c, list, n)
	}
}

// wakesOnAppend appends an event straight to the stream server and fails the test unless that wakes the consumer, which
// was idle at an offset, exactly once.
func (s *fixture) wakesOnAppend(path, at string) (tail string) {
	s.t.Helper()
	s.awaitIdle(path, at)
	before := len(s.wakes(path))
	tail = s.streams.Append(path, `{"behind":"its back"}`)
	w := s.wake(path, before+1)
	if got := w.Offset(path); got != at {
		s.t.Errorf("the wake says that %s was acked up to %s, want %s", path, got, at)
	}
	if len(w.TriggeredBy) != 1 || w.TriggeredBy[0] != path {
		s.t.Errorf("the wake was triggered by %v, want %s", w.TriggeredBy, path)
	}
	s.awaitIdle(path, tail)
	if got := len(s.wakes(path)); got != before+1 {
		s.t.Errorf("one event led to %d wakes", got-before)
	}
	return tail
}

// wakesOnAppendUnanswered is wakesOnAppend for a worker that does not answer done.
func (s *fixture) wakesOnAppendUnanswered(path string) {
	s.t.Helper()
	n := len(s.wakes(path))
	s.streams.Append(path, `{"behind":"its back"}`)
	s.wake(path, n+1)
}

// cycle counts a wake's cycle from 1. Epochs need not begin at 1: those of a new consumer lie above all that a removed
// one of its ID may have had.
func (s *fixture) cycle(w harness.Wake) int64 { return s.cycleOf(w.Epoch) }

func (s *fixture) cycleOf(epoch int64) int64 { return epoch - s.worker.Wakes()[0].Epoch + 1 }

// woken checks which cycle a wake is of, and the offset that it begins at.
func (s *fixture) woken(w harness.Wake, cycle int64, offset string) {
	s.t.Helper()
	if s.cycle(w) != cycle || w.Offset(s.path) != offset {
		s.t.Errorf("the wake is of cycle %d with the offset %q, want cycle %d and %q", s.cycle(w), w.Offset(s.path),
			cycle, offset)
	}
}

func (s *fixture) sameCycle(a, b harness.Wake) {
	s.t.Helper()
	if a.Epoch != b.Epoch || a.WakeID != b.WakeID {
		s.t.Errorf("the wakes are of different cycles: %s and %s", a, b)
	}
}

// wantPayload checks every field of a wake-up notification for the fixture's consumer (webhook spec, Payload Fields).
func (s *fixture) wantPayload(w harness.Wake, epoch int64, streams []harness.StreamOffset, triggered ...string) {
	s.t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(w.Body, &fields); err != nil {
		s.t.Fatal(err)
	}
	decoded := func(name, text string) (v any) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			s.t.Errorf("%s is %q: %v", name, text, err)
		}
		return v
	}
	is := func(name string, want any) {
		s.t.Helper()
		if got := string(fields[name]); !reflect.DeepEqual(decoded(name, got), decoded(name, jsonOf(s.t, want))) {
			s.t.Errorf("%s is %s, want %s", name, got, jsonOf(s.t, want))
		}
		delete(fields, name)
	}
	if epoch < 1 {
		s.t.Errorf("epoch is %d", epoch)
	}
	is("consumer_id", s.id())
	is("epoch", epoch)
	is("primary_stream", s.path)
	is("streams", streams)
	is("triggered_by", triggered)
	is("callback", s.rev.URL+"/callback/"+s.id())
	is("wake_id", w.WakeID)
	is("token", w.Token)
	if len(fields) != 0 {
		s.t.Errorf("the payload has fields that the spec does not know: %v", fields)
	}
	if !strings.HasPrefix(w.WakeID, "w_") || len(w.WakeID) < len("w_f8a3b2c1") {
		s.t.Errorf("wake_id is %q", w.WakeID)
	}
	token := s.parseToken(w.Token)
	if token.Consumer != s.id() || token.Epoch != epoch {
		s.t.Errorf("the token is for %s, epoch %d", token.Consumer, token.Epoch)
	}
	if left := token.Expires.Sub(w.At); left < 59*time.Minute || left > 61*time.Minute {
		s.t.Errorf("the token is good for %s, want an hour", left)
	}
	if err := harness.VerifySignature(s.sub.Secret, w.Header.Get("Webhook-Signature"), w.Body, w.At); err != nil {
		s.t.Error(err)
	}
}

// tokens mints and reads tokens as Reveille does.
func tokens(t *testing.T, key string) *token.Tokens {
	t.Helper()
	ts, err := token.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func (s *fixture) parseToken(text string) token.Token {
	s.t.Helper()
	token, err := tokens(s.t, harness.TokenKey).Parse(text)
	if err != nil {
		s.t.Fatalf("token %q: %v", text, err)
	}
	return token
}

// wantSame checks that a consumer has not changed.
func wantSame(t *testing.T, before, after fsm.Consumer) {
	t.Helper()
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the consumer has changed\nfrom %+v\nto   %+v", before, after)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
