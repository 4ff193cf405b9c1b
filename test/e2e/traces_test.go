package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"reveille/test/harness"
)

// otlpSecret is a credential of the collector, which must turn up nowhere.
const otlpSecret = "hunter2-of-the-collector"

// webhookKey is one that a webhook's URL carries.
const webhookKey = "hunter2-of-the-webhook"

// tracedWorker is a worker that is traced itself: its spans hang in those of the wakes that it gets, and its callbacks
// carry them.
type tracedWorker struct {
	*harness.Worker
	t      *testing.T
	tracer trace.Tracer

	mu sync.Mutex
	// failing is how many deliveries it refuses first.
	failing int
	work    context.Context
	span    trace.Span
}

func startTracedWorker(t *testing.T, c *collector, failing int) *tracedWorker {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "worker"))))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	w := &tracedWorker{Worker: harness.NewWorker(t), t: t, tracer: provider.Tracer("worker"), failing: failing}
	w.Answer(w.deliver)
	return w
}

func (w *tracedWorker) deliver(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing > 0 {
		w.failing--
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
	w.work, w.span = w.tracer.Start(ctx, "work", trace.WithSpanKind(trace.SpanKindServer))
	rw.WriteHeader(http.StatusAccepted)
}

// callback sends a callback from within the worker's span, to one of the replicas.
func (w *tracedWorker) callback(to *harness.Client, wake harness.Wake, cb harness.Callback) {
	w.t.Helper()
	h := http.Header{}
	// its wake counts as there before it is answered
	harness.Eventually(w.t, soon, "the worker is at it", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.work == nil {
			return errors.New("it has not begun")
		}
		propagation.TraceContext{}.Inject(w.work, propagation.HeaderCarrier(h))
		return nil
	})
	send(w.t, to, wake, cb, h.Get("Traceparent"))
}

func send(t *testing.T, to *harness.Client, wake harness.Wake, cb harness.Callback, traceparent string) {
	t.Helper()
	body, err := json.Marshal(cb)
	if err != nil {
		t.Fatal(err)
	}
	res := to.Do(http.MethodPost, wake.Callback[strings.Index(wake.Callback, "/callback/"):], string(body),
		"Content-Type", "application/json", "Authorization", "Bearer "+wake.Token, "Traceparent", traceparent)
	if res.Status != http.StatusOK {
		t.Fatalf("a callback was answered %d %s", res.Status, res.Body)
	}
}

func (w *tracedWorker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.span.End()
}

// exported waits until the trace of a wake has so many spans of a name.
func exported(t *testing.T, c *collector, wakeID, name string, n int) {
	t.Helper()
	harness.Eventually(t, soon, "the span "+name, func() error {
		if spans := c.of(wakeID); len(named(spans, name)) < n {
			return fmt.Errorf("there are not %d of it in %s", n, tree(spans))
		}
		return nil
	})
}

// within fails the test unless a span lies in another one.
func within(t *testing.T, s, of span) {
	t.Helper()
	if s.start.Before(of.start) || s.end.After(of.end) {
		t.Errorf("%s (%s to %s) is not within %s (%s to %s)", s.name, s.start, s.end, of.name, of.start, of.end)
	}
}

// attributed fails the test unless a span has these attributes.
func attributed(t *testing.T, s span, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if s.attributes[k] != v {
			t.Errorf("%s has %s=%q, want %q: %v", s.name, k, s.attributes[k], v, s.attributes)
		}
	}
}

