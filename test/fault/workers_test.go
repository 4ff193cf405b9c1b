package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// How long a worker tries until it gives up as one that has crashed does, and how long it waits for one answer.
const (
	workerPatience = 30 * time.Second
	answerTimeout  = 2500 * time.Millisecond
)

// behaviour is what a worker does otherwise than by the book.
type behaviour struct {
	// status that every wake is answered with; 0 for the book's.
	status int
	// crash and stall are the chances that a worker says nothing any more once it has claimed, and that it pauses for
	// longer than the liveness timeout and then goes on as if nothing had happened.
	crash, stall float64
	// broken is the chance that a receiver answers with what is no proper HTTP, or ends a connection with its next
	// request; proxy that the proxy does not pass a request on.
	broken, proxy float64
	// linger is how long a synchronous worker takes at most from what it has read to its answer, and a receiver from
	// the arrival of a push.
	linger time.Duration
}

// subscription is a pattern and how its worker works.
type subscription struct {
	id, pattern string
	// sync workers read within the request and answer {"done":true}; others claim, ack and say done by callback.
	sync bool
	// further has workers subscribe to a second stream, of the same name in another folder.
	further bool
}

var subscriptions = []subscription{
	{id: "jobs", pattern: "/jobs/*"},
	{id: "chat", pattern: "/chat/*", sync: true},
	{id: "deep", pattern: "/chat/**"},
	{id: "files", pattern: "/files/*", further: true},
}

// matching returns the consumers that a stream has.
func matching(path string) []string {
	var ids []string
	for _, s := range subscriptions {
		if pattern, err := fsm.ParsePattern(s.pattern); err == nil && pattern.Matches(path) {
			ids = append(ids, fsm.ConsumerID(s.id, path))
		}
	}
	return ids
}

// sharedOf is the second stream of a consumer of /files/*.
func sharedOf(path string) string { return strings.Replace(path, "/files/", "/shared/", 1) }

// worker is the function that a subscription wakes.
type worker struct {
	subscription
	w      *world
	secret string
	// callbacks and streams are its clients.
	callbacks, streams *http.Client

	conduct
}

// conduct is how an endpoint behaves now.
type conduct struct {
	mu  sync.Mutex
	bad behaviour
}

func (c *conduct) behave(b behaviour) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad = b
}

func (c *conduct) behaviour() behaviour {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bad
}

func (w *world) startWorkers() {
	w.t.Helper()
	api := harness.NewClient(w.t, w.replicas[0].URL)
	for _, s := range subscriptions {
		k := &worker{
			subscription: s, w: w, callbacks: w.balanced(answerTimeout),
			streams: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}, Timeout: answerTimeout},
		}
		addr := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(w.t))
		ln, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", addr)
		if err != nil {
			w.t.Fatal(err)
		}
		server := &http.Server{Handler: k, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = server.Serve(ln) }()
		w.t.Cleanup(func() { _ = server.Close() })
		w.t.Cleanup(k.streams.CloseIdleConnections)
		k.secret = api.SubscribeURL(s.pattern, s.id, w.connect(linkWebhook, -1, addr).URL()+"/").Secret
		w.workers = append(w.workers, k)
	}
}

// ServeHTTP handles a wake.
func (k *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var wake harness.Payload
	if err != nil || json.Unmarshal(body, &wake) != nil {
		return // cut on the way
	}
	a := arrival{wakeRef: refOf(wake), Offsets: offsetsOf(wake.Streams), At: time.Now()}
	header := r.Header.Get("Webhook-Signature")
	verified := harness.VerifySignature(k.secret, header, body, a.At)
	if verified != nil {
		if err := harness.VerifySignature(k.secret, header, body, signedAt(header)); err != nil {
			a.Forged = err.Error()
		}
	}
	k.w.journal.arrived(a)
	b := k.behaviour()
	switch {
	case verified != nil:
		rw.WriteHeader(http.StatusUnauthorized)
	case b.status != 0:
		rw.WriteHeader(b.status)
	case k.sync:
		k.withinRequest(rw, wake, max(b.linger, 150*time.Millisecond))
	default:
		task := &task{k: k, wake: wake, ref: a.wakeRef, token: wake.Token, acked: a.Offsets}
		early := k.w.chance(0.3)
		if early && !task.claim() {
			return
		}
		k.w.busy.Go(func() {
			if early || task.claim() {
				task.work(b)
			}
		})
	}
}

func refOf(w harness.Payload) wakeRef { return wakeRef{w.ConsumerID, w.Epoch, w.WakeID} }

func offsetsOf(streams []harness.StreamOffset) map[string]fsm.Offset {
	m := map[string]fsm.Offset{}
	for _, s := range streams {
		m[s.Path] = fsm.Offset(s.Offset)
	}
	return m
}

// signedAt is the time that a signature claims to be of.
func signedAt(header string) time.Time {
	stamp, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	seconds, _ := strconv.ParseInt(stamp, 10, 64)
	return time.Unix(seconds, 0)
}

// withinRequest does all the work before it answers.
func (k *worker) withinRequest(rw http.ResponseWriter, wake harness.Payload, linger time.Duration) {
	ref := refOf(wake)
	for _, s := range wake.Streams {
		for from, more := fsm.Offset(s.Offset), true; more; {
			var ok bool
			if from, more, ok = k.read(ref, s.Path, from, workerPatience/3); !ok {
				rw.WriteHeader(http.StatusServiceUnavailable)
				return
			}
		}
	}
	// What is appended meanwhile must not count as read.
	k.w.pause(k.w.between(linger/2, linger))
	k.w.journal.answeredDone(syncDone{ref, time.Now()})
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, `{"done":true}`)
}

