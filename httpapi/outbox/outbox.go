// Package outbox is the face of direct deliveries: a client hands over one event for one target, and asks what has
// become of it (delivery semantics, API Endpoints).
package outbox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	root       = "/webhooks"
	deliver    = root + "/deliver"
	list       = root + "/events"
	dead       = root + "/dlq"
	stats      = root + "/stats"
	config     = root + "/config"
	events     = list + "/"
	replay     = "/replay"
	ofKeys     = root + "/idempotency/"
	maxText    = 255
	maxTarget  = 2048
	maxDetails = 16 << 10
	maxTries   = 100
	// readingTime bounds how long the payload of an event is looked for.
	readingTime = time.Second
)

// Face serves direct deliveries. All fields are required.
type Face struct {
	Outbox  *control.Outbox
	Bodies  web.Bodies
	Targets fields.Targets
	// FromNoPage makes a handler refuse web pages that may not use the API port.
	FromNoPage func(echo.HandlerFunc) echo.HandlerFunc
}

// Resources are those of direct deliveries, and the streams of the events, which are for nobody else.
func (f *Face) Resources() []web.Resource {
	below := func(prefix string) func(string) bool {
		return func(raw string) bool {
			id, ok := strings.CutPrefix(raw, prefix)
			return ok && id != "" && !strings.Contains(id, "/")
		}
	}
	return []web.Resource{
		{
			Path: web.Exactly(deliver), Role: web.Anyone,
			Usage: "an event is handed over by POST", Methods: web.Post(f.FromNoPage(f.handOver)),
		},
		{Path: web.Exactly(list), Role: web.Anyone, Methods: web.Read(f.page(eventFilters))},
		{Path: web.Exactly(dead), Role: web.Anyone, Methods: web.Read(f.page(deadFilters))},
		{Path: web.Exactly(stats), Role: web.Anyone, Methods: web.Read(f.stats)},
		{
			Path: web.Exactly(config), Role: web.Anyone,
			Methods: web.Read(f.config).And(http.MethodPatch, f.FromNoPage(f.changeConfig)),
		},
		{
			Path: below(events), Role: web.Anyone,
			Methods: web.Read(f.event).And(http.MethodDelete, f.FromNoPage(f.cancel)),
		},
		{
			Path: func(raw string) bool {
				id, ok := strings.CutSuffix(raw, replay)
				return ok && below(events)(id)
			},
			Role: web.Anyone, Methods: web.Post(f.FromNoPage(f.replay)), Usage: "an event is replayed by POST",
		},
		{Path: below(ofKeys), Role: web.Anyone, Methods: web.Read(f.eventOfKey)},
		{Path: f.isReserved, Role: web.Anyone, Methods: web.All(web.Nothing)},
	}
}

func (f *Face) isReserved(raw string) bool {
	return fsm.Within(raw, root) || fsm.Within(raw, f.Outbox.Root)
}

// handOver answers POST /webhooks/deliver. An event that was there before is answered with 200.
func (f *Face) handOver(c echo.Context) error {
	o, err := f.Bodies.JSON(c)
	if err != nil {
		return err
	}
	e, err := read(o, f.Outbox.Control.Clock())
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := f.Targets.CheckTarget(ctx, e.Target); err != nil {
		return refusal.New(fsm.CodeInvalidWebhook, "target_url: %v", err)
	}
	h, err := f.Outbox.HandOver(ctx, e)
	return web.Answer(c, statusOf(h), f.bodyOf(h, e.Payload), err)
}

func statusOf(h control.Handed) int {
	if h.New {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// event answers GET /webhooks/events/{id}, with the payload.
func (f *Face) event(c echo.Context) error {
	h, err := f.Outbox.Event(c.Request().Context(), strings.TrimPrefix(web.RawPath(c.Request()), events))
	return f.answer(c, h, err)
}

// replay answers POST /webhooks/events/{id}/replay.
func (f *Face) replay(c echo.Context) error {
	o, err := f.Bodies.Maybe(c)
	if err != nil {
		return err
	}
	if err := o.Only(keyNames...); err != nil {
		return err
	}
	key, err := readKey(o)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	id := strings.TrimSuffix(strings.TrimPrefix(web.RawPath(c.Request()), events), replay)
	h, err := f.Outbox.Event(ctx, id)
	if err != nil {
		return known(err)
	}
	if err := f.Targets.CheckTarget(ctx, h.Event.Target); err != nil {
		return refusal.New(fsm.CodeInvalidWebhook, "target_url: %v", err)
	}
	again, err := f.Outbox.Replay(ctx, h, key)
	return web.Answer(c, statusOf(again), f.bodyOf(again, ""), err)
}

// known makes an error of the store a refusal, if it says that there is no such event.
func known(err error) error {
	if errors.Is(err, fsm.ErrNotFound) {
		return refusal.New(fsm.CodeNotFound, "there is no such event")
	}
	return err
}

// eventOfKey answers GET /webhooks/idempotency/{key}.
func (f *Face) eventOfKey(c echo.Context) error {
	key, err := pathValue(web.RawPath(c.Request()), ofKeys)
	if err != nil {
		return err
	}
	h, err := f.Outbox.EventOfKey(c.Request().Context(), key)
	return f.answer(c, h, err)
}

func (f *Face) answer(c echo.Context, h control.Handed, err error) error {
	if err != nil {
		return known(err)
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), readingTime)
	defer cancel()
	payload, err := f.Outbox.Payload(ctx, h)
	if err != nil { // the rest is known all the same
		payload = ""
	}
	return web.Answer(c, http.StatusOK, f.bodyOf(h, payload), nil)
}