func TestAWakeIsOneTrace(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	e := beside(t, options{settings: map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "20",
		"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20" + otlpSecret,
	}})
	w := startTracedWorker(t, c, 1)
	id := name(t)
	path := "/" + id + "/a"
	sub := e.gateway.SubscribeURL("/"+id+"/*", id, w.URL+"?key="+webhookKey)
	w.Trust(id, sub.Secret)
	tail := e.gateway.Create(path)
	wake := w.Wake(2)
	// The answer's end is its sender's to see, and the done must come after it.
	exported(t, c, wake.WakeID, "deliver", 2)
	w.callback(e.gateway, wake, wake.Claim(false))
	w.callback(e.gateway, wake,
		harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{{Path: path, Offset: tail}}, Done: true})
	w.end()
	exported(t, c, wake.WakeID, "wake", 1)
	exported(t, c, wake.WakeID, "work", 1)
	spans := c.of(wake.WakeID)
	t.Logf("the trace:\n%s", tree(spans))

	roots, sights, deliveries := named(spans, "wake"), named(spans, "observe"), named(spans, "deliver")
	callbacks, work := named(spans, "callback"), named(spans, "work")
	if len(spans) != 7 || len(roots) != 1 || len(sights) != 1 || len(deliveries) != 2 || len(callbacks) != 2 ||
		len(work) != 1 {
		t.Fatalf("want one wake, one observe, two deliver, two callback and one work, got %s", tree(spans))
	}
	root := roots[0]
	if root.parent != "" {
		t.Errorf("the wake has the parent %s", root.parent)
	}
	for _, s := range []span{sights[0], deliveries[0], deliveries[1]} {
		if s.parent != root.id {
			t.Errorf("%s hangs in %s, not in the wake %s", s.name, s.parent, root.id)
		}
	}
	if work[0].parent != deliveries[1].id {
		t.Errorf("the worker's span hangs in %s, not in the delivery %s", work[0].parent, deliveries[1].id)
	}
	for _, s := range callbacks {
		if s.parent != work[0].id {
			t.Errorf("a callback hangs in %s, not in the worker's span %s", s.parent, work[0].id)
		}
	}
	for _, s := range spans {
		if s.service == "reveille" {
			within(t, s, root)
		}
	}
	if deliveries[0].end.After(deliveries[1].start) || sights[0].end.After(deliveries[0].start) {
		t.Error("observation and deliveries are not one after the other")
	}
	consumer := map[string]string{
		"reveille.consumer": wake.ConsumerID, "reveille.wake_id": wake.WakeID, "reveille.epoch": fmt.Sprint(wake.Epoch),
	}
	for _, s := range spans {
		if s.service == "reveille" {
			attributed(t, s, consumer)
		}
	}
	attributed(t, root,
		map[string]string{"reveille.wake.end": "done", "reveille.stream": path, "reveille.subscription": id})
	attributed(t, sights[0], map[string]string{"reveille.stream": path})
	port, _, _ := strings.Cut(w.URL[strings.LastIndex(w.URL, ":")+1:], "/")
	attributed(t, deliveries[0], map[string]string{
		"reveille.attempt": "1", "reveille.outcome": "failed", "http.response.status_code": "500", "error.type": "500",
		"server.address": "127.0.0.1", "server.port": port,
	})
	attributed(t, deliveries[1],
		map[string]string{"reveille.attempt": "2", "reveille.outcome": "accepted", "http.response.status_code": "202"})
	attributed(t, callbacks[0], map[string]string{
		"reveille.callback.claim": "true", "reveille.callback.done": "false", "reveille.callback.acks": "0",
		"http.response.status_code": "200",
	})
	attributed(t, callbacks[1], map[string]string{
		"reveille.callback.claim": "false", "reveille.callback.done": "true", "reveille.callback.acks": "1",
		"http.response.status_code": "200",
	})
	if deliveries[0].status.GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		deliveries[1].status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the first delivery has the status %v, the second %v", deliveries[0].status, deliveries[1].status)
	}
	if deliveries[0].kind != tracepb.Span_SPAN_KIND_CLIENT || callbacks[0].kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("deliveries are %v and callbacks %v", deliveries[0].kind, callbacks[0].kind)
	}
	t.Run("and tells no secrets", func(t *testing.T) {
		text := tree(c.everything()) + e.rev.Log()
		for what, secret := range map[string]string{
			"the subscription's secret": sub.Secret, "a callback token": wake.Token, "the webhook's key": webhookKey,
			"the collector's credential": otlpSecret,
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in a span or in the log", what)
			}
		}
		if !slices.ContainsFunc(c.sent(),
			func(h http.Header) bool { return h.Get("Authorization") == "Bearer "+otlpSecret }) {
			t.Error("the collector did not get its credential")
		}
	})
	t.Run("and a callback from within another trace hangs in the wake and has a link", func(t *testing.T) {
		const other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		send(t, e.gateway, wake, harness.Callback{Epoch: wake.Epoch}, other)
		exported(t, c, wake.WakeID, "callback", 3)
		s := named(c.of(wake.WakeID), "callback")[2]
		if want := strings.ReplaceAll(other[3:len(other)-3], "-", " "); s.parent != root.id || len(s.links) != 1 ||
			s.links[0] != want {
			t.Errorf("it hangs in %q and has the links %v, want %s and %s", s.parent, s.links, root.id, want)
		}
	})
}