// read asks the stream server until there is an answer. more is false if it was the stream's end.
func (k *worker) read(ref wakeRef, path string, from fsm.Offset, patience time.Duration) (to fsm.Offset, more,
	ok bool,
) {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		header, body, status, err := k.w.request(k.streams, http.MethodGet,
			k.w.reader.URL()+path+"?offset="+string(from), "", nil)
		var events []event
		switch {
		case err == nil && status == http.StatusNotFound && strings.HasPrefix(path, "/shared/"):
			return from, false, true // subscribed to before it exists
		case err == nil && status == http.StatusOK && json.Unmarshal(body, &events) == nil:
			to = fsm.Offset(header.Get("Stream-Next-Offset"))
			r := reading{wakeRef: ref, Path: path, From: from, To: to, At: time.Now()}
			for _, e := range events {
				r.Events = append(r.Events, e.ID)
			}
			k.w.journal.read(r)
			return to, header.Get("Stream-Up-To-Date") != "true" && to != from, true
		}
		if !k.w.pause(k.w.between(20*time.Millisecond, 200*time.Millisecond)) {
			break
		}
	}
	return from, false, false
}

// request makes one request of JSON and reads the answer.
func (w *world) request(client *http.Client, method, url, token string, body any) (http.Header, []byte, int, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, nil, 0, err
		}
		reader = bytes.NewReader(text)
	}
	// Requests end with their client's time, also after the world has ended: what they do is noted.
	req, err := http.NewRequestWithContext(context.WithoutCancel(w.ctx), method, url, reader)
	if err != nil {
		return nil, nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	return res.Header, answer, res.StatusCode, err
}

// task is a wake that a worker works on by callbacks.
type task struct {
	k     *worker
	wake  harness.Payload
	ref   wakeRef
	token string
	// acked is where the streams stand, as the wake and the answers so far say.
	acked map[string]fsm.Offset
}

func (t *task) claim() bool {
	cb := harness.Callback{WakeID: t.ref.WakeID}
	if further := sharedOf(t.wake.PrimaryStream); t.k.further {
		if _, there := t.acked[further]; !there {
			cb.Subscribe = []string{further}
		}
	}
	return t.call(cb)
}

// work reads and acknowledges every stream to its end.
func (t *task) work(b behaviour) {
	w := t.k.w
	switch {
	case w.chance(b.crash):
		return
	case w.chance(b.stall):
		w.pause(livenessTimeout + time.Second)
	}
	final := harness.Callback{Done: true}
	for path, from := range t.acked {
		for more := true; more; {
			var ok bool
			if from, more, ok = t.k.read(t.ref, path, from, workerPatience/3); !ok {
				return
			}
			w.pause(w.between(0, 50*time.Millisecond))
			if from == fsm.Start {
				continue
			}
			ack := harness.StreamOffset{Path: path, Offset: string(from)}
			if !more && w.chance(0.3) {
				final.Acks = append(final.Acks, ack)
			} else if !t.call(harness.Callback{Acks: []harness.StreamOffset{ack}}) {
				return
			}
		}
	}
	t.call(final)
}

// contradicted says whether a stream ends, as the stream server itself says, before what was read of it, or may do so
// because the stream server does not answer. It is to be asked before the acks are sent: Reveille's own HEAD comes
// later, and tells of the same end or of one beyond it.
func (w *world) contradicted(acks []harness.StreamOffset) bool {
	for _, ack := range acks {
		res, err := w.direct.Try(w.ctx, http.MethodHead, ack.Path, "")
		if err != nil || res.Status != http.StatusOK ||
			fsm.Offset(ack.Offset).After(fsm.Offset(res.Header.Get("Stream-Next-Offset"))) {
			return true
		}
	}
	return false
}

// call sends a callback until it has a definite answer, and says whether that was a success.
func (t *task) call(cb harness.Callback) bool {
	w := t.k.w
	cb.Epoch = t.ref.Epoch
	c := &call{
		wakeRef: t.ref, Claim: cb.WakeID != "", Acks: offsetsOf(cb.Acks), Done: cb.Done,
		Contradicted: w.contradicted(cb.Acks),
	}
	w.journal.began(c)
	for until := time.Now().Add(workerPatience); time.Now().Before(until); {
		settle := w.journal.tried(c)
		header, body, status, err := w.request(t.k.callbacks, http.MethodPost, t.wake.Callback, t.token, cb)
		var a harness.CallbackAnswer
		switch {
		case err != nil || json.Unmarshal(body, &a) != nil || status >= http.StatusInternalServerError:
			settle(unknown, nil)
		case a.OK:
			streams := offsetsOf(a.Streams)
			settle(accepted, streams)
			t.token = a.Token
			if cb.WakeID != "" {
				// A repeated delivery of a wake begins where the one before it got to.
				t.acked = streams
			}
			return true
		default:
			settle(a.Error.Code, nil)
			if fsm.Code(a.Error.Code) != fsm.CodeTokenExpired {
				return false
			}
			t.token = a.Token
		}
		wait := w.between(50*time.Millisecond, 300*time.Millisecond)
		if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
			wait = time.Duration(seconds) * time.Second
		}
		if !w.pause(wait) {
			break
		}
	}
	return false
}
