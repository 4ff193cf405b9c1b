package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/tailer/upstream"
)

// listed is a stream server with a registry, whose body ends with its request, and may stop in its middle.
type listed struct {
	one
	body     string
	stalls   bool
	requests atomic.Int64
}

func (u *listed) Registry(
	ctx context.Context, _ string, _ fsm.Offset, live bool, _ string,
) (*upstream.Answer, error) {
	if live {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	u.requests.Add(1)
	body := &body{ctx: ctx, in: strings.NewReader(u.body), stalls: u.stalls}
	return &upstream.Answer{Event: upstream.Event{Offset: "1"}, Body: body}, nil
}

type body struct {
	ctx    context.Context
	in     io.Reader
	stalls bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	n, err := b.in.Read(p)
	if errors.Is(err, io.EOF) && b.stalls {
		<-b.ctx.Done()
		err = b.ctx.Err()
	}
	return n, err
}

func (*body) Close() error { return nil }

// slow is a store that takes its time to put a stream on record.
type slow struct{ Store }

func (s slow) NoteStream(ctx context.Context, stream fsm.Stream, look time.Duration) (fsm.Stream, bool, error) {
	time.Sleep(time.Second)
	if ctx.Err() != nil {
		return fsm.Stream{}, false, ctx.Err()
	}
	return s.Store.NoteStream(ctx, stream, look)
}

// A registry of many streams takes longer to deal with than a server may take to send it.
func TestARegistryIsAskedForOnceHoweverLongItsStreamsTake(t *testing.T) {
	const streams = 3 * registryTime / time.Second
	var messages []string
	for n := range streams {
		messages = append(messages, fmt.Sprintf(`{"key":"a/%d","headers":{"operation":"insert"}}`, n))
	}
	whole := "[" + strings.Join(messages, ",") + "]"
	for name, test := range map[string]struct {
		up       *listed
		requests int64
	}{
		// The second request proves that it is the same registry still.
		"it comes as fast as it is read": {up: &listed{body: whole}, requests: 2},
		"its end never comes":            {up: &listed{body: whole[:len(whole)-1], stalls: true}, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New(memstore.Options{})
				run(t, build(t, Config{
					Store: slow{db.Replica("a", 0)}, Upstream: test.up,
					Registry: "/__registry__", RetryMax: time.Second,
				}))
				time.Sleep(time.Duration(streams)*time.Second + registryTime + 5*time.Second)
				if n := test.up.requests.Load(); n != test.requests {
					t.Errorf("it was asked for %d times, want %d", n, test.requests)
				}
				if n := len(db.Records()); n != int(streams) {
					t.Errorf("%d streams are on record, want %d", n, streams)
				}
			})
		})
	}
}
