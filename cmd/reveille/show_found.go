package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"reveille/fsm"
)

// found is something that a search has found.
type found struct {
	Kind          string    `json:"kind"`
	ID            string    `json:"id"`
	Subscription  string    `json:"subscription_id"`
	Stream        string    `json:"stream"`
	Consumer      string    `json:"consumer_id"`
	State         string    `json:"state"`
	NextAttemptAt time.Time `json:"next_attempt_at"`
	Blocked       struct {
		Reason fsm.BlockReason `json:"reason"`
	} `json:"blocked"`
	Letter   string          `json:"dead_letter_id"`
	Reason   string          `json:"reason"`
	Attempts []shownDelivery `json:"attempts"`
}

// find shows what has an ID.
func (c *cli) find(ctx context.Context, args []string) error {
	var body struct {
		Found []found   `json:"found"`
		AsOf  time.Time `json:"as_of"`
	}
	path := "/api/v1/find?q=" + url.QueryEscape(args[0])
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	for i, f := range body.Found {
		_, _ = fmt.Fprint(c.out, when(i > 0, "\n"))
		if err := c.showFound(f, body.AsOf); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) showFound(f found, now time.Time) error {
	blocked := ""
	if rule := f.Blocked.Reason.Rule(); rule.Says != "" {
		blocked = rule.Says + "; ended by " + rule.Ends
	}
	fields := [][]string{
		{strings.ReplaceAll(f.Kind, "_", " "), f.ID},
		{"subscription", f.Subscription},
		{"stream", f.Stream},
		{"consumer", f.Consumer},
		{"state", f.State},
		{"next attempt", since(f.NextAttemptAt, now)},
		{"blocked", blocked},
		{"last error", f.Reason},
		{"dead letter", f.Letter},
		{"more", f.command()},
	}
	if err := c.fields(fields); err != nil || len(f.Attempts) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(c.out)
	return c.rows(attemptRows(f.Attempts, false), "", "")
}

// command is the one that shows more.
func (f found) command() string {
	id := shellWord(f.ID)
	switch f.Kind {
	case "subscription":
		return "reveille subscriptions " + id
	case "consumer":
		return "reveille consumer " + id
	case "delivery", "wake":
		if len(f.Attempts) > 0 {
			return "reveille deliveries " + shellWord(f.Subscription) + " --id " + id + " --details"
		}
		return "reveille dead-letters " + shellWord(f.Letter)
	case "dead_letter":
		return "reveille dead-letters " + id
	case "replay":
		return "reveille replay --subscription " + shellWord(f.Subscription)
	case "event":
		return "reveille events " + id
	}
	return ""
}
