// Package ojs is the face of Open Job Spec: the webhooks of its HTTP binding. Its subscriptions are push subscriptions
// with the format of that spec.
package ojs

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/web"
)

const (
	// Root is where the HTTP binding of Open Job Spec has its webhooks (OJS Webhook Delivery 10).
	Root = "/ojs/v1/webhooks"
	// Subscriptions is the list of subscriptions there.
	Subscriptions = Root + "/subscriptions"
	// Deliveries is the list of deliveries there.
	Deliveries = Root + "/deliveries"
	// idPrefix begins the IDs of the subscriptions that are made there; a UUID follows (5.1).
	idPrefix = "sub_"
)

// Face serves the webhooks of Open Job Spec. All fields are required.
type Face struct {
	Control *control.Service
	Bodies  web.Bodies
	Fields  fields.Reader
	// Streams is the pattern of the streams that it serves, in its canonical form.
	Streams     string
	DeliveryLog fsm.DeliveryLog
	// FromNoPage makes a handler refuse web pages that may not use the API port.
	FromNoPage func(echo.HandlerFunc) echo.HandlerFunc
}

// Resources are the subscriptions of Open Job Spec and their deliveries. Their root has no other resource.
func (f *Face) Resources() []web.Resource {
	of := func(list, action string) func(string) bool {
		return func(raw string) bool {
			id, does := target(raw, list)
			return id != "" && does == action
		}
	}
	list := web.List(f.Control.View.Partitions(), f.listDeliveries, "subscription_id", "status")
	return []web.Resource{
		{
			Path: web.Exactly(Subscriptions), Role: web.Anyone,
			Methods: web.Read(f.list).And(http.MethodPost, f.FromNoPage(f.create)),
		},
		{
			Path: of(Subscriptions, ""), Role: web.Anyone,
			Methods: web.Read(f.get).And(http.MethodPatch, f.change).And(http.MethodDelete, f.delete),
		},
		{Path: of(Subscriptions, "/test"), Role: web.Anyone, Methods: web.Post(f.FromNoPage(f.test))},
		{
			Path: of(Subscriptions, "/rotate-secret"), Role: web.Anyone,
			Methods: web.Post(f.FromNoPage(f.rotate)),
		},
		{Path: web.Exactly(Deliveries), Role: web.Anyone, Methods: web.Read(list)},
		{Path: of(Deliveries, ""), Role: web.Anyone, Methods: web.Read(f.getDelivery)},
		{Path: of(Deliveries, "/retry"), Role: web.Anyone, Methods: web.Post(f.FromNoPage(f.retry))},
		{Path: isBelow, Role: web.Anyone, Methods: web.All(web.Nothing)},
	}
}

// target returns the ID that a path below a list names, and what follows it. For other paths the ID is empty.
func target(raw, list string) (id, action string) {
	id, ok := strings.CutPrefix(raw, list+"/")
	if i := strings.IndexByte(id, '/'); ok && i >= 0 {
		return id[:i], id[i:]
	}
	if !ok {
		return "", ""
	}
	return id, ""
}

func isBelow(raw string) bool {
	canonical, _ := fsm.CanonicalPath(raw) // empty for a path that no stream can have
	below := func(path string) bool { return path == Root || strings.HasPrefix(path, Root+"/") }
	return below(raw) || below(canonical)
}

// isOurs says whether a subscription belongs to Open Job Spec, by its ID and its format.
func isOurs(sub fsm.Subscription) bool { return sub.Format == fsm.FormatOJS && isOurID(sub.ID) }

func isOurID(id string) bool {
	of, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(of) == 36 && uuid.Validate(of) == nil
}

// find returns the subscription that a request names, whichever replica created it.
func (f *Face) find(c echo.Context) (fsm.Subscription, error) {
	id, _ := target(web.RawPath(c.Request()), Subscriptions)
	return f.subscription(c.Request().Context(), id)
}

func (f *Face) subscription(ctx context.Context, id string) (fsm.Subscription, error) {
	sub, found, err := f.Control.Find(ctx, id)
	if err == nil && (!found || !isOurs(sub)) {
		err = control.NoSubscription()
	}
	return sub, err
}

// create answers POST …/subscriptions (6.1).
func (f *Face) create(c echo.Context) error {
	asked, err := f.read(c, true)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	sub, err := asked.Of(fsm.Subscription{ID: idPrefix + id.String(), Pattern: f.Streams})
	if err != nil {
		return byName(err)
	}
	stored, _, err := f.Control.Subscribe(c.Request().Context(), sub)
	body := bodyOf(stored)
	body.Secret = stored.Secret
	return web.Answer(c, http.StatusCreated, body, err)
}

// list answers GET …/subscriptions (6.2). The spec defines no body for it.
func (f *Face) list(c echo.Context) error {
	all, err := f.Control.Subscriptions(c.Request().Context(), "")
	if err != nil {
		return err
	}
	web.WriteList(c.Response(), web.Listed(all, bodyOf, isOurs))
	return nil
}

// get answers GET …/subscriptions/{id} (6.3).
func (f *Face) get(c echo.Context) error {
	sub, err := f.find(c)
	return web.Answer(c, http.StatusOK, bodyOf(sub), err)
}

// change answers PATCH …/subscriptions/{id} (6.4). To set it active is the same as an operator's resumption, so it
// also delivers again to an endpoint that has answered 410.
func (f *Face) change(c echo.Context) error {
	named, err := f.find(c)
	if err != nil {
		return err
	}
	asked, err := f.read(c, false)
	if err != nil {
		return err
	}
	stored, err := f.Control.Change(c.Request().Context(), named, asked.Of)
	if err != nil {
		return byName(err)
	}
	if asked.resume {
		if _, err := f.Control.Resume(c.Request().Context(), stored.ID); err != nil {
			return err
		}
		stored = stored.Resumed()
	}
	return web.Answer(c, http.StatusOK, bodyOf(stored), nil)
}

// delete answers DELETE …/subscriptions/{id} (6.5). As in the other API, a missing subscription is what the client
// wants. A subscription that was made otherwise does not belong to these resources.
func (f *Face) delete(c echo.Context) error {
	id, _ := target(web.RawPath(c.Request()), Subscriptions)
	sub, found, err := f.Control.Find(c.Request().Context(), id)
	switch {
	case err != nil:
		return err
	case !isOurID(id) || found && !isOurs(sub):
		return control.NoSubscription()
	}
	if err := f.Control.Delete(c.Request().Context(), id); err != nil {
		return err
	}
	return web.NoContent(c)
}

// rotated is the answer to a rotation of the secret. The spec defines no body for it.
type rotated struct {
	ID                 string    `json:"id"`
	Secret             string    `json:"secret"`
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`
}

// rotate answers POST …/subscriptions/{id}/rotate-secret (8.3).
func (f *Face) rotate(c echo.Context) error {
	sub, err := f.find(c)
	if err != nil {
		return err
	}
	r, err := fields.ReadRotation(c, f.Bodies)
	if err != nil {
		return err
	}
	sub, err = f.Control.Rotate(c.Request().Context(), sub.ID, r)
	return web.Answer(c, http.StatusOK, rotated{sub.ID, sub.Secret, sub.Previous.Until.UTC()}, err)
}

// test answers POST …/subscriptions/{id}/test (6.6).
func (f *Face) test(c echo.Context) error {
	sub, err := f.find(c)
	if err != nil {
		return err
	}
	if err := f.Bodies.Nothing(c); err != nil {
		return err
	}
	t, err := f.Control.Test(c.Request().Context(), sub.ID)
	return web.Answer(c, http.StatusOK, web.TestedOf(t), err)
}
