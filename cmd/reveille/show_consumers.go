package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"reveille/fsm"
)

const consumersPath = "/api/v1/consumers"

// shownConsumer is a consumer in the operator's API, with the fields that the commands show.
type shownConsumer struct {
	ID           string    `json:"consumer_id"`
	Subscription string    `json:"subscription_id"`
	Primary      string    `json:"primary_stream"`
	AsideOf      string    `json:"aside_of"`
	Asides       int       `json:"asides"`
	Partition    int       `json:"partition"`
	State        string    `json:"state"`
	Condition    string    `json:"condition"`
	Epoch        int64     `json:"epoch"`
	WakeID       string    `json:"wake_id"`
	WokenAt      time.Time `json:"woken_at"`
	Attempt      int       `json:"attempt"`
	WaitsFor     string    `json:"waits_for"`
	Deadline     time.Time `json:"deadline"`
	FailingSince time.Time `json:"failing_since"`
	LastError    string    `json:"last_error"`
	Blocked      struct {
		Reason fsm.BlockReason `json:"reason"`
	} `json:"blocked"`
	HiddenSince time.Time `json:"hidden_since"`
	Streams     []struct {
		Path    string `json:"path"`
		Acked   string `json:"acked"`
		Tail    string `json:"tail"`
		Pending bool   `json:"pending"`
	} `json:"streams"`
	AsOf time.Time `json:"as_of"`
}

func (c *cli) consumers(ctx context.Context, _ []string) error {
	var body struct {
		Consumers []shownConsumer `json:"consumers"`
		Next      string          `json:"next"`
		AsOf      time.Time       `json:"as_of"`
	}
	path := c.list(consumersPath, [2]string{"subscription", c.subscription}, [2]string{"state", c.state})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"SUBSCRIPTION", "STREAM", "STATE", "EPOCH", "ATTEMPT", "DEADLINE", "LAST ERROR"}}
	for _, s := range body.Consumers {
		rows = append(rows, []string{
			s.Subscription, s.Primary, stateOf(s), fmt.Sprint(s.Epoch), some(s.Attempt),
			relative(s.Deadline, body.AsOf), s.LastError,
		})
	}
	return c.rows(rows, "consumers", body.Next)
}

func (c *cli) consumer(ctx context.Context, args []string) error {
	id := args[0]
	if len(args) == 2 {
		path, err := fsm.CanonicalPath(args[1])
		if err != nil {
			return usageError{fmt.Sprintf("stream %q: %v", args[1], err)}
		}
		id = fsm.ConsumerID(id, path)
	}
	if _, _, ok := fsm.ParseAnyConsumerID(id); !ok {
		return usageError{fmt.Sprintf(
			"%q is no consumer's id: expected one such as agent-handler:%%2Fagents%%2Ftask-1, or SUBSCRIPTION STREAM",
			id,
		)}
	}
	var s shownConsumer
	if printed, err := c.ask(ctx, http.MethodGet, consumersPath+"/"+id, nil, &s); printed || err != nil {
		return err
	}
	deadline, blocked := "", string(s.Blocked.Reason)
	asides := when(s.Asides > 0, fmt.Sprintf("%d failed deliveries are retried by themselves", s.Asides))
	if rule := s.Blocked.Reason.Rule(); rule.Says != "" {
		blocked = rule.Says + "; ended by " + rule.Ends
	}
	if !s.Deadline.IsZero() && s.WaitsFor != "" {
		deadline = fmt.Sprintf("%s (%s): %s", relative(s.Deadline, s.AsOf), stamp(s.Deadline), map[string]string{
			"answer": "the attempt counts as failed", "attempt": "the next attempt", "callback": "it counts as asleep",
			"stream": "its stream is looked for again",
		}[s.WaitsFor])
	}
	fields := [][]string{
		{"consumer", s.ID},
		{"subscription", s.Subscription},
		{"stream", s.Primary},
		{"aside of", s.AsideOf},
		{"state", stateOf(s)},
		{"asides", asides},
		{"failing since", since(s.FailingSince, s.AsOf)},
		{"last error", s.LastError},
		{"blocked", blocked},
		{"hidden since", since(s.HiddenSince, s.AsOf)},
		{"epoch", fmt.Sprint(s.Epoch)},
		{"wake id", s.WakeID},
		{"woken", since(s.WokenAt, s.AsOf)},
		{"attempt", some(s.Attempt)},
		{"deadline", deadline},
		{"partition", fmt.Sprint(s.Partition)},
	}
	if err := c.fields(fields); err != nil {
		return err
	}
	rows := [][]string{{"STREAM", "ACKED", "TAIL", "PENDING"}}
	for _, st := range s.Streams {
		rows = append(rows, []string{st.Path, st.Acked, st.Tail, when(st.Pending, "yes")})
	}
	_, _ = fmt.Fprintln(c.out)
	return c.rows(rows, "", "")
}

func stateOf(c shownConsumer) string {
	state := when(c.AsideOf != "", "aside, ") + c.State
	if c.Condition == "ok" || c.Condition == "" {
		return state
	}
	return state + ", " + c.Condition
}
