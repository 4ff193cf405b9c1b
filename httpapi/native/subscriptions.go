package native

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// bodyOf is a subscription in an answer (webhook spec, Subscription HTTP API).
func (f *Face) bodyOf(sub fsm.Subscription) web.Members {
	body := web.Members{}.With("subscription_id", sub.ID).With("pattern", sub.Pattern)
	body = append(body, fields.Shown(sub)...)
	if sub.Paused { // by an operator
		body = body.With("paused", true)
	}
	if sub.Retired { // by a 410
		body = body.With("retired", true)
	}
	if c, ok := f.Control.Consent(sub); ok {
		body = body.With("consent", fields.ConsentOf(c))
	}
	return body
}

// withSecret has the secret behind the webhook.
func (f *Face) withSecret(sub fsm.Subscription) web.Members {
	return slices.Insert(f.bodyOf(sub), 3, web.Members{}.With("webhook_secret", sub.Secret)...)
}

// createSubscription answers PUT /{pattern}?subscription=ID (webhook spec, Create).
func (f *Face) createSubscription(c echo.Context) error {
	ctx := c.Request().Context()
	id, pattern, err := target(c.Request())
	if err != nil {
		return err
	}
	o, err := f.Bodies.JSON(c)
	if err != nil {
		return err
	}
	asked, err := f.Fields.Read(ctx, o, true)
	if err != nil {
		return err
	}
	sub, err := asked.Of(fsm.Subscription{ID: id, Pattern: pattern})
	if err != nil {
		return err
	}
	stored, created, err := f.Control.Subscribe(ctx, sub)
	if err != nil {
		return err
	}
	if !created {
		return web.Answer(c, http.StatusOK, f.bodyOf(stored), nil)
	}
	return web.Answer(c, http.StatusCreated, f.withSecret(stored), nil)
}

// changeSubscription answers PATCH /{pattern}?subscription=ID: a JSON merge patch (RFC 7396) of the fields of a PUT.
// The subscription keeps its consumers, and they keep their leases, epochs and offsets. The change applies from the
// next attempt on.
func (f *Face) changeSubscription(c echo.Context) error {
	named, found, err := f.find(c.Request())
	if err != nil {
		return err
	}
	if !found {
		return control.NoSubscription()
	}
	o, err := f.Bodies.JSON(c)
	if err != nil {
		return err
	}
	asked, err := f.Fields.Read(c.Request().Context(), o, false)
	if err != nil {
		return err
	}
	stored, err := f.Control.Change(c.Request().Context(), named, asked.Of)
	if err != nil {
		return err
	}
	if asked.MadeSecret(stored) {
		return web.Answer(c, http.StatusOK, f.withSecret(stored), nil)
	}
	return web.Answer(c, http.StatusOK, f.bodyOf(stored), nil)
}

// getSubscription answers GET /{pattern}?subscription=ID (webhook spec, Get by ID).
func (f *Face) getSubscription(c echo.Context) error {
	ctx := c.Request().Context()
	sub, found, err := f.find(c.Request())
	if err != nil {
		return err
	}
	if !found {
		return control.NoSubscription()
	}
	body := f.bodyOf(sub)
	backfills, err := f.Control.View.BackfillsOf(ctx, []string{sub.ID})
	if err != nil {
		return err
	}
	if b, ok := backfills[sub.ID]; ok {
		body = body.With("backfill", fields.Backfill{Done: b.Done, Total: b.Total})
	}
	return web.Answer(c, http.StatusOK, body, nil)
}

// listSubscriptions answers GET /{pattern}?subscriptions (webhook spec, List by Pattern and List All).
func (f *Face) listSubscriptions(c echo.Context) error {
	pattern, err := parsePattern(web.RawPath(c.Request()))
	if err != nil {
		return err
	}
	all, err := f.Control.Subscriptions(c.Request().Context(), "")
	if err != nil {
		return err
	}
	web.WriteList(c.Response(), web.Listed(all, f.bodyOf, func(sub fsm.Subscription) bool {
		return !fsm.IsOwnSubscription(sub.ID) && (pattern == fsm.AllStreams || pattern == sub.Pattern)
	}))
	return nil
}

// deleteSubscription answers DELETE /{pattern}?subscription=ID (webhook spec, Delete).
func (f *Face) deleteSubscription(c echo.Context) error {
	sub, _, err := f.find(c.Request())
	if err != nil {
		return err
	}
	if err := f.Control.Delete(c.Request().Context(), sub.ID); err != nil {
		return err
	}
	return web.NoContent(c)
}

// find returns the subscription that a request names by ID, whichever replica created it. If there is none, it returns
// only the ID. It refuses a request under a pattern that is neither the subscription's own nor "/**".
func (f *Face) find(r *http.Request) (sub fsm.Subscription, found bool, err error) {
	id, pattern, err := target(r)
	if err != nil {
		return sub, false, err
	}
	if sub, found, err = f.Control.Find(r.Context(), id); err != nil || !found {
		return fsm.Subscription{ID: id}, false, err
	}
	if pattern != fsm.AllStreams && pattern != sub.Pattern {
		return sub, false, refusal.New(fsm.CodeSubscriptionNotFound,
			"the subscription with this id has another pattern")
	}
	return sub, true, nil
}

// target returns the subscription ID and the canonical pattern that a request names.
func target(r *http.Request) (id, pattern string, err error) {
	values := web.QueryValues(r.URL.RawQuery, "subscription")
	if len(values) != 1 {
		return "", "", refusal.New(fsm.CodeInvalidSubscriptionID,
			"subscription is given %d times in the query", len(values))
	}
	if id, err = url.QueryUnescape(values[0]); err != nil {
		return "", "", refusal.New(fsm.CodeInvalidSubscriptionID, "subscription is malformed in the query")
	}
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return "", "", refusal.New(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
	}
	if fsm.IsOwnSubscription(id) {
		return "", "", refusal.New(fsm.CodeInvalidSubscriptionID,
			"subscription: ids of this form are of Reveille itself")
	}
	pattern, err = parsePattern(web.RawPath(r))
	return id, pattern, err
}

func parsePattern(path string) (string, error) {
	p, err := fsm.ParsePattern(path)
	if err != nil {
		return "", refusal.New(fsm.CodeInvalidPattern, "%v", err)
	}
	return p.String(), nil
}
