package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"reveille/httpapi/operator"
)

const replaysPath = "/api/v1/replays"

// replay lists the replays, starts to replay a span of a stream, or cancels replays.
func (c *cli) replay(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0 && c.wait:
		return c.waitForReplays(ctx, 0)
	case len(args) == 0:
		return c.replays(ctx)
	case len(args) == 1 && args[0] == "cancel":
		return c.cancelReplays(ctx)
	case len(args) == 2:
		return c.replaySpan(ctx, args[0], args[1])
	}
	return usageError{"usage: reveille replay [flags] [SUBSCRIPTION STREAM|cancel]"}
}

func (c *cli) replays(ctx context.Context) error {
	var body operator.QueuesBody
	path := c.list(replaysPath, [2]string{"subscription", c.subscription}, [2]string{"stream", c.stream})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{
		"SUBSCRIPTION", "STREAM", "DONE", "WAITING", "UNDER WAY", "AT", "ATTEMPT", "FAILING SINCE", "LAST ERROR",
	}}
	for _, r := range body.Replays {
		rows = append(rows, []string{
			r.Subscription, r.Stream, fmt.Sprint(r.Done), fmt.Sprint(r.Waiting), r.UnderWay,
			fromOf(r.At, r.Skip), some(r.Attempt), stamp(timeOf(r.FailingSince)), r.LastError,
		})
	}
	return c.rows(rows, "replay", body.Next)
}

// waitForReplays shows how many replays are done, until none is left. most is the least number in total.
func (c *cli) waitForReplays(ctx context.Context, most int) error {
	if c.output == outputJSON {
		return usageError{"replay: --wait shows progress, which --output json does not"}
	}
	return c.watch(ctx, func() (line string, over bool, err error) {
		waiting, failing := 0, ""
		for cursor := ""; ; {
			var body operator.QueuesBody
			c.cursor, c.limit = cursor, 1000
			path := c.list(replaysPath, [2]string{"subscription", c.subscription}, [2]string{"stream", c.stream})
			if _, err := c.ask(ctx, http.MethodGet, path, nil, &body); err != nil {
				return "", false, err
			}
			for _, r := range body.Replays {
				if waiting += r.Waiting; r.LastError != "" && failing == "" {
					failing = fmt.Sprintf("; %s fails: %s", r.Stream, r.LastError)
				}
			}
			if cursor = body.Next; cursor == "" {
				break
			}
		}
		if most = max(most, waiting); most == 0 {
			return "nothing is to be replayed", true, nil
		}
		return fmt.Sprintf("%d of %d replayed%s", most-waiting, most, failing), waiting == 0, nil
	})
}

// watch looks at something again and again, and prints each new line about it, until it is over.
func (c *cli) watch(ctx context.Context, look func() (line string, over bool, err error)) error {
	for shown := ""; ; {
		line, over, err := look()
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // rather than that of the request that was cut short
		}
		if err == nil && line != shown {
			shown = line
			err = c.progress(line, over)
		}
		if err == nil && !over {
			select {
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(waitEvery):
				continue
			}
		}
		if err != nil && shown != "" && isTerminal(c.out) {
			_, _ = fmt.Fprintln(c.out) // the error gets a line of its own
		}
		return err
	}
}

// waitEvery is the pause between two requests for the progress.
const waitEvery = 500 * time.Millisecond

// progress prints a line of progress. On a terminal, it replaces the line before.
func (c *cli) progress(text string, last bool) error {
	const clearLine = "\r\x1b[K"
	var err error
	if isTerminal(c.out) {
		if _, err = fmt.Fprint(c.out, clearLine+printable(text)); err == nil && last {
			_, err = fmt.Fprintln(c.out)
		}
		return err
	}
	_, err = fmt.Fprintln(c.out, printable(text))
	return err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (c *cli) replaySpan(ctx context.Context, subscription, stream string) error {
	if c.from == "" {
		return usageError{"replay: --from is missing: it is -1 for the start of the stream, or an offset"}
	}
	span := map[string]string{"stream": stream, "from": c.from}
	if c.to != "" {
		span["to"] = c.to
	}
	var body struct {
		ID string `json:"replay_id"`
		To string `json:"to"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(subscription) + "/replay"
	if printed, err := c.ask(ctx, http.MethodPost, path, span, &body); printed || err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.out, "%s: the events of %s are delivered again up to %s\n",
		printable(body.ID), printable(stream), printable(body.To)); err != nil || !c.wait {
		return err
	}
	c.subscription, c.stream = subscription, stream
	return c.waitForReplays(ctx, 1)
}

var rewindCommand = command{
	name: "rewind", args: "SUBSCRIPTION STREAM", least: 2, most: 2,
	does: "have a worker read a stream again from an offset",
	about: "The consumer of the stream gets another wake, and whoever works for it is fenced off. What is pushed is " +
		"replayed\ninstead. If the consumer has subscribed to the stream beside its own, --consumer-of names its own.",
	flags: func(c *cli, f *flag.FlagSet) {
		asks(c, f)
		f.StringVar(&c.to, "to", "", "the `offset` behind which it reads again; -1 for the start of the stream")
		f.StringVar(&c.stream, "consumer-of", "", "the `path` of the stream whose consumer it is; STREAM by default")
	},
	run: (*cli).rewind,
}

func (c *cli) rewind(ctx context.Context, args []string) error {
	subscription, stream := args[0], args[1]
	if c.to == "" {
		return usageError{"rewind: --to is missing: it is -1 for the start of the stream, or an offset"}
	}
	asked := map[string]string{"stream": stream, "to": c.to}
	if c.stream != "" {
		asked["consumer_of"] = c.stream
	}
	var body struct {
		Consumer string `json:"consumer_id"`
		From     string `json:"from"`
		To       string `json:"to"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(subscription) + "/rewind"
	if printed, err := c.ask(ctx, http.MethodPost, path, asked, &body); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s goes back in %s, from %s to %s\n",
		printable(body.Consumer), printable(stream), printable(body.From), printable(body.To))
	return err
}

func (c *cli) cancelReplays(ctx context.Context) error {
	if c.subscription == "" {
		return usageError{"replay cancel: --subscription is missing"}
	}
	which := map[string]string{"subscription": c.subscription}
	if c.stream != "" {
		which["stream"] = c.stream
	}
	var body struct {
		Cancelled int `json:"cancelled"`
	}
	if printed, err := c.ask(ctx, http.MethodPost, replaysPath+"/cancel", which, &body); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s cancelled\n", counted(body.Cancelled, "replay"))
	return err
}
