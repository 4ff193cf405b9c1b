package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"reveille/httpapi/operator"
)

var consentCommand = command{
	name: "consent", args: "[SUBSCRIPTION [ask]]",
	does: "show which endpoints have not agreed to deliveries, or ask one now", most: 2,
	about: "CONSENT is granted, pending (the endpoint has said nothing yet), refused or unsupported (its answer " +
		"cannot be\nunderstood). PENDING is how many consumers have something to be delivered. ask sends the request " +
		"for consent at\nonce, and shows what came of it.",
	flags: func(c *cli, f *flag.FlagSet) {
		pages(c, f)
		f.BoolVar(&c.all, "all", false, "list those that have agreed, too")
	},
	run: (*cli).consent,
}

func (c *cli) consent(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return c.consents(ctx)
	case len(args) == 2 && args[1] != "ask":
		return usageError{"usage: reveille consent [flags] [SUBSCRIPTION [ask]]"}
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0])
	if len(args) == 2 {
		waits := c.patience
		c.patience = cmp.Or(waits, askConsentTimeout)
		if printed, err := c.ask(ctx, http.MethodPost, path+"/consent", nil, nil); printed || err != nil {
			return err
		}
		c.patience = waits
	}
	var s operator.SubscriptionBody
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &s); printed || err != nil {
		return err
	}
	if s.Consent == nil {
		return errNoConsents
	}
	now := c.now()
	return c.fields([][]string{
		{"subscription", s.ID},
		{"webhook", s.WebhookHost},
		{"consent", string(s.Consent.State)},
		{"origin", s.Consent.Origin},
		{"rate", some(s.Consent.Rate)},
		{"reason", s.Consent.Reason},
		{"asked", since(timeOf(s.Consent.AskedAt), now)},
		{"asked again", stamp(timeOf(s.Consent.Until))},
		{"pending", some(s.Pending)},
	})
}

// askConsentTimeout is more than a request for consent may take.
const askConsentTimeout = 40 * time.Second

var errNoConsents = errors.New("no endpoint is asked for its consent: REVEILLE_CONSENT is off")

// consents lists the subscriptions whose endpoints have not agreed, or all, with what they have said.
func (c *cli) consents(ctx context.Context) error {
	var body operator.SubscriptionsBody
	path := c.list(subscriptionsPath, [2]string{"consent", when(!c.all, "missing")})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	if len(body.Subscriptions) == 0 && body.Next == "" && !c.all {
		_, err := fmt.Fprintln(c.out, "No subscription is without the consent of its endpoint.")
		return err
	}
	rows := [][]string{{"SUBSCRIPTION", "WEBHOOK", "CONSENT", "RATE", "PENDING", "ASKED", "REASON"}}
	for _, s := range body.Subscriptions {
		if s.Consent == nil {
			return errNoConsents
		}
		rows = append(rows, []string{
			s.ID, s.WebhookHost, string(s.Consent.State), some(s.Consent.Rate), some(s.Pending),
			relative(timeOf(s.Consent.AskedAt), body.AsOf), s.Consent.Reason,
		})
	}
	return c.rows(rows, "consent", body.Next)
}
