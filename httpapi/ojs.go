package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// ojsRoot is where the HTTP binding of Open Job Spec has its webhooks (OJS Webhook Delivery 10).
	ojsRoot          = "/ojs/v1/webhooks"
	ojsSubscriptions = ojsRoot + "/subscriptions"
	ojsDeliveries    = ojsRoot + "/deliveries"
	// ojsIDPrefix begins the IDs of the subscriptions that are made there; a UUID follows (5.1).
	ojsIDPrefix = "sub_"
)

// ojsResources are the subscriptions of Open Job Spec and their deliveries, if these are enabled. The subscriptions are
// push subscriptions with the format of that spec, made and shown as it says. Their root has no other resource.
func (s *Service) ojsResources() []web.Resource {
	if s.cfg.OJSStreams == "" {
		return nil
	}
	of := func(list, action string) func(string) bool {
		return func(raw string) bool {
			id, does := ojsTarget(raw, list)
			return id != "" && does == action
		}
	}
	is := func(path string) func(string) bool {
		return func(raw string) bool { return raw == path }
	}
	return []web.Resource{
		{
			Path: is(ojsSubscriptions), Role: web.Anyone,
			Methods: web.Read(s.listOJS).And(http.MethodPost, s.fromNoPage(s.createOJS)),
		},
		{
			Path: of(ojsSubscriptions, ""), Role: web.Anyone,
			Methods: web.Read(s.getOJS).And(http.MethodPatch, s.changeOJS).And(http.MethodDelete, s.deleteOJS),
		},
		{
			Path: of(ojsSubscriptions, "/test"), Role: web.Anyone,
			Methods: web.Post(s.fromNoPage(s.onOJS(onSubscription(s.testDelivery)))),
		},
		{
			Path: of(ojsSubscriptions, "/rotate-secret"), Role: web.Anyone,
			Methods: web.Post(s.fromNoPage(s.onOJS(onSubscription(s.rotateOJS)))),
		},
		{Path: is(ojsDeliveries), Role: web.Anyone, Methods: web.Read(s.listOJSDeliveries)},
		{Path: of(ojsDeliveries, ""), Role: web.Anyone, Methods: web.Read(s.getOJSDelivery)},
		{Path: of(ojsDeliveries, "/retry"), Role: web.Anyone, Methods: web.Post(s.fromNoPage(s.retryOJS))},
		{Path: isBelowOJS, Role: web.Anyone, Methods: web.All(nothing)},
	}
}

// ojsTarget returns the ID that a path below a list names, and what follows it. For other paths the ID is empty.
func ojsTarget(raw, list string) (id, action string) {
	id, ok := strings.CutPrefix(raw, list+"/")
	if i := strings.IndexByte(id, '/'); ok && i >= 0 {
		return id[:i], id[i:]
	}
	if !ok {
		return "", ""
	}
	return id, ""
}

func isBelowOJS(raw string) bool {
	canonical, _ := fsm.CanonicalPath(raw) // empty for a path that no stream can have
	below := func(path string) bool { return path == ojsRoot || strings.HasPrefix(path, ojsRoot+"/") }
	return below(raw) || below(canonical)
}

func nothing(echo.Context) error {
	return refusal.New(fsm.CodeNotFound, "there is nothing at this path")
}

// fromNoPage refuses web pages that may not use the API port. For a PUT, a PATCH and a DELETE, a browser asks first. It
// sends these POSTs without asking.
func (s *Service) fromNoPage(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if origin := r.Header.Get("Origin"); !s.origins.any && !s.origins.listed[origin] && foreign(r, origin) {
			return refusal.New(fsm.CodeForbidden,
				"requests of web pages are refused here; to allow your own page, add "+
					"its origin to REVEILLE_CORS_ORIGINS")
		}
		return next(c)
	}
}

// isOJS says whether a subscription belongs to Open Job Spec, by its ID and its format.
func isOJS(sub fsm.Subscription) bool { return sub.Format == fsm.FormatOJS && isOJSID(sub.ID) }

func isOJSID(id string) bool {
	of, ok := strings.CutPrefix(id, ojsIDPrefix)
	return ok && len(of) == 36 && uuid.Validate(of) == nil
}