// TestTracesOfPushesHoldNoSecrets has an endpoint repeat what it gets: in an answer that fails, in one that is no HTTP,
// and after one that has no body. The collector searches the spans for events, and for what the subscription keeps
// secret.
func TestTracesOfPushesHoldNoSecrets(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	e := beside(t, options{settings: map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "20",
	}})
	var requests atomic.Int32
	begins := []string{
		"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n", "",
		"HTTP/1.1 307 Temporary Redirect\r\nLocation: ",
		"HTTP/1.1 204 No Content\r\n\r\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := httputil.DumpRequest(r, true)
		if err != nil {
			return // ended on the way
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		n := min(int(requests.Add(1)), len(begins))
		_, _ = fmt.Fprintf(conn, "%s%s%s\r\n\r\n", begins[n-1], r.URL, request)
	}))
	t.Cleanup(server.Close)
	p := e.empty(t)
	a := p.gateway.PutSubscription(p.folder+"/*", p.sub.ID, jsonOf(t, map[string]any{
		"mode": "push", "webhook": server.URL + "/?planted=key-of-a-traced-webhook",
		"headers":       map[string]string{"X-Key": "header-of-a-traced-webhook"},
		"authorization": "Bearer credentials-of-a-traced-webhook",
		"retry":         map[string]any{"max_attempts": 10, "initial": "1s", "factor": 1},
	}))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	for n := range len(begins) {
		path := fmt.Sprintf("%s/%d", p.folder, n)
		p.gateway.Create(path)
		p.gateway.Append(path, fmt.Sprintf(`{"event":"planted in a traced stream","n":%d}`, n))
	}
	harness.Eventually(t, soon, "all attempts are exported", func() error {
		outcomes := map[string]int{}
		for _, s := range named(c.everything(), "deliver") {
			outcomes[s.attributes["reveille.outcome"]]++
		}
		if len(outcomes) < 3 || outcomes["done"] == 0 {
			return fmt.Errorf("their outcomes are %v", outcomes)
		}
		return nil
	})
}

func (c *collector) everything() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

func (c *collector) sent() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.headers)
}

// TestAWakeIsOneTraceOverReplicas also holds that a stop exports what there is: nothing else would within the test.
func TestAWakeIsOneTraceOverReplicas(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	f := startFleet(t, 2, map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/v1/traces", "OTEL_BSP_SCHEDULE_DELAY": "3600000",
		"OTEL_SERVICE_NAME": "waker", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1",
	})
	f.share(0, 1)
	w := startTracedWorker(t, c, 1)
	id := name(t)
	path := "/" + id + "/a"
	f.gateway.Subscribe("/"+id+"/*", id, w.Worker)
	tail := f.gateway.Create(path)
	wake := w.Wake(2)
	w.callback(f.gateways[0], wake, wake.Claim(false))
	if err := f.replicas[0].Stop(); err != nil {
		t.Fatal(err)
	}
	w.callback(f.gateways[1], wake,
		harness.Callback{Epoch: wake.Epoch, Acks: []harness.StreamOffset{{Path: path, Offset: tail}}, Done: true})
	w.end()
	if err := f.replicas[1].Stop(); err != nil {
		t.Fatal(err)
	}
	spans := c.of(wake.WakeID)
	t.Logf("the trace:\n%s", tree(spans))
	roots, callbacks := named(spans, "wake"), named(spans, "callback")
	if len(roots) != 1 || len(named(spans, "observe")) != 1 || len(named(spans, "deliver")) != 2 ||
		len(callbacks) != 2 || len(named(spans, "work")) != 1 {
		t.Fatalf("want one wake, one observe, two deliver, two callback and one work, got %s", tree(spans))
	}
	replica := func(i int) string { return strings.TrimPrefix(f.replicas[i].URL, "http://") }
	for _, x := range []struct {
		s    span
		made int
	}{{callbacks[0], 0}, {callbacks[1], 1}, {roots[0], 1}} {
		if !strings.HasSuffix(x.s.replica, "/"+replica(x.made)) || x.s.service != "waker" {
			t.Errorf("%s was made by %s of %s, want %s of waker", x.s.name, x.s.replica, x.s.service, replica(x.made))
		}
	}
	for _, s := range append(named(spans, "deliver"), named(spans, "observe")...) {
		if s.parent != roots[0].id {
			t.Errorf("%s hangs in %s, not in the wake %s", s.name, s.parent, roots[0].id)
		}
	}
}

