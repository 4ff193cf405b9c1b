package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec"
	"reveille/redisstore"
)

// mute loses the replies to a script, which is carried out: its callers are not answered.
type mute struct{ script string }

func (*mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if m.script != "" && scriptOf(cmd) == m.script {
			cmd.SetErr(context.DeadlineExceeded)
			return context.DeadlineExceeded
		}
		return err
	}
}

func (*mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// noDeliverer and noStreams do nothing.
type (
	noDeliverer struct{}
	noStreams   struct{}
)

func (noDeliverer) Deliver([]fsm.Delivery) {}
func (noStreams) Idle([]string)            {}
func (noStreams) Hidden(string)            {}

// TestWhatAnUnansweredCallHandedOutIsHandedOut holds that no attempt is out without a replica that makes it because
// Redis could not tell.
func TestWhatAnUnansweredCallHandedOutIsHandedOut(t *testing.T) {
	t.Parallel()
	var handed []fsm.Delivery
	outcomes := router.New(router.Observer{Transition: func(o fsm.Outcome, _ fsm.Sighting) {
		handed = append(handed, o.Deliveries...)
	}})
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 1, Outcomes: outcomes})
	outcomes.Connect(noDeliverer{}, noStreams{})
	ctx, sub, m := t.Context(), unordered("s"), &mute{}
	w.rdb.AddHook(m)
	if err := redisstore.LoadScripts(ctx, w.rdb); err != nil { // by its hash a script is known
		t.Fatal(err)
	}
	out := func(t *testing.T, path string) fsm.Delivery {
		t.Helper()
		return must[fsm.Outcome](t)(w.Link(ctx, sub, path, fsm.Start, "9")).Deliveries[0]
	}
	for script, call := range map[string]func(t *testing.T, path string) error{
		"link_stream": func(_ *testing.T, path string) error {
			_, err := w.Link(ctx, sub, path, fsm.Start, "9")
			return err
		},
		"observe": func(t *testing.T, path string) error {
			must[fsm.Outcome](t)(w.Link(ctx, sub, path, "1", "1"))
			m.script = "observe"
			_, err := w.Observe(ctx, 0, path, "2", false)
			return err
		},
		"due": func(t *testing.T, path string) error {
			must[fsm.Outcome](t)(w.Park(ctx, out(t, path).Ref(), fsm.BlockedSlot, 0))
			m.script = "due"
			_, _, err := w.Due(ctx, 0, 100)
			return err
		},
		"finish": func(t *testing.T, path string) error {
			wake := out(t, path)
			must[fsm.Observation](t)(w.Observe(ctx, 0, path, "99", false))
			m.script = "finish"
			_, err := w.Finish(ctx, wake.Ref(), wake.Streams)
			return err
		},
		"deliver": func(t *testing.T, path string) error {
			wake := out(t, path)
			m.script = "deliver"
			_, err := w.Deliver(ctx, wake.Ref(), fsm.Delivered{
				Path: path, To: fsm.Start.At(1, "9"), Within: fsm.Start.At(1, "9"), Tail: "9", Profile: sub.Profile(),
			})
			return err
		},
		"fail": func(t *testing.T, path string) error {
			wake := out(t, path)
			m.script = "fail"
			behind := fsm.Start.At(1, "9")
			_, err := w.Fail(ctx, wake.Ref(), fsm.Failure{
				Reason: "status 500", Profile: sub.Profile(), Span: 1, To: behind, Within: behind, Tail: "9",
			})
			return err
		},
	} {
		t.Run(script, func(t *testing.T) {
			path := "/" + script
			m.script = ""
			if script == "link_stream" {
				m.script = script
			}
			if err := call(t, path); !errors.Is(err, fsm.ErrUnavailable) {
				t.Fatalf("the call returned %v", err)
			}
			handed = nil
			before := time.Now()
			w.RepeatUnanswered(ctx)
			if len(handed) != 0 {
				t.Errorf("without an answer %+v came of it", handed)
			}
			m.script = ""
			w.RepeatUnanswered(ctx)
			w.RepeatUnanswered(ctx)
			if len(handed) != 1 || handed[0].Primary != path || handed[0].Asked.After(before) {
				t.Fatalf("handed out %+v, want one that was asked for before %s", handed, before)
			}
			c := must[fsm.Consumer](t)(w.Consumer(ctx, handed[0].Ref().Consumer))
			if !spec.Out(c, handed[0].Ref()) {
				t.Errorf("%+v is handed out of %+v", handed[0], c)
			}
			must[fsm.Outcome](t)(w.Accept(ctx, handed[0].Ref())) // and is not due again
		})
	}
}
