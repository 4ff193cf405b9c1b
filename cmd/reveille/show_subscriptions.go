package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
)

const subscriptionsPath = "/api/v1/subscriptions"

// shownSubscription is a subscription in the operator's API, with the fields that the commands show.
type shownSubscription struct {
	ID          string                       `json:"subscription_id"`
	Pattern     string                       `json:"pattern"`
	Mode        string                       `json:"mode"`
	Start       string                       `json:"start"`
	Format      string                       `json:"format"`
	Ordering    string                       `json:"ordering"`
	Rate        int                          `json:"rate"`
	Events      []string                     `json:"events"`
	TypePath    string                       `json:"type_path"`
	Filter      map[string][]json.RawMessage `json:"filter"`
	WebhookHost string                       `json:"webhook_host"`
	Description string                       `json:"description"`
	CreatedAt   time.Time                    `json:"created_at"`
	Paused      bool                         `json:"paused"`
	Disabled    bool                         `json:"disabled"`
	PausedSince time.Time                    `json:"paused_since"`
	Consent     *shownConsent                `json:"consent"`
	Backfill    *struct {
		Done  int `json:"done"`
		Total int `json:"total"`
	} `json:"backfill"`
	AtLeast      bool           `json:"at_least"`
	Consumers    int            `json:"consumers"`
	Asides       int            `json:"asides"`
	Pending      int            `json:"pending"`
	States       map[string]int `json:"states"`
	FailingSince time.Time      `json:"failing_since"`
	LastError    string         `json:"last_error"`
	WaitingSince time.Time      `json:"waiting_since"`
	DeadLetters  int            `json:"dead_letters"`
	Condition    string         `json:"condition"`
	AsOf         time.Time      `json:"as_of"`

	PreviousSignsUntil time.Time      `json:"previous_signs_until"`
	LastAttempt        *shownDelivery `json:"last_attempt"`
	LastFailedAttempt  *shownDelivery `json:"last_failed_attempt"`
}

func (c *cli) subscriptions(ctx context.Context, args []string) error {
	if len(args) == 1 {
		return c.oneSubscription(ctx, args[0])
	}
	var body struct {
		Subscriptions []shownSubscription `json:"subscriptions"`
		Next          string              `json:"next"`
		AsOf          time.Time           `json:"as_of"`
	}
	path := c.list(subscriptionsPath, [2]string{"failing", when(c.failing, "true")})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{
		"SUBSCRIPTION", "PATTERN", "MODE", "WEBHOOK", "CONSUMERS", "PENDING", "CONDITION",
		"WAITING", "FAILING SINCE", "LAST ERROR", "DEAD LETTERS",
	}}
	slices.SortStableFunc(body.Subscriptions, func(a, b shownSubscription) int {
		return cmp.Compare(a.severity(), b.severity())
	})
	for _, s := range body.Subscriptions {
		rows = append(rows, []string{
			s.ID, s.Pattern, s.Mode, s.WebhookHost, fmt.Sprint(s.Consumers), atLeast(s.AtLeast, some(s.Pending)),
			conditionOf(s), orLonger(s.AtLeast, relative(s.WaitingSince, body.AsOf)),
			orLonger(s.AtLeast, relative(s.FailingSince, body.AsOf)),
			cut(s.LastError, errorWidth), some(s.DeadLetters),
		})
	}
	return c.rows(rows, "subscriptions", body.Next)
}

// severity orders subscriptions: the worst comes first.
func (s shownSubscription) severity() int {
	if i := slices.Index(fsm.Severities, fsm.Condition(s.Condition)); i >= 0 {
		return i
	}
	return len(fsm.Severities)
}

// errorWidth bounds the characters of an error in a table of subscriptions.
const errorWidth = 60

