package fault

import (
	"os"
	"path/filepath"
	"time"
)

// lossWindow is how much of its latest changes a Redis with appendfsync everysec may not have written yet when it is
// killed: while the disk is slow it waits for up to two seconds.
const lossWindow = 2 * time.Second

// withoutCreations runs f while no stream is created. A Redis that loses its latest changes may lose that a stream exists.
// The replica that made it known looks for it again after five seconds; but if it is killed as well, or more than that is lost,
// nobody can tell of the stream: limits that are left alone.
func (w *world) withoutCreations(f func()) {
	w.creating.Lock()
	defer w.creating.Unlock()
	w.pause(500 * time.Millisecond)
	f()
}

func killRedis(w *world, span time.Duration) {
	for range 2 {
		w.pause(span / 2)
		killed := time.Now()
		w.redis.Kill()
		w.pause(300 * time.Millisecond)
		w.redis.Restart()
		w.journal.mark(redisLost, killed.Add(-lossWindow), time.Now())
	}
	w.pause(span / 2)
}

// rewindRedis ends Redis and starts it with what it had a while before.
func rewindRedis(w *world, span, lost time.Duration) {
	w.pause(span / 3)
	from := time.Now()
	file, size := w.aofEnd()
	w.pause(lost)
	w.redis.Kill()
	if err := os.Truncate(file, size); err != nil {
		w.t.Errorf("take away the end of what redis wrote: %v", err)
	}
	w.redis.Restart()
	w.journal.mark(redisLost, from, time.Now())
	w.pause(span / 3)
}

func restoreBackup(w *world, span time.Duration) {
	w.withoutCreations(func() { rewindRedis(w, span, span/2) })
}

// aofEnd returns the file that Redis appends its changes to, and how long it is now.
func (w *world) aofEnd() (file string, size int64) {
	w.t.Helper()
	files, _ := filepath.Glob(filepath.Join(w.redis.Dir(), "appendonlydir", "*.incr.aof"))
	if len(files) != 1 {
		w.t.Fatalf("files that redis appends to: %v, want one", files)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return files[0], info.Size()
}
