package operator

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/web"
)

const (
	// statusTimeout is how long a status waits for Redis to tell of the replicas.
	statusTimeout = 2 * time.Second
	// maxWorst is how many subscriptions a status names.
	maxWorst = 10
)

// StatusBody is the whole as an operator sees it. What is not known is left out.
type StatusBody struct {
	Version string `json:"version"`
	// Replica is the replica that answers.
	Replica      string           `json:"replica"`
	Redis        RedisBody        `json:"redis"`
	StreamServer StreamServerBody `json:"stream_server"`
	Partitions   int              `json:"partitions"`
	// Unowned is how many partitions no replica has leased.
	Unowned *int `json:"partitions_without_replica,omitempty"`
	// Replicas are all replicas. If ReplicasKnown is false, there is only the answering replica, with the partitions
	// that it works for.
	Replicas      []ReplicaBody `json:"replicas"`
	ReplicasKnown bool          `json:"replicas_known"`
	// Subscriptions is how many there are, Conditions how many by condition. If ConsumersCounted is false, not all
	// consumers were looked at, or none: the endpoints alone may tell the conditions, and more may be failing.
	Subscriptions    *int                  `json:"subscriptions,omitempty"`
	Conditions       map[fsm.Condition]int `json:"conditions"`
	ConsumersCounted bool                  `json:"consumers_counted"`
	Worst            []WorstBody           `json:"worst"`
	// WaitingSince is since when the oldest wake or delivery waits that an endpoint has not taken. WaitingKnown is
	// false if that cannot be said. Without ConsumersCounted, only those who may use all paths are told.
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	WaitingKnown bool       `json:"waiting_known"`
	AsOf         time.Time  `json:"as_of"`
}

// RedisBody says whether Redis answers, and since when that is so.
type RedisBody struct {
	Up    bool       `json:"up"`
	Since *time.Time `json:"since,omitempty"`
	Error string     `json:"error,omitempty"`
}

// StreamServerBody is what this replica knows of the stream server.
type StreamServerBody struct {
	State    fsm.StreamServerState `json:"state"`
	Since    *time.Time            `json:"since,omitempty"`
	Dialect  string                `json:"dialect"`
	Watching string                `json:"watching"`
}

// ReplicaBody is a replica that is alive, or that has partitions leased.
type ReplicaBody struct {
	ID         string     `json:"id"`
	Alive      bool       `json:"alive"`
	Since      *time.Time `json:"alive_since,omitempty"`
	Partitions int        `json:"partitions"`
}

// WorstBody is a subscription that is not well.
type WorstBody struct {
	ID        string        `json:"subscription_id"`
	Condition fsm.Condition `json:"condition"`
	Since     *time.Time    `json:"since,omitempty"`
	// AtLeast is as of a subscription (SubscriptionBody): Since may be earlier.
	AtLeast bool   `json:"at_least,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

func (f *Face) showStatus(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	return web.Answer(c, http.StatusOK, f.Status(ctx), nil)
}

// Status returns the whole. While Redis is away, it is what this replica knows.
func (f *Face) Status(ctx context.Context) StatusBody {
	server := f.Health.StreamServer()
	b := StatusBody{
		Version: f.Version, Replica: f.Health.ReplicaID(), Partitions: f.Control.View.Partitions(),
		StreamServer: StreamServerBody{server.State, web.Time(server.Since), server.Dialect, server.Watching},
		Conditions:   map[fsm.Condition]int{}, Worst: []WorstBody{}, AsOf: f.Control.Clock().UTC(),
	}
	b.addSubscriptions(f.statusOf(ctx, f.addReplicas(ctx, &b)))
	if b.WaitingKnown = b.ConsumersCounted; !b.WaitingKnown {
		b.WaitingSince = nil // what was not looked at may have waited for longer
		if b.Redis.Up {
			_, since, err := f.Control.Pending(ctx)
			b.WaitingSince, b.WaitingKnown = web.Time(since), err == nil
		}
	}
	return b
}

// addReplicas adds what Redis says of the replicas, and returns whether it answers.
func (f *Face) addReplicas(ctx context.Context, b *StatusBody) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replicas, unowned, err := f.Health.Replicas(ctx)
	b.Redis.Up = err == nil
	if up, since := f.Health.Answers(); up == b.Redis.Up {
		b.Redis.Since = web.Time(since)
	}
	if err != nil {
		b.Redis.Error = err.Error()
		owned := f.Control.View.Ownership().Partitions()
		b.Replicas = []ReplicaBody{{ID: b.Replica, Alive: true, Partitions: len(owned)}}
		return false
	}
	b.Unowned, b.ReplicasKnown = &unowned, true
	b.Replicas = make([]ReplicaBody, len(replicas))
	for i, r := range replicas {
		b.Replicas[i] = ReplicaBody{r.ID, r.Alive, web.Time(r.Since), r.Partitions}
	}
	return true
}

// statusOf returns the subscriptions as far as they are known, and whether all of their consumers are included. They
// are not while Redis is away, if there are more subscriptions than a page of a list counts, or more consumers.
func (f *Face) statusOf(ctx context.Context, up bool) (bodies []SubscriptionBody, known, counted bool) {
	if up {
		all, err := f.Control.Subscriptions(ctx, "")
		if most := max(1, maxCounted/f.Control.View.Partitions()); err == nil && len(all) <= most {
			if bodies, err = f.describe(ctx, all); err == nil {
				return bodies, true, !slices.ContainsFunc(bodies, func(b SubscriptionBody) bool { return b.AtLeast })
			}
		}
	}
	all, loaded := f.Control.View.Subscriptions(ctx)
	for _, sub := range all {
		b := subscriptionBodyOf(sub, nil)
		b.judge(fsm.Tally{}, f.Control.View.Endpoints().Of(sub))
		bodies = append(bodies, b)
	}
	return bodies, loaded, false
}

func (b *StatusBody) addSubscriptions(all []SubscriptionBody, known, counted bool) {
	if b.ConsumersCounted = counted; !known {
		return
	}
	n := len(all)
	b.Subscriptions = &n
	for _, sub := range all {
		if sub.AtLeast && sub.Condition == fsm.ConditionOK {
			b.Conditions[conditionUnknown]++
		} else {
			b.Conditions[sub.Condition]++
		}
		if since := sub.WaitingSince; since != nil && (b.WaitingSince == nil || since.Before(*b.WaitingSince)) {
			b.WaitingSince = since
		}
		if slices.Contains(fsm.Severities, sub.Condition) {
			b.Worst = append(b.Worst, WorstBody{sub.ID, sub.Condition, sub.FailingSince, sub.AtLeast, sub.LastError})
		}
	}
	slices.SortFunc(b.Worst, func(x, y WorstBody) int {
		return cmp.Or(
			cmp.Compare(slices.Index(fsm.Severities, x.Condition), slices.Index(fsm.Severities, y.Condition)),
			compareTimes(x.Since, y.Since), cmp.Compare(x.ID, y.ID),
		)
	})
	b.Worst = b.Worst[:min(len(b.Worst), maxWorst)]
}

// compareTimes orders times, those that are not known last.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}
