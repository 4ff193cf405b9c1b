package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"reveille/fsm"
)

// The answers of the operator's API, as far as they are shown.
type (
	shownSubscription struct {
		ID          string    `json:"subscription_id"`
		Pattern     string    `json:"pattern"`
		Mode        string    `json:"mode"`
		Start       string    `json:"start"`
		Format      string    `json:"format"`
		Ordering    string    `json:"ordering"`
		WebhookHost string    `json:"webhook_host"`
		Description string    `json:"description"`
		CreatedAt   time.Time `json:"created_at"`
		Paused      bool      `json:"paused"`
		Backfill    *struct {
			Done  int `json:"done"`
			Total int `json:"total"`
		} `json:"backfill"`
		Consumers   int            `json:"consumers"`
		DeadLetters int            `json:"dead_letters"`
		Condition   string         `json:"condition"`
		LookedAt    int            `json:"looked_at"`
		States      map[string]int `json:"states"`

		PreviousSignsUntil time.Time `json:"previous_signs_until"`
	}
	shownConsumer struct {
		ID           string    `json:"consumer_id"`
		Subscription string    `json:"subscription_id"`
		Primary      string    `json:"primary_stream"`
		AsideOf      string    `json:"aside_of"`
		Asides       int       `json:"asides"`
		Partition    int       `json:"partition"`
		State        string    `json:"state"`
		Condition    string    `json:"condition"`
		Epoch        int64     `json:"epoch"`
		WakeID       string    `json:"wake_id"`
		WokenAt      time.Time `json:"woken_at"`
		Attempt      int       `json:"attempt"`
		WaitsFor     string    `json:"waits_for"`
		Deadline     time.Time `json:"deadline"`
		FailingSince time.Time `json:"failing_since"`
		LastError    string    `json:"last_error"`
		HiddenSince  time.Time `json:"hidden_since"`
		Streams      []struct {
			Path    string `json:"path"`
			Acked   string `json:"acked"`
			Tail    string `json:"tail"`
			Pending bool   `json:"pending"`
		} `json:"streams"`
		AsOf time.Time `json:"as_of"`
	}
	shownStream struct {
		Path      string    `json:"path"`
		Since     time.Time `json:"known_since"`
		Awaited   bool      `json:"awaited"`
		Partition int       `json:"partition"`
		Tail      string    `json:"tail"`
	}
)

const subscriptionsPath, consumersPath, streamsPath = "/api/v1/subscriptions", "/api/v1/consumers", "/api/v1/streams"

func (c *cli) subscriptions(ctx context.Context, args []string) error {
	if len(args) == 1 {
		return c.oneSubscription(ctx, args[0])
	}
	var body struct {
		Subscriptions []shownSubscription `json:"subscriptions"`
		Next          string              `json:"next"`
	}
	if printed, err := c.ask(ctx, http.MethodGet, c.list(subscriptionsPath), nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"SUBSCRIPTION", "PATTERN", "MODE", "WEBHOOK", "CONSUMERS", "CONDITION", "DEAD LETTERS"}}
	for _, s := range body.Subscriptions {
		letters := ""
		if s.DeadLetters > 0 {
			letters = fmt.Sprint(s.DeadLetters)
		}
		rows = append(rows, []string{
			s.ID, s.Pattern, s.Mode, s.WebhookHost, fmt.Sprint(s.Consumers), conditionOf(s), letters,
		})
	}
	return c.rows(rows, "subscriptions", body.Next)
}

// conditionOf does not leave an operator with "unknown": what was looked at is known. "paused" alone is the endpoint,
// which has asked for that.
func conditionOf(s shownSubscription) string {
	const paused = "paused by operator"
	switch healthy := s.Condition == "ok" || s.Condition == "unknown"; {
	case s.Paused && healthy:
		return paused
	case s.Paused:
		return paused + ", " + s.Condition
	case s.Condition == "unknown":
		return fmt.Sprintf("ok in %d of %d", s.LookedAt, s.Consumers)
	}
	return s.Condition
}

