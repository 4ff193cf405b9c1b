package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/test/ports"
)

// server has one stream, in which nothing is found or only this event, and takes appends or does not. It may hang.
type server struct {
	control.OutboxServer
	event          fsm.OutboxEvent
	err            error
	refuses, hangs bool
	took           []string
}

func (s *server) ReadBatch(
	context.Context, string, string, fsm.Offset, fsm.Offset, int, int64, func([]byte) bool,
) (b fsm.Batch, err error) {
	text, err := json.Marshal(s.event)
	return fsm.Batch{Events: [][]byte{text}}, errors.Join(err, s.err)
}

func (s *server) Append(ctx context.Context, path, _ string, body []byte) (fsm.Offset, error) {
	if s.hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if s.refuses {
		return "", errors.New("nobody answers")
	}
	s.took = append(s.took, path+" "+string(body))
	return "1", nil
}

// partial is a store of which one partition does not answer.
type partial struct{ *ports.Memory }

func (p partial) DuePartitions(ctx context.Context) ([]int, error) {
	due, err := p.Memory.DuePartitions(ctx)
	return due, errors.Join(err, fsm.ErrUnavailable)
}

// TestADelayedEventIsReleasedOrLost holds what becomes of a delayed event whose time has come, as its stream server
// takes it, is away, or does not have it any more, and that a partition that does not answer holds up no other one.
func TestADelayedEventIsReleasedOrLost(t *testing.T) {
	const stream, lostAfter = "/outbox/t/0", 10 * time.Minute
	for name, c := range map[string]struct {
		server server
		other  bool
		// after is how long Release has been called again and again, want what the event is then.
		after   time.Duration
		want    fsm.OutboxStatus
		appends int
	}{
		"it is taken":             {server{}, false, 0, fsm.OutboxPending, 1},
		"it is taken late":        {server{refuses: true}, false, time.Hour, fsm.OutboxPending, 0},
		"it hangs":                {server{hangs: true}, false, time.Minute, fsm.OutboxPending, 0},
		"it cannot be read":       {server{err: errors.New("nobody answers")}, false, time.Hour, fsm.OutboxPending, 0},
		"it is missing":           {server{err: fsm.ErrNoStream}, false, lostAfter - time.Second, fsm.OutboxPending, 0},
		"it is missing for good":  {server{err: fsm.ErrNoStream}, false, lostAfter, fsm.OutboxDead, 0},
		"another is in its place": {server{}, true, lostAfter, fsm.OutboxDead, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := ports.New(t)
				e := fsm.OutboxEvent{
					ID: fsm.NewOutboxID(h.Store.PartitionOf(stream), "1"), CreatedAt: h.Clock().UnixMilli(),
					DeliverAt: h.Clock().Add(time.Minute).UnixMilli(),
				}
				h.Store.DB.PutEvent(fsm.OutboxRecord{
					Event: e, Stream: stream, Status: fsm.OutboxPending, DelayedUntil: time.UnixMilli(e.DeliverAt),
				})
				if c.server.event = e; c.other {
					c.server.event.ID = fsm.NewOutboxID(0, "2")
				}
				o := &control.Outbox{
					Control: &control.Service{Clock: h.Clock, Log: h.Logger}, Store: partial{h.Store},
					Server: &c.server, Writes: h.Rec, Root: "/outbox", Roll: time.Hour,
				}
				if o.Release(t.Context()); len(c.server.took) > 0 {
					t.Errorf("before its time, it was appended")
				}
				h.Pass(time.Minute)
				o.Release(t.Context())
				for passed := time.Duration(0); passed < c.after; passed += time.Second {
					h.Pass(time.Second)
					o.Release(t.Context())
				}
				kept, err := h.Store.OutboxEvent(t.Context(), e.ID)
				if err != nil || kept.OutboxState.Status != c.want || len(c.server.took) != c.appends {
					t.Errorf("it is %s %q after %d appends, %v",
						kept.OutboxState.Status, kept.LastError, len(c.server.took), err)
				}
				if waits := !kept.DelayedUntil.IsZero(); waits == (c.appends > 0 || c.want == fsm.OutboxDead) {
					t.Errorf("it waits: %t", waits)
				}
				c.server.refuses, c.server.hangs, c.server.err, c.server.event = false, false, nil, e
				h.Pass(time.Minute)
				o.Release(t.Context())
				again := slices.Compact(c.server.took)
				if len(again) > 1 || len(again) == 0 && c.want != fsm.OutboxDead {
					t.Errorf("at last, it was appended as %q", c.server.took)
				}
			})
		})
	}
}
