package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
)

const eventsArgs = "[ID|replay ID…|cancel ID…|stats]"

var eventsCommand = command{
	name: "events", args: eventsArgs, most: -1,
	does: "list events for direct delivery, show one, deliver some again, cancel some, or count them",
	about: "They are the events of reveille send and of direct deliveries; the latest come first. STATUS is " +
		"pending,\ndelivering, delivered, retrying, dead_letter (no further attempt follows) or cancelled. replay " +
		"makes a new event\nof one that is over. cancel is for one that waits, or is dead. stats counts what became " +
		"of events in the last hours,\nby provider.",
	flags: func(c *cli, f *flag.FlagSet) {
		asksAPI(c, f)
		paged(c, f)
		f.StringVar(&c.outbox.status, "status", "", "only those with this `status`")
		f.StringVar(&c.outbox.provider, "provider", "", "only those of the provider of this `name`")
		f.StringVar(&c.outbox.kind, "type", "", "only those of this `type`")
		f.StringVar(&c.outbox.host, "host", "", "only those for this `host`, with or without its port")
		f.StringVar(&c.since, "since", "",
			"only those since this `time`, such as 2026-11-26T17:00:00Z, or how long ago, such as 1h or 2d")
		f.StringVar(&c.until, "until", "", "only those before this `time`, which is said likewise")
		f.StringVar(&c.outbox.key, "key", "", "with replay: the idempotency `key` of the new event")
		f.IntVar(&c.outbox.hours, "hours", 0, "with stats: how many hours are counted, up to 168; 24 by default")
	},
	run: (*cli).events,
}

// shownEvent is an event in an answer, with the fields that the commands show. Times are in milliseconds since 1970.
type shownEvent struct {
	ID            string           `json:"id"`
	Key           string           `json:"idempotency_key"`
	Provider      string           `json:"provider"`
	Type          string           `json:"event_type"`
	Payload       json.RawMessage  `json:"payload"`
	Target        string           `json:"target_url"`
	Status        fsm.OutboxStatus `json:"status"`
	Attempts      int              `json:"attempts"`
	MaxAttempts   int              `json:"max_attempts"`
	NextRetryAt   int64            `json:"next_retry_at"`
	LastAttemptAt int64            `json:"last_attempt_at"`
	LastError     string           `json:"last_error"`
	LastStatus    int              `json:"last_status_code"`
	DeliveredAt   int64            `json:"delivered_at"`
	CreatedAt     int64            `json:"created_at"`
	ExpiresAt     int64            `json:"expires_at"`
	Metadata      json.RawMessage  `json:"metadata"`
	DeliverAt     int64            `json:"deliver_at"`
	ReplayOf      string           `json:"replay_of"`
}

// progress says on one line what has become of an event.
func (e shownEvent) progress() string {
	return string(e.Status) + when(e.Attempts > 0, fmt.Sprintf(", %d of %d attempts", e.Attempts, e.MaxAttempts)) +
		when(e.NextRetryAt > 0, ", the next at "+stamp(ofMillis(e.NextRetryAt))) +
		when(e.Status == fsm.OutboxPending && e.DeliverAt > 0, ", not before "+stamp(ofMillis(e.DeliverAt))) +
		when(e.LastError != "", "; "+e.LastError)
}

