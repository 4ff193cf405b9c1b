package tailer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// MaxEventsWaiting is how many events may wait to be appended; more are dropped.
	MaxEventsWaiting = 10_000
	// eventsAtATime bounds the events of one append. Each has less than 16 KiB, most of it the path of a stream; many
	// proxies take no more than 1 MiB.
	eventsAtATime = 64
	// Events are appended eventsPause after the first of them came, and eventsRetry after the stream server has not
	// taken them.
	eventsPause = 100 * time.Millisecond
	eventsRetry = time.Second
	// eventsTimeout bounds one append, eventsStopTimeout the last one of a program that stops.
	eventsTimeout     = 10 * time.Second
	eventsStopTimeout = 2 * time.Second

	eventsContentType = "application/json"
)

// EventServer is what takes the events (upstream.Client).
type EventServer interface {
	Append(ctx context.Context, path, contentType string, body []byte) (fsm.Offset, error)
	Create(ctx context.Context, path, contentType string) (tail fsm.Offset, created bool, err error)
}

// EventWrites is what is told of each write, as of those of the gateway (discovery.Discovery).
type EventWrites interface {
	BeforeWrite(ctx context.Context, path string, create bool) fsm.Write
	Written(w fsm.Write, tail fsm.Offset, created bool)
	Refused(w fsm.Write)
}

// PublisherConfig is that of a Publisher. All of it is required, but for Metrics.
type PublisherConfig struct {
	// Stream is the canonical path of the stream that the events go to. Source is that of the events, a URI.
	Stream, Source string
	// Catalog has the subscriptions.
	Catalog *fsm.Catalog
	Server  EventServer
	Writes  EventWrites
	Logger  *zap.Logger
	// Metrics is what the metrics are registered with; nil for nowhere.
	Metrics prometheus.Registerer
}

// Publisher publishes what becomes of the webhooks of Open Job Spec: its events (OJS Webhook Delivery 11.1) are
// appended to a stream, so that anybody can subscribe to them. It is an observer: no delivery waits for it, memory is
// bounded, and what the stream server does not take in time is dropped and counted. It is safe for concurrent use.
type Publisher struct {
	cfg     PublisherConfig
	dropped prometheus.Counter
	ready   chan struct{}

	mu      sync.Mutex
	waiting [][]byte
	// ended is true once Run takes in no more.
	ended bool

	// untaken is what was logged of appends that have failed.
	untaken fsm.Trouble
}

// NewPublisher returns a Publisher. What its Observer hears is published while Run runs.
func NewPublisher(cfg PublisherConfig) *Publisher {
	return &Publisher{
		cfg: cfg, ready: make(chan struct{}, 1),
		dropped: promauto.With(cfg.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "reveille_events_dropped_total",
			Help: "Events of webhooks (REVEILLE_EVENTS_STREAM) that this replica has dropped, because the stream " +
				"server did not take them in time. What a crash has cost is not known.",
		}),
	}
}

// Observer returns what is to hear of deliveries and subscriptions.
func (p *Publisher) Observer() fsm.Observer {
	return fsm.Observer{Attempt: p.attempted, Subscription: p.subscribed}
}

// ojsEvent is the envelope (OJS Events 2.2).
type ojsEvent struct {
	SpecVersion string       `json:"specversion"`
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Source      string       `json:"source"`
	Time        string       `json:"time"`
	Subject     string       `json:"subject"`
	Data        ojsEventData `json:"data"`
}

// ojsEventData names a delivery as the deliveries of the HTTP binding do (10), or a subscription alone.
type ojsEventData struct {
	Subscription   string `json:"subscription_id"`
	Delivery       string `json:"delivery_id,omitempty"`
	Stream         string `json:"stream,omitempty"`
	Attempt        int    `json:"attempt,omitempty"`
	StatusCode     int    `json:"status_code,omitempty"`
	ResponseTimeMS *int64 `json:"response_time_ms,omitempty"`
	Error          string `json:"error,omitempty"`
}

// ojsEventTypes are the events that results of attempts are; others are none.
var ojsEventTypes = map[fsm.AttemptResult]string{
	fsm.AttemptDone: "webhook.delivered", fsm.AttemptAccepted: "webhook.delivered",
	fsm.AttemptFailed: "webhook.failed", fsm.AttemptRetired: "webhook.failed",
	fsm.AttemptDead: "webhook.dead",
}

