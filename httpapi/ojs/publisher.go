package ojs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/bell"
	"reveille/fsm/cache"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
	"reveille/httpapi/control"
)

const (
	// MaxEventsWaiting bounds the events that wait to be appended. Newer ones are dropped.
	MaxEventsWaiting = 10_000
	// eventsAtATime bounds the events of one append. An event has less than 16 KiB, most of it the path of a stream.
	// Many proxies take no more than 1 MiB.
	eventsAtATime = 64
	// Events are appended eventsPause after the first one came. After a failed append, the next one follows after
	// eventsRetry.
	eventsPause = 100 * time.Millisecond
	eventsRetry = time.Second
	// eventsTimeout bounds one append, eventsStopTimeout all appends at the stop of the program.
	eventsTimeout     = 10 * time.Second
	eventsStopTimeout = 2 * time.Second
)

// PublisherConfig configures a Publisher. All fields but Metrics are required.
type PublisherConfig struct {
	// Stream is the canonical path of the stream that the events go to. Source is the source of the events, a URI.
	Stream, Source string
	// Catalog has the subscriptions.
	Catalog *cache.Catalog
	Server  control.StreamServer
	Writes  control.StreamWrites
	Logger  *zap.Logger
	// Metrics registers the metrics; nil for no metrics.
	Metrics prometheus.Registerer
}

// Publisher publishes what becomes of the webhooks of Open Job Spec. It appends its events (OJS Webhook Delivery 11.1)
// to a stream, so that clients can subscribe to them. It is an observer: no delivery waits for it, and its memory is
// bounded. It drops and counts what the stream server does not take in time. It is safe for concurrent use.
type Publisher struct {
	cfg     PublisherConfig
	dropped prometheus.Counter
	ready   bell.Bell

	mu      sync.Mutex
	waiting [][]byte
	// ended is true once Run accepts no more events.
	ended bool

	// untaken limits the log lines about appends that have failed.
	untaken throttle.Trouble
}

// NewPublisher returns a Publisher. It publishes what its Observer hears while Run runs.
func NewPublisher(cfg PublisherConfig) *Publisher {
	return &Publisher{
		cfg: cfg, ready: bell.New(),
		dropped: promauto.With(cfg.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "reveille_events_dropped_total",
			Help: "Events of webhooks (REVEILLE_EVENTS_STREAM) that this replica has dropped, because the stream " +
				"server did not take them in time. What a crash has cost is not known.",
		}),
	}
}

// Observer returns an observer of deliveries and subscriptions.
func (p *Publisher) Observer() router.Observer {
	return router.Observer{Attempt: p.attempted, Subscription: p.subscribed}
}

// event is the envelope (OJS Events 2.2).
type event struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"`
	Type        string    `json:"type"`
	Source      string    `json:"source"`
	Time        string    `json:"time"`
	Subject     string    `json:"subject"`
	Data        eventData `json:"data"`
}

// eventData names a delivery as the HTTP binding does (10), or only a subscription.
type eventData struct {
	Subscription   string `json:"subscription_id"`
	Delivery       string `json:"delivery_id,omitempty"`
	Stream         string `json:"stream,omitempty"`
	Attempt        int    `json:"attempt,omitempty"`
	StatusCode     int    `json:"status_code,omitempty"`
	ResponseTimeMS *int64 `json:"response_time_ms,omitempty"`
	Error          string `json:"error,omitempty"`
}

// eventTypes maps results of attempts to event types. Other results make no event.
var eventTypes = map[fsm.AttemptResult]string{
	fsm.AttemptDone: "webhook.delivered", fsm.AttemptAccepted: "webhook.delivered",
	fsm.AttemptFailed: "webhook.failed", fsm.AttemptRetired: "webhook.failed",
	fsm.AttemptDead: "webhook.dead",
}

// reports is the prefix of the types of these events.
const reports = "webhook."

// attempted leaves out the deliveries of these events. Each would make another event, without end.
func (p *Publisher) attempted(a fsm.Attempt) {
	w, kind := a.Delivery, eventTypes[a.Result]
	sub, there := p.cfg.Catalog.Get(w.Subscription)
	if kind == "" || !firstHand(a, p.cfg.Stream) || !there || sub.Generation != w.Generation ||
		sub.Format != fsm.FormatOJS {
		return
	}
	took := a.Took.Milliseconds()
	p.add(kind, a.DeliveryID, a.Began.Add(a.Took), eventData{
		Subscription: w.Subscription, Delivery: a.DeliveryID, Stream: w.Primary, Attempt: w.Attempt,
		StatusCode: a.Status, ResponseTimeMS: &took, Error: a.Reason,
	})
}

// firstHand says whether an event may report an attempt. It may not if the attempt itself brings such a report, because
// the reports would never end. All events of the Publisher's own stream are such reports. In other streams the event's
// type decides: the event may come from another installation, or from before the setting of that stream was changed. If
// nothing was read, there is nothing to report and no DeliveryID.
func firstHand(a fsm.Attempt, stream string) bool {
	return a.DeliveryID != "" && a.Delivery.Primary != stream && !strings.HasPrefix(a.EventType, reports)
}

func (p *Publisher) subscribed(sub fsm.Subscription, there bool) {
	kind := "webhook.subscription.deleted"
	if there {
		kind = "webhook.subscription.created"
	}
	if sub.Format == fsm.FormatOJS {
		p.add(kind, sub.ID, time.Now(), eventData{Subscription: sub.ID})
	}
}

func (p *Publisher) add(kind, subject string, at time.Time, d eventData) {
	text, _ := json.Marshal(event{ // it has only texts and numbers, so it cannot fail
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
	p.ready.Ring()
}

// Run appends events until ctx is done, and then those that still wait.
func (p *Publisher) Run(ctx context.Context) error {
	for wait := eventsPause; ; wait = eventsPause {
		select {
		case <-ctx.Done():
			p.stop(ctx)
			return nil
		case <-p.ready:
		}
		for bell.Sleep(ctx, wait) && p.left() > 0 {
			wait = 0
			if err := p.publish(ctx, eventsTimeout); err != nil {
				wait = eventsRetry
			}
		}
	}
}

// stop appends the events that wait. After an error it drops the rest, and all later events.
func (p *Publisher) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventsStopTimeout)
	defer cancel()
	var err error
	for err == nil && p.left() > 0 {
		err = p.publish(ctx, eventsStopTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.waiting); n > 0 { // the metric may not be scraped again
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

// publish appends the oldest waiting events. After an error they stay in the queue, so an event may come twice, under
// one ID.
func (p *Publisher) publish(ctx context.Context, timeout time.Duration) error {
	p.mu.Lock()
	texts := p.waiting[:min(eventsAtATime, len(p.waiting))]
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body := append(append([]byte("["), bytes.Join(texts, []byte(","))...), ']')
	err := control.Writer{Server: p.cfg.Server, Writes: p.cfg.Writes}.Append(ctx, p.cfg.Stream, body)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled): // a stop cut it off and tries again
		return err
	case err != nil:
		p.untaken.Log(p.cfg.Logger, time.Now()).Warn(
			"the stream of events takes none: they wait, and the latest are dropped if they are too many",
			zap.String("stream", p.cfg.Stream), zap.Int("waiting", p.left()), zap.Error(err))
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = p.waiting[len(texts):]
	return nil
}