func (c *cli) oneSubscription(ctx context.Context, id string) error {
	var s shownSubscription
	if printed, err := c.ask(
		ctx, http.MethodGet, subscriptionsPath+"/"+url.PathEscape(id), nil, &s,
	); printed || err != nil {
		return err
	}
	consumers := fmt.Sprint(s.Consumers)
	if s.LookedAt < s.Consumers {
		consumers += fmt.Sprintf(", of which %d were looked at", s.LookedAt)
	}
	var states []string
	for _, state := range []string{"idle", "waking", "live", "given_up", "failing", "retired", "hidden"} {
		if n := s.States[state]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	letters := ""
	if s.DeadLetters > 0 {
		letters = fmt.Sprint(s.DeadLetters)
	}
	fields := [][]string{
		{"subscription", s.ID},
		{"pattern", s.Pattern},
		{"mode", s.Mode},
		{"start", s.Start},
		{"format", s.Format},
		{"ordering", s.Ordering},
		{"webhook", s.WebhookHost},
		{"description", s.Description},
		{"created", stamp(s.CreatedAt)},
		{"consumers", consumers},
		{"states", strings.Join(states, ", ")},
		{"condition", conditionOf(s)},
		{"dead letters", letters},
	}
	if s.Backfill != nil {
		fields = append(fields, []string{"backfill", fmt.Sprintf("%d of %d", s.Backfill.Done, s.Backfill.Total)})
	}
	if !s.PreviousSignsUntil.IsZero() {
		fields = append(fields, []string{"previous secret", "signs until " + stamp(s.PreviousSignsUntil)})
	}
	return c.fields(fields)
}

func (c *cli) consumers(ctx context.Context, _ []string) error {
	var body struct {
		Consumers []shownConsumer `json:"consumers"`
		Next      string          `json:"next"`
		AsOf      time.Time       `json:"as_of"`
	}
	path := c.list(consumersPath, [2]string{"subscription", c.subscription}, [2]string{"state", c.state})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"SUBSCRIPTION", "STREAM", "STATE", "EPOCH", "ATTEMPT", "DEADLINE", "LAST ERROR"}}
	for _, s := range body.Consumers {
		attempt := ""
		if s.Attempt > 0 {
			attempt = fmt.Sprint(s.Attempt)
		}
		rows = append(rows, []string{
			s.Subscription, s.Primary, stateOf(s), fmt.Sprint(s.Epoch), attempt,
			relative(s.Deadline, body.AsOf), s.LastError,
		})
	}
	return c.rows(rows, "consumers", body.Next)
}

func (c *cli) consumer(ctx context.Context, args []string) error {
	id := args[0]
	if len(args) == 2 {
		path, err := fsm.CanonicalPath(args[1])
		if err != nil {
			return usageError{fmt.Sprintf("stream %q: %v", args[1], err)}
		}
		id = fsm.ConsumerID(id, path)
	}
	if _, _, ok := fsm.ParseAnyConsumerID(id); !ok {
		return usageError{fmt.Sprintf(
			"%q is no consumer's id: expected one such as agent-handler:%%2Fagents%%2Ftask-1, or SUBSCRIPTION STREAM",
			id,
		)}
	}
	var s shownConsumer
	if printed, err := c.ask(ctx, http.MethodGet, consumersPath+"/"+id, nil, &s); printed || err != nil {
		return err
	}
	deadline, attempt, asides := "", "", ""
	if s.Asides > 0 {
		asides = fmt.Sprintf("%d failed deliveries are retried by themselves", s.Asides)
	}
	if s.Attempt > 0 {
		attempt = fmt.Sprint(s.Attempt)
	}
	if !s.Deadline.IsZero() {
		deadline = fmt.Sprintf("%s (%s): %s", relative(s.Deadline, s.AsOf), stamp(s.Deadline), map[string]string{
			"answer": "the attempt counts as failed", "attempt": "the next attempt", "callback": "it counts as asleep",
			"stream": "its stream is looked for again", "resumption": "its subscription is paused, so it waits on",
		}[s.WaitsFor])
	}
	fields := [][]string{
		{"consumer", s.ID},
		{"subscription", s.Subscription},
		{"stream", s.Primary},
		{"aside of", s.AsideOf},
		{"state", stateOf(s)},
		{"asides", asides},
		{"failing since", since(s.FailingSince, s.AsOf)},
		{"last error", s.LastError},
		{"hidden since", since(s.HiddenSince, s.AsOf)},
		{"epoch", fmt.Sprint(s.Epoch)},
		{"wake id", s.WakeID},
		{"woken", since(s.WokenAt, s.AsOf)},
		{"attempt", attempt},
		{"deadline", deadline},
		{"partition", fmt.Sprint(s.Partition)},
	}
	if err := c.fields(fields); err != nil {
		return err
	}
	rows := [][]string{{"STREAM", "ACKED", "TAIL", "PENDING"}}
	for _, st := range s.Streams {
		pending := ""
		if st.Pending {
			pending = "yes"
		}
		rows = append(rows, []string{st.Path, st.Acked, st.Tail, pending})
	}
	_, _ = fmt.Fprintln(c.out)
	return c.rows(rows, "", "")
}

