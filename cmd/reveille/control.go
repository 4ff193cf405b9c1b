package main

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

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
