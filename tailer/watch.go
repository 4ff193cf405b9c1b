package tailer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// watch watches one stream, for all the partitions whose consumers are subscribed to it. What is asked, and when, its
// machine decides; watch carries that out and brings back the answers. A goroutine does so, while there is anything to
// ask (run); what happens meanwhile reaches the machine from wherever it happens (step).
type watch struct {
	t    *Tailer
	path string
	// conn, action and shown are the goroutine's own: what live requests go by, what is to be done, and the mode that
	// the metrics show.
	conn   upstream.Conn
	action action
	shown  mode
	// cut ends the wait under way.
	cut chan struct{}
	// removed is true once the stream's consumers were removed, until somebody is linked again: it is rightly
	// not on the store's list.
	removed atomic.Bool

	mu      sync.Mutex
	machine machine
	// live is the live request under way, or nil.
	live *live
	// announcing are the calls under way that tell the store what an event has moved the tail to.
	announcing []*announcement
}

func newWatch(t *Tailer, path string) *watch {
	return &watch{
		t: t, path: path, conn: t.NewConn(), cut: make(chan struct{}, 1),
		machine: newMachine(&t.rules, t.store.PartitionOf(path)),
	}
}

// step has the machine take in an input, and does at once what concerns the wait or the live request under way. The
// rest of the action is for the goroutine.
func (w *watch) step(in *input) action {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apply(in)
}

// apply is step with w.mu held.
func (w *watch) apply(in *input) action {
	in.now = time.Now()
	a := w.machine.step(in)
	if a.ask == askWait {
		clearSignal(w.cut) // what is there was for another wait
	}
	if a.interrupt {
		signal(w.cut)
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
		if w.action.ask == askLive {
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
	w.show(a.mode)
	if a.release {
		w.release()
	}
	w.action = a
	return a.ask != askNothing
}

// do carries out one action, but for a live request, and takes in its answer.
func (w *watch) do(ctx context.Context) (more bool) {
	var in input
	switch a := &w.action; a.ask {
	case askHead:
		info, err := w.t.look(ctx, w.path, w.t.Head)
		in = input{kind: inputHead, info: info, err: err, wavers: w.t.health.Wavers()}
	case askHeadAnew:
		info, err := w.t.HeadAnew(ctx, w.path)
		in = input{kind: inputHead, info: info, err: err, wavers: w.t.health.Wavers()}
	case askHide:
		w.hide(ctx, a.absence)
		in = input{kind: inputHidden}
	case askReturn:
		if a.wavered {
			w.t.health.Wavered()
		}
		w.t.watches.reports.returned(w.path)
		in = input{kind: inputReturned}
	case askTell:
		in = w.tell(ctx, a.partition, a.tail)
	case askRead:
		end, err := w.t.ReadBeyond(ctx, w.path, a.was, a.tail)
		in = input{kind: inputRead, tail: end, err: err}
	case askRestart:
		_ = w.t.restart(ctx, w.path, a.partition, a.was, a.tail)
		in = input{kind: inputRestarted, partition: a.partition}
	case askSlot:
		in = input{kind: inputSlot, granted: w.t.slots.take(w, a.active)}
		if !in.granted && a.turn {
			in.turn = w.t.sweep.Turn()
		}
	case askWait:
		upstream.SleepOr(ctx, a.wait, w.cut)
		in = input{kind: inputWaited}
	case askEnd:
		return w.t.watches.end(w)
	case askLose:
		w.t.watches.reports.lost(w.path)
		in = input{kind: inputLost}
	case askNothing, askLive, askAnnounce, askContinue: // run and heard see to those
	}
	return w.answer(ctx, &in)
}

// release gives up the slot and the connection.
func (w *watch) release() {
	w.t.slots.give(w)
	w.conn.Close()
}

// hide hides the consumers whose primary stream this is.
func (w *watch) hide(ctx context.Context, a fsm.Absence) {
	_ = w.t.insist(ctx, "gone", zap.String("stream", w.path), func() error {
		o, err := w.t.store.Hide(ctx, w.path, a)
		w.t.cfg.Outcomes.Follow(o, telling(w.path, "")) // an error may have come after some were removed
		return err
	})
}

// What others ask of the machine's state.

// partitions returns those that watch the stream, with the tail each was told.
func (w *watch) partitions() map[int]fsm.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := make(map[int]fsm.Offset, len(w.machine.parts))
	for _, p := range w.machine.parts {
		m[p.number] = p.tail
	}
	return m
}

// knowsAnother says whether a partition, as far as is known here, was told another tail than one that the store has
// noted in it, or none.
func (w *watch) knowsAnother(partition int, tail fsm.Offset) bool {
	told, watched := w.partitions()[partition]
	return !watched || told == "" || told != tail
}

// notedBeyond returns the tails beyond one that the store has noted in the partitions, as far as is known here.
func (w *watch) notedBeyond(tail fsm.Offset) map[int]fsm.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := map[int]fsm.Offset{}
	for _, p := range w.machine.parts {
		if p.noted.After(tail) {
			m[p.number] = p.noted
		}
	}
	return m
}

func (w *watch) hasLeftHome() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.atHome && w.machine.part(w.machine.home) == nil
}

func (w *watch) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.machine.parts) == 0
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
