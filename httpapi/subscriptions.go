package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	maxDescription = 4096
	maxWebhook     = 2048
	// allPattern stands for every subscription (webhook spec, List All and Get by ID).
	allPattern = "/**"
)

// subscriptionBody is a subscription as it is answered (webhook spec, Subscription HTTP API).
type subscriptionBody struct {
	ID          string `json:"subscription_id"`
	Pattern     string `json:"pattern"`
	Webhook     string `json:"webhook"`
	Secret      string `json:"webhook_secret,omitempty"`
	Description string `json:"description,omitempty"`
	// Signature is left out for the scheme of the webhook spec, which knows no such field.
	Signature fsm.Signature `json:"signature,omitempty"`
	Backfill  *backfillBody `json:"backfill,omitempty"`
}

type backfillBody struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

func bodyOf(sub fsm.Subscription) subscriptionBody {
	b := subscriptionBody{ID: sub.ID, Pattern: sub.Pattern, Webhook: sub.Webhook, Description: sub.Description}
	if sub.Signature != fsm.SignatureHMAC {
		b.Signature = sub.Signature
	}
	return b
}

// subscriptionAt serves the resource of one subscription (webhook spec, Subscription HTTP API).
func (s *Service) subscriptionAt(path string) *resource {
	at := func(handle func(echo.Context, string) error) echo.HandlerFunc {
		return func(c echo.Context) error { return handle(c, path) }
	}
	return &resource{
		methods: []method{
			{http.MethodGet, at(s.getSubscription)},
			{http.MethodHead, at(s.getSubscription)},
			{http.MethodPut, at(s.createSubscription)},
			{http.MethodDelete, at(s.deleteSubscription)},
		},
		usage: "?subscription=ID names a subscription: PUT creates it, GET reads it, DELETE deletes it; a write to a " +
			"stream has no such query",
	}
}

// subscriptionsAt serves the resource of the subscriptions of a pattern.
func (s *Service) subscriptionsAt(path string) *resource {
	list := func(c echo.Context) error { return s.listSubscriptions(c, path) }
	return &resource{
		methods: []method{{http.MethodGet, list}, {http.MethodHead, list}},
		usage: "GET with ?subscriptions lists subscriptions; ?subscription=ID is one of them, which PUT creates and " +
			"DELETE deletes",
	}
}

// createSubscription answers PUT /{pattern}?subscription=ID (webhook spec, Create).
func (s *Service) createSubscription(c echo.Context, path string) error {
	ctx := c.Request().Context()
	id, pattern, err := target(c.Request(), path)
	if err != nil {
		return err
	}
	sub := fsm.Subscription{ID: id, Pattern: pattern}
	if err := s.readSubscription(c, &sub); err != nil {
		return err
	}
	if err := s.cfg.Targets.CheckTarget(ctx, sub.Webhook); err != nil {
		return refuse(fsm.CodeInvalidWebhook, "%v", err) // it names the field
	}
	sub.Secret = sub.Signature.NewSecret(random(32))
	sub.Generation = hex.EncodeToString(random(16))
	stored, created, err := s.cfg.Streams.Subscribe(ctx, sub)
	if err != nil {
		return err
	}
	body := bodyOf(stored)
	if !created {
		writeJSON(c.Response(), http.StatusOK, body)
		return nil
	}
	s.log.Info("subscription created", zap.String("subscription", id), zap.String("pattern", pattern))
	body.Secret = stored.Secret
	writeJSON(c.Response(), http.StatusCreated, body)
	return nil
}

// readSubscription reads the body of a PUT.
func (s *Service) readSubscription(c echo.Context, sub *fsm.Subscription) error {
	o, err := s.readObject(c)
	if err != nil {
		return err
	}
	if sub.Webhook, err = required[string](o, "webhook", "a URL"); err != nil {
		return err
	}
	if sub.Description, _, err = optional[string](o, "description", "a string"); err != nil {
		return err
	}
	if sub.Signature, err = readSignature(o); err != nil {
		return err
	}
	if err := o.only("webhook", "description", "signature"); err != nil {
		return err
	}
	switch {
	case sub.Webhook == "":
		return refuse(fsm.CodeInvalidRequest, "webhook is empty: it must be a URL")
	case len(sub.Webhook) > maxWebhook:
		return refuse(fsm.CodeInvalidRequest, "webhook is longer than %d bytes", maxWebhook)
	case len(sub.Description) > maxDescription:
		return refuse(fsm.CodeInvalidRequest, "description is longer than %d bytes", maxDescription)
	}
	return nil
}

