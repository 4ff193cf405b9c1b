package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"reveille/fsm"
)

// The exit statuses of the operator's commands.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// cli is one run of an operator's command.
type cli struct {
	in  io.Reader
	out io.Writer
	now func() time.Time

	addr, api string
	output    output

	subscription, state, stream, cursor          string
	since, until, from, to                       string
	limit                                        int
	watched, wait, failed, failing, all, details bool
	follow                                       bool

	code, class, window, request     string
	secret, signature, id, timestamp string
	tolerance                        time.Duration

	overlap      time.Duration
	keepPrevious bool

	subscribe subscribeFlags
	listen    listenFlags
	outbox    outboxFlags

	// commands are all that there are.
	commands []command

	// patience is how long an answer may take; askTimeout by default.
	patience time.Duration
}

// defaultLimit bounds the lines on a page of a list.
const defaultLimit = 100

// command is one of the operator's commands.
type command struct {
	// name, args and does are for the list of commands. about is what --help adds.
	name, args, does, about string
	// least and most bound the arguments beside the flags. If most is negative, there is no upper bound.
	least, most int
	flags       func(*cli, *flag.FlagSet)
	run         func(*cli, context.Context, []string) error
}

var commands = []command{
	subscribeCommand,
	unsubscribeCommand,
	listenCommand,
	sendCommand,
	eventsCommand,
	{
		name: "status", does: "show the whole: replicas, Redis, the stream server and what fails",
		about: "It is a view: the exit status is 0 also if something is wrong. While Redis is away it shows what one " +
			"replica knows by\nitself. ALIVE SINCE is since when a replica has its place without a break, PARTITIONS " +
			"how many it has leased. Below are\nthe subscriptions that are worst, at most 10; reveille subscriptions " +
			"--failing lists all.",
		flags: asks, run: (*cli).status,
	},
	{
		name: "subscriptions", args: "[ID]",
		does: "list subscriptions with how their consumers are doing, or show one", most: 1,
		about: "PENDING is how many consumers have a wake or a delivery under way. CONDITION is the worst: " +
			"how many are retired (the\nendpoint answered 410, see resume) or failing, or ok. Down, or asked to " +
			"wait, is the endpoint of a push subscription:\nit gets one delivery at a time until it takes one, or " +
			"none for as long as it has asked. Refusing: it has refused the\nlatest delivery for good, and taken " +
			"none since; those events are dead letters. Paused by operator: see\npause. WAITING is since when " +
			"the oldest wake or delivery waits that the endpoint has not taken. FAILING SINCE\nis of the consumer or " +
			"endpoint that has failed for longest, LAST ERROR of the latest failure.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.BoolVar(&c.failing, "failing", false, "list those that are not ok")
		},
		run: (*cli).subscriptions,
	},
	{
		name: "consumers", does: "list consumers",
		about: "STATE is idle, waking, live, given_up or quarantined (its record cannot be read),\n" +
			"and what is wrong: failing, retired or hidden (the primary stream is gone).",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.StringVar(&c.subscription, "subscription", "", "only those of this `ID`")
			f.StringVar(&c.state, "state", "",
				"only those that are idle, waking, live, given_up, quarantined, failing, "+
					"retired or hidden")
		},
		run: (*cli).consumers,
	},
	{
		name: "consumer", args: "ID | SUBSCRIPTION STREAM", does: "show one consumer with its streams",
		about: "A consumer is named by its id, or by its subscription and its first stream. ACKED is how far it has " +
			"got in a stream,\nTAIL how far the stream goes; what lies between is pending.",
		least: 1, most: 2, flags: asks, run: (*cli).consumer,
	},
	{
		name: "streams", args: "[name|forget STREAM…]",
		does: "list streams, make some known, or forget some and their consumers", most: -1,
		about: "Without an argument it lists the streams that are known, with or without --watched. name tells " +
			"Reveille of streams that\nnothing else tells it of; they may be made later. forget removes streams and " +
			"their consumers with the offsets: what is\nappended afterwards makes them known anew. Both take paths, " +
			"such as /orders/17.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.BoolVar(&c.watched, "watched", false, "list those that consumers are subscribed to, with the tail noted")
		},
		run: (*cli).streams,
	},
	{
		name: "pause", args: "SUBSCRIPTION", does: "hold all deliveries until the subscription is resumed",
		about: "Requests that are open end as they do, and workers go on. Nothing is lost: what is appended " +
			"meanwhile is delivered\nonce the subscription is resumed.",
		least: 1, most: 1, flags: asks, run: (*cli).pause,
	},
	{
		name: "resume", args: "SUBSCRIPTION",
		does:  "end a pause; deliver again to an endpoint that answered 410, and to consumers that were given up",
		least: 1, most: 1, flags: asks, run: (*cli).resume,
	},
	{
		name: "retry", args: "SUBSCRIPTION",
		does:  "make now what waits for a later attempt, also to an endpoint that is down or has asked to wait",
		least: 1, most: 1, flags: asks, run: (*cli).retry,
	},
	{
		name: "dead-letters", args: "[ID|replay [ID…]|discard [ID…]]",
		does: "list deliveries of events that are not tried again, show one, deliver some again, or discard some",
		most: -1,
		about: "The events themselves stay in their stream: a read from the offset FROM shows them, behind " +
			"so many others\nas stand after +. replay and discard take the ids of dead letters, or --subscription ID " +
			"for all that it has\nby now; --stream, --since and --until leave out others. reveille replay shows how " +
			"far it is.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.StringVar(&c.subscription, "subscription", "", "only those of the subscription with this `ID`")
			f.StringVar(&c.stream, "stream", "", "only those of the stream at this `path`")
			f.StringVar(&c.since, "since", "",
				"only those dead since this `time`, such as 2026-11-26T17:00:00Z, or how long ago, such as 1h or 2d")
			f.StringVar(&c.until, "until", "", "only those dead before this `time`, which is said likewise")
		},
		run: (*cli).letters,
	},
	{
		name: "deliveries", args: "[SUBSCRIPTION]",
		does: "list the latest delivery attempts, of all subscriptions or of one", most: 1,
		about: "RESULT is accepted or done (a 2xx), failed (to be retried), retired (a 410: see resume), dead (not " +
			"tried again:\nsee dead-letters) or abandoned (the replica stopped before there was an answer). DELIVERY " +
			"is the id that the receiver\ngot, BYTES the size of the body. About the latest thousand of a " +
			"subscription are kept, for a week; REVEILLE_DELIVERY_LOG\nsays which. --details also shows where a " +
			"request went, how long it took and what was answered. --follow shows attempts\nas they come, the " +
			"latest at the bottom, until it is interrupted. " +
			"--request shows what was sent in the latest attempt\nof a delivery: its events are read again.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.BoolVar(&c.failed, "failed", false, "only those that failed, or are retired or dead")
			f.BoolVar(&c.details, "details", false, "show all that is kept of each")
			f.BoolVar(&c.follow, "follow", false, "go on with new ones as they come; with --output json, one a line")
			f.StringVar(&c.stream, "stream", "", "only those of the stream at this `path`")
			f.StringVar(&c.code, "status", "", "only those answered with this `status`, such as 503 or 5xx")
			f.StringVar(&c.class, "class", "", "only those that failed with this `class`, such as timeout")
			f.StringVar(&c.id, "id", "", "only those of the delivery or wake with this `id`")
			f.StringVar(&c.request, "request", "", "show the request of the delivery or wake with this `id`")
			spans(c, f)
		},
		run: (*cli).deliveries,
	},
	{
		name: "stats", args: "[SUBSCRIPTION]",
		does: "count the delivery attempts of the last week, of all subscriptions or of one", most: 1,
		about: "TAKEN are answered with a 2xx, DEAD those of the FAILED that are not tried again. EVENTS were taken; " +
			"wakes bring none.\nP50, P95 and P99 are how long endpoints took, up to 1/16 too long. A window begins " +
			"with a minute, or with an hour\nif it is 24h or 7d. PENDING is how many wakes or deliveries are " +
			"under way.",
		flags: func(c *cli, f *flag.FlagSet) {
			asks(c, f)
			f.StringVar(&c.window, "window", "", "only this `window`: 15m, 1h, 24h or 7d")
		},
		run: (*cli).stats,
	},
	{
		name: "find", args: "ID", does: "show what has an id, of whatever kind, or the consumers of a stream",
		about: "It finds subscriptions, consumers, deliveries, wakes, dead letters, replays under way, events for " +
			"direct delivery and\ntheir idempotency keys. A delivery or a wake is found while the delivery log has " +
			"an attempt of it, a delivery\nalso while its dead letter is kept.",
		least: 1, most: 1, flags: asks, run: (*cli).find,
	},
	{
		name: "audit", does: "list who has changed what, by a command or through the API",
		about: "BY is the address that the request came from. CHANGE has the fields that became others, without " +
			"secrets. The latest\n10,000 changes are kept.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.StringVar(&c.subscription, "subscription", "", "only those of the subscription with this `ID`")
			spans(c, f)
		},
		run: (*cli).audit,
	},
	{
		name: "replay", args: "[SUBSCRIPTION STREAM|cancel]",
		does: "list what is replayed, deliver some of a stream again, or cancel replays",
		most: 2,
		about: "Events of a stream that lie behind the offset --from, up to --to, are delivered again to a push " +
			"subscription, beside\nwhat is new, with the header Reveille-Replay. cancel takes --subscription ID, and " +
			"--stream for one stream of it; dead\nletters stay.",
		flags: func(c *cli, f *flag.FlagSet) {
			pages(c, f)
			f.StringVar(&c.subscription, "subscription", "", "only those of the subscription with this `ID`")
			f.StringVar(&c.stream, "stream", "", "only those of the stream at this `path`")
			f.StringVar(&c.from, "from", "", "the `offset` behind which the events lie; -1 for the start of the stream")
			f.StringVar(&c.to, "to", "", "the `offset` that they go up to; the present end of the stream by default")
			f.BoolVar(&c.wait, "wait", false, "wait until nothing is to be replayed any more, and show how far it is")
		},
		run: (*cli).replay,
	},
	rewindCommand,
	{
		name: "log-level", args: "[debug|info|warn|error]",
		does: "show or change what one replica logs, until it ends", most: 1,
		about: "A level logs what is at least as serious. After a restart, REVEILLE_LOG_LEVEL holds again.",
		flags: asks, run: (*cli).logLevel,
	},
	{
		name: "version", does: "show the version of this program and of the one that runs",
		about: "Without --addr it is no failure if none runs.",
		flags: asks, run: (*cli).versions,
	},
	{
		name: "verify", does: "check the signature of a webhook whose body comes on standard input",
		about: "It says which check fails: the form of the signature, its time, or the HMAC, and what the right one " +
			"is computed over.\n" +
			"During a rotation, until the overlap is over, the previous secret signs in Webhook-Signature and the " +
			"new one in\nWebhook-Signature-New. X-OJS-Signature has both: one that is right is enough.\n" +
			"A secret on a command line can be seen by everybody on the machine (ps): REVEILLE_WEBHOOK_SECRET is not.",
		flags: func(c *cli, f *flag.FlagSet) {
			f.StringVar(&c.secret, "secret", "",
				"the subscription's `webhook_secret`; REVEILLE_WEBHOOK_SECRET by default")
			f.StringVar(&c.signature, "signature", "",
				"the `header` Webhook-Signature or X-OJS-Signature, as it came; required")
			f.StringVar(&c.id, "id", "", "with Standard Webhooks, the `webhook-id` header")
			f.StringVar(&c.timestamp, "timestamp", "",
				"with Standard Webhooks, the `header` webhook-timestamp; with OJS, X-OJS-Timestamp")
			f.DurationVar(&c.tolerance, "tolerance", defaultTolerance, "how far the signature's time may be from now")
		},
		run: (*cli).verify,
	},
	{
		name: "rotate-secret", args: "SUBSCRIPTION",
		does: "give a subscription a new webhook_secret, and show it this once", least: 1, most: 1,
		about: "Until the overlap is over, deliveries are signed with both secrets, the new and the previous one.\n" +
			"If you did not get to see the new one, repeat the command with --keep-previous.",
		flags: func(c *cli, f *flag.FlagSet) {
			asks(c, f)
			f.DurationVar(&c.overlap, "overlap", fsm.RotationOverlap,
				"how long the present secret goes on signing, up to 168h; 0s if it has leaked")
			f.BoolVar(&c.keepPrevious, "keep-previous", false,
				"replace a secret that nobody knows: the one before it goes on signing instead")
		},
		run: (*cli).rotateSecret,
	},
	{
		name: "test", args: "SUBSCRIPTION", does: "send a test event to the endpoint of a subscription",
		least: 1, most: 1,
		about: "Its type is webhook.test. It is signed, authorized and sent as deliveries are, also to the worker " +
			"of a wake\nsubscription. It changes nothing. The exit status is 1 if the endpoint did not take it.",
		flags: asks, run: (*cli).testDelivery,
	},
	consentCommand,
	completionCommand,
}

