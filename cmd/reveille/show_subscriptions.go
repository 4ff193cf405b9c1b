package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

const subscriptionsPath = "/api/v1/subscriptions"

func (c *cli) subscriptions(ctx context.Context, args []string) error {
	if len(args) == 1 {
		return c.oneSubscription(ctx, args[0])
	}
	var body operator.SubscriptionsBody
	path := c.list(subscriptionsPath, [2]string{"failing", when(c.failing, "true")})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{
		"SUBSCRIPTION", "PATTERN", "MODE", "WEBHOOK", "CONSUMERS", "PENDING", "CONDITION",
		"WAITING", "FAILING SINCE", "LAST ERROR", "DEAD LETTERS",
	}}
	slices.SortStableFunc(body.Subscriptions, func(a, b operator.SubscriptionBody) int {
		return cmp.Compare(severityOf(a), severityOf(b))
	})
	for _, s := range body.Subscriptions {
		rows = append(rows, []string{
			s.ID, s.Pattern, string(s.Mode), s.WebhookHost, fmt.Sprint(s.Consumers),
			atLeast(s.AtLeast, some(s.Pending)), conditionOf(s),
			orLonger(s.AtLeast, relative(timeOf(s.WaitingSince), body.AsOf)),
			orLonger(s.AtLeast, relative(timeOf(s.FailingSince), body.AsOf)),
			cut(s.LastError, errorWidth), some(s.DeadLetters),
		})
	}
	return c.rows(rows, "subscriptions", body.Next)
}

// severityOf orders subscriptions: the worst comes first.
func severityOf(s operator.SubscriptionBody) int {
	if i := slices.Index(fsm.Severities, s.Condition); i >= 0 {
		return i
	}
	return len(fsm.Severities)
}

// errorWidth bounds the characters of an error in a table of subscriptions.
const errorWidth = 60

// conditionOf returns the worst condition, with the number of consumers in it. Only the endpoint can have "asked to
// wait".
func conditionOf(s operator.SubscriptionBody) string {
	condition := strings.ReplaceAll(string(s.Condition), "_", " ")
	if n := s.States[string(s.Condition)]; n > 0 {
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
func filterOf(s operator.SubscriptionBody) string {
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
func lastOf(d *operator.DeliveryBody, now time.Time) string {
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
	var s operator.SubscriptionBody
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
	now := timeOf(s.AsOf)
	fields := [][]string{
		{"subscription", s.ID},
		{"pattern", s.Pattern},
		{"mode", string(s.Mode)},
		{"start", s.Start},
		{"format", string(s.Format)},
		{"ordering", string(s.Ordering)},
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
		{"oldest waiting", orLonger(s.AtLeast, since(timeOf(s.WaitingSince), now))},
		{"states", strings.Join(states, ", ")},
		{"condition", conditionOf(s)},
		{"paused since", since(timeOf(s.PausedSince), now)},
		{"failing since", orLonger(s.AtLeast, since(timeOf(s.FailingSince), now))},
		{"last error", s.LastError},
		{"dead letters", some(s.DeadLetters)},
		{"last attempt", lastOf(s.LastAttempt, now)},
		{"last failed attempt", lastOf(s.LastFailedAttempt, now)},
	}
	if s.Backfill != nil {
		fields = append(fields, []string{"backfill", fmt.Sprintf("%d of %d", s.Backfill.Done, s.Backfill.Total)})
	}
	until := s.PreviousSignsUntil
	fields = append(fields, []string{"previous secret", when(!until.IsZero(), "signs until "+stamp(until))})
	return c.fields(fields)
}
