// Package paging reads and writes where the pages of a list begin.
package paging

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// The bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
	// MaxCost bounds the keys that one page may look at, so that a rare state cannot keep Redis busy. A page that
	// has looked at so many ends, short or empty, with a cursor to go on from.
	MaxCost = 20_000
	// MaxCalls bounds the calls of the store for a page of streams, likewise.
	MaxCalls = 5_000
	// Timeout bounds the time of one page.
	Timeout = 20 * time.Second
)

// Place is where a page begins, as the cursor of the page before says.
type Place struct {
	// Subscription and Generation belong to the consumers that are walked. If the same ID has another generation later,
	// its consumers are walked from the start.
	Subscription string `json:"s,omitempty"`
	Generation   string `json:"g,omitempty"`
	Partition    int    `json:"p,omitempty"`
	// Scan is the store's cursor of the batch. After is the last entry of the batch that was shown: the entries are in
	// order.
	Scan  string `json:"c,omitempty"`
	After string `json:"a,omitempty"`
	// Seq is the last watched stream that was shown.
	Seq int64 `json:"q,omitempty"`
	// Floor, Top, Group and its end are where a list of attempts goes on that has more logs than one page looks at
	// (control.Service, PageAttempts).
	Floor    int64  `json:"f,omitempty"`
	Top      string `json:"o,omitempty"`
	TopOf    string `json:"u,omitempty"`
	Group    string `json:"r,omitempty"`
	GroupEnd string `json:"e,omitempty"`
	// Through is the number of the last dead letter that a request is about, which goes on from here.
	Through int64 `json:"t,omitempty"`
}

// String returns the cursor.
func (p Place) String() string {
	text, _ := json.Marshal(p) // a struct of texts and numbers cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

// Page is what a list request asks for.
type Page struct {
	Limit int
	From  Place
}

// Read reads limit and cursor. Other keys of the query must be known: a misspelt filter must not show everything.
func Read(query url.Values, partitions int, known ...string) (p Page, err error) {
	allowed := map[string]bool{"limit": true, "cursor": true}
	for _, k := range known {
		allowed[k] = true
	}
	for k := range query {
		if !allowed[k] {
			return p, refusal.New(fsm.CodeInvalidRequest, "%q is not a parameter of this list", k)
		}
	}
	p.Limit = defaultPage
	if text := query.Get("limit"); text != "" {
		if p.Limit, err = strconv.Atoi(text); err != nil || p.Limit < 1 || p.Limit > maxPage {
			return p, refusal.New(fsm.CodeInvalidRequest, "limit must be a number from 1 to %d", maxPage)
		}
	}
	if text := query.Get("cursor"); text != "" {
		if p.From, err = ReadPlace(text, partitions); err != nil {
			return p, err
		}
	}
	if p.From.Scan == "" {
		p.From.Scan = "0"
	}
	return p, nil
}

// ReadPlace reads a cursor.
func ReadPlace(cursor string, partitions int) (at Place, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(raw, &at) != nil || at.Partition < 0 || at.Partition >= partitions ||
		at.Through < 0 {
		return at, refusal.New(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	}
	return at, nil
}

// Time reads a parameter that is a time; zero if it is empty.
func Time(name, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, refusal.New(fsm.CodeInvalidRequest, "%s must be a time such as 2026-11-26T17:00:00Z", name)
	}
	return at, nil
}