// conditionOf returns the worst condition, with the number of consumers in it. Only the endpoint can have "asked to
// wait".
func conditionOf(s shownSubscription) string {
	condition := strings.ReplaceAll(s.Condition, "_", " ")
	if n := s.States[s.Condition]; n > 0 {
		condition = atLeast(s.AtLeast, fmt.Sprint(n)) + " " + condition
	} else if s.AtLeast && s.Condition == "ok" && !s.Paused {
		condition = "not known"
	}
	by := "paused by operator"
	if s.Disabled {
		by = "paused by Reveille"
	}
	switch {
	case s.Paused && (s.Condition == "ok" || s.Condition == "paused"):
		return by
	case s.Paused:
		return by + ", " + condition
	}
	return condition
}

// atLeast marks a number that may be higher, and orLonger what may be longer ago. Nothing is not known then.
func atLeast(is bool, number string) string {
	return when(is, "at least ") + cmp.Or(number, when(is, "0"))
}

func orLonger(is bool, ago string) string {
	if is && ago == "" {
		return "not known"
	}
	return ago + when(is, " or longer")
}

// cut shortens a text to this many characters.
func cut(text string, width int) string {
	if all := []rune(text); len(all) > width {
		return string(all[:width-1]) + "…"
	}
	return text
}

// filterOf returns the values that a subscription allows at each path.
func filterOf(s shownSubscription) string {
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(s.Filter)) {
		var values []string
		for _, v := range s.Filter[path] {
			values = append(values, string(v))
		}
		paths = append(paths, path+": "+strings.Join(values, " or "))
	}
	return strings.Join(paths, ", ")
}

// lastOf returns the result of an attempt, and when it was made.
func lastOf(d *shownDelivery, now time.Time) string {
	if d == nil {
		return ""
	}
	text := d.Result
	if d.Reason == "" && d.StatusCode > 0 {
		text += fmt.Sprintf(" (status %d)", d.StatusCode)
	}
	if d.Reason != "" {
		text += " (" + d.Reason + "; class " + d.Class + ")"
	}
	return text + ", " + since(d.At, now)
}

func (c *cli) oneSubscription(ctx context.Context, id string) error {
	var s shownSubscription
	path := subscriptionsPath + "/" + url.PathEscape(id)
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &s); printed || err != nil {
		return err
	}
	asides := when(s.Asides > 0, fmt.Sprintf("%d failed deliveries or replays go on by themselves", s.Asides))
	var states []string
	for _, state := range []string{"idle", "waking", "live", "given_up", "failing", "retired", "hidden"} {
		if n := s.States[state]; n > 0 {
			states = append(states, atLeast(s.AtLeast, fmt.Sprint(n))+" "+state)
		}
	}
	fields := [][]string{
		{"subscription", s.ID},
		{"pattern", s.Pattern},
		{"mode", s.Mode},
		{"start", s.Start},
		{"format", s.Format},
		{"ordering", s.Ordering},
		{"rate", when(s.Rate > 0, fmt.Sprint(s.Rate, " requests a minute"))},
		{"events", strings.Join(s.Events, ", ")},
		{"type path", s.TypePath},
		{"filter", filterOf(s)},
		{"webhook", s.WebhookHost},
		{"description", s.Description},
		{"created", stamp(s.CreatedAt)},
		{"consumers", fmt.Sprint(s.Consumers)},
		{"asides", asides},
		{"pending", atLeast(s.AtLeast, fmt.Sprint(s.Pending))},
		{"oldest waiting", orLonger(s.AtLeast, since(s.WaitingSince, s.AsOf))},
		{"states", strings.Join(states, ", ")},
		{"condition", conditionOf(s)},
		{"paused since", since(s.PausedSince, s.AsOf)},
		{"failing since", orLonger(s.AtLeast, since(s.FailingSince, s.AsOf))},
		{"last error", s.LastError},
		{"dead letters", some(s.DeadLetters)},
		{"last attempt", lastOf(s.LastAttempt, s.AsOf)},
		{"last failed attempt", lastOf(s.LastFailedAttempt, s.AsOf)},
	}
	if s.Backfill != nil {
		fields = append(fields, []string{"backfill", fmt.Sprintf("%d of %d", s.Backfill.Done, s.Backfill.Total)})
	}
	until := s.PreviousSignsUntil
	fields = append(fields, []string{"previous secret", when(!until.IsZero(), "signs until "+stamp(until))})
	return c.fields(fields)
}
