package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"reveille/httpapi/operator"
)

// stats shows how deliveries have been going, of all subscriptions or of one.
func (c *cli) stats(ctx context.Context, args []string) error {
	path, id := "/api/v1/stats", ""
	if len(args) > 0 {
		id = args[0]
		path = subscriptionsPath + "/" + url.PathEscape(id) + "/stats"
	}
	if c.window != "" {
		path += "?window=" + url.QueryEscape(c.window)
	}
	var body operator.StatsBody
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	if err := c.fields([][]string{
		{"subscription", id},
		{"pending", atLeast(body.AtLeast, fmt.Sprint(body.Pending))},
		{"oldest waiting", orLonger(body.AtLeast, since(timeOf(body.WaitingSince), body.AsOf))},
		{"dead letters", fmt.Sprint(body.DeadLetters)},
	}); err != nil {
		return err
	}
	if err := c.below(windowRows(body.Windows)); err != nil {
		return err
	}
	if rows := failureRows(body.Windows); len(rows) > 1 {
		return c.below(rows)
	}
	return nil
}

func windowRows(windows []operator.WindowBody) [][]string {
	rows := [][]string{{
		"WINDOW", "SINCE", "ATTEMPTS", "TAKEN", "FAILED", "DEAD", "EVENTS", "P50", "P95", "P99",
	}}
	for _, w := range windows {
		row := []string{w.Window, stamp(w.Since)}
		for _, n := range []int64{w.Attempts, w.Taken, w.Failed, w.Dead, w.Events} {
			row = append(row, fmt.Sprint(n))
		}
		for _, ms := range []*int64{w.P50, w.P95, w.P99} {
			took := "" // nothing was sent
			if ms != nil {
				took = fmt.Sprint(time.Duration(*ms) * time.Millisecond)
			}
			row = append(row, took)
		}
		rows = append(rows, row)
	}
	return rows
}

// failureRows has a row for each class, the one with the most failures in the longest window first.
func failureRows(windows []operator.WindowBody) [][]string {
	head, all := []string{"FAILED WITH"}, map[string]int64{}
	for _, w := range windows {
		head = append(head, w.Window)
		for class, n := range w.Failures {
			all[class] = max(all[class], n)
		}
	}
	rows := [][]string{head}
	for _, class := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	}) {
		row := []string{class}
		for _, w := range windows {
			row = append(row, fmt.Sprint(w.Failures[class]))
		}
		rows = append(rows, row)
	}
	return rows
}
