package operator

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"reveille/fsm"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
)

// ChangeBody is a change as an operator sees it. It has no secret.
type ChangeBody struct {
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

// AuditBody is a page of changes.
type AuditBody struct {
	Changes []ChangeBody `json:"changes"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

// Audit lists the changes that somebody has asked for, the latest first.
func (f *Face) Audit(ctx context.Context, query url.Values, p paging.Page) (body AuditBody, err error) {
	before := p.From.After
	if before != "" && !fsm.ValidLogID(before) {
		return body, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	}
	since, err := paging.Time("since", query.Get("since"))
	if err != nil {
		return body, err
	}
	until, err := paging.Time("until", query.Get("until"))
	if err != nil {
		return body, err
	}
	subscription := query.Get("subscription")
	body.Changes = []ChangeBody{}
	err = f.Control.ListChanges(ctx, before, func(c fsm.Change) bool {
		switch {
		case c.At.Before(since):
			return false
		case subscription != "" && subscription != c.Subscription, !until.IsZero() && !c.At.Before(until):
		case len(body.Changes) == p.Limit:
			body.Next = paging.Place{After: body.Changes[p.Limit-1].ID}.String()
			return false
		default:
			body.Changes = append(body.Changes, ChangeBody{
				ID: c.ID, At: c.At.UTC(), By: c.By, From: c.From, What: c.What, Subscription: c.Subscription,
				About: c.About, Count: c.Count, Before: c.Before, After: c.After,
			})
		}
		return true
	})
	return body, err
}
