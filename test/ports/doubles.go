package ports

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"reveille/fsm"
)

// Upstream is a stream server that answers HEADs as it is told.
type Upstream struct {
	Mu sync.Mutex
	// Streams by path; shared overrides what Head (not HeadAnew) says; broken ones hang until the asker gives up.
	Streams map[string]fsm.StreamInfo
	Shared  map[string]fsm.StreamInfo
	Broken  map[string]bool
	Heads   []string
	// ReadOnly is true if it takes no writes.
	ReadOnly bool
	// Answered, if set, is called when an answer is on its way.
	Answered func(head string)
	busy     int
	Most     int
}

func (u *Upstream) head(ctx context.Context, path, log string, shared bool) (fsm.StreamInfo, error) {
	u.Mu.Lock()
	u.Heads = append(u.Heads, log+path)
	u.busy++
	u.Most = max(u.Most, u.busy)
	broken := u.Broken[path]
	info := u.Streams[path]
	if s, ok := u.Shared[path]; ok && shared {
		info = s
	}
	answered := u.Answered
	u.Mu.Unlock()
	if answered != nil {
		answered(log + path)
	}
	defer func() {
		u.Mu.Lock()
		u.busy--
		u.Mu.Unlock()
	}()
	if broken {
		<-ctx.Done()
		return fsm.StreamInfo{}, ctx.Err()
	}
	return info, nil
}

// Head implements control.Upstream.
func (u *Upstream) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "", true)
}

// HeadAnew is Head that never says what Shared has.
func (u *Upstream) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "anew ", false)
}

// Locate finds each offset that the stream has, as if the server showed all of a stream in one answer, with event n
// behind the offset n.
func (u *Upstream) Locate(_ context.Context, path string, from, to fsm.Offset) (fsm.Offset, error) {
	u.Mu.Lock()
	defer u.Mu.Unlock()
	switch info := u.Streams[path]; {
	case !info.Exists:
		return "", fsm.ErrNoStream
	case to.After(info.Tail):
		return "", fmt.Errorf("%w: it lies behind the end of the stream", fsm.ErrOffset)
	}
	start, _ := strconv.ParseInt(string(from), 10, 64)
	end, err := strconv.ParseInt(string(to), 10, 64)
	return from.At(end-max(start, 0), to), err
}

// Readable finds each offset that the stream has.
func (u *Upstream) Readable(_ context.Context, path string, at fsm.Offset) error {
	u.Mu.Lock()
	defer u.Mu.Unlock()
	switch info := u.Streams[path]; {
	case !info.Exists:
		return fsm.ErrNoStream
	case at.After(info.Tail):
		return fmt.Errorf("%w: the stream server refuses it", fsm.ErrOffset)
	}
	return nil
}

// ParseOffset implements fields.Offsets.
func (u *Upstream) ParseOffset(s string) (fsm.Offset, error) { return fsm.ParseOffset(s) }

// TakesWrites implements httpapi.Passed.
func (u *Upstream) TakesWrites() bool { return !u.ReadOnly }

// NextOffset implements httpapi.Passed.
func (u *Upstream) NextOffset(h http.Header) fsm.Offset {
	o, _ := fsm.ParseOffset(h.Get("Stream-Next-Offset"))
	return o
}

// Asked returns the paths that it was asked for.
func (u *Upstream) Asked() []string {
	u.Mu.Lock()
	defer u.Mu.Unlock()
	return slices.Clone(u.Heads)
}

// Recorder is Streams, Deliverer and Targets: it notes what it is told, in order.
type Recorder struct {
	mu     sync.Mutex
	calls  []string
	Err    error // of Name, Forget and Deleted
	Refuse error // of CheckTarget
	// Told has each call as well, for those who wait for one.
	Told chan string
	// create is the store's CreateSubscription, onSubscribed runs within Subscribe.
	Create       func(context.Context, fsm.Subscription) (fsm.Subscription, bool, error)
	OnSubscribed func(fsm.Subscription)
}

// Note adds a call.
func (r *Recorder) Note(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	select {
	case r.Told <- call:
	default:
	}
}

// Noted returns the calls.
func (r *Recorder) Noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// ForgetCalls begins a new list.
func (r *Recorder) ForgetCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

// BeforeWrite implements httpapi.Writes.
func (r *Recorder) BeforeWrite(_ context.Context, path string, create bool) fsm.Write {
	if create {
		r.Note("before creating %s", path)
	} else {
		r.Note("before %s", path)
	}
	return fsm.Write{Path: path}
}

// Written implements httpapi.Writes.
func (r *Recorder) Written(w fsm.Write, tail fsm.Offset, created bool) {
	r.Note("written %s %q %v", w.Path, tail, created)
}

// Refused implements httpapi.Writes.
func (r *Recorder) Refused(w fsm.Write) { r.Note("refused %s", w.Path) }

// Deleted implements httpapi.Writes.
func (r *Recorder) Deleted(_ context.Context, path string) error {
	r.Note("deleted %s", path)
	return r.Err
}