// attempted leaves out the deliveries of such events: each would make another one, without end.
func (p *Publisher) attempted(a fsm.Attempt) {
	w, kind := a.Wake, ojsEventTypes[a.Result]
	sub, there := p.cfg.Catalog.Get(w.Subscription)
	if kind == "" || !a.FirstHand(p.cfg.Stream) || !there || sub.Generation != w.Generation ||
		sub.Format != fsm.FormatOJS {
		return
	}
	took := a.Took.Milliseconds()
	p.add(kind, a.DeliveryID, a.Began.Add(a.Took), ojsEventData{
		Subscription: w.Subscription, Delivery: a.DeliveryID, Stream: w.Primary, Attempt: w.Attempt,
		StatusCode: a.Status, ResponseTimeMS: &took, Error: a.Reason,
	})
}

func (p *Publisher) subscribed(sub fsm.Subscription, there bool) {
	kind := "webhook.subscription.deleted"
	if there {
		kind = "webhook.subscription.created"
	}
	if sub.Format == fsm.FormatOJS {
		p.add(kind, sub.ID, time.Now(), ojsEventData{Subscription: sub.ID})
	}
}

func (p *Publisher) add(kind, subject string, at time.Time, d ojsEventData) {
	text, _ := json.Marshal(ojsEvent{ // of texts and numbers, which cannot fail
		SpecVersion: "1.0", ID: "evt_" + uuid.NewString(), Type: kind, Source: p.cfg.Source,
		Time: at.UTC().Format(time.RFC3339Nano), Subject: subject, Data: d,
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || len(p.waiting) >= MaxEventsWaiting {
		p.dropped.Inc()
		return
	}
	p.waiting = append(p.waiting, text)
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Run appends what waits until ctx is done, and then what still waits.
func (p *Publisher) Run(ctx context.Context) error {
	for wait := eventsPause; ; wait = eventsPause {
		select {
		case <-ctx.Done():
			p.stop(ctx)
			return nil
		case <-p.ready:
		}
		for upstream.Sleep(ctx, wait) && p.left() > 0 {
			wait = 0
			if err := p.publish(ctx, eventsTimeout); err != nil {
				wait = eventsRetry
			}
		}
	}
}

// stop appends what waits, and gives up on the rest, and on what comes later.
func (p *Publisher) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventsStopTimeout)
	defer cancel()
	var err error
	for err == nil && p.left() > 0 {
		err = p.publish(ctx, eventsStopTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.waiting); n > 0 { // the metric may not be scraped any more
		p.dropped.Add(float64(n))
		p.cfg.Logger.Warn("events were dropped at the stop: the stream server did not take them in time",
			zap.String("stream", p.cfg.Stream), zap.Int("events", n), zap.Error(err))
	}
	p.waiting, p.ended = nil, true
}

func (p *Publisher) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// publish appends the first of those that wait. They wait on if that fails: events may come twice, under one ID.
func (p *Publisher) publish(ctx context.Context, timeout time.Duration) error {
	p.mu.Lock()
	texts := p.waiting[:min(eventsAtATime, len(p.waiting))]
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body := append(append([]byte("["), bytes.Join(texts, []byte(","))...), ']')
	err := p.write(ctx, body)
	if errors.Is(err, fsm.ErrNoStream) {
		if err = p.create(ctx); err == nil {
			err = p.write(ctx, body)
		}
	}
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled): // it is cut off by a stop, which tries again
		return err
	case err != nil:
		if times, log := p.untaken.Happened(time.Now()); log {
			p.cfg.Logger.Warn("the stream of events takes none: they wait, and the latest are dropped if they are too "+
				"many", zap.String("stream", p.cfg.Stream), zap.Int("waiting", p.left()), zap.Int("times", times),
				zap.Error(err))
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = p.waiting[len(texts):]
	return nil
}

func (p *Publisher) write(ctx context.Context, body []byte) error {
	w := p.cfg.Writes.BeforeWrite(ctx, p.cfg.Stream, false)
	tail, err := p.cfg.Server.Append(ctx, p.cfg.Stream, eventsContentType, body)
	p.told(w, tail, false, err)
	return err
}

func (p *Publisher) create(ctx context.Context) error {
	w := p.cfg.Writes.BeforeWrite(ctx, p.cfg.Stream, true)
	tail, created, err := p.cfg.Server.Create(ctx, p.cfg.Stream, eventsContentType)
	p.told(w, tail, created, err)
	return err
}

func (p *Publisher) told(w fsm.Write, tail fsm.Offset, created bool, err error) {
	if err != nil {
		p.cfg.Writes.Refused(w)
	} else {
		p.cfg.Writes.Written(w, tail, created)
	}
}
