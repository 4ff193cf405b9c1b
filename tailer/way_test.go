package tailer

import (
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"reveille/fsm/spec/memstore"
)

// handsMax bounds the functions through which a write goes from the gateway to the store. Written and add come before
// the queue. The last one is the store's own.
const handsMax, handsBefore, handsOfStore = 8, 2, 1

func TestAWriteGoesOneWayFromTheQueueToTheStore(t *testing.T) {
	r := newRig(t)
	r.store.Own() // a watch would tell the store by itself
	r.start()
	r.subscribe("s", "/**")
	var mu sync.Mutex
	ways := map[string][]string{}
	r.store.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if way := wayFromTheQueue(); way != nil {
			mu.Lock()
			defer mu.Unlock()
			ways[strings.Join(way, " ")+" "+c.Method] = way
		}
		return nil
	}})
	r.put("/a")
	r.done(r.wake("/a", 1))
	r.post("/a", "1")
	r.wake("/a", 2)
	mu.Lock()
	defer mu.Unlock()
	told := 0
	for name, way := range ways {
		var packages []string
		for _, f := range way {
			packages = append(packages, f[:strings.Index(f, ".")])
		}
		if packages = slices.Compact(packages); len(packages) > 2 || packages[0] != "discovery" {
			t.Errorf("it returns to a package: %s", name)
		}
		if n := handsBefore + len(way) + handsOfStore; n > handsMax {
			t.Errorf("it goes through %d functions: %s", n, name)
		}
		if strings.HasSuffix(name, " Observe") {
			told++
		}
	}
	if told != 2 { // with and without a link to make first
		t.Errorf("the store is told on these ways: %q", slices.Collect(maps.Keys(ways)))
	}
}

// wayFromTheQueue returns the functions of the caller that lead from the queue's worker to the store, the outermost
// first; nil for another caller.
func wayFromTheQueue() (way []string) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, "reveille/tailer") && !strings.HasSuffix(f.File, "_test.go") {
			way = append(way, path.Base(f.Function)) // package and function
		}
	}
	slices.Reverse(way)
	if len(way) == 0 || !strings.Contains(way[0], "(*queue).work") {
		return nil
	}
	return way
}
