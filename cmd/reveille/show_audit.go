package main

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"reveille/httpapi/operator"
)

// shownChange is a change in the operator's API, with the fields that the command shows.
type shownChange struct {
	operator.ChangeBody
	Before map[string]json.RawMessage `json:"before"`
	After  map[string]json.RawMessage `json:"after"`
}

// audit lists who has changed what.
func (c *cli) audit(ctx context.Context, _ []string) error {
	if err := c.span(); err != nil {
		return err
	}
	var body struct {
		Changes []shownChange `json:"changes"`
		Next    string        `json:"next"`
	}
	path := c.list("/api/v1/audit", [2]string{"subscription", c.subscription}, [2]string{"since", c.since},
		[2]string{"until", c.until})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"AT", "BY", "WHAT", "SUBSCRIPTION", "ABOUT", "COUNT", "CHANGE"}}
	for _, change := range body.Changes {
		rows = append(rows, []string{
			stamp(change.At), cmp.Or(change.By, change.From), change.What, change.Subscription, change.About,
			some(change.Count), change.change(),
		})
	}
	return c.rows(rows, "audit", body.Next)
}

// change says which fields became others. What was made, or deleted, has no other side.
func (s shownChange) change() string {
	var said []string
	arrow := when(s.Before != nil && s.After != nil, "→")
	names := maps.Clone(s.Before)
	if names == nil {
		names = map[string]json.RawMessage{}
	}
	maps.Copy(names, s.After)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := cut(string(s.Before[name]), valueWidth), cut(string(s.After[name]), valueWidth)
		said = append(said, name+": "+strings.Join(strings.Fields(was+" "+arrow+" "+is), " "))
	}
	return strings.Join(said, ", ")
}

// valueWidth bounds a value in a line of the audit, in characters.
const valueWidth = 40
