package tailer

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// watch is the loop that watches one stream, for all the partitions whose consumers are subscribed to it.
type watch struct {
	t    *Tailer
	path string
	// poke asks the loop to look at its stream now: a consumer came to rest, a partition was added or dropped.
	poke chan struct{}
	// line is the loop's own.
	line line

	mu sync.Mutex
	// live is the live request under way, or nil.
	live *live
	// quiet is since when the stream is silent.
	quiet time.Time
	// roused is true if something has happened to the stream since the loop last asked for a live slot.
	roused bool
	// displaced is true if the loop's live slot went to another stream.
	displaced bool
	// generation counts the calls that wanted the stream watched. An end that was decided on before one of them is void.
	generation int64
	// rests counts the consumers that came to rest. What an observation said about busyness before one of them is void.
	rests int64
	// doubts counts the calls of distrust. What an observation begun before one of them told the store is not relied on.
	doubts int64
	// deletions counts those of the stream that were dealt with. What an observation begun before one of them noted is another stream's.
	deletions int64
	parts     map[int]*part
	// atHome is true once it has watched for the home partition of its stream.
	atHome bool
	// pausing is true while the loop waits because everybody is busy; it looks with HEAD when that is over.
	pausing bool
	// away is true while upstream says that there is no such stream.
	away bool
	// disowned is true if another replica watches for the last partition that was dropped.
	disowned bool

	// mode is the loop's own.
	mode mode
	// closed is when the loop ended because the stream was closed; of the set of loops.
	closed time.Time
}

// part is what this process knows of a stream in one partition.
type part struct {
	generation int64
	// tail is the highest that the store was told; empty if it has to be told again.
	tail fsm.Offset
	// noted is the tail that the store had noted when it was last told one.
	noted fsm.Offset
	// telling is the call under way that tells it one, or nil.
	telling *tellingTail
	// busy is true if the last observation said that further events would wake nobody.
	busy bool
}

// stamp is the state that an observation was begun in.
type stamp struct{ generation, rests, doubts, deletions int64 }

func newWatch(t *Tailer, path string) *watch {
	return &watch{t: t, path: path, line: line{tls: t.cfg.TLS}, poke: make(chan struct{}, 1), parts: map[int]*part{}}
}

// prod asks the loop to look at its stream now. A live request is stopped for it only if there is something to be told. w.mu is held.
func (w *watch) prod() {
	signal(w.poke)
	if w.live != nil && w.untold() {
		w.live.stop(look)
	}
}

// prodded is prod.
func (w *watch) prodded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prod()
}

// untold says whether a look is due: a partition was added or is to be told again, or none is left. w.mu is held.
func (w *watch) untold() bool {
	for _, p := range w.parts {
		if p.tail == "" {
			return true
		}
	}
	return len(w.parts) == 0
}

// isHome says whether the home partition of its stream watches it, which has the consumers that patterns have made.
func (w *watch) isHome() bool {
	_, ok := w.partitions()[w.t.store.PartitionOf(w.path)]
	return ok
}

func (w *watch) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.parts) == 0
}

// displace is: the loop's live slot went to another stream (true), or it has one again.
func (w *watch) displace(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.displaced = is; is && w.live != nil {
		w.live.stop(look)
	}
}

// add has the stream watched in a partition.
func (w *watch) add(partition int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.generation++
	p := w.parts[partition]
	if p == nil {
		p = &part{}
		w.parts[partition] = p
	}
	w.atHome = w.atHome || partition == w.t.store.PartitionOf(w.path)
	w.disowned = false
	p.generation++
	if p.tail == "" {
		w.prod()
	}
}

// drop ends the watching in a partition unless somebody asked for it since the stamp.
func (w *watch) drop(partition int, generation int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.parts[partition]; p != nil && p.generation == generation {
		delete(w.parts, partition)
		w.prod()
	}
}

// disown ends the watching for a partition that another replica watches for from now on.
func (w *watch) disown(partition int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.parts, partition)
	w.disowned = true
	w.prod()
}

func (w *watch) isDisowned() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disowned
}

func (w *watch) stamp(partition int) stamp {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := stamp{rests: w.rests, doubts: w.doubts, deletions: w.deletions}
	if p := w.parts[partition]; p != nil {
		s.generation = p.generation
	}
	return s
}

// seen takes in what the store made of a tail.
func (w *watch) seen(partition int, s stamp, tail fsm.Offset, obs fsm.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parts[partition]
	switch {
	case p == nil:
	case !obs.Watched && p.generation == s.generation:
		delete(w.parts, partition)
	case !obs.Watched:
		// Somebody subscribed since: the store noted for them what they knew, which may be less.
		p.tail, p.busy = "", false
		w.prod()
	default:
		if tail.After(p.tail) && w.doubts == s.doubts {
			p.tail = tail
		}
		if w.deletions == s.deletions {
			p.noted = obs.Tail
		}
		p.busy = obs.Busy && len(obs.Wakes) == 0 && w.rests == s.rests
	}
}

// distrust makes the next look tell the store the tail again, in one partition or (-1) in all.
func (w *watch) distrust(partition int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts++
	for n, p := range w.parts {
		if n == partition || partition < 0 {
			p.tail, p.busy = "", false
		}
	}
}