// readSignature reads the field that names the signature scheme; the default is that of the webhook spec.
func readSignature(o object) (fsm.Signature, error) {
	known := make([]string, len(fsm.Signatures))
	for i, s := range fsm.Signatures {
		known[i] = strconv.Quote(string(s))
	}
	want := strings.Join(known, " or ")
	s, ok, err := optional[fsm.Signature](o, "signature", want)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return fsm.SignatureHMAC, nil
	case !slices.Contains(fsm.Signatures, s):
		return "", refuse(fsm.CodeInvalidRequest, "signature must be %s", want)
	}
	return s, nil
}

// getSubscription answers GET /{pattern}?subscription=ID (webhook spec, Get by ID).
func (s *Service) getSubscription(c echo.Context, path string) error {
	ctx := c.Request().Context()
	sub, found, err := s.find(c.Request(), path)
	if err != nil {
		return err
	}
	if !found {
		return refuse(fsm.CodeSubscriptionNotFound, "there is no subscription with this id")
	}
	body := bodyOf(sub)
	backfills, err := s.cfg.Store.Backfills(ctx)
	if err != nil {
		return err
	}
	if b, ok := backfills[sub.ID]; ok {
		body.Backfill = &backfillBody{Done: b.Done, Total: b.Total}
	}
	writeJSON(c.Response(), http.StatusOK, body)
	return nil
}

// listSubscriptions answers GET /{pattern}?subscriptions (webhook spec, List by Pattern and List All).
func (s *Service) listSubscriptions(c echo.Context, path string) error {
	pattern, err := parsePattern(path)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.RefreshCatalog(c.Request().Context()); err != nil {
		return err
	}
	writeList(c.Response(), func(yield func(subscriptionBody) bool) {
		for _, sub := range s.cfg.Store.Catalog().All() {
			if (pattern == allPattern || pattern == sub.Pattern) && !yield(bodyOf(sub)) {
				return
			}
		}
	})
	return nil
}

// writeList answers with a list of any length, of which only one entry at a time is in memory: a client may be slow to
// read it.
func writeList(w http.ResponseWriter, list iter.Seq[subscriptionBody]) {
	answerHeader(w, http.StatusOK)
	between := `{"subscriptions":[`
	for body := range list {
		if _, err := io.WriteString(w, between); err != nil || encode(w, body) != nil {
			return // the client is gone
		}
		between = ","
	}
	if between != "," {
		_, _ = io.WriteString(w, between)
	}
	_, _ = io.WriteString(w, "]}\n")
}

// deleteSubscription answers DELETE /{pattern}?subscription=ID (webhook spec, Delete). A subscription that is not there
// is what the client wants, but the store is asked all the same: an earlier request may have been cut short before all
// of the consumers were gone.
func (s *Service) deleteSubscription(c echo.Context, path string) error {
	sub, found, err := s.find(c.Request(), path)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.DeleteSubscription(c.Request().Context(), sub.ID); err != nil {
		return err
	}
	if found {
		s.log.Info("subscription deleted", zap.String("subscription", sub.ID))
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusNoContent)
}

// find returns the subscription that a request names by ID, whichever replica created it, or nothing but the ID if
// there is none. Under a pattern that is neither its own nor "/**" the request is refused.
func (s *Service) find(r *http.Request, path string) (sub fsm.Subscription, found bool, err error) {
	id, pattern, err := target(r, path)
	if err != nil {
		return sub, false, err
	}
	if err := s.cfg.Store.RefreshCatalog(r.Context()); err != nil {
		return sub, false, err
	}
	if sub, found = s.cfg.Store.Catalog().Get(id); !found {
		return fsm.Subscription{ID: id}, false, nil
	}
	if pattern != allPattern && pattern != sub.Pattern {
		return sub, false, refuse(fsm.CodeSubscriptionNotFound, "the subscription with this id has another pattern")
	}
	return sub, true, nil
}

// target returns the subscription ID and the canonical pattern that a request names.
func target(r *http.Request, path string) (id, pattern string, err error) {
	values := queryValues(r.URL.RawQuery, "subscription")
	if len(values) != 1 {
		return "", "", refuse(fsm.CodeInvalidSubscriptionID, "subscription is given %d times in the query", len(values))
	}
	if id, err = url.QueryUnescape(values[0]); err != nil {
		return "", "", refuse(fsm.CodeInvalidSubscriptionID, "subscription is malformed in the query")
	}
	if err := fsm.ValidateSubscriptionID(id); err != nil {
		return "", "", refuse(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
	}
	pattern, err = parsePattern(path)
	return id, pattern, err
}

func parsePattern(path string) (string, error) {
	p, err := fsm.ParsePattern(path)
	if err != nil {
		return "", refuse(fsm.CodeInvalidPattern, "%v", err)
	}
	return p.String(), nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it would end the program
	return b
}