// asks defines the flags of every command that asks a running Reveille.
func asks(c *cli, f *flag.FlagSet) {
	f.StringVar(&c.addr, "addr", operatorAddr(),
		"operator port of a running Reveille: `host:port` or URL; REVEILLE_OPERATOR_ADDR by default")
	outputs(c, f)
}

func outputs(c *cli, f *flag.FlagSet) {
	c.output = outputText
	f.Var(&c.output, "output", "`json|text`: json prints the answer as it is")
}

// output is the form in which an answer is printed.
type output string

const (
	outputText output = "text"
	outputJSON output = "json"
)

// String implements flag.Value.
func (o *output) String() string { return string(*o) }

// Set implements flag.Value.
func (o *output) Set(text string) error {
	switch output(text) {
	case outputText, outputJSON:
		*o = output(text)
		return nil
	}
	return errors.New("expected json or text")
}

// pages defines the flags of the lists of the operator.
func pages(c *cli, f *flag.FlagSet) {
	asks(c, f)
	paged(c, f)
}

// spans defines the flags that limit a list to a time.
func spans(c *cli, f *flag.FlagSet) {
	f.StringVar(&c.since, "since", "",
		"only those since this `time`, such as 2026-11-26T17:00:00Z, or how long ago, such as 1h or 2d")
	f.StringVar(&c.until, "until", "", "only those before this `time`, which is said likewise")
}