// deleted is: the consumers of the stream are removed, and with them what the store had noted. One of that name is a new one.
func (w *watch) deleted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deletions++
	for _, p := range w.parts {
		p.noted = ""
	}
}

// rested is: a consumer of the stream came to rest.
func (w *watch) rested() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rests++
	for _, p := range w.parts {
		p.busy = false
	}
	w.prod()
}

// rouse has the stream preferred among those that want a live slot: something has just happened to it, and more may well follow.
func (w *watch) rouse() {
	if w.t.slots.touch(w) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roused = true
	signal(w.poke)
}

// wasRoused says whether the stream was roused since that was last asked.
func (w *watch) wasRoused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.roused
	w.roused = false
	return was
}

// partitions returns those that watch the stream, with the tail each was told.
func (w *watch) partitions() map[int]fsm.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := make(map[int]fsm.Offset, len(w.parts))
	for n, p := range w.parts {
		m[n] = p.tail
	}
	return m
}

// notedBeyond returns the tails beyond one that the store has noted in the partitions, as far as this process knows.
func (w *watch) notedBeyond(tail fsm.Offset) map[int]fsm.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := map[int]fsm.Offset{}
	for n, p := range w.parts {
		if p.noted.After(tail) {
			m[n] = p.noted
		}
	}
	return m
}

// untoldOf says whether a partition, as far as this process knows, was not told a tail that the store has noted in it.
func (w *watch) untoldOf(partition int, tail fsm.Offset) bool {
	told, watched := w.partitions()[partition]
	return !watched || told == "" || told != tail
}

func (w *watch) asked() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

func (w *watch) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		if !p.busy {
			return false
		}
	}
	return len(w.parts) > 0
}

// run watches until nobody is subscribed to the stream any more, or it is closed and at its end.
func (w *watch) run(ctx context.Context) {
	cfg := &w.t.cfg
	defer w.letGo()
	defer w.is(modeNone)
	failures := growing{least: cfg.BackoffMin, most: cfg.Check}
	pace := growing{least: cfg.PaceMin, most: cfg.PaceMax}
	quiet := growing{least: cfg.TTLFast, most: cfg.Check}
	var at position
	var turn time.Time
	failed, wasGone := false, false
	for ctx.Err() == nil {
		asked := w.asked()
		info, err := w.head(ctx)
		if err == nil && info.Exists && wasGone {
			if w.carriesOn(info.Tail) {
				w.t.health.wavered()
			}
			err = w.t.returned(ctx, w.path, info.Tail)
			wasGone = err != nil
		}
		if err == nil && info.Exists {
			info, err = w.note(ctx, info)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.is(modeFailing)
			w.t.log.Debug("a stream could not be looked at", zap.String("stream", w.path), zap.Error(err))
			sleep(ctx, jitter(failures.next()))
			continue
		case !info.Exists:
			w.letGo()
			if info, err = w.t.HeadAnew(ctx, w.path); err != nil || info.Exists {
				// One that contradicts itself is not asked at full speed.
				sleep(ctx, jitter(failures.next()))
				continue
			}
			if w.gone(ctx, asked) {
				return
			}
			at, wasGone = position{}, true
			continue
		}
		if !failed {
			failures.reset()
		}
		if w.t.watches.endUnwatched(w) {
			return
		}
		if info.Closed {
			// It is at its end and has nothing to show any more, but to whoever asked for it meanwhile.
			if w.t.watches.endClosed(w, asked) {
				return
			}
			continue
		}
		moved := at.moved || at.offset != "" && at.offset != info.Tail
		at.offset, at.moved = info.Tail, false
		switch {
		case moved && w.pause(ctx, &pace):
			continue
		case info.TTL:
			// A read would keep the stream alive.
			w.letGo()
			w.is(modeHeadOnly)
			if moved {
				quiet.reset()
			}
			sleepOr(ctx, jitter(quiet.next()), w.poke)
			continue
		case !w.t.slots.take(w, w.wasRoused() || moved):
			w.line.hangUp()
			w.is(modeSweep)
			// A turn that a poke has cut short is still to come: one that is given up would cost all the others.
			if now := time.Now(); !turn.After(now) {
				turn = now.Add(w.t.sweep.turn())
			}
			sleepOr(ctx, max(jitter(cfg.Check), time.Until(turn)), w.poke)
			continue
		case failed:
			// HEAD works: it bounds what a request that always fails can cost.
			w.is(modeFailing)
			sleep(ctx, jitter(failures.next()))
		}
		w.is(modeLive)
		err = w.follow(ctx, &at, &pace, &failures)
		failed = err != nil
		if failed && ctx.Err() == nil {
			w.t.log.Debug("a live request failed", zap.String("stream", w.path), zap.Error(err))
		}
	}
}

// letGo gives up what a loop holds that makes live requests.
func (w *watch) letGo() {
	w.t.slots.give(w)
	w.line.hangUp()
}

// head is a HEAD in its turn among all the loops'.
func (w *watch) head(ctx context.Context) (fsm.StreamInfo, error) { return w.t.look(ctx, w.path) }

var errSpinning = errors.New("upstream answers live requests at once without anything new")
