package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
)

// deaf loses the reply to a script: the command is carried out twice, as it is by a client whose
// connection broke in between.
type deaf struct {
	on bool
	// between, if set, is what happens before it is carried out again.
	between func()
}

func (*deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d.on {
			_ = next(ctx, redis.NewCmd(ctx, cmd.Args()...))
			if d.between != nil {
				d.between()
			}
		}
		return next(ctx, cmd)
	}
}

func (*deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestACallWhoseReplyWasLostIsAnsweredAsIfItWereTheFirst(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	ctx := t.Context()
	d := &deaf{}
	w.rdb.AddHook(d)
	sub := subscription("s")
	n := 0
	// waking is a consumer that was woken up to an offset, and a stream that has grown since.
	waking := func(t *testing.T) fsm.Delivery {
		t.Helper()
		n++
		path := fmt.Sprint("/", n)
		d.on = false
		o := must[fsm.Outcome](t)(w.Link(ctx, sub, path, fsm.Start, "1"))
		must[fsm.Observation](t)(w.Observe(ctx, 0, path, "2", false))
		d.on = true
		return o.Deliveries[0]
	}
	first := func(t *testing.T, wakes []fsm.Delivery, epoch int64) fsm.Delivery {
		t.Helper()
		if len(wakes) != 1 || wakes[0].Epoch != epoch || wakes[0].Attempt != 1 {
			t.Fatalf("handed out %+v, want the first attempt of epoch %d", wakes, epoch)
		}
		return wakes[0]
	}
	t.Run("link", func(t *testing.T) {
		d.on = true
		first(t, must[fsm.Outcome](t)(w.Link(ctx, sub, "/new", fsm.Start, "1")).Deliveries, 1)
	})
	t.Run("observe", func(t *testing.T) {
		d.on = false
		must[fsm.Outcome](t)(w.Link(ctx, sub, "/seen", "1", "1"))
		d.on = true
		wake := first(t, must[fsm.Observation](t)(w.Observe(ctx, 0, "/seen", "2", false)).Deliveries, 1)
		if again := must[fsm.Observation](t)(w.Observe(ctx, 0, "/seen", "3", false)); len(again.Deliveries) != 0 {
			t.Errorf("another observation handed out %+v, which is under way as %+v", again.Deliveries, wake)
		}
	})
	t.Run("rewind", func(t *testing.T) {
		d.on = false
		o := must[fsm.Outcome](t)(w.Link(ctx, sub, "/again", "2", "3"))
		must[fsm.Outcome](t)(w.Accept(ctx, o.Deliveries[0].Ref()))
		d.on = true
		_, o, err := w.Rewind(ctx, sub, fsm.RefOf("s", "/again"), "/again", "1")
		if wake := first(t, o.Deliveries, 2); err != nil || wake.At("/again") != "1" {
			t.Errorf("it goes on with %+v", wake)
		}
	})
	t.Run("synchronous done", func(t *testing.T) {
		wake := waking(t)
		first(t, must[fsm.Outcome](t)(w.Finish(ctx, wake.Ref(), wake.Streams)).Deliveries, 2)
	})
	t.Run("delivery of some of the events", func(t *testing.T) {
		wake := waking(t)
		at := wake.Streams[0]
		first(t, must[fsm.Outcome](t)(w.Deliver(ctx, wake.Ref(), fsm.Delivered{
			Path: at.Path, To: at.Acked.At(1, at.Tail), Tail: at.Tail,
		})).Deliveries, 2)
	})
	t.Run("delivery that fails and steps aside", func(t *testing.T) {
		wake := waking(t)
		next := first(t, w.failOne(t, unordered("s"), wake).Deliveries, 2)
		if c := must[fsm.Consumer](t)(w.Consumer(ctx, wake.Ref().Consumer)); c.Asides != 1 || c.Handed != 1 {
			t.Errorf("it is %+v", c)
		}
		if next.At(wake.Primary) != fsm.Start.At(1, "9") {
			t.Errorf("the stream goes on with %+v", next)
		}
	})
	t.Run("2xx of an endpoint that is down", func(t *testing.T) {
		d.on = false
		sub, _, err := w.CreateSubscription(ctx, unordered("down"))
		if err != nil {
			t.Fatal(err)
		}
		wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/down", fsm.Start, "1")).Deliveries[0]
		must[fsm.Outcome](t)(w.Park(ctx, wake.Ref(), fsm.BlockedSlot, time.Hour))
		for range fsm.DownAfter {
			must[bool](t)(w.FailEndpoint(ctx, sub, fsm.EndpointFailure{}))
		}
		d.on = true
		must[bool](t)(w.RecoverEndpoint(ctx, sub))
		if e, _, trouble := w.Endpoints().Get(sub.Generation); trouble {
			t.Errorf("it is still in trouble: %+v", e)
		}
		must[fsm.Outcome](t)(w.ReleaseHeld(ctx, sub, fsm.BlockedDown))
		d.on = false
		o, _, err := w.Due(ctx, 0, 1)
		if err != nil || len(o.Deliveries) != 1 || o.Deliveries[0].Consumer != wake.Consumer {
			t.Errorf("due is %+v, %v", o, err)
		}
	})
	callback := func(wake fsm.Delivery) fsm.Callback {
		return fsm.Callback{
			Consumer: wake.Ref().Consumer, Primary: wake.Primary, Generation: wake.Generation, Epoch: wake.Epoch,
			TokenEpoch: wake.Epoch,
			WakeID:     wake.WakeID, Acks: []fsm.Ack{{Path: wake.Primary, Offset: "1"}}, Done: true, MaxStreams: 10,
		}
	}
	t.Run("callback that is done with work pending", func(t *testing.T) {
		wake := waking(t)
		reply := must[fsm.CallbackReply](t)(w.Callback(ctx, callback(wake)))
		if reply.Code != "" || len(reply.Streams) != 1 || reply.Streams[0].Acked != "1" {
			t.Fatalf("replied %+v", reply)
		}
		first(t, reply.Deliveries, 2)
		if late := must[fsm.CallbackReply](t)(w.Callback(ctx, callback(wake))); late.Code != fsm.CodeStaleEpoch {
			t.Errorf("the same from the worker, after the next wake: %+v", late)
		}
	})
	t.Run("callback that is done, after which another event began the next wake", func(t *testing.T) {
		wake := waking(t)
		cb := callback(wake)
		cb.Acks[0].Offset = "2"
		d.on, d.between = true, func() {
			d.on = false
			first(t, must[fsm.Observation](t)(w.Observe(ctx, 0, wake.Primary, "3", false)).Deliveries, 2)
		}
		reply := must[fsm.CallbackReply](t)(w.Callback(ctx, cb))
		d.between = nil
		if reply.Code != "" || len(reply.Deliveries) != 0 || reply.Streams[0].Acked != "2" {
			t.Errorf("replied %+v", reply)
		}
	})
	t.Run("callback that is done, after which the next wake was claimed and done", func(t *testing.T) {
		wake := waking(t)
		cb := callback(wake)
		cb.Acks[0].Offset = "2"
		d.on, d.between = true, func() {
			d.on = false
			next := first(t, must[fsm.Observation](t)(w.Observe(ctx, 0, wake.Primary, "3", false)).Deliveries, 2)
			claim := callback(next)
			claim.Acks, claim.Done = nil, false
			done := callback(next)
			done.Acks[0].Offset, done.WakeID = "3", ""
			for _, cb := range []fsm.Callback{claim, done} {
				if reply := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); reply.Code != "" {
					t.Errorf("the next wake: %+v", reply)
				}
			}
		}
		reply := must[fsm.CallbackReply](t)(w.Callback(ctx, cb))
		d.between = nil
		if reply.Code != "" || len(reply.Deliveries) != 0 || reply.Streams[0].Acked != "3" {
			t.Errorf("replied %+v", reply)
		}
		if late := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); late.Code != fsm.CodeStaleEpoch {
			t.Errorf("the same from the worker: %+v", late)
		}
	})
	t.Run("callback that is done with nothing pending", func(t *testing.T) {
		wake := waking(t)
		cb := callback(wake)
		cb.Acks[0].Offset = "2"
		if reply := must[fsm.CallbackReply](t)(w.Callback(ctx, cb)); reply.Code != "" || len(reply.Deliveries) != 0 {
			t.Errorf("replied %+v", reply)
		}
	})
}
