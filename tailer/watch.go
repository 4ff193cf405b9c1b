package tailer

import (
	"container/list"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// watch watches one stream, for all the partitions whose consumers are subscribed to it. Its machine decides what is
// asked, and when; watch carries that out and brings back the answers. A goroutine does so while there is anything to
// ask (run); other goroutines pass to the machine what happens meanwhile (step).
type watch struct {
	t    *Tailer
	path string
	// conn, action and shown are the goroutine's own: what live requests go by, what is to be done, and the mode that
	// the metrics show.
	conn   upstream.Conn
	action action
	shown  mode
	// cut ends the wait under way; telling is held by the goroutine that tells the store of an event.
	cut, telling chan struct{}
	// named says whether a setting or a literal pattern named the stream when the list of subscriptions had the version
	// namedAt. The lock of the set guards both.
	named   bool
	namedAt int64
	// slot is the place among the slots, whose lock guards it; nil without one.
	slot *list.Element

	mu      sync.Mutex
	machine machine
	// live is the live request under way, or nil.
	live *live
}

func newWatch(t *Tailer, path string) *watch {
	return &watch{
		t: t, path: path, conn: t.upstream.NewConn(), cut: make(chan struct{}, 1), telling: make(chan struct{}, 1),
		machine: newMachine(&t.cfg, t.store.PartitionOf(path)),
	}
}

// step has the machine take in an input, and does at once what concerns the wait or the live request under way. The
// rest of the action is for the goroutine, which begins here if the stream was at rest.
func (w *watch) step(in *input) action {
	a := w.take(in)
	if a.run {
		w.t.watches.mu.Lock()
		defer w.t.watches.mu.Unlock()
		w.t.watches.run(w, a)
	}
	return a
}

// take passes an input to the machine, as step does, for callers that hold the lock of the set: they run the watch.
func (w *watch) take(in *input) action {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apply(in)
}

// apply steps the machine and carries out what needs no waiting; w.mu is held.
func (w *watch) apply(in *input) action {
	in.now, in.misses = time.Now(), w.t.upstream.health.Misses()
	a := w.machine.step(in)
	if a.missed {
		w.t.upstream.health.Missed(&w.conn)
		w.t.missed.Inc()
	}
	if a.wait > 0 {
		select {
		case <-w.cut: // a signal that is there was for another wait
		default:
		}
	}
	if a.interrupt {
		select {
		case w.cut <- struct{}{}:
		default: // it is to end already
		}
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
// request: what needs more stack than that has returned by then.
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

// answer has the machine take in an answer and begins what it makes of it. more is false if that is nothing, or the
// context has ended.
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
	if a.back { // if it was away for so long that its consumers were removed, it is a new one
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

// do carries out one action, but for a live request, and takes in its answer.
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

// What other parts of the package ask of the machine's state.

// partitions returns those that watch the stream; with home, that one in any case.
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

// told returns the tail that the store was told in a partition; empty if it is to be told again. watched is false if
// the stream is not watched for the partition, or if the watch is nil.
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

// isDeleted says whether the stream was deleted and no consumer has been linked since: it is rightly not on the list of
// watched streams.
func (w *watch) isDeleted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.deleted > w.machine.wanted
}

// rests says whether there is nothing to ask: the stream is closed. since is when that was found.
func (w *watch) rests() (since time.Time, rests bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.closed, w.machine.phase == phaseResting
}

// looksAfterPause says whether the stream is in a pause, after which it is looked at. The write was over before this is
// asked, so that look will see it. A stream that is believed absent is looked at now.
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
