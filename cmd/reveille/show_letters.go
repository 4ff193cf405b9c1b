package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"reveille/httpapi/operator"
)

const lettersPath = "/api/v1/dead-letters"

func (c *cli) letters(ctx context.Context, args []string) error {
	if err := c.span(); err != nil {
		return err
	}
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
	var body operator.LettersBody
	path := c.list(lettersPath, [2]string{"subscription", c.subscription}, [2]string{"stream", c.stream},
		[2]string{"since", c.since}, [2]string{"until", c.until})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"DEAD LETTER", "SUBSCRIPTION", "STREAM", "FROM", "EVENTS", "ATTEMPTS", "DEAD SINCE", "REASON"}}
	for _, l := range body.DeadLetters {
		rows = append(rows, []string{
			l.ID, l.Subscription, l.Stream, fromOf(l.From, l.Skip), eventsOf(l), fmt.Sprint(l.Attempts),
			stamp(l.DeadAt), l.Reason,
		})
	}
	return c.rows(rows, "dead-letters", body.Next)
}

func (c *cli) letter(ctx context.Context, id string) error {
	var l operator.LetterBody
	if printed, err := c.ask(ctx, http.MethodGet, lettersPath+"/"+url.PathEscape(id), nil, &l); printed || err != nil {
		return err
	}
	return c.fields([][]string{
		{"dead letter", l.ID},
		{"subscription", l.Subscription},
		{"stream", l.Stream},
		{"delivery", l.DeliveryID},
		{"from", fromOf(l.From, l.Skip)},
		{"to", l.To},
		{"events", eventsOf(l)},
		{"attempts", fmt.Sprint(l.Attempts)},
		{"class", l.Class},
		{"reason", l.Reason},
		{"response", l.ResponseBody},
		{"failing since", stamp(timeOf(l.FailingSince))},
		{"dead since", stamp(l.DeadAt)},
	})
}

// fromOf returns where the events are. A read from that offset shows some other events first.
func fromOf(from string, skip int64) string {
	return from + when(skip > 0, fmt.Sprintf(" +%d", skip))
}

// eventsOf returns the number of events, if it is known.
func eventsOf(l operator.LetterBody) string {
	return cmp.Or(some(int(l.Events)), "unknown")
}

// which returns the filters of a command that changes dead letters. The command concerns either the dead letters in
// ids, or all of a subscription that match the filters.
func (c *cli) which(command string, ids []string) (map[string]string, error) {
	filters := map[string]string{}
	for name, value := range map[string]string{
		"subscription": c.subscription, "stream": c.stream, "since": c.since, "until": c.until,
	} {
		if value != "" {
			filters[name] = value
		}
	}
	switch {
	case len(ids) > 0 && len(filters) > 0 || len(ids) == 0 && c.subscription == "":
		return nil, usageError{
			"dead-letters " + command + ": name either dead letters, or --subscription ID for all that it has " +
				"(--stream, --since and --until leave out others)",
		}
	case c.cursor != "" || c.limit != defaultLimit:
		return nil, usageError{"dead-letters " + command + ": --limit and --cursor are for the list"}
	}
	return filters, nil
}

// letterWork is the result of a request that changes dead letters.
type letterWork struct {
	Discarded, Queued, Refused int
	Next                       string
}

// work sends a request for each dead letter in ids. Without ids, it sends requests for all that match the filters,
// until these are done.
func (c *cli) work(ctx context.Context, command string, ids []string, one func(id string) (method, path string)) (
	sum letterWork, err error,
) {
	filters, err := c.which(command, ids)
	if err != nil {
		return sum, err
	}
	add := func(method, path string, body any) (next string, err error) {
		var w letterWork
		if _, err = c.ask(ctx, method, path, body, &w); err != nil && sum.Discarded+sum.Queued > 0 {
			err = fmt.Errorf("%w (%d were worked on before)", err, sum.Discarded+sum.Queued)
		}
		sum.Discarded, sum.Queued, sum.Refused = sum.Discarded+w.Discarded, sum.Queued+w.Queued, sum.Refused+w.Refused
		return w.Next, err
	}
	for _, id := range ids {
		method, path := one(lettersPath + "/" + url.PathEscape(id))
		if _, err := add(method, path, nil); err != nil && len(ids) > 1 {
			return sum, fmt.Errorf("%s: %w", printable(id), err)
		} else if err != nil {
			return sum, err
		}
	}
	for more := len(ids) == 0; more; more = filters["cursor"] != "" {
		if filters["cursor"], err = add(http.MethodPost, lettersPath+"/"+command, filters); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (c *cli) discardLetters(ctx context.Context, ids []string) error {
	sum, err := c.work(ctx, "discard", ids, func(path string) (string, string) { return http.MethodDelete, path })
	if err != nil || c.output == outputJSON {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%d discarded\n", sum.Discarded)
	return err
}

func (c *cli) replayLetters(ctx context.Context, ids []string) error {
	sum, err := c.work(ctx, "replay", ids, func(path string) (string, string) {
		return http.MethodPost, path + "/replay"
	})
	if err != nil || c.output == outputJSON {
		return err
	}
	refused := when(sum.Refused > 0,
		fmt.Sprintf("; %d cannot be: their stream or subscription is gone, or another one", sum.Refused))
	_, err = fmt.Fprintf(c.out, "%d to be replayed, those of a stream one by one%s\n", sum.Queued, refused)
	return err
}
