package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
)

// eventStart is what each event begins with: its number in its stream follows.
const eventStart = `{"n":`

// eventsOf is an array of events, numbered from n on.
func eventsOf(n, batch int) string {
	events := make([]string, batch)
	for i := range events {
		events[i] = eventStart + strconv.Itoa(n+i) +
			`,"order":"5f0c1e7a-1007","state":"paid","total":{"currency":"EUR","cents":129900}}`
	}
	return "[" + strings.Join(events, ",") + "]"
}

// pushed is a request that came to a receiver.
type pushed struct {
	// first is the number of its first event, n how many it has; a wake of the floor's has none.
	first, n int
	at       time.Time
	// answered is closed once the answer is as good as sent.
	answered <-chan struct{}
}

// receiver is an endpoint that takes pushes, and what the floor sends, and tells the writer of the stream.
type receiver struct {
	url string
	// waiting has a channel for each stream; it is not changed while requests come.
	waiting map[string]chan pushed
	// came counts all requests.
	came atomic.Int64
}

func newReceiver(t *testing.T, paths []string) *receiver {
	r := &receiver{waiting: map[string]chan pushed{}}
	for _, path := range paths {
		r.waiting[path] = make(chan pushed, 2000)
	}
	server := httptest.NewServer(r)
	r.url = server.URL + "/hook"
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	answered := make(chan struct{})
	defer close(answered)
	r.came.Add(1)
	body, err := io.ReadAll(req.Body)
	p := pushed{at: time.Now(), answered: answered}
	path := cmp.Or(req.Header.Get("Reveille-Stream"), req.Header.Get("X-Webhook-Event"))
	if path == "" && err == nil {
		var wake struct {
			Stream string `json:"primary_stream"`
		}
		err = json.Unmarshal(body, &wake)
		path = wake.Stream
	}
	if err != nil {
		return // its sender died
	}
	if p.n = bytes.Count(body, []byte(eventStart)); p.n > 0 {
		_, number, _ := strings.Cut(string(body[:min(len(body), 40)]), eventStart)
		number, _, _ = strings.Cut(number, ",")
		p.first, _ = strconv.Atoi(number)
	}
	if c, there := r.waiting[path]; there {
		c <- p
	}
	w.WriteHeader(http.StatusNoContent)
}

// measurePush puts a load on the world whose events are pushed.
func (w *world) measurePush(l load) measured {
	w.t.Helper()
	under := prefix()
	paths := make([]string, l.streams)
	for i := range paths {
		paths[i] = fmt.Sprintf("%s/%d", under, i)
	}
	r := newReceiver(w.t, paths)
	ordering := fsm.OrderingStream
	if w.system == unordered {
		ordering = fsm.OrderingNone
	}
	if w.system == handed {
		return w.writes(l, r, paths)
	}
	_, err := w.ask(http.MethodPut, w.api[0]+under+"/*?subscription="+under[1:],
		fmt.Sprintf(`{"mode":"push","webhook":%q,"batch":%d,"ordering":%q}`, r.url, l.batch, ordering), "")
	w.check(err)
	w.check(w.each(l.streams, func(i int) error { return w.create(i, paths[i]) }))
	return w.writes(l, r, paths)
}

// writes has a writer for each of some streams, whose events a receiver gets.
func (w *world) writes(l load, r *receiver, paths []string) measured {
	w.t.Helper()
	writers := make([]pushWriter, l.streams)
	w.check(w.each(l.streams, func(i int) error {
		writers[i] = pushWriter{
			w: w, load: l, number: i, path: paths[i], pushes: r.waiting[paths[i]], target: fmt.Sprint(r.url, "/", i),
		}
		err := writers[i].turn() // the stream is watched when its first events have come
		writers[i].measured = measured{}
		return err
	}))
	if !pause(w.ctx, l.settle) {
		w.t.SkipNow()
	}
	if l.before != nil {
		l.before()
	}
	var wg sync.WaitGroup
	failures := make([]error, l.streams)
	before, began := w.cpu(), time.Now()
	for i := range writers {
		wg.Go(func() {
			for failures[i] == nil && time.Since(began) < l.span {
				failures[i] = writers[i].turn()
			}
		})
	}
	wg.Wait()
	all := measured{took: time.Since(began), cpu: since(before, w.cpu())}
	w.check(errors.Join(failures...))
	for i := range writers {
		all.add(writers[i].measured)
	}
	return all
}

// pushWriter appends events to a stream, and waits for them.
type pushWriter struct {
	measured
	w      *world
	load   load
	number int
	path   string
	pushes <-chan pushed
	// target is the URL that events are handed over for.
	target string
	// next is the number of the next event.
	next int
}

// put appends events, or hands one over, whose type is then the path.
func (p *pushWriter) put(events string) error {
	if p.w.system != handed {
		_, err := p.w.append(p.number, p.path, events)
		return err
	}
	_, err := p.w.ask(http.MethodPost, p.w.api[0]+"/webhooks/deliver", fmt.Sprintf(
		`{"target_url":%q,"event_type":%q,"payload":%s}`, p.target, p.path, strings.Trim(events, "[]")), "")
	return err
}

// turn appends a batch and waits until all of it was received. What has not come is lost once something later has, or
// when patience ends.
func (p *pushWriter) turn() error {
	began := time.Now()
	if err := p.put(eventsOf(p.next, p.load.batch)); err != nil {
		return err
	}
	due, end := p.next, p.next+p.load.batch
	p.next = end
	timeout := time.NewTimer(p.load.patience)
	defer timeout.Stop()
	for due < end {
		select {
		case got := <-p.pushes:
			switch {
			case got.n == 0: // the floor's, for all of them
				due = end
			case got.first < due:
				p.strays++
			default:
				p.lost += got.first - due
				due = got.first + got.n
			}
			if due >= end {
				p.delays = append(p.delays, got.at.Sub(began))
				<-got.answered
			}
		case <-timeout.C:
			p.lost += end - due
			return nil
		case <-p.w.ctx.Done():
			return p.w.ctx.Err()
		}
	}
	p.turns = append(p.turns, time.Since(began))
	return nil
}
