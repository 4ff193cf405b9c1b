package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"reveille/fsm"
)

var subscribeCommand = command{
	name: "subscribe", args: "PATTERN URL", does: "create a subscription, and show its secret this once",
	least: 2, most: 2,
	about: "A new event in a stream that matches PATTERN, such as '/agents/*', wakes the worker at URL, or is pushed " +
		"to it. Put the\npattern in quotes: * matches one segment of a path, ** any number. The id is made of the " +
		"pattern without --id. The same\ncommand again changes nothing. Other fields can be set by a PATCH of the API.",
	flags: func(c *cli, f *flag.FlagSet) {
		asksAPI(c, f)
		f.StringVar(&c.id, "id", "", "the `id` of the subscription")
		f.StringVar(&c.subscribe.description, "description", "", "a `text` for humans")
		f.BoolVar(&c.subscribe.push, "push", false, "push the events themselves, instead of waking a worker")
		f.StringVar(&c.subscribe.format, "format", "",
			"`form` of a push: json, cloudevents, cloudevents-binary, cloudevents-batch or ojs; implies --push")
		f.IntVar(&c.subscribe.batch, "batch", 0, "most events of one push; 1 by default; implies --push")
		f.StringVar(&c.subscribe.start, "start", "",
			"`offset` where streams begin that are there already: now, -1 or one of theirs; now by default")
		f.StringVar(&c.signature, "signature", "",
			"`scheme`: hmac, the default of wakes, or standard-webhooks, the default of pushes")
	},
	run: (*cli).subscribeTo,
}

var unsubscribeCommand = command{
	name: "unsubscribe", args: "SUBSCRIPTION", does: "delete a subscription with its consumers and their offsets",
	least: 1, most: 1, flags: asksAPI, run: (*cli).unsubscribe,
}

// subscribeFlags are the flags of reveille subscribe that no other command has.
type subscribeFlags struct {
	push                       bool
	format, start, description string
	batch                      int
}

// asksAPI has the flags of commands that ask the API port.
func asksAPI(c *cli, f *flag.FlagSet) {
	f.StringVar(&c.api, "api", apiAddr(),
		"API port of a running Reveille: `host:port` or URL; "+apiAddrName+" by default")
	outputs(c, f)
}

func (c *cli) apiPort() port { return port{"API port", "--api", apiAddrName, c.api, ""} }

// subscriptionAsked is the body of the request, with what was asked for and nothing else.
type subscriptionAsked struct {
	Webhook     string `json:"webhook"`
	Mode        string `json:"mode,omitempty"`
	Format      string `json:"format,omitempty"`
	Batch       int    `json:"batch,omitempty"`
	Start       string `json:"start,omitempty"`
	Signature   string `json:"signature,omitempty"`
	Description string `json:"description,omitempty"`
}

func (c *cli) subscribeTo(ctx context.Context, args []string) error {
	pattern, webhook := args[0], args[1]
	if !strings.HasPrefix(pattern, "/") || strings.ContainsAny(pattern, "?# ") {
		return usageError{fmt.Sprintf(
			"subscribe: the pattern %.100q must be a path such as '/agents/*', percent-encoded", pattern)}
	}
	asked := subscriptionAsked{
		Webhook: webhook, Format: c.subscribe.format, Batch: c.subscribe.batch, Start: c.subscribe.start,
		Signature: c.signature, Description: c.subscribe.description,
	}
	if c.subscribe.push || c.subscribe.format != "" || c.subscribe.batch != 0 {
		asked.Mode = string(fsm.ModePush)
	}
	id := cmp.Or(c.id, idOf(pattern, asked.Mode))
	var got struct {
		ID        string        `json:"subscription_id"`
		Pattern   string        `json:"pattern"`
		Webhook   string        `json:"webhook"`
		Secret    string        `json:"webhook_secret"`
		Mode      fsm.Mode      `json:"mode"`
		Signature fsm.Signature `json:"signature"`
	}
	path := pattern + "?subscription=" + url.QueryEscape(id)
	printed, err := c.askAt(ctx, c.apiPort(), http.MethodPut, path, asked, &got)
	var r refusal
	if errors.As(err, &r) && r.code == string(fsm.CodeSubscriptionConflict) && c.id == "" {
		return fmt.Errorf("%w (the id is %s: --id gives it another)", err, id)
	}
	if printed || err != nil {
		return err
	}
	sub := fsm.Subscription{Mode: got.Mode, Signature: got.Signature}.WithDefaults()
	secret := cmp.Or(got.Secret, "not shown again; reveille rotate-secret "+got.ID+" makes another")
	if err := c.fields([][]string{
		{"subscription", got.ID},
		{"pattern", got.Pattern},
		{"webhook", redact(got.Webhook)},
		{"mode", string(sub.Mode)},
		{"signature", string(sub.Signature)},
		{"webhook secret", secret},
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "\nNext:\n%s", c.next(got.ID, got.Pattern, got.Webhook))
	return err
}

// next says what to do with a new subscription.
func (c *cli) next(id, pattern, webhook string) string {
	text := ""
	u, err := url.Parse(webhook)
	if err == nil && isLoopback(u.Hostname()) {
		text += "  " + listenSecretName + "=… reveille listen --port " + cmp.Or(u.Port(), "80") +
			"   # shows what comes; put the secret in\n"
	}
	text += "  reveille test " + printable(id) + "\n"
	root, err := c.apiPort().url()
	if err == nil {
		text += "  curl -X PUT " + redact(root) + printable(exampleOf(pattern)) +
			" -H 'Content-Type: application/json' -d '{\"n\":1}'\n"
	}
	return text
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// exampleOf is the path of a stream that matches a pattern.
func exampleOf(pattern string) string {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		if s == "*" || s == "**" {
			segments[i] = "first"
		}
	}
	return strings.Join(segments, "/")
}

// notInID is what a subscription's id cannot have, and "-", which stands for it.
var notInID = regexp.MustCompile(`[^A-Za-z0-9._~]+`)

// maxID bounds the id that is made of a pattern, so that it is one that a human can say.
const maxID = 60

// idOf makes an id of a pattern: its segments without wildcards, and the mode unless that is the default.
func idOf(pattern, mode string) string {
	segments := slices.DeleteFunc(strings.Split(pattern, "/"), func(s string) bool {
		return strings.Trim(s, "*") == ""
	})
	id := strings.Trim(notInID.ReplaceAllString(strings.Join(segments, "-"), "-"), "-")
	id = cmp.Or(strings.TrimRight(id[:min(len(id), maxID)], "-"), "all")
	return id + when(mode != "", "-"+mode)
}

func (c *cli) unsubscribe(ctx context.Context, args []string) error {
	path := "/**?subscription=" + url.QueryEscape(args[0])
	var got struct {
		ID string `json:"subscription_id"`
	}
	// A deletion of what is not there would be a success.
	printed, err := c.askAt(ctx, c.apiPort(), http.MethodGet, path, nil, &got)
	if err != nil {
		return err
	}
	if _, err = c.askAt(ctx, c.apiPort(), http.MethodDelete, path, nil, nil); err != nil || printed {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is deleted, with its consumers\n", printable(got.ID))
	return err
}
