package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

// worstWidth bounds the characters of an error in a status.
const worstWidth = 100

func (c *cli) status(ctx context.Context, _ []string) error {
	var s operator.StatusBody
	if printed, err := c.ask(ctx, http.MethodGet, "/api/v1/status", nil, &s); printed || err != nil {
		return err
	}
	if err := c.fields([][]string{
		{"version", s.Version},
		{"answered by", s.Replica},
		{"redis", redisOf(s)},
		{"stream server", streamServerOf(s)},
		{"partitions", partitionsOf(s)},
		{"subscriptions", subscriptionsOf(s)},
		{"oldest waiting", cmp.Or(since(timeOf(s.WaitingSince), s.AsOf), when(!s.WaitingKnown, "not known"))},
	}); err != nil {
		return err
	}
	rows := [][]string{{"REPLICA", "STATE", "ALIVE SINCE", "PARTITIONS"}}
	for _, r := range s.Replicas {
		state := "alive"
		if !r.Alive {
			state = "gone"
		}
		rows = append(rows, []string{r.ID, state, since(timeOf(r.Since), s.AsOf), fmt.Sprint(r.Partitions)})
	}
	if err := c.below(rows); err != nil || len(s.Worst) == 0 {
		return err
	}
	rows = [][]string{{"SUBSCRIPTION", "CONDITION", "FAILING SINCE", "LAST ERROR"}}
	for _, w := range s.Worst {
		rows = append(rows, []string{
			w.ID, strings.ReplaceAll(string(w.Condition), "_", " "),
			orLonger(w.AtLeast, relative(timeOf(w.Since), s.AsOf)), cut(w.Reason, worstWidth),
		})
	}
	return c.below(rows)
}

// below prints a table below the earlier output.
func (c *cli) below(rows [][]string) error {
	if _, err := fmt.Fprintln(c.out); err != nil {
		return err
	}
	return c.rows(rows, "status", "")
}

// lasting returns a state, and since when it lasts if that is known.
func lasting(state string, t *time.Time, now time.Time) string {
	if t == nil {
		return state
	}
	return state + " since " + since(*t, now)
}

func redisOf(s operator.StatusBody) string {
	if s.Redis.Up {
		return lasting("up", s.Redis.Since, s.AsOf)
	}
	return lasting("away", s.Redis.Since, s.AsOf) + ": " + s.Redis.Error
}

func streamServerOf(s operator.StatusBody) string {
	state := string(s.StreamServer.State)
	if state == "not_seen" {
		return "no stream server has answered yet"
	}
	return lasting(state, s.StreamServer.Since, s.AsOf) + "; dialect " + s.StreamServer.Dialect + ", watched by " +
		s.StreamServer.Watching
}

func partitionsOf(s operator.StatusBody) string {
	text := fmt.Sprint(s.Partitions)
	switch {
	case !s.ReplicasKnown:
		text += "; the other replicas are not known while redis is away"
	case s.Unowned != nil && *s.Unowned > 0:
		text += fmt.Sprintf(", %d of them without a replica", *s.Unowned)
	}
	return text
}

func subscriptionsOf(s operator.StatusBody) string {
	if s.Subscriptions == nil {
		return "not read yet"
	}
	text := fmt.Sprint(*s.Subscriptions)
	var by []string
	for _, condition := range slices.Concat(fsm.Severities, []fsm.Condition{"paused", fsm.ConditionOK, "not_known"}) {
		if n := s.Conditions[condition]; n > 0 {
			by = append(by, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(condition), "_", " ")))
		}
	}
	if len(by) > 0 {
		text += ": " + strings.Join(by, ", ")
	}
	if !s.ConsumersCounted {
		text += " (not all consumers are counted: more may be failing)"
	}
	return text
}
