package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
)

const (
	// noticeEvery is the time between two looks at what is wrong.
	noticeEvery = 5 * time.Second
	// noticesAtATime bounds the notices of one append. A notice has less than 16 KiB, most of it the path of a stream.
	// Many proxies take no more than 1 MiB.
	noticesAtATime = 50
	// noticeTimeout bounds a look and its append, noticeStopTimeout the last append at the stop of the program.
	noticeTimeout     = 10 * time.Second
	noticeStopTimeout = 2 * time.Second
	// noticeTypes are the types of all notices.
	noticeTypes = "reveille.*"
)

// noticeRetry has the delays after failed attempts to bring an operator a notice. They last for a day.
var noticeRetry = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
}

// NoticeStore keeps what operators were told of.
type NoticeStore interface {
	// Leads says whether this replica is the one that tells, as the store says now.
	Leads(ctx context.Context) (bool, error)
	// Troubles returns what is noted of each trouble, by its key.
	Troubles(ctx context.Context) (map[string]fsm.Trouble, error)
	// NoteTroubles notes the troubles that have begun and were not noted, and others anew. It forgets those that are
	// over.
	NoteTroubles(ctx context.Context, begun, noted map[string]fsm.Trouble, over []string) error
	// OtherReplicas returns the replicas that are alive as this one last heard, and those that it found lost within a
	// day and that have not come back, with the times since when they are silent.
	OtherReplicas() (live []string, lost map[string]time.Time)
}

// Notices tells operators of what goes wrong, and when it is well again. It appends notices to a stream. A push
// subscription of the program's own brings them to the operator's webhook. One replica looks at what is wrong now, and
// compares it with what is noted in the store. So a notice is not lost, and comes again only under its ID. All fields
// but Stream, Webhook and Letters are required. It is safe for concurrent use.
type Notices struct {
	Control *Service
	Store   NoticeStore
	Server  StreamServer
	Writes  StreamWrites
	// Stream is the canonical path of the stream; empty for no notices. Source is the source of the notices, a URI.
	Stream, Source string
	// Webhook is the URL of the operator's webhook; empty for none. Check returns an error that says why it may not be
	// called.
	Webhook string
	Check   func(ctx context.Context, url string) error
	// After is how long an endpoint fails before operators are told. It is also the least time between two notices of
	// the same loss.
	After time.Duration
	// Letters is the number of dead letters above which operators are told; 0 for never.
	Letters int

	mu sync.Mutex
	// losses are what this replica has seen, and what it has told of within After.
	losses map[lossKey]*loss

	// letters are how many dead letters there were at countedAt.
	letters   int
	countedAt time.Time

	// These limit the log lines about notices that the stream server did not take, about the subscription of the
	// webhook, and about what cannot be looked at.
	untold, unsubscribed, unseen throttle.Trouble
}

// notice is the envelope (OJS Events 2.2). It is also an event by CloudEvents.
type notice struct {
	SpecVersion string     `json:"specversion"`
	ID          string     `json:"id"`
	Type        string     `json:"type"`
	Source      string     `json:"source"`
	Time        time.Time  `json:"time"`
	Subject     string     `json:"subject"`
	Data        noticeData `json:"data"`
}

