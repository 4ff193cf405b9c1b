package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

const (
	// followEvery is how often new attempts are asked for, and followPage how many one page of them has.
	followEvery = time.Second
	followPage  = 1000
	// followSlack is how much later than others an attempt may be listed that was stored at the same time. The clocks
	// may differ that number the entries of several logs.
	followSlack = 10 * time.Second
	// followPatience is for how long nobody need answer.
	followPatience = time.Minute
)

// follower shows the attempts of a list as they come.
type follower struct {
	c     *cli
	list  string
	query url.Values
	// since is when the first attempt was stored that may be new; zero before the first look. first is the first one
	// that was shown, and shown are those from since on.
	since time.Time
	first fsm.LoggedAttempt
	shown map[[2]string]bool
	// answered is when the latest look succeeded.
	answered time.Time
}

// followDeliveries shows the latest attempts of a list, and then new ones until ctx is done.
func (c *cli) followDeliveries(ctx context.Context, path string) error {
	if c.cursor != "" {
		return usageError{"deliveries: --follow begins with the latest: it takes no --cursor"}
	}
	f := newFollower(c, path)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		fresh, err := f.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !f.goesOn(err) {
			return err
		}
		for _, a := range slices.Backward(fresh) {
			if err := c.print(a); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func newFollower(c *cli, path string) *follower {
	list, query, _ := strings.Cut(path, "?")
	values, _ := url.ParseQuery(query) // as list has made it
	return &follower{c: c, list: list, query: values, shown: map[[2]string]bool{}}
}

// goesOn says whether the next look may do better.
func (f *follower) goesOn(err error) bool {
	refused := refusal{}
	passes := errors.Is(err, errNoAnswer) || errors.As(err, &refused) && refused.code == string(fsm.CodeUnavailable)
	return passes && !f.answered.IsZero() && f.c.now().Sub(f.answered) < followPatience
}

// followed is an attempt as the API shows it, and as the commands show it.
type followed struct {
	text json.RawMessage
	operator.DeliveryBody
}

// look returns the attempts that were not shown yet, the latest first. The first look reads one page. What lies behind
// it is never shown.
func (f *follower) look(ctx context.Context) (fresh []followed, err error) {
	again := !f.since.IsZero()
	if again {
		f.query.Set("limit", fmt.Sprint(followPage))
		f.query.Set("stored_since", f.since.UTC().Format(time.RFC3339Nano))
	}
	var page attemptPage
	var asOf time.Time // of the first page: what comes behind it may have missed what is stored meanwhile
	grouped := false
	for more := true; more; more = again && page.Next != "" {
		if page, err = f.read(ctx, page.Next); err != nil {
			return nil, err
		}
		if asOf.IsZero() {
			asOf = page.AsOf
		}
		grouped = grouped || page.From != ""
		for _, a := range page.attempts {
			of := [2]string{a.Subscription, a.ID}
			if !f.shown[of] && (f.first.ID == "" || fsm.CompareLogged(a.place(), f.first) <= 0) {
				fresh = append(fresh, a)
			}
		}
	}
	if grouped { // by subscriptions
		slices.SortStableFunc(fresh, func(a, b followed) int { return fsm.CompareLogged(a.place(), b.place()) })
	}
	if !again && len(fresh) > 0 {
		f.first = fresh[len(fresh)-1].place()
	}
	f.since, f.answered = asOf.Add(-followSlack), f.c.now()
	for _, a := range fresh {
		f.shown[[2]string{a.Subscription, a.ID}] = true
	}
	for of := range f.shown {
		if fsm.LogMillis(of[1]) < f.since.UnixMilli() {
			delete(f.shown, of)
		}
	}
	return fresh, nil
}

func (a followed) place() fsm.LoggedAttempt {
	return fsm.LoggedAttempt{ID: a.ID, Subscription: a.Subscription}
}

// attemptPage is a page of the list.
type attemptPage struct {
	attempts   []followed
	Deliveries []json.RawMessage `json:"deliveries"`
	From       string            `json:"from_subscription"`
	Next       string            `json:"next"`
	AsOf       time.Time         `json:"as_of"`
}

func (f *follower) read(ctx context.Context, cursor string) (page attemptPage, err error) {
	asking := *f.c
	asking.output = outputText // ask would print the page as it is
	if f.query.Del("cursor"); cursor != "" {
		f.query.Set("cursor", cursor)
	}
	if _, err := asking.ask(ctx, http.MethodGet, f.list+"?"+f.query.Encode(), nil, &page); err != nil {
		return page, err
	}
	for _, text := range page.Deliveries {
		a := followed{text: text}
		if err := json.Unmarshal(text, &a.DeliveryBody); err != nil || !fsm.ValidLogID(a.ID) {
			return page, fmt.Errorf("an attempt cannot be read: %s", printable(string(text)))
		}
		page.attempts = append(page.attempts, a)
	}
	return page, nil
}

// print shows one attempt. Lines that come one by one have no columns.
func (c *cli) print(a followed) error {
	if c.output == outputJSON {
		_, err := fmt.Fprintf(c.out, "%s\n", a.text)
		return err
	}
	if c.details {
		return c.delivery(a.DeliveryBody, false)
	}
	row := attemptRows([]operator.DeliveryBody{a.DeliveryBody}, true)[1]
	row = slices.DeleteFunc(row, func(cell string) bool { return cell == "" })
	_, err := fmt.Fprintln(c.out, printable(strings.Join(row, "  ")))
	return err
}
