package operator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

// changeBody is a change as an operator sees it. It has no secret.
type changeBody struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// By is the name of who has changed it, if there are names, and From the address that the request came from.
	By   string `json:"by,omitempty"`
	From string `json:"from"`
	What string `json:"what"`
	// About is as in fsm.Change.
	Subscription string          `json:"subscription_id,omitempty"`
	About        string          `json:"about,omitempty"`
	Count        int             `json:"count,omitempty"`
	Before       json.RawMessage `json:"before,omitempty"`
	After        json.RawMessage `json:"after,omitempty"`
}

type auditBody struct {
	Changes []changeBody `json:"changes"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

// showAudit lists the changes that somebody has asked for, the latest first.
func (f *Face) showAudit(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
	before := p.From.After
	if before != "" && !fsm.ValidLogID(before) {
		return nil, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	}
	since, err := paging.Time("since", c.QueryParam("since"))
	if err != nil {
		return nil, err
	}
	until, err := paging.Time("until", c.QueryParam("until"))
	if err != nil {
		return nil, err
	}
	subscription, body := c.QueryParam("subscription"), auditBody{Changes: []changeBody{}}
	err = f.Control.ListChanges(ctx, before, func(c fsm.Change) bool {
		switch {
		case c.At.Before(since):
			return false
		case subscription != "" && subscription != c.Subscription, !until.IsZero() && !c.At.Before(until):
		case len(body.Changes) == p.Limit:
			body.Next = paging.Place{After: body.Changes[p.Limit-1].ID}.String()
			return false
		default:
			body.Changes = append(body.Changes, changeBody{
				ID: c.ID, At: c.At.UTC(), By: c.By, From: c.From, What: c.What, Subscription: c.Subscription,
				About: c.About, Count: c.Count, Before: c.Before, After: c.After,
			})
		}
		return true
	})
	return body, err
}