// noticeData says what a notice is about.
type noticeData struct {
	Subscription string `json:"subscription_id,omitempty"`
	// Endpoint is the origin of the webhook: the rest of its URL may hold a secret.
	Endpoint  string        `json:"endpoint,omitempty"`
	Condition fsm.Condition `json:"condition,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Stream    string        `json:"stream,omitempty"`
	Consumers int           `json:"consumers,omitempty"`
	Replica   string        `json:"replica,omitempty"`
	Letters   *int          `json:"dead_letters,omitempty"`
	Limit     int           `json:"limit,omitempty"`
	Since     *time.Time    `json:"since,omitempty"`
}

// Observer returns an observer of the consumers that are lost.
func (n *Notices) Observer() router.Observer { return router.Observer{Transition: n.followed} }

// Run tells operators until ctx is done, and then of the losses that were not told.
func (n *Notices) Run(ctx context.Context) error {
	err := every(ctx, noticeEvery, n.Look)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noticeStopTimeout)
	defer cancel()
	if left := n.tellLosses(ctx, true); left > 0 {
		n.Control.Log.Warn("notices of lost consumers were dropped at the stop: the stream server did not take them "+
			"in time", zap.String("stream", n.Stream), zap.Int("notices", left))
	}
	return err
}

// Look tells of what is wrong now. What cannot be told now is told by a later call.
func (n *Notices) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(asItself(ctx), noticeTimeout)
	defer cancel()
	if n.leads(ctx) && n.subscribe(ctx) && n.Stream != "" {
		n.tellTroubles(ctx)
	}
	n.tellLosses(ctx, false)
}

// leads says whether this replica tells, and knows enough for that. Its ownership alone may be out of date.
func (n *Notices) leads(ctx context.Context) bool {
	view := n.Control.View
	if _, loaded := view.Endpoints().Version(); !loaded || !view.store.Catalog().Loaded() || !view.Ownership().Owns(0) {
		return false
	}
	leads, err := n.Store.Leads(ctx)
	n.noteUnseen(err)
	return leads
}

// noteUnseen logs that something could not be looked at. The store logs itself that it is away.
func (n *Notices) noteUnseen(err error) {
	if err != nil && !errors.Is(err, fsm.ErrUnavailable) {
		n.unseen.Log(n.Control.Log, n.Control.Clock()).Warn("notices are missing: what is wrong could not be read",
			zap.Error(err))
	}
}

// tellTroubles compares what is wrong with what was told, and tells of the difference.
func (n *Notices) tellTroubles(ctx context.Context) {
	noted, err := n.Store.Troubles(ctx)
	if err != nil {
		n.noteUnseen(err)
		return
	}
	news := n.compare(noted, n.find(ctx, noted))
	err = n.Store.NoteTroubles(ctx, news.begun, news.moved, nil)
	if err == nil && n.append(ctx, news.notices) == nil {
		err = n.Store.NoteTroubles(ctx, nil, news.told, news.over)
	}
	n.noteUnseen(err)
}

// news is what there is to tell, and what to note before and after it is told.
type news struct {
	notices            []notice
	begun, moved, told map[string]fsm.Trouble
	over               []string
}

// compare says what there is to tell. What is not noted yet is noted first: so two replicas tell of it under one ID.
// The notices that do not fit into one append are left for the next look.
func (n *Notices) compare(noted map[string]fsm.Trouble, found findings) news {
	r := news{begun: map[string]fsm.Trouble{}, moved: map[string]fsm.Trouble{}, told: map[string]fsm.Trouble{}}
	clock := n.Control.Clock()
	for _, key := range found.inOrder() {
		t := found.wrong[key]
		was, is := noted[key]
		switch {
		case t.unclear || was.Told:
		case !is && len(noted)+len(r.begun) >= fsm.MaxTroubles && !t.first:
		case !is:
			if was.Since = t.since; was.Since.IsZero() {
				was.Since = clock
			}
			r.begun[key] = was
		case t.since.After(was.Since):
			was.Since = t.since
			r.moved[key] = was
		case clock.Sub(was.Since) >= t.after && len(r.notices) < noticesAtATime:
			r.notices = append(r.notices, n.notice(t, key, was.Since, clock))
			was.Told = true
			r.told[key] = was
		}
	}
	for _, key := range slices.Sorted(maps.Keys(noted)) {
		t, well := found.well[key]
		_, still := found.wrong[key]
		if still || well && noted[key].Told && len(r.notices) == noticesAtATime {
			continue
		}
		if well && noted[key].Told {
			r.notices = append(r.notices, n.notice(t, key, noted[key].Since, clock))
		}
		r.over = append(r.over, key)
	}
	return r
}

// notice makes a notice about a trouble, which has the same ID whenever it is made.
func (n *Notices) notice(t trouble, key string, since, now time.Time) notice {
	since = since.UTC()
	t.data.Since = &since
	return notice{
		SpecVersion: "1.0", ID: "evt_" + hashOf(t.kind, key, fmt.Sprint(since.UnixMilli())), Type: t.kind,
		Source: n.Source, Time: now.UTC(), Subject: t.subject, Data: t.data,
	}
}

// append appends notices to the stream. After an error, the stream may have them.
func (n *Notices) append(ctx context.Context, notices []notice) error {
	if len(notices) == 0 {
		return nil
	}
	body, err := json.Marshal(notices)
	if err == nil {
		err = Writer{n.Server, n.Writes}.Append(ctx, n.Stream, body)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // a stop cut it off
		n.untold.Log(n.Control.Log, n.Control.Clock()).Warn("the stream server takes no notices: they come later",
			zap.String("stream", n.Stream), zap.Int("notices", len(notices)), zap.Error(err))
	}
	return err
}

// subscribe sees to it that the webhook has its subscription, and that no other webhook or stream has one. It returns
// false if the webhook would miss the notices of now. It does not wait for a webhook that may not be called.
func (n *Notices) subscribe(ctx context.Context) bool {
	id := fsm.NoticeSubscription(hashOf(n.Stream))
	all, _ := n.Control.View.Subscriptions(ctx)
	for _, sub := range all {
		if fsm.IsNoticeSubscription(sub.ID) && (sub.ID != id || n.Webhook == "") {
			n.noteUnsubscribed(n.Control.Delete(ctx, sub.ID))
		}
	}
	if n.Webhook == "" {
		return true
	}
	sub, there := n.Control.View.Subscription(ctx, id)
	if there && sub.Webhook == n.Webhook {
		return true
	}
	if err := n.Check(ctx, n.Webhook); err != nil {
		n.noteUnsubscribed(err)
		return true
	}
	var err error
	if there {
		err = n.setWebhook(ctx, sub)
	} else {
		err = n.makeSubscription(ctx, id)
	}
	n.noteUnsubscribed(err)
	return err == nil
}

// makeSubscription makes the subscription of the webhook.
func (n *Notices) makeSubscription(ctx context.Context, id string) error {
	_, _, err := n.Control.Subscribe(ctx, fsm.Subscription{
		ID: id, Pattern: n.Stream, Webhook: n.Webhook, Mode: fsm.ModePush, Format: fsm.FormatJSON,
		Ordering: fsm.OrderingNone, Filter: fsm.Filter{Events: []string{noticeTypes}}, Retry: noticeRetry,
	}.WithDefaults())
	return err
}

// setWebhook leads the subscription of another webhook to this one, and what waited for that one. As with any change of
// a webhook, it stays stopped if it is. So no second step can be missed.
func (n *Notices) setWebhook(ctx context.Context, sub fsm.Subscription) error {
	stored, err := n.Control.Change(ctx, sub, func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Webhook = n.Webhook
		return now, nil
	})
	if err == nil && stored.Stopped() {
		n.Control.Log.Warn("the subscription for REVEILLE_NOTICE_WEBHOOK has another URL now, and is still stopped",
			zap.String("subscription", sub.ID))
	}
	return err
}

func (n *Notices) noteUnsubscribed(err error) {
	if err != nil && !errors.Is(err, fsm.ErrUnavailable) {
		n.unsubscribed.Log(n.Control.Log, n.Control.Clock()).Warn(
			"the subscription for REVEILLE_NOTICE_WEBHOOK could not be made, changed or deleted", zap.Error(err))
	}
}