func paged(c *cli, f *flag.FlagSet) {
	f.IntVar(&c.limit, "limit", defaultLimit, "most lines of one page, up to 1000")
	f.StringVar(&c.cursor, "cursor", "", "go on from where an earlier page ended")
}

// usageError is a command line that Reveille does not understand.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// errRefused says that a failure was printed already.
var errRefused = errors.New("refused")

// exit prints the error and returns the exit status.
func (c *cli) exit(err error, stderr io.Writer) int {
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
		return exitUsage
	case !errors.Is(err, errRefused):
		_, _ = fmt.Fprintln(stderr, "reveille:", err)
	}
	return exitFailed
}

func (c *cli) run(ctx context.Context, args []string) error {
	switch args[0] {
	case "-h", "-help", "--help", "help":
		return usage(c.out)
	case "-version", "--version":
		_, err := fmt.Fprintln(c.out, "reveille", programVersion())
		return err
	}
	c.commands = commands
	for _, cmd := range commands {
		if cmd.name == args[0] {
			return c.do(ctx, cmd, args[1:])
		}
	}
	return usageError{fmt.Sprintf(
		"unknown argument %q; without one it runs, set up by environment variables; reveille --help lists both",
		args[0],
	)}
}

func (c *cli) do(ctx context.Context, cmd command, args []string) error {
	f := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	cmd.flags(c, f)
	var rest []string
	// Flags may also follow arguments.
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return c.help(cmd, f)
		} else if err != nil {
			return usageError{fmt.Sprintf("%s: %v; see reveille %s --help", cmd.name, err, cmd.name)}
		}
		args = f.Args()
		if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	if len(rest) < cmd.least || cmd.most >= 0 && len(rest) > cmd.most {
		return usageError{strings.TrimSpace(fmt.Sprintf("usage: reveille %s [flags] %s", cmd.name, cmd.args))}
	}
	return cmd.run(c, ctx, rest)
}

