package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const subscriptionsPath = "/api/v1/subscriptions"

// shownSubscription is what the operator's API answers of one, as far as it is shown.
type shownSubscription struct {
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

// conditionOf does not leave an operator with "unknown": what was looked at is known. The endpoint alone can have
// "asked to wait".
func conditionOf(s shownSubscription) string {
	const paused = "paused by operator"
	condition := strings.ReplaceAll(s.Condition, "_", " ")
	switch healthy := s.Condition == "ok" || s.Condition == "unknown"; {
	case s.Paused && healthy:
		return paused
	case s.Paused:
		return paused + ", " + condition
	case s.Condition == "unknown":
		return fmt.Sprintf("ok in %d of %d", s.LookedAt, s.Consumers)
	}
	return condition
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