func TestAWakeHasItsSpanHoweverItEnds(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	e := beside(t, options{settings: map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "20",
		"REVEILLE_LIVENESS_TIMEOUT": brief["REVEILLE_LIVENESS_TIMEOUT"],
	}})
	for _, end := range []struct {
		how, cause string
		status     int
		then       func(w harness.Wake, id, path string)
	}{
		{how: "the answer says done", cause: "done", status: http.StatusOK},
		{how: "the worker falls silent", cause: "silent", status: http.StatusAccepted},
		{
			how: "the stream is deleted", cause: "removed", status: http.StatusInternalServerError,
			then: func(_ harness.Wake, _, path string) { e.gateway.DeleteStream(path) },
		},
		{
			how: "the subscription is deleted", cause: "removed", status: http.StatusInternalServerError,
			then: func(_ harness.Wake, id, _ string) {
				e.gateway.DeleteSubscription("/"+id+"/*", id)
			},
		},
		{
			how: "the last stream is unsubscribed from", cause: "removed", status: http.StatusInternalServerError,
			then: func(w harness.Wake, _, path string) {
				if a := e.gateway.Callback(w, harness.Callback{Epoch: w.Epoch, Unsubscribe: []string{path}}); !a.OK {
					t.Errorf("unsubscribing was answered %+v", a)
				}
			},
		},
	} {
		w := harness.NewWorker(t)
		w.AnswerStatus(end.status)
		if end.status == http.StatusOK {
			w.AnswerDone()
		}
		id := name(t)
		path := "/" + id + "/a"
		e.gateway.Subscribe("/"+id+"/*", id, w)
		e.gateway.Create(path)
		wake := w.Wake(1)
		if end.then != nil {
			end.then(wake, id, path)
		}
		exported(t, c, wake.WakeID, "wake", 1)
		root := named(c.of(wake.WakeID), "wake")[0]
		attributed(t, root, map[string]string{"reveille.wake.end": end.cause, "reveille.consumer": wake.ConsumerID})
		if failed := root.status.GetCode() == tracepb.Status_STATUS_CODE_ERROR; failed != (end.cause == "silent") {
			t.Errorf("when %s, the wake has the status %v", end.how, root.status)
		}
	}
}

func TestNothingIsTracedUnlessAsked(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	e := &env{t: t, redis: startRedis(t), ref: shared(t).ref}
	for what, settings := range map[string]map[string]string{
		"without an endpoint":          {"OTEL_SERVICE_NAME": "reveille", "OTEL_TRACES_EXPORTER": "otlp"},
		"with OTEL_SDK_DISABLED":       {"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_SDK_DISABLED": "true"},
		"with OTEL_TRACES_EXPORTER":    {"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_EXPORTER": "none"},
		"with OTEL_TRACES_SAMPLER off": {"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": "always_off"},
	} {
		rev := harness.StartReveille(t, e.settings(settings))
		gateway := harness.NewClient(t, rev.URL)
		w := harness.NewWorker(t)
		id := name(t)
		gateway.Subscribe("/"+id+"/*", id, w)
		gateway.Create("/" + id + "/a")
		got := w.Wake(1).Header.Get("Traceparent")
		if off := strings.HasSuffix(got, "-00"); got != "" && !(off && settings["OTEL_TRACES_SAMPLER"] != "") {
			t.Errorf("%s, a webhook has traceparent %q", what, got)
		}
		if err := rev.Stop(); err != nil {
			t.Fatal(err)
		}
		if n := c.got(); n > 0 {
			t.Fatalf("%s, there were %d exports", what, n)
		}
	}
}