// help describes one command.
func (c *cli) help(cmd command, f *flag.FlagSet) error {
	_, _ = fmt.Fprintf(c.out, "%s\n\nUsage: %s\n", cmd.does,
		strings.TrimSpace("reveille "+cmd.name+" [flags] "+cmd.args))
	if cmd.about != "" {
		_, _ = fmt.Fprintf(c.out, "\n%s\n", cmd.about)
	}
	_, _ = fmt.Fprintln(c.out, "\nFlags:")
	t := c.table()
	f.VisitAll(func(fl *flag.Flag) {
		value, text := flag.UnquoteUsage(fl)
		if fl.DefValue != "" && fl.DefValue != "false" && fl.DefValue != "0" && fl.Name != "addr" && fl.Name != "api" {
			text += " (" + fl.DefValue + ")"
		}
		_, _ = fmt.Fprintf(t, "  --%s\t%s\n", strings.TrimSpace(fl.Name+" "+value), text)
	})
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, "\nExit status: "+exitStatuses)
	return err
}

const exitStatuses = "0 if it went well, 1 if it failed, found nothing or the signature is wrong, " +
	"2 if the command line is wrong."

// commandList prints the commands for the program's --help.
func commandList(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cmd := range commands {
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.does)
	}
	return t.Flush()
}

func (c *cli) table() *tabwriter.Writer { return tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0) }