func (c *cli) streams(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return c.nameStreams(ctx, args[0], args[1:])
	}
	var body struct {
		Streams []shownStream `json:"streams"`
		Next    string        `json:"next"`
	}
	watched := ""
	if c.watched {
		watched = "true"
	}
	if printed, err := c.ask(
		ctx, http.MethodGet, c.list(streamsPath, [2]string{"watched", watched}), nil, &body,
	); printed || err != nil {
		return err
	}
	rows := [][]string{{"STREAM", "KNOWN SINCE", ""}}
	if c.watched {
		rows = [][]string{{"STREAM", "TAIL", "PARTITION"}}
	}
	for _, s := range body.Streams {
		row := []string{s.Path, stamp(s.Since), ""}
		switch {
		case c.watched:
			row = []string{s.Path, s.Tail, fmt.Sprint(s.Partition)}
		case s.Awaited:
			row[2] = "awaited: the stream server did not have it yet"
		}
		rows = append(rows, row)
	}
	return c.rows(rows, "streams", body.Next)
}

func (c *cli) nameStreams(ctx context.Context, what string, paths []string) error {
	method := map[string]string{"name": http.MethodPost, "forget": http.MethodDelete}[what]
	if method == "" || len(paths) == 0 {
		return usageError{"usage: reveille streams [flags] [name|forget STREAM…]"}
	}
	var body struct {
		Streams int `json:"streams"`
	}
	if printed, err := c.ask(
		ctx, method, streamsPath, map[string][]string{"streams": paths}, &body,
	); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%d %s\n", body.Streams,
		map[string]string{"name": "named", "forget": "forgotten, with their consumers"}[what])
	return err
}

func (c *cli) pause(ctx context.Context, args []string) error {
	var body struct {
		ID        string `json:"subscription_id"`
		Consumers int    `json:"consumers"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0]) + "/pause"
	if printed, err := c.ask(ctx, http.MethodPost, path, nil, &body); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s is paused: its %d consumers get nothing until it is resumed\n",
		printable(body.ID), body.Consumers)
	return err
}

func (c *cli) resume(ctx context.Context, args []string) error {
	var body struct {
		ID string `json:"subscription_id"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0]) + "/resume"
	if printed, err := c.ask(ctx, http.MethodPost, path, nil, &body); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s is delivered to again\n", printable(body.ID))
	return err
}

func (c *cli) retry(ctx context.Context, args []string) error {
	var body struct {
		Consumers int `json:"consumers"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0]) + "/retry"
	if printed, err := c.ask(ctx, http.MethodPost, path, nil, &body); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "the next attempt of %d consumers is due now\n", body.Consumers)
	return err
}

func (c *cli) logLevel(ctx context.Context, args []string) error {
	method, body := http.MethodGet, any(nil)
	var level struct {
		Level string `json:"level"`
	}
	if len(args) == 1 {
		level.Level = args[0]
		method, body = http.MethodPut, level
	}
	if printed, err := c.ask(ctx, method, "/api/v1/log-level", body, &level); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, printable(level.Level))
	return err
}

func (c *cli) versions(ctx context.Context, _ []string) error {
	var body struct {
		Version string `json:"version"`
	}
	if printed, err := c.ask(ctx, http.MethodGet, "/api/v1/version", nil, &body); printed || err != nil {
		return err
	}
	return c.fields([][]string{{"this program", programVersion()}, {"the one that runs", body.Version}})
}

// fields prints names and values, one a line, without those that have no value.
func (c *cli) fields(fields [][]string) error {
	t := c.table()
	for _, f := range fields {
		if f[1] != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", f[0], printable(f[1]))
		}
	}
	return t.Flush()
}

// rows prints a table. A list that goes on ends with the command that shows more.
func (c *cli) rows(rows [][]string, list, next string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
	}
	// What no row has a value for is left out.
	for i := len(rows[0]) - 1; i >= 0; i-- {
		if len(rows) > 1 && !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[i] != "" }) {
			for j, row := range rows {
				rows[j] = slices.Delete(row, i, i+1)
			}
		}
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		if _, err := fmt.Fprintln(c.out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	if next == "" {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "\nThere is more: reveille %s%s --cursor %s\n", list, c.filters(), next)
	return err
}

// filters returns the flags that the next page needs as well.
func (c *cli) filters() (flags string) {
	for _, f := range [][2]string{
		{"subscription", c.subscription},
		{"state", c.state},
		{"stream", c.stream},
		{"since", c.since},
		{"until", c.until},
	} {
		if f[1] != "" {
			flags += " --" + f[0] + " " + f[1]
		}
	}
	if c.watched {
		flags += " --watched"
	}
	if c.limit != defaultLimit {
		flags += fmt.Sprint(" --limit ", c.limit)
	}
	return flags
}

func stateOf(c shownConsumer) string {
	state := c.State
	if c.AsideOf != "" {
		state = "aside, " + state
	}
	if c.Condition == "ok" || c.Condition == "" {
		return state
	}
	return state + ", " + c.Condition
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t) + ", " + relative(t, now)
}

// relative is a time as seen from now.
func relative(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := t.Sub(now)
	unit := time.Second
	if d.Abs() < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	if d < 0 {
		return (-d).Round(unit).String() + " ago"
	}
	return "in " + d.Round(unit).String()
}

// printable keeps text that this program did not write from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
