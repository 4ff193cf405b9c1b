package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// calm are times that no test runs into: for the rules in which no time passes.
var calm = map[string]string{
	"REVEILLE_WAKING_TIMEOUT":   "60s",
	"REVEILLE_LIVENESS_TIMEOUT": "120s",
	"REVEILLE_WEBHOOK_TIMEOUT":  "60s",
}

// play is a stream, a subscription for it and the worker that it wakes, all of a subtest's own, on servers that several
// subtests share.
type play struct {
	*env
	t *testing.T
	// gateway and streams are the subtest's own, so that it is the subtest that fails.
	gateway, streams *harness.Client
	worker           *harness.Worker
	store            *redisstore.Store

	sub harness.Subscription
	// path of the stream, and the folder that it is in; the subscription's pattern is the folder's "*".
	path, folder string
	// tail of the stream when it was subscribed to.
	tail string
}

// label is a name for a subscription or a folder, short enough to be both.
func label(t *testing.T) string {
	n := name(t)
	return n[:min(len(n), 60)]
}

// empty has a worker, and neither a stream nor a subscription yet.
func (e *env) empty(t *testing.T) *play {
	t.Helper()
	n := label(t)
	return &play{
		env: e, t: t,
		gateway: harness.NewClient(t, e.rev.URL), streams: harness.NewClient(t, e.ref.StreamRoot),
		worker: harness.NewWorker(t), store: redisstore.New(e.redis.Client(), redisstore.Options{}),
		sub: harness.Subscription{ID: n}, path: "/" + n + "/task", folder: "/" + n,
	}
}

// subscribe creates the subscription; it ends with the subtest, before its worker does.
func (s *play) subscribe(pattern string) {
	s.t.Helper()
	s.sub = s.gateway.Subscribe(pattern, s.sub.ID, s.worker)
	s.t.Cleanup(func() { s.gateway.DeleteSubscription("/**", s.sub.ID) })
}

// idle has a stream with an event in it, subscribed to after the event, so that its consumer is idle and has not been woken.
func (e *env) idle(t *testing.T) *play {
	t.Helper()
	s := e.empty(t)
	s.gateway.Create(s.path)
	s.tail = s.gateway.Append(s.path, `{"event":"before the subscription"}`)
	s.subscribe(s.folder + "/*")
	s.awaitState(fsm.Idle)
	return s
}

// hold has the worker keep its requests open until they are given up, so that its consumers stay WAKING.
func (s *play) hold() {
	s.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
}

// waking is an idle play whose stream then got an event, and whose worker has not answered the wake.
func (e *env) waking(t *testing.T) (*play, harness.Wake) {
	t.Helper()
	s := e.idle(t)
	s.hold()
	s.append()
	wake := s.worker.Wake(1)
	s.awaitState(fsm.Waking)
	return s, wake
}

// live is an idle play whose stream then got an event, and whose worker has answered the wake with 200.
func (e *env) live(t *testing.T) (*play, harness.Wake) {
	t.Helper()
	s := e.idle(t)
	s.append()
	wake := s.worker.Wake(1)
	s.awaitState(fsm.Live)
	return s, wake
}

// append appends an event to the stream and returns its tail.
func (s *play) append() string {
	s.t.Helper()
	return s.gateway.Append(s.path, `{"event":true}`)
}

// id of the consumer.
func (s *play) id() string { return fsm.ConsumerID(s.sub.ID, s.path) }

func (s *play) consumerOf(path string) (fsm.Consumer, error) {
	return s.store.Consumer(s.t.Context(), fsm.ConsumerID(s.sub.ID, path), path)
}

// consumer returns the consumer as it is stored.
func (s *play) consumer() fsm.Consumer {
	s.t.Helper()
	c, err := s.consumerOf(s.path)
	if err != nil {
		s.t.Fatalf("consumer %s: %v", s.id(), err)
	}
	return c
}

// await waits until the consumer is as it should be and returns it.
func (s *play) await(what string, ok func(fsm.Consumer) bool) (c fsm.Consumer) {
	s.t.Helper()
	harness.Eventually(s.t, soon, what, func() (err error) {
		if c, err = s.consumerOf(s.path); err == nil && !ok(c) {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
	return c
}

func (s *play) awaitState(state fsm.State) fsm.Consumer {
	s.t.Helper()
	return s.await("consumer "+string(state), func(c fsm.Consumer) bool { return c.State == state })
}

// awaitTail waits until the consumer knows that a stream has got as far as this.
func (s *play) awaitTail(path, tail string) {
	s.t.Helper()
	s.await("the tail of "+path+" is noted", func(c fsm.Consumer) bool { return c.Links[path].Tail.Value() == tail })
}

// awaitRemoved waits until the consumer of a stream is gone from the store.
func (s *play) awaitRemoved(path string) {
	s.t.Helper()
	harness.Eventually(s.t, soon, "consumer of "+path+" removed", func() error {
		c, err := s.consumerOf(path)
		if errors.Is(err, fsm.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("it is there: %+v (%w)", c, err)
	})
}

// noWakeAfter checks that the worker gets no wake beyond the first n.
func (s *play) noWakeAfter(n int) {
	s.t.Helper()
	harness.Never(s.t, quiet, fmt.Sprintf("a wake after the first %d", n), func() error {
		if wakes := s.worker.Wakes(); len(wakes) <= n {
			return errors.New("none")
		}
		return nil
	})
}

// callback sends a callback that must succeed.
func (s *play) callback(w harness.Wake, cb harness.Callback) harness.CallbackAnswer {
	s.t.Helper()
	a := s.gateway.Callback(w, cb)
	if a.Status != http.StatusOK || !a.OK {
		s.t.Fatalf("callback %+v: %d %s, want 200", cb, a.Status, a.Body)
	}
	return a
}

// refused sends a callback that must be refused with a code.
func (s *play) refused(w harness.Wake, cb harness.Callback, code fsm.Code) harness.CallbackAnswer {
	s.t.Helper()
	a := s.gateway.Callback(w, cb)
	if a.Status != code.Status() || a.OK || a.Error.Code != string(code) || a.Error.Message == "" {
		s.t.Errorf("callback %+v: %d %s, want %d %s and a message", cb, a.Status, a.Body, code.Status(), code)
	}
	return a
}

// ack of the play's stream.
func (s *play) ack(offset string) harness.StreamOffset {
	return harness.StreamOffset{Path: s.path, Offset: offset}
}

func (s *play) wantStreams(a harness.CallbackAnswer, want ...harness.StreamOffset) {
	s.t.Helper()
	if a.Streams == nil || !slices.Equal(a.Streams, want) {
		s.t.Errorf("the answer has the streams %+v, want %+v", a.Streams, want)
	}
}

// wantPayload checks every field of a wake-up notification for the play's consumer (webhook spec, Payload Fields).
func (s *play) wantPayload(w harness.Wake, epoch int64, streams []harness.StreamOffset, triggered ...string) {
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
func tokens(t *testing.T, key string) *fsm.Tokens {
	t.Helper()
	ts, err := fsm.NewTokens(key)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func (s *play) parseToken(text string) fsm.Token {
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