// ofMillis returns a time in an answer; zero for null.
func ofMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func (c *cli) events(ctx context.Context, args []string) error {
	if err := c.span(); err != nil {
		return err
	}
	wrong := usageError{"usage: reveille events [flags] " + eventsArgs}
	switch {
	case slices.Contains(args, ""): // a variable of a shell that is not set
		return wrong
	case len(args) == 0 && (c.outbox.hours != 0 || c.outbox.key != ""):
		return usageError{"events: --hours is for stats, and --key for replay"}
	case len(args) == 0:
		return c.listEvents(ctx)
	case args[0] == "stats" && len(args) == 1:
		provider := c.outbox.provider
		if c.outbox.provider = ""; c.filters() != "" || c.cursor != "" || c.outbox.key != "" {
			return usageError{"events stats: only --hours and --provider are for it"}
		}
		c.outbox.provider = provider
		return c.countEvents(ctx)
	case c.filters() != "" || c.cursor != "" || c.outbox.hours != 0:
		return usageError{"events " + printable(args[0]) + ": the filters are for the list"}
	case args[0] == "replay" && len(args) > 1, args[0] == "cancel" && len(args) > 1:
		return c.changeEvents(ctx, args[0], args[1:])
	case args[0] != "replay" && args[0] != "cancel" && len(args) == 1:
		return c.oneEvent(ctx, args[0])
	}
	return wrong
}

func (c *cli) listEvents(ctx context.Context) error {
	var body struct {
		Events []shownEvent `json:"events"`
		Next   string       `json:"next"`
	}
	path := c.list(eventsPath, [2]string{"status", c.outbox.status}, [2]string{"provider", c.outbox.provider},
		[2]string{"event_type", c.outbox.kind}, [2]string{"host", c.outbox.host},
		[2]string{"since", c.since}, [2]string{"until", c.until})
	if printed, err := c.askAt(ctx, c.apiPort(), http.MethodGet, path, nil, &body); printed || err != nil {
		return fromOutbox(err)
	}
	rows := [][]string{{"EVENT", "STATUS", "ATTEMPTS", "TYPE", "PROVIDER", "TARGET", "HANDED OVER", "LAST ERROR"}}
	for _, e := range body.Events {
		rows = append(rows, []string{
			e.ID, string(e.Status), fmt.Sprintf("%d/%d", e.Attempts, e.MaxAttempts), e.Type, e.Provider,
			cut(shownTarget(e.Target), targetWidth), relative(ofMillis(e.CreatedAt), c.now()),
			cut(e.LastError, errorWidth),
		})
	}
	return c.rows(rows, "events", body.Next)
}

// shownTarget returns a target without its query, which may hold a secret. A target has no user and password.
func shownTarget(target string) string {
	target, _, query := strings.Cut(target, "?")
	return target + when(query, "?…")
}

// targetWidth bounds the characters of a URL in a table of events.
const targetWidth = 60

func (c *cli) oneEvent(ctx context.Context, id string) error {
	e, printed, err := c.askEvent(ctx, http.MethodGet, eventPath(id), nil)
	if printed || err != nil {
		return err
	}
	now, metadata := c.now(), string(e.Metadata)
	return c.fields([][]string{
		{"event", e.ID},
		{"status", string(e.Status)},
		{"target", shownTarget(e.Target)},
		{"type", e.Type},
		{"provider", e.Provider},
		{"attempts", fmt.Sprintf("%d of %d", e.Attempts, e.MaxAttempts)},
		{"handed over", since(ofMillis(e.CreatedAt), now)},
		{"not before", stamp(ofMillis(e.DeliverAt))},
		{"last attempt", since(ofMillis(e.LastAttemptAt), now)},
		{"last error", e.LastError},
		{"last status", some(e.LastStatus)},
		{"next attempt", since(ofMillis(e.NextRetryAt), now)},
		{"delivered", since(ofMillis(e.DeliveredAt), now)},
		{"kept until", stamp(ofMillis(e.ExpiresAt))},
		{"idempotency key", e.Key},
		{"replay of", e.ReplayOf},
		{"metadata", when(metadata != "null", metadata)},
		{"payload", cmp.Or(string(e.Payload), "the stream server does not give it")},
	})
}

