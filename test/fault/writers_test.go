package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"reveille/test/harness"
)

// The workload: so many streams in the beginning, and writers, each with streams of its own.
const (
	firstStreams = 20
	writers      = 4
	// A writer's appends are so far apart, at random.
	minGap, maxGap = 10 * time.Millisecond, 160 * time.Millisecond
	// A new stream is created so long after the one before, and that much later for each that there is: a long run has
	// more events and not ever fewer of them in each stream.
	newStreamAfter, newStreamSlower = 300 * time.Millisecond, 10 * time.Millisecond
	writeTimeout                    = 3 * time.Second
	// maxStreams is how many streams there are at most, with those of direct deliveries: the reference server keeps a
	// hundred files open, and of the appends to streams beyond it refuses some that it has written.
	maxStreams = 96
	// creationPatience bounds how long the creation of a stream is tried.
	creationPatience = 5 * time.Minute
)

var folders = []string{"/jobs/%d", "/chat/%d", "/chat/%d/log", "/files/%d", "/shared/%d"}

type event struct {
	ID string `json:"id"`
}

// stream is one that writers append to.
type stream struct {
	path string
	// owner is the writer that appends to it; n counts its appends.
	owner, n int
}

// load creates the first streams and starts the writers, and the clients that hand events over. They have ended when
// stop returns.
func (w *world) load() (stop func()) {
	w.t.Helper()
	for range firstStreams {
		w.createNext()
	}
	w.mu.Lock()
	if len(w.streams) < firstStreams {
		w.mu.Unlock()
		w.t.Fatal("the first streams could not be created")
	}
	w.mu.Unlock()
	w.fillLanes()
	ending := make(chan struct{})
	var running sync.WaitGroup
	run := func(every func() time.Duration, do func()) {
		running.Add(1)
		w.busy.Go(func() {
			defer running.Done()
			for {
				select {
				case <-ending:
					return
				case <-w.ctx.Done():
					return
				case <-time.After(every()):
					do()
				}
			}
		})
	}
	for owner := range writers {
		client := w.writerClient()
		run(func() time.Duration {
			gap := w.between(minGap, maxGap)
			if w.options.calm {
				gap *= 10
			}
			return gap
		}, func() { w.append(client, owner) })
	}
	if len(w.targets) > 0 {
		for range senders {
			client := w.senderClient()
			run(func() time.Duration { return w.between(minHandGap, maxHandGap) }, func() { w.handOver(client) })
		}
	}
	run(func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		return newStreamAfter + time.Duration(len(w.streams))*newStreamSlower
	}, w.createNext)
	return func() {
		close(ending)
		running.Wait()
	}
}

func (w *world) writerClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second},
		Timeout:   writeTimeout,
	}
}

// append appends an event to one of a writer's streams, straight or through a replica. It is not tried again: an append
// whose answer was lost may have happened.
func (w *world) append(client *http.Client, owner int) {
	w.mu.Lock()
	var mine []*stream
	for _, s := range w.streams {
		if s.owner == owner {
			mine = append(mine, s)
		}
	}
	if len(mine) == 0 {
		w.mu.Unlock()
		return
	}
	s := mine[w.rnd.IntN(len(mine))]
	s.n++
	id := fmt.Sprintf("%d", s.n)
	root := w.writer.URL()
	if w.rnd.IntN(2) == 0 {
		root = w.api[w.rnd.IntN(replicas)].URL()
	}
	w.mu.Unlock()
	sent := time.Now()
	_, _, status, err := w.request(client, http.MethodPost, root+s.path, "", event{ID: id})
	w.journal.appended(written{Path: s.path, Event: id, Sent: sent, OK: err == nil && status < 300})
}

// createNext creates a stream: through a replica, or straight and named to the operator port of one. Nobody appends to
// it until that has been confirmed.
func (w *world) createNext() {
	w.creating.Lock()
	defer w.creating.Unlock()
	client := w.writerClient()
	defer client.CloseIdleConnections()
	w.mu.Lock()
	if len(w.streams)+2 > maxStreams-len(w.targets)*outboxLanes {
		w.mu.Unlock()
		return
	}
	n := w.rnd.IntN(1 << 30)
	path := fmt.Sprintf(folders[w.rnd.IntN(len(folders))], n)
	named := w.rnd.IntN(2) == 0
	owner := w.rnd.IntN(writers)
	w.mu.Unlock()
	all := []string{path}
	if strings.HasPrefix(path, "/files/") {
		all = append(all, sharedOf(path))
	}
	for _, p := range all {
		if !w.create(client, p, named) {
			return
		}
		w.mu.Lock()
		w.streams = append(w.streams, &stream{path: p, owner: owner})
		w.mu.Unlock()
	}
}

func (w *world) create(client *http.Client, path string, named bool) bool {
	until := time.Now().Add(creationPatience)
	insist := func(url func() string, method string, body any) bool {
		for time.Now().Before(until) {
			_, _, status, err := w.request(client, method, url(), "", body)
			if err == nil && status < 300 {
				return true
			}
			if !w.pause(100 * time.Millisecond) {
				return false
			}
		}
		return false
	}
	if named {
		return insist(func() string { return w.writer.URL() + path }, http.MethodPut, nil) &&
			insist(func() string { return w.replicas[w.random(replicas)].Operator + "/api/v1/streams" },
				http.MethodPost, map[string][]string{"streams": {path}})
	}
	return insist(func() string { return w.api[w.random(replicas)].URL() + path }, http.MethodPut, nil)
}

// readAll reads a stream from an offset to its end, past all links.
func readAll(c *harness.Client, path, from string) (events []string, tail string) {
	messages, tail := c.Read(path, from)
	for _, m := range messages {
		var e event
		if err := json.Unmarshal(m, &e); err == nil {
			events = append(events, e.ID)
		}
	}
	return events, tail
}
