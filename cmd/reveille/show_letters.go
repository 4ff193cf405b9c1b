package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const lettersPath = "/api/v1/dead-letters"

type shownLetter struct {
	ID           string    `json:"id"`
	Subscription string    `json:"subscription_id"`
	Stream       string    `json:"stream"`
	DeliveryID   string    `json:"delivery_id"`
	From         string    `json:"from"`
	Skip         int64     `json:"skip"`
	Events       int       `json:"events"`
	Attempts     int       `json:"attempts"`
	Class        string    `json:"class"`
	Reason       string    `json:"reason"`
	StatusCode   int       `json:"status_code"`
	ResponseBody string    `json:"response_body"`
	FailingSince time.Time `json:"failing_since"`
	DeadAt       time.Time `json:"dead_at"`
}

func (c *cli) letters(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "discard":
		return c.discardLetters(ctx, args[1:])
	case len(args) > 0 && args[0] == "replay":
		return c.replayLetters(ctx, args[1:])
	case len(args) == 1:
		return c.letter(ctx, args[0])
	case len(args) > 1:
		return usageError{"usage: reveille dead-letters [flags] [ID|replay [ID…]|discard [ID…]]"}
	}
	var body struct {
		DeadLetters []shownLetter `json:"dead_letters"`
		Next        string        `json:"next"`
	}
	path := c.list(lettersPath, [2]string{"subscription", c.subscription}, [2]string{"stream", c.stream})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"DEAD LETTER", "SUBSCRIPTION", "STREAM", "FROM", "EVENTS", "ATTEMPTS", "DEAD SINCE", "REASON"}}
	for _, l := range body.DeadLetters {
		rows = append(rows, []string{
			l.ID, l.Subscription, l.Stream, fromOf(l), fmt.Sprint(l.Events), fmt.Sprint(l.Attempts), stamp(l.DeadAt),
			l.Reason,
		})
	}
	return c.rows(rows, "dead-letters", body.Next)
}

func (c *cli) letter(ctx context.Context, id string) error {
	var l shownLetter
	if printed, err := c.ask(ctx, http.MethodGet, lettersPath+"/"+url.PathEscape(id), nil, &l); printed || err != nil {
		return err
	}
	failing := ""
	if !l.FailingSince.IsZero() {
		failing = stamp(l.FailingSince)
	}
	return c.fields([][]string{
		{"dead letter", l.ID},
		{"subscription", l.Subscription},
		{"stream", l.Stream},
		{"delivery", l.DeliveryID},
		{"from", fromOf(l)},
		{"events", fmt.Sprint(l.Events)},
		{"attempts", fmt.Sprint(l.Attempts)},
		{"reason", l.Reason},
		{"response", l.ResponseBody},
		{"failing since", failing},
		{"dead since", stamp(l.DeadAt)},
	})
}

// fromOf is where the events are: a read from that offset shows some others before them.
func fromOf(l shownLetter) string {
	if l.Skip == 0 {
		return l.From
	}
	return fmt.Sprintf("%s +%d", l.From, l.Skip)
}

// discardLetters discards those that are named, or all of a subscription.
func (c *cli) discardLetters(ctx context.Context, ids []string) error {
	if err := c.which("discard", ids); err != nil {
		return err
	}
	discarded := 0
	for _, id := range ids {
		var body struct{ Discarded int }
		_, err := c.ask(ctx, http.MethodDelete, lettersPath+"/"+url.PathEscape(id), nil, &body)
		if err != nil && len(ids) > 1 {
			return fmt.Errorf("%s: %w (%d discarded before)", printable(id), err, discarded)
		} else if err != nil {
			return err
		}
		discarded += body.Discarded
	}
	for more := c.subscription != ""; more; {
		var body struct {
			Discarded int
			More      bool
		}
		of := map[string]string{"subscription": c.subscription}
		if _, err := c.ask(ctx, http.MethodPost, lettersPath+"/discard", of, &body); err != nil {
			return err
		}
		discarded, more = discarded+body.Discarded, body.More
	}
	if c.json {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "%d discarded\n", discarded)
	return err
}

// which refuses a command that says of no dead letter, or of too many, that it is meant.
func (c *cli) which(command string, ids []string) error {
	if (len(ids) > 0) == (c.subscription != "") {
		return usageError{
			"dead-letters " + command + ": name either dead letters, or --subscription ID for all that it has",
		}
	}
	return nil
}

// replayLetters has those replayed that are named, or all of a subscription.
func (c *cli) replayLetters(ctx context.Context, ids []string) error {
	if err := c.which("replay", ids); err != nil {
		return err
	}
	var all struct{ Queued, Refused int }
	for _, id := range ids {
		var body struct{ Queued int }
		_, err := c.ask(ctx, http.MethodPost, lettersPath+"/"+url.PathEscape(id)+"/replay", nil, &body)
		if err != nil && len(ids) > 1 {
			return fmt.Errorf("%s: %w (%d are replayed before it)", printable(id), err, all.Queued)
		} else if err != nil {
			return err
		}
		all.Queued += body.Queued
	}
	of := map[string]string{"subscription": c.subscription}
	for more := c.subscription != ""; more; {
		var body struct {
			Queued, Refused int
			More            bool
			Next            string
		}
		if _, err := c.ask(ctx, http.MethodPost, lettersPath+"/replay", of, &body); err != nil {
			return err
		}
		all.Queued, all.Refused = all.Queued+body.Queued, all.Refused+body.Refused
		more, of["next"] = body.More, body.Next
	}
	if c.json {
		return nil
	}
	refused := ""
	if all.Refused > 0 {
		refused = fmt.Sprintf("; %d cannot be: their stream or subscription is gone, or another one", all.Refused)
	}
	_, err := fmt.Fprintf(c.out, "%d to be replayed, those of a stream one by one%s\n", all.Queued, refused)
	return err
}
