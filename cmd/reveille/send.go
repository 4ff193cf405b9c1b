package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"reveille/fsm"
)

var sendCommand = command{
	name: "send", args: "URL", does: "hand over one event, which is then delivered to URL", least: 1, most: 1,
	about: "It needs REVEILLE_OUTBOX on all replicas. The endpoint gets the payload as it is written here. The same " +
		"key again is\nthe same event: if no answer came, repeat the command with the key that it names. --wait " +
		"shows what becomes of the\nevent. The exit status is then 1 if the event is dead or cancelled.",
	flags: func(c *cli, f *flag.FlagSet) {
		asksAPI(c, f)
		f.StringVar(&c.outbox.kind, "type", "", "the `type` of the event; required")
		f.StringVar(&c.outbox.data, "data", "", "the payload: `JSON`, @FILE, or - for standard input; required")
		f.StringVar(&c.outbox.provider, "provider", "", "the `name` of what the event comes from")
		f.StringVar(&c.outbox.key, "key", "", "the idempotency `key`; one is made by default")
		f.IntVar(&c.outbox.attempts, "max-attempts", 0, "most attempts, up to 100; as is configured by default")
		f.StringVar(&c.outbox.at, "at", "", "deliver it at a `time`, such as 2026-11-30T08:00:00Z")
		f.DurationVar(&c.outbox.delay, "delay", 0, "deliver it after a `duration`, such as 10m")
		f.StringVar(&c.outbox.metadata, "metadata", "", "a `JSON` object for yourself; it is not delivered")
		f.BoolVar(&c.wait, "wait", false, "wait until the event is over, and fail unless it is delivered")
	},
	run: (*cli).send,
}

// outboxFlags are the flags of reveille send and reveille events that no other command has.
type outboxFlags struct {
	kind, provider, key, data, metadata, status, host, at string
	attempts, hours                                       int
	delay                                                 time.Duration
}

// The paths of direct deliveries on the API port.
const (
	deliverPath = "/webhooks/deliver"
	eventsPath  = "/webhooks/events"
	tallyPath   = "/webhooks/stats"
)

func eventPath(id string) string { return eventsPath + "/" + url.PathEscape(id) }

// eventAsked is the body of the request, without the payload.
type eventAsked struct {
	Target      string          `json:"target_url"`
	Type        string          `json:"event_type"`
	Provider    string          `json:"provider,omitempty"`
	Key         string          `json:"idempotency_key"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	DeliverAt   string          `json:"deliver_at,omitempty"`
	DelayMs     int64           `json:"delay_ms,omitempty"`
}

func (c *cli) send(ctx context.Context, args []string) error {
	switch {
	case c.outbox.kind == "":
		return usageError{"send: --type is missing: what kind of event it is"}
	case c.outbox.data == "":
		return usageError{"send: --data is missing: JSON, @FILE, or - for standard input"}
	case c.outbox.metadata != "" && !json.Valid([]byte(c.outbox.metadata)):
		return usageError{"send: --metadata is not JSON"}
	case c.outbox.at != "" && c.outbox.delay != 0:
		return usageError{"send: --at and --delay say the same thing; give one"}
	case c.wait && c.output == outputJSON:
		return usageError{"send: --wait shows progress, which --output json does not"}
	}
	payload, err := c.payload()
	if err != nil {
		return err
	}
	asked := eventAsked{
		Target: args[0], Type: c.outbox.kind, Provider: c.outbox.provider, Key: c.keyOrNew(),
		MaxAttempts: c.outbox.attempts, Metadata: json.RawMessage(c.outbox.metadata),
		DeliverAt: c.outbox.at, DelayMs: c.outbox.delay.Milliseconds(),
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	// Marshal would write the payload in its own way, and the endpoint would get that.
	body := json.RawMessage(fmt.Appendf(text[:len(text)-1], `,"payload":%s}`, payload))
	e, printed, err := c.askEvent(ctx, http.MethodPost, deliverPath, body)
	if err != nil {
		return repeatable(err, asked.Key)
	}
	if printed {
		return nil
	}
	if err := c.fields([][]string{
		{"event", e.ID}, {"status", when(!c.wait, string(e.Status))}, {"idempotency key", e.Key},
	}); err != nil || !c.wait {
		return err
	}
	return c.awaitEvent(ctx, e.ID)
}

// payload returns what --data says.
func (c *cli) payload() ([]byte, error) {
	from, in := "standard input", c.in
	switch name, isFile := strings.CutPrefix(c.outbox.data, "@"); {
	case isFile:
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		defer func() { _ = f.Close() }()
		from, in = printable(name), f
	case c.outbox.data != "-":
		from, in = "", strings.NewReader(c.outbox.data)
	}
	text, err := io.ReadAll(io.LimitReader(in, fsm.MaxDeliveryBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the payload from %s: %w", from, err)
	case len(text) > fsm.MaxDeliveryBytes:
		return nil, fmt.Errorf("the payload is longer than %d bytes", fsm.MaxDeliveryBytes)
	case json.Valid(text):
		return text, nil
	case from == "":
		return nil, usageError{"send: --data is not JSON; a text needs double quotes"}
	}
	return nil, fmt.Errorf("the payload from %s is not JSON", from)
}

// keyOrNew returns the idempotency key. It is made here, so that the command can be repeated if the answer is lost.
func (c *cli) keyOrNew() string { return cmp.Or(c.outbox.key, fsm.KeyPrefix+uuid.NewString()) }

// repeatable says how to repeat a request whose outcome is not known, or that cannot be done now.
func repeatable(err error, key string) error {
	var r refusal
	var f foreign
	switch {
	case errors.As(err, new(usageError)), errors.As(err, &f) && f.status < http.StatusInternalServerError:
		return err
	case errors.As(err, &r) && !slices.Contains([]fsm.Code{fsm.CodeUnavailable, fsm.CodeInternal}, fsm.Code(r.code)):
		return err
	}
	return fmt.Errorf("%w (repeat it with --key %s: it is the same event then)", err, printable(shellWord(key)))
}

// awaitEvent shows what becomes of an event until it is over.
func (c *cli) awaitEvent(ctx context.Context, id string) error {
	var e shownEvent
	err := c.watch(ctx, func() (line string, over bool, err error) {
		e, _, err = c.askEvent(ctx, http.MethodGet, eventPath(id), nil)
		return e.progress(), e.Status.Over(), err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w; reveille events %s shows what becomes of the event", err, printable(id))
	case e.Status != fsm.OutboxDelivered:
		return errRefused
	}
	return nil
}

// askEvent asks for one event, or for a change of it.
func (c *cli) askEvent(ctx context.Context, method, path string, body any) (e shownEvent, printed bool, err error) {
	printed, err = c.askAt(ctx, c.apiPort(), method, path, body, &e)
	if err == nil && e.ID == "" { // a stream server has answered
		err = foreign{http.StatusOK, c.apiPort().name}
	}
	return e, printed, fromOutbox(err)
}

// fromOutbox says what is missing if a replica without direct deliveries has answered: it leaves their paths to the
// stream server, or refuses them itself if its gateway is off.
func fromOutbox(err error) error {
	var r refusal
	var f foreign
	missing := errors.As(err, &f) && f.status < http.StatusInternalServerError ||
		errors.As(err, &r) && (r.code == string(fsm.CodeMethodNotAllowed) ||
			r.code == string(fsm.CodeNotFound) && r.message == "there is nothing at this path")
	if !missing {
		return err
	}
	return fmt.Errorf("%w (direct deliveries need REVEILLE_OUTBOX on all replicas)", err)
}
