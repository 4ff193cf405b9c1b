package fault

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
)

// settleTime is how long everything may take to come to rest once all works again: retries wait for up to 31 s, and
// workers for as long as they are patient, on a machine that may have no time for any of them.
const settleTime = 5 * time.Minute

// hiddenAfter is how long nothing has mended when the stream server is asked whether it hides events.
const hiddenAfter = 25 * time.Second

// settle waits until the checker has nothing to complain about that time may mend, or time is up, and returns its
// verdict. Writers must have ended.
func (w *world) settle(within time.Duration) verdict {
	w.t.Helper()
	began, healed := time.Now(), false
	w.operator.turnTo(clears)
	for {
		j := w.journal.copy()
		// An append without an answer may take place after its writer has ended.
		t := w.truth(j, w.finalStreams())
		v, last := check(j, t), time.Since(began) > within
		// That takes long, so it waits until all else is at rest.
		if (last || !mendable(v)) && w.askEvents(j, &t) {
			v = check(j, t)
		}
		if last || !mendable(v) || !w.pause(250*time.Millisecond) {
			return v
		}
		if !healed && time.Since(began) > min(hiddenAfter, within/3) && w.hidesEvents(v) {
			// It finds its count again at its start.
			progress("  the stream server says of each stream in question that it ends before what can be read of " +
				"it: it is restarted")
			_ = w.ref.Stop()
			w.ref.Restart()
			healed, began = true, time.Now()
		}
	}
}

// hidesEvents says whether everything that time has not mended is about streams that the stream server itself says end
// before what can be read of them, as the reference server does after an append that it refused though it was written:
// with a data directory it keeps a hundred files open, and fails appends to streams beyond. Nobody is told of such an
// event before the next one.
func (w *world) hidesEvents(v verdict) bool {
	hidden := map[string]bool{}
	heads := w.heads()
	for path, s := range w.finalStreams() {
		hidden[path] = heads[path] != "" && s.Tail.After(heads[path])
	}
	for _, x := range v.Violations {
		about := false
		for path, is := range hidden {
			about = about || is && strings.Contains(x.How+" ", path+" ") || is && strings.Contains(x.How, path+",")
		}
		if !about {
			return false
		}
	}
	return true
}

// heads returns where each stream ends by the stream server's answer to HEAD; empty if it gave none.
func (w *world) heads() map[string]fsm.Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	heads := map[string]fsm.Offset{}
	for _, s := range w.streams {
		if res, err := w.direct.Try(w.ctx, http.MethodHead, s.path, ""); err == nil && res.Status == http.StatusOK {
			heads[s.path] = fsm.Offset(res.Header.Get("Stream-Next-Offset"))
		}
	}
	return heads
}

func mendable(v verdict) bool {
	for _, x := range v.Violations {
		switch x.Rule {
		case ruleLost, ruleUndelivered, ruleLeft, ruleFinal, ruleOpen, ruleUntrue:
			return true
		case ruleGone:
			if strings.HasSuffix(x.How, "does not exist") {
				return true
			}
		}
	}
	return false
}

func (w *world) finalStreams() map[string]streamTruth {
	w.t.Helper()
	streams := map[string]streamTruth{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		events, tail := readAll(w.direct, s.path, "-1")
		streams[s.path] = streamTruth{events, fsm.Offset(tail)}
	}
	return streams
}

// truth puts together what is left to know at the end: consumers, and which events those streams owe that were
// subscribed to by callback.
func (w *world) truth(j *journal, streams map[string]streamTruth) truth {
	w.t.Helper()
	t := truth{
		Streams: streams, Pushed: map[string]fsm.Ordering{}, Consumers: map[string]fsm.Consumer{},
		Since: map[link][]string{}, Rates: ratesOf(),
	}
	for path := range streams {
		t.Expected = append(t.Expected, matching(path)...)
		maps.Copy(t.Pushed, pushedTo(path))
	}
	for _, id := range slices.Concat(t.Expected, slices.Collect(maps.Keys(t.Pushed))) {
		c, err := w.store.Consumer(w.t.Context(), fsm.ConsumerRef{ID: id, Home: primaryOf(id)})
		switch {
		case err == nil:
			t.Consumers[id] = c
		case !errors.Is(err, fsm.ErrNotFound):
			w.t.Logf("consumer %s: %v", id, err)
		}
	}
	t.Letters, t.Statuses = w.letters(), w.statuses()
	for l, from := range furtherFrom(j) {
		if s, there := streams[l.Path]; there && s.Tail != "" {
			t.Since[l], _ = readAll(w.direct, l.Path, string(from))
		}
	}
	return t
}

// furtherFrom returns the offset from which each stream that was subscribed to by callback has to be read: the lowest
// that Reveille told. One that Redis has lost counts from when it was made again: what was told before Redis was back
// may be of that.
func furtherFrom(j *journal) map[link]fsm.Offset {
	var lost time.Time
	for _, m := range j.Marks {
		if m.Kind == redisLost && m.To.After(lost) {
			lost = m.To
		}
	}
	from := map[link]fsm.Offset{}
	tell := func(consumer string, offsets map[string]fsm.Offset, at time.Time) {
		if at.Before(lost) {
			return
		}
		for path, o := range offsets {
			l := link{consumer, path}
			if old, there := from[l]; path != primaryOf(consumer) && (!there || old.After(o)) {
				from[l] = o
			}
		}
	}
	for _, a := range j.Arrivals {
		tell(a.Consumer, a.Offsets, a.At)
	}
	for _, c := range j.Calls {
		if t := c.accepted(); t != nil {
			tell(c.Consumer, t.Offsets, t.Sent)
		}
	}
	return from
}

// logs returns what the processes wrote, for looking at after a violation.
func (w *world) logs() map[string]string {
	logs := map[string]string{"stream server": w.ref.Log()}
	for i, r := range w.replicas {
		logs[w.named(i)] = r.Log()
	}
	if w.redis != nil {
		logs["redis"] = w.redis.Log()
	}
	if w.cluster != nil {
		for i, n := range w.cluster.Nodes {
			logs[fmt.Sprintf("redis %d", i)] = n.Log()
		}
	}
	return logs
}
