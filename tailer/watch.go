package tailer

import (
	"container/list"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/tailer/upstream"
)

// watch watches one stream, for all the partitions whose consumers are subscribed to it. Its machine decides what to
// ask, and when. The watch carries that out and brings back the answers. While there is anything to ask, a goroutine
// does so (run). Other goroutines pass hints to the machine (step).
type watch struct {
	t    *Tailer
	path string
	// conn, action and shown belong to the goroutine. Live requests use conn. The next action is in action. The metrics
	// count the watch under the mode shown.
	conn   upstream.Conn
	action action
	shown  mode
	// cut ends the wait under way. A goroutine holds telling while it tells the store of an event (takeTurn).
	cut     bell.Bell
	telling chan struct{}
	// named says whether a setting or a literal pattern named the stream at version namedAt of the list of
	// subscriptions. The lock of the set guards both.
	named   bool
	namedAt int64
	// slot is the place among the slots; nil without one. The lock of the slots guards it.
	slot *list.Element

	mu      sync.Mutex
	machine machine
	// live is the live request under way, or nil.
	live *live
}

func newWatch(t *Tailer, path string) *watch {
	return &watch{
		t: t, path: path, conn: t.upstream.NewConn(), cut: bell.New(), telling: make(chan struct{}, 1),
		machine: newMachine(&t.cfg, t.store.PartitionOf(path)),
	}
}

// step passes an input to the machine, and carries out at once what concerns the wait or the live request under way.
// The goroutine does the rest of the action. It starts here if the stream was at rest.
func (w *watch) step(in *input) action {
	a := w.take(in)
	if a.run {
		w.t.watches.mu.Lock()
		defer w.t.watches.mu.Unlock()
		w.t.watches.run(w, a)
	}
	return a
}

// take passes an input to the machine, as step does, for callers that hold the lock of the set. They run the watch.
func (w *watch) take(in *input) action {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apply(in)
}

// apply steps the machine and carries out what needs no waiting. w.mu is held.
func (w *watch) apply(in *input) action {
	in.now, in.misses = time.Now(), w.t.upstream.health.Misses()
	a := w.machine.step(in)
	if a.missed {
		w.t.upstream.health.Missed(&w.conn)
		w.t.missed.Inc()
	}
	if a.wait > 0 {
		select {
		case <-w.cut: // an earlier ring was for another wait
		default:
		}
	}
	if a.interrupt {
		w.cut.Ring()
		if w.live != nil {
			w.live.cancel()
		}
	}
	if a.check > 0 && w.live != nil {
		w.live.checkSooner(a.check)
	}
	return a
}

// run carries out actions until there is nothing to ask or the context ends. Thousands of goroutines wait in a live
// request. Any call that needs more stack has returned by then.
func (w *watch) run(ctx context.Context) {
	for more := true; more; {
		if w.action.phase == phaseLive {
			err := w.request(ctx)
			more = w.over(ctx, err)
		} else {
			more = w.do(ctx)
		}
	}
}

//go:noinline
func (w *watch) over(ctx context.Context, err error) (more bool) {
	return w.answer(ctx, &input{kind: inputOver, err: err})
}

// answer passes an answer to the machine and begins the next action. more is false if there is none, or if the context
// has ended.
func (w *watch) answer(ctx context.Context, in *input) (more bool) {
	if ctx.Err() != nil {
		w.release()
		w.show(modeNone)
		return false
	}
	a := w.step(in)
	if a.failure != nil {
		w.t.log.Debug("a request for a stream failed", zap.String("stream", w.path), zap.Error(a.failure))
	}
	if a.back { // if its consumers were removed meanwhile, it is a new stream
		w.t.discovery.Confirm(w.path)
	}
	if a.wavered {
		w.t.upstream.health.Wavered()
	}
	if a.release {
		w.release()
	}
	w.show(a.mode)
	w.action = a
	return a.phase.asks()
}

// do carries out one action other than a live request, and passes its answer to the machine.
func (w *watch) do(ctx context.Context) (more bool) {
	in := input{kind: inputDone}
	switch a := &w.action; a.phase {
	case phaseLooking:
		in.kind = inputHead
		in.info, in.err = w.t.upstream.look(ctx, w.path, true, w.t.upstream.Head)
		in.wavers = w.t.upstream.health.Wavers()
	case phaseConfirming, phaseVerifying:
		in.kind = inputHead
		in.info, in.err = w.t.upstream.HeadAnew(ctx, w.path)
		in.wavers = w.t.upstream.health.Wavers()
	case phaseHiding:
		in.err = w.hide(ctx, a.absence)
		w.untaken(ctx, "gone", in.err)
	case phaseTelling:
		in = w.tell(ctx, a.partition, a.tail, a.closed)
	case phaseReading, phaseRereading:
		in.kind = inputRead
		in.tail, in.err = w.t.upstream.ReadBeyond(ctx, w.path, a.was, a.tail)
	case phaseCorrecting:
		if a.was == "" {
			in = w.tell(ctx, a.partition, a.tail, a.closed)
		} else {
			in.err = w.restart(ctx, a.partition, a.was, a.tail)
			w.untaken(ctx, "restart", in.err)
		}
	case phaseEntering:
		in.kind, in.granted = inputSlot, w.t.slots.take(w, a.active)
		if !in.granted && a.turn {
			in.turn = w.t.sweep.Turn()
		}
	case phaseEnding:
		return w.t.watches.end(w)
	default:
		upstream.SleepOr(ctx, a.wait, w.cut)
	}
	return w.answer(ctx, &in)
}

// release gives up the slot and the connection.
func (w *watch) release() {
	w.t.slots.give(w)
	w.conn.Close()
}

// Other parts of the package read the machine's state through these methods.

// partitions returns the partitions that watch the stream. With home, it always includes the home partition.
func (w *watch) partitions(home bool) (numbers []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.machine.parts {
		numbers = append(numbers, p.number)
	}
	if home && w.machine.part(w.machine.home) == nil {
		numbers = append(numbers, w.machine.home)
	}
	return numbers
}

// told returns the tail that the store was told in a partition; empty if the store must be told again. The result
// watched is false without a watch, or if the stream is not watched for the partition.
func (w *watch) told(partition int) (tail fsm.Offset, watched bool) {
	if w == nil {
		return "", false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.machine.part(partition); p != nil {
		return p.tail, true
	}
	return "", false
}

// isDeleted says whether the stream was deleted and no consumer was linked since. Then it rightly is not on the list of
// watched streams.
func (w *watch) isDeleted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.deleted > w.machine.wanted
}

// rests says whether there is nothing to ask, because the stream is closed. since is when the watch found it closed.
func (w *watch) rests() (since time.Time, rests bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.closed, w.machine.phase == phaseResting
}

// looksAfterPause says whether the stream is in a pause. A look follows the pause and will see the write, which was
// over before the call. A stream that is believed absent is looked at now.
func (w *watch) looksAfterPause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(&input{kind: inputWritten})
	return w.machine.phase == phasePausing
}

func (w *watch) moment() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.moment
}
