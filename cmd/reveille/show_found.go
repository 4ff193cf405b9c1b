package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"reveille/httpapi/operator"
)

// find shows what has an ID.
func (c *cli) find(ctx context.Context, args []string) error {
	var body operator.FindBody
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

func (c *cli) showFound(f operator.FoundBody, now time.Time) error {
	fields := [][]string{
		{strings.ReplaceAll(f.Kind, "_", " "), f.ID},
		{"subscription", f.Subscription},
		{"stream", f.Stream},
		{"consumer", f.Consumer},
		{"state", f.State},
		{"next attempt", since(timeOf(f.NextAttemptAt), now)},
		{"blocked", blockedOf(f.Blocked)},
		{"last error", f.Reason},
		{"dead letter", f.Letter},
		{"more", moreOf(f)},
	}
	if err := c.fields(fields); err != nil || len(f.Attempts) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(c.out)
	return c.rows(attemptRows(f.Attempts, false), "", "")
}

// moreOf is the command that shows more.
func moreOf(f operator.FoundBody) string {
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
