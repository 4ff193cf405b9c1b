package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"reveille/fsm"
)

// upstream is a stream server that answers HEADs as it is told.
type upstream struct {
	mu sync.Mutex
	// streams by path; shared overrides what Head (not HeadAnew) says; broken ones hang until the asker gives up.
	streams map[string]fsm.StreamInfo
	shared  map[string]fsm.StreamInfo
	broken  map[string]bool
	heads   []string
	// readOnly is true if it takes no writes.
	readOnly bool
	// answered, if set, is called when an answer is on its way.
	answered func(head string)
	busy     int
	most     int
}

func (u *upstream) head(ctx context.Context, path, log string, shared bool) (fsm.StreamInfo, error) {
	u.mu.Lock()
	u.heads = append(u.heads, log+path)
	u.busy++
	u.most = max(u.most, u.busy)
	broken := u.broken[path]
	info := u.streams[path]
	if s, ok := u.shared[path]; ok && shared {
		info = s
	}
	answered := u.answered
	u.mu.Unlock()
	if answered != nil {
		answered(log + path)
	}
	defer func() {
		u.mu.Lock()
		u.busy--
		u.mu.Unlock()
	}()
	if broken {
		<-ctx.Done()
		return fsm.StreamInfo{}, ctx.Err()
	}
	return info, nil
}

func (u *upstream) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "", true)
}

func (u *upstream) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "anew ", false)
}

// Locate finds each offset that the stream has, as if the server showed all of a stream in one answer, with event n
// behind the offset n.
func (u *upstream) Locate(_ context.Context, path string, from, to fsm.Offset) (fsm.Offset, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch info := u.streams[path]; {
	case !info.Exists:
		return "", fsm.ErrNoStream
	case to.After(info.Tail):
		return "", fmt.Errorf("%w: it lies behind the end of the stream", fsm.ErrOffset)
	}
	start, _ := strconv.ParseInt(string(from), 10, 64)
	end, err := strconv.ParseInt(string(to), 10, 64)
	return from.At(end-max(start, 0), to), err
}

func (u *upstream) ParseOffset(s string) (fsm.Offset, error) { return fsm.ParseOffset(s) }

func (u *upstream) TakesWrites() bool { return !u.readOnly }

func (u *upstream) NextOffset(h http.Header) fsm.Offset {
	o, _ := fsm.ParseOffset(h.Get("Stream-Next-Offset"))
	return o
}

func (u *upstream) asked() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.heads)
}

// recorder is Streams, Deliverer and Targets: it notes what it is told, in order.
type recorder struct {
	mu     sync.Mutex
	calls  []string
	err    error // of Name, Forget and Deleted
	refuse error // of CheckTarget
	// told has each call as well, for those who wait for one.
	told chan string
	// create is the store's CreateSubscription, onSubscribed runs within Subscribe.
	create       func(context.Context, fsm.Subscription) (fsm.Subscription, bool, error)
	onSubscribed func(fsm.Subscription)
}

func (r *recorder) note(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	select {
	case r.told <- call:
	default:
	}
}

func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

func (r *recorder) BeforeWrite(_ context.Context, path string, create bool) fsm.Write {
	if create {
		r.note("before creating %s", path)
	} else {
		r.note("before %s", path)
	}
	return fsm.Write{Path: path}
}

func (r *recorder) Written(w fsm.Write, tail fsm.Offset, created bool) {
	r.note("written %s %q %v", w.Path, tail, created)
}
func (r *recorder) Refused(w fsm.Write) { r.note("refused %s", w.Path) }
func (r *recorder) Deleted(_ context.Context, path string) error {
	r.note("deleted %s", path)
	return r.err
}

func (r *recorder) Name(_ context.Context, paths []string) error {
	r.note("name %v", paths)
	return r.err
}

func (r *recorder) Forget(_ context.Context, paths []string) error {
	r.note("forget %v", paths)
	return r.err
}

func (r *recorder) Subscribe(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	if r.err != nil {
		return sub, false, r.err
	}
	stored, created, err := r.create(ctx, sub)
	if created {
		r.note("subscribed %s %s", stored.ID, stored.Pattern)
		if r.onSubscribed != nil {
			r.onSubscribed(stored)
		}
	}
	return stored, created, err
}
func (r *recorder) Watch(primary string, paths []string) { r.note("watch %s %v", primary, paths) }
func (r *recorder) Idle(paths []string)                  { r.note("idle %v", paths) }
func (r *recorder) Hidden(path string)                   { r.note("gone %s", path) }
func (r *recorder) Deliver(wakes []fsm.Wake) {
	for _, w := range wakes {
		r.note("deliver %s %d", w.Consumer, w.Epoch)
	}
}
func (r *recorder) CheckTarget(_ context.Context, _ string) error { return r.refuse }