// changeEvents replays or cancels events, one by one.
func (c *cli) changeEvents(ctx context.Context, change string, ids []string) error {
	if c.outbox.key != "" && (change == "cancel" || len(ids) > 1) {
		return usageError{"events " + change + ": --key is for the replay of one event"}
	}
	for _, id := range ids {
		var err error
		if change == "cancel" {
			err = c.cancelEvent(ctx, id)
		} else {
			err = c.replayEvent(ctx, id)
		}
		if err != nil && len(ids) > 1 {
			return fmt.Errorf("%s: %w", printable(id), err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) replayEvent(ctx context.Context, id string) error {
	key := c.keyOrNew()
	asked := map[string]string{"idempotency_key": key}
	e, printed, err := c.askEvent(ctx, http.MethodPost, eventPath(id)+"/replay", asked)
	if err != nil {
		return repeatable(err, key)
	}
	if !printed {
		_, err = fmt.Fprintf(c.out, "%s is delivered again as %s\n", printable(id), printable(e.ID))
	}
	return err
}

func (c *cli) cancelEvent(ctx context.Context, id string) error {
	e, printed, err := c.askEvent(ctx, http.MethodDelete, eventPath(id), nil)
	if err == nil && !printed {
		_, err = fmt.Fprintf(c.out, "%s is %s\n", printable(e.ID), printable(string(e.Status)))
	}
	return err
}

// shownTally is what became of events in some hours.
type shownTally struct {
	Provider   *string  `json:"provider"`
	HandedOver int      `json:"handed_over"`
	Delivered  int      `json:"delivered"`
	Dead       int      `json:"dead_letter"`
	Cancelled  int      `json:"cancelled"`
	Rate       *float64 `json:"success_rate"`
	P50        *float64 `json:"p50_ms"`
	P95        *float64 `json:"p95_ms"`
	P99        *float64 `json:"p99_ms"`
}

func (t shownTally) row(name string) []string {
	rate := ""
	if t.Rate != nil { // rounded down: what is not all must not look so
		rate = fmt.Sprintf("%.1f %%", math.Floor(*t.Rate*1000)/10)
	}
	row := []string{name, fmt.Sprint(t.HandedOver), fmt.Sprint(t.Delivered), some(t.Dead), some(t.Cancelled), rate}
	for _, ms := range []*float64{t.P50, t.P95, t.P99} {
		took := ""
		if ms != nil {
			took = tookOf(*ms)
		}
		row = append(row, took)
	}
	return row
}

// countEvents shows how many events have each status, and what became of those of the last hours.
func (c *cli) countEvents(ctx context.Context) error {
	var body struct {
		Statuses     map[fsm.OutboxStatus]int `json:"statuses"`
		WaitingSince int64                    `json:"waiting_since"`
		Since        int64                    `json:"since"`
		Total        shownTally               `json:"total"`
		Providers    []shownTally             `json:"providers"`
	}
	q := url.Values{}
	if c.outbox.hours != 0 {
		q.Set("hours", fmt.Sprint(c.outbox.hours))
	}
	if c.outbox.provider != "" {
		q.Set("provider", c.outbox.provider)
	}
	path := strings.TrimSuffix(tallyPath+"?"+q.Encode(), "?")
	if printed, err := c.askAt(ctx, c.apiPort(), http.MethodGet, path, nil, &body); printed || err != nil {
		return fromOutbox(err)
	}
	var now []string
	for _, s := range fsm.OutboxStatuses {
		if n := body.Statuses[s]; n > 0 {
			now = append(now, fmt.Sprint(n, " ", s))
		}
	}
	if err := c.fields([][]string{
		{"now", cmp.Or(strings.Join(now, ", "), "no events")},
		{"oldest waiting", since(ofMillis(body.WaitingSince), c.now())},
		{"counted since", stamp(ofMillis(body.Since))},
	}); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(c.out)
	rows := [][]string{{
		"PROVIDER", "HANDED OVER", "DELIVERED", "DEAD", "CANCELLED", "SUCCESS", "P50", "P95", "P99",
	}}
	for _, t := range body.Providers {
		name := "(none)"
		if t.Provider != nil {
			name = *t.Provider
		}
		rows = append(rows, t.row(name))
	}
	return c.rows(append(rows, body.Total.row("(all)")), "events stats", "")
}