// findOJS returns the subscription that a request names, whichever replica created it.
func (s *Service) findOJS(c echo.Context) (fsm.Subscription, error) {
	id, _ := ojsTarget(web.RawPath(c.Request()), ojsSubscriptions)
	return s.ojsSubscription(c.Request().Context(), id)
}

func (s *Service) ojsSubscription(ctx context.Context, id string) (fsm.Subscription, error) {
	sub, found, err := s.control.Find(ctx, id)
	if err == nil && (!found || !isOJS(sub)) {
		err = control.NoSubscription()
	}
	return sub, err
}

// onOJS gives a handler the subscription's ID as on the operator port.
func (s *Service) onOJS(handle echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		sub, err := s.findOJS(c)
		if err != nil {
			return err
		}
		c.SetParamNames("id")
		c.SetParamValues(sub.ID)
		return handle(c)
	}
}

// createOJS answers POST …/subscriptions (6.1).
func (s *Service) createOJS(c echo.Context) error {
	asked, err := s.readOJS(c, true)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	sub, err := asked.Of(fsm.Subscription{ID: ojsIDPrefix + id.String(), Pattern: s.cfg.OJSStreams})
	if err != nil {
		return byOJSName(err)
	}
	stored, _, err := s.control.Subscribe(c.Request().Context(), sub)
	if err != nil {
		return err
	}
	body := ojsBodyOf(stored)
	body.Secret = stored.Secret
	web.WriteJSON(c.Response(), http.StatusCreated, body)
	return nil
}

// listOJS answers GET …/subscriptions (6.2). The spec defines no body for it.
func (s *Service) listOJS(c echo.Context) error {
	if err := s.cfg.Store.RefreshCatalog(c.Request().Context()); err != nil {
		return err
	}
	web.WriteList(c.Response(), web.Listed(s.cfg.Store.Catalog(), ojsBodyOf, isOJS))
	return nil
}

// getOJS answers GET …/subscriptions/{id} (6.3).
func (s *Service) getOJS(c echo.Context) error {
	sub, err := s.findOJS(c)
	if err != nil {
		return err
	}
	web.WriteJSON(c.Response(), http.StatusOK, ojsBodyOf(sub))
	return nil
}

// changeOJS answers PATCH …/subscriptions/{id} (6.4). To set it active is the same as an operator's resumption, so it
// also delivers again to an endpoint that has answered 410.
func (s *Service) changeOJS(c echo.Context) error {
	named, err := s.findOJS(c)
	if err != nil {
		return err
	}
	asked, err := s.readOJS(c, false)
	if err != nil {
		return err
	}
	stored, err := s.control.Change(c.Request().Context(), named, asked.Of)
	if err != nil {
		return byOJSName(err)
	}
	if asked.resume {
		if _, err := s.control.Resume(c.Request().Context(), stored.ID); err != nil {
			return err
		}
		stored.Paused = false
	}
	web.WriteJSON(c.Response(), http.StatusOK, ojsBodyOf(stored))
	return nil
}

// deleteOJS answers DELETE …/subscriptions/{id} (6.5). As in the other API, a missing subscription is what the client
// wants. A subscription that was made otherwise does not belong to these resources.
func (s *Service) deleteOJS(c echo.Context) error {
	id, _ := ojsTarget(web.RawPath(c.Request()), ojsSubscriptions)
	sub, found, err := s.control.Find(c.Request().Context(), id)
	switch {
	case err != nil:
		return err
	case !isOJSID(id) || found && !isOJS(sub):
		return control.NoSubscription()
	}
	sub.ID = id
	if err := s.control.Delete(c.Request().Context(), sub, found); err != nil {
		return err
	}
	return web.NoContent(c)
}

// rotatedOJS is the answer to a rotation of the secret. The spec defines no body for it.
type rotatedOJS struct {
	ID                 string    `json:"id"`
	Secret             string    `json:"secret"`
	PreviousSignsUntil time.Time `json:"previous_signs_until,omitzero"`
}

// rotateOJS answers POST …/subscriptions/{id}/rotate-secret (8.3).
func (s *Service) rotateOJS(c echo.Context, id string) (any, error) {
	sub, err := s.rotate(c, id)
	return rotatedOJS{id, sub.Secret, sub.Previous.Until.UTC()}, err
}