// Name implements httpapi.Streams.
func (r *Recorder) Name(_ context.Context, paths []string) error {
	r.Note("name %v", paths)
	return r.Err
}

// Forget implements httpapi.Streams.
func (r *Recorder) Forget(_ context.Context, paths []string) error {
	r.Note("forget %v", paths)
	return r.Err
}

// Subscribe implements control.Streams.
func (r *Recorder) Subscribe(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	if r.Err != nil {
		return sub, false, r.Err
	}
	stored, created, err := r.Create(ctx, sub)
	if created {
		r.Note("subscribed %s %s", stored.ID, stored.Pattern)
		if r.OnSubscribed != nil {
			r.OnSubscribed(stored)
		}
	}
	return stored, created, err
}

// Watch implements httpapi.Streams.
func (r *Recorder) Watch(primary string, paths []string) { r.Note("watch %s %v", primary, paths) }

// Idle implements router.StreamWatcher.
func (r *Recorder) Idle(paths []string) { r.Note("idle %v", paths) }

// Hidden implements router.StreamWatcher.
func (r *Recorder) Hidden(path string) { r.Note("gone %s", path) }

// Deliver implements router.Deliverer.
func (r *Recorder) Deliver(deliveries []fsm.Delivery) {
	for _, w := range deliveries {
		r.Note("deliver %s %d", w.Consumer, w.Epoch)
	}
}

// CheckTarget implements fields.Targets.
func (r *Recorder) CheckTarget(_ context.Context, _ string) error { return r.Refuse }

// Health is a Health that says what it is told to.
type Health struct {
	Others  []fsm.ReplicaStatus
	Unowned int
	Err     error
	Up      bool
	Since   time.Time
	Server  fsm.StreamServerStatus
}

// ReplicaID implements operator.Health.
func (h *Health) ReplicaID() string { return "one" }

// Replicas implements operator.Health.
func (h *Health) Replicas(context.Context) ([]fsm.ReplicaStatus, int, error) {
	return h.Others, h.Unowned, h.Err
}

// Answers implements operator.Health.
func (h *Health) Answers() (bool, time.Time) { return h.Up, h.Since }

// StreamServer implements operator.Health.
func (h *Health) StreamServer() fsm.StreamServerStatus { return h.Server }

// Tester is a Tester that notes whose endpoint it is to test.
type Tester struct {
	// takes is how long a test takes.
	Takes  time.Duration
	Result fsm.TestDelivery
	Err    error
	Tested []fsm.Subscription
	// Bounded says whether the latest test had a time that it must end by.
	Bounded bool
}

// Test implements control.Tester.
func (p *Tester) Test(ctx context.Context, sub fsm.Subscription) (fsm.TestDelivery, error) {
	p.Tested = append(p.Tested, sub)
	_, p.Bounded = ctx.Deadline()
	if p.Takes > 0 {
		select {
		case <-ctx.Done():
			return fsm.TestDelivery{}, ctx.Err()
		case <-time.After(p.Takes):
		}
	}
	return p.Result, p.Err
}

// Rebuilder is a control.Rebuilder that notes what it is to build, with the Born that it is given.
type Rebuilder struct {
	Result  fsm.SentRequest
	Err     error
	Rebuilt []fsm.LoggedAttempt
	Born    []int64
}

// Rebuild implements control.Rebuilder.
func (r *Rebuilder) Rebuild(
	_ context.Context, _ fsm.Subscription, born int64, a fsm.LoggedAttempt,
) (fsm.SentRequest, error) {
	r.Rebuilt, r.Born = append(r.Rebuilt, a), append(r.Born, born)
	return r.Result, r.Err
}

// Consents is a control.Consents that notes who is asked, and grants by the key "k".
type Consents struct {
	Asked []string
	Err   error
	// Granted has the consents that were given, by subscription.
	Granted map[string]fsm.Consent
	Catalog func(id string) (fsm.Subscription, bool)
}

// ConsentOf implements control.Consents.
func (c *Consents) ConsentOf(sub fsm.Subscription) fsm.Consent {
	if granted, ok := c.Granted[sub.ID]; ok {
		return granted
	}
	return fsm.Consent{State: fsm.ConsentPending, Origin: "reveille.example.com"}
}

// AskConsent implements control.Consents.
func (c *Consents) AskConsent(_ context.Context, sub fsm.Subscription) (fsm.Subscription, error) {
	c.Asked = append(c.Asked, sub.ID)
	return sub, c.Err
}

// GrantConsent implements control.Consents.
func (c *Consents) GrantConsent(_ context.Context, id, key string, rate int) (fsm.Subscription, error) {
	sub, ok := c.Catalog(id)
	if _, used := c.Granted[id]; !ok || used || key != "k" {
		return fsm.Subscription{}, fsm.ErrNotFound
	}
	sub.Consent = fsm.Consent{State: fsm.ConsentGranted, Origin: "reveille.example.com", Rate: rate}
	c.Granted[id] = sub.Consent
	return sub, nil
}
