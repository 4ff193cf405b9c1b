package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"reveille/fsm"
)

// The bounds of a page that an operator gets.
const (
	defaultPage = 100
	maxPage     = 1000
	// maxPageCost bounds the keys that one page may look at, so that a rare state cannot keep Redis busy. A page that
	// has looked at so many ends, short or empty, with a cursor to go on from.
	maxPageCost = 20_000
	// maxPageCalls bounds the calls of the store for a page of streams, likewise.
	maxPageCalls = 5_000
	// pageTimeout bounds the time of one page.
	pageTimeout = 20 * time.Second
)

// place is where a page begins, as the cursor of the page before says.
type place struct {
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
}

func (p place) String() string {
	text, _ := json.Marshal(p) // a struct of texts and numbers cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

// page is what a list request asks for.
type page struct {
	limit int
	from  place
}

// readPage reads limit and cursor. Other keys of the query must be known: a misspelt filter must not show everything.
func (s *Service) readPage(query url.Values, known ...string) (p page, err error) {
	allowed := map[string]bool{"limit": true, "cursor": true}
	for _, k := range known {
		allowed[k] = true
	}
	for k := range query {
		if !allowed[k] {
			return p, refuse(fsm.CodeInvalidRequest, "%q is not a parameter of this list", k)
		}
	}
	p.limit = defaultPage
	if text := query.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > maxPage {
			return p, refuse(fsm.CodeInvalidRequest, "limit must be a number from 1 to %d", maxPage)
		}
	}
	if text := query.Get("cursor"); text != "" {
		if p.from, err = s.readPlace(text); err != nil {
			return p, err
		}
	}
	if p.from.Scan == "" {
		p.from.Scan = "0"
	}
	return p, nil
}

// readTime reads a parameter that is a time; zero if it is empty.
func readTime(name, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, refuse(fsm.CodeInvalidRequest, "%s must be a time such as 2026-11-26T17:00:00Z", name)
	}
	return at, nil
}

// readPlace reads a cursor.
func (s *Service) readPlace(cursor string) (at place, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(raw, &at) != nil || at.Partition < 0 || at.Partition >= s.cfg.Store.Partitions() {
		return at, refuse(fsm.CodeInvalidRequest, "cursor must be the next of an earlier answer")
	}
	return at, nil
}
