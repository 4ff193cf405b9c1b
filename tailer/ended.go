package tailer

import (
	"context"
	"maps"
	"time"
)

// endedKept is how long a loop that has ended is remembered: longer than it takes to notice that the store has lost something.
const endedKept = 30 * time.Second

// recheck looks again at the streams of partitions in doubt whose loops have ended since a moment ago, for the others readAll does:
// that nobody was subscribed to them may be what the store has lost, and the next owner of their partition knows nothing of them.
func (ws *watches) recheck(ctx context.Context, doubts, checked map[int]int64) error {
	if maps.Equal(doubts, checked) {
		return nil
	}
	for _, path := range ws.strays() {
		home := ws.t.store.PartitionOf(path)
		if doubts[home] == checked[home] {
			continue
		}
		if err := ws.t.forgotten(ctx, path); err != nil {
			return err
		}
	}
	maps.Copy(checked, doubts)
	return nil
}

// doubts returns for each partition how often the store may have lost its latest changes, owned or not.
func (ws *watches) doubts() map[int]int64 {
	m := map[int]int64{}
	for partition := range ws.t.store.Partitions() {
		if n := ws.t.store.Ownership().Doubts(partition); n > 0 {
			m[partition] = n
		}
	}
	return m
}

// strays returns the streams that were watched in their home partition and are no more, since a moment ago.
func (ws *watches) strays() (paths []string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for path := range ws.ended {
		paths = append(paths, path)
	}
	for _, set := range []map[string]*watch{ws.byPath, ws.closed} {
		for path, w := range set {
			if w.hasLeftHome() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// forgetEnded drops what has ended too long ago. ws.mu is held.
func (ws *watches) forgetEnded() {
	maps.DeleteFunc(ws.ended, func(_ string, at time.Time) bool { return time.Since(at) > endedKept })
}

func (w *watch) hasLeftHome() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.atHome && w.parts[w.t.store.PartitionOf(w.path)] == nil
}
