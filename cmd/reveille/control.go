package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

func (c *cli) pause(ctx context.Context, args []string) error {
	_, err := c.onConsumers(ctx, args[0], "pause", "is paused, with %s")
	return err
}

func (c *cli) resume(ctx context.Context, args []string) error {
	_, err := c.onConsumers(ctx, args[0], "resume", "is resumed, with %s that waited for it")
	return err
}

func (c *cli) retry(ctx context.Context, args []string) error {
	n, err := c.onConsumers(ctx, args[0], "retry", "is retried, with %s that waited for a later attempt")
	if err != nil || n > 0 || c.output != outputText {
		return err
	}
	// Consumers that wait for something else need another command.
	var s operator.SubscriptionBody
	if _, err := c.ask(ctx, http.MethodGet, subscriptionsPath+"/"+url.PathEscape(args[0]), nil, &s); err != nil {
		return err
	}
	waits := ""
	switch given := s.States["given_up"]; {
	case s.Paused:
		waits = "it is paused"
	case s.States["retired"] > 0:
		waits = fmt.Sprintf("the endpoint answered 410 to %s", counted(s.States["retired"], "consumer"))
	case s.Condition == "retired":
		waits = "the endpoint answered 410"
	case given > 0:
		waits = counted(given, "consumer") + " were given up"
	default:
		return nil
	}
	_, err = fmt.Fprintf(c.out, "%s: reveille resume %s delivers again\n", waits, printable(s.ID))
	return err
}

// onConsumers asks for an action on the consumers of a subscription, and prints how many consumers it concerned.
func (c *cli) onConsumers(ctx context.Context, id, action, did string) (n int, err error) {
	var body struct {
		ID        string `json:"subscription_id"`
		Consumers int    `json:"consumers"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(id) + "/" + action
	if printed, err := c.ask(ctx, http.MethodPost, path, nil, &body); printed || err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(c.out, "%s %s\n", printable(body.ID), fmt.Sprintf(did, counted(body.Consumers, "consumer")))
	return body.Consumers, err
}

func (c *cli) logLevel(ctx context.Context, args []string) error {
	method, body := http.MethodGet, any(nil)
	var level struct {
		Level string `json:"level"`
	}
	if len(args) == 1 {
		level.Level = args[0]
		method, body = http.MethodPut, level
	}
	if printed, err := c.ask(ctx, method, "/api/v1/log-level", body, &level); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.out, printable(level.Level))
	return err
}

func (c *cli) versions(ctx context.Context, _ []string) error {
	var body struct {
		Version string `json:"version"`
	}
	printed, err := c.ask(ctx, http.MethodGet, "/api/v1/version", nil, &body)
	refused := refusal{}
	silent := errors.Is(err, errNoAnswer) || errors.As(err, &refused) && refused.code == string(fsm.CodeUnauthorized)
	switch {
	case silent && c.output == outputText && c.addr == operatorAddr(): // no --addr was given
		body.Version = err.Error()
	case printed, err != nil:
		return err
	}
	return c.fields([][]string{{"this program", programVersion()}, {"the one that runs", body.Version}})
}

func (c *cli) rotateSecret(ctx context.Context, args []string) error {
	asked := struct {
		Overlap      string `json:"overlap"`
		KeepPrevious bool   `json:"keep_previous,omitempty"`
	}{c.overlap.String(), c.keepPrevious}
	var body struct {
		Secret             string    `json:"webhook_secret"`
		PreviousSignsUntil time.Time `json:"previous_signs_until"`
	}
	path := subscriptionsPath + "/" + url.PathEscape(args[0]) + "/rotate-secret"
	if printed, err := c.ask(ctx, http.MethodPost, path, asked, &body); printed || err != nil {
		return err
	}
	previous := "does not sign any more"
	if !body.PreviousSignsUntil.IsZero() {
		previous = "signs until " + stamp(body.PreviousSignsUntil)
	}
	return c.fields([][]string{{"webhook secret", body.Secret}, {"previous secret", previous}})
}

// testPatience bounds the wait for a test delivery. The operator port answers after the endpoint has, or after its
// time-out.
const testPatience = 10 * time.Minute

func (c *cli) testDelivery(ctx context.Context, args []string) error {
	var body struct {
		Success        bool   `json:"success"`
		StatusCode     int    `json:"status_code"`
		ResponseTimeMS int64  `json:"response_time_ms"`
		ResponseBody   string `json:"response_body"`
		Error          string `json:"error"`
	}
	c.patience = testPatience
	printed, err := c.ask(ctx, http.MethodPost, subscriptionsPath+"/"+url.PathEscape(args[0])+"/test", nil, &body)
	if !printed && err == nil {
		result := "the endpoint took it"
		if !body.Success {
			result = "failed: " + body.Error
		}
		err = c.fields([][]string{
			{"test delivery", result},
			{"status", some(body.StatusCode)},
			{"time", (time.Duration(body.ResponseTimeMS) * time.Millisecond).String()},
			{"response body", body.ResponseBody},
		})
	}
	if err == nil && !body.Success {
		return errRefused
	}
	return err
}
