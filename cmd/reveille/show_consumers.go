package main

import (
	"context"
	"fmt"
	"net/http"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

const consumersPath = "/api/v1/consumers"

func (c *cli) consumers(ctx context.Context, _ []string) error {
	var body operator.ConsumersBody
	path := c.list(consumersPath, [2]string{"subscription", c.subscription}, [2]string{"state", c.state})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"SUBSCRIPTION", "STREAM", "STATE", "EPOCH", "ATTEMPT", "DEADLINE", "LAST ERROR"}}
	for _, s := range body.Consumers {
		rows = append(rows, []string{
			s.Subscription, s.Primary, stateOf(s), fmt.Sprint(s.Epoch), some(s.Attempt),
			relative(timeOf(s.Deadline), body.AsOf), s.LastError,
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
	var s operator.ConsumerBody
	if printed, err := c.ask(ctx, http.MethodGet, consumersPath+"/"+id, nil, &s); printed || err != nil {
		return err
	}
	deadline, now := "", timeOf(s.AsOf)
	asides := when(s.Asides > 0, fmt.Sprintf("%d failed deliveries are retried by themselves", s.Asides))
	if s.Deadline != nil && s.WaitsFor != "" {
		deadline = fmt.Sprintf("%s (%s): %s", relative(*s.Deadline, now), stamp(*s.Deadline), map[string]string{
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
		{"failing since", since(timeOf(s.FailingSince), now)},
		{"last error", s.LastError},
		{"blocked", blockedOf(s.Blocked)},
		{"hidden since", since(timeOf(s.HiddenSince), now)},
		{"epoch", fmt.Sprint(s.Epoch)},
		{"wake id", s.WakeID},
		{"woken", since(timeOf(s.WokenAt), now)},
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

// blockedOf says what holds an attempt back, and what ends that.
func blockedOf(b *operator.BlockedBody) string {
	if b == nil {
		return ""
	}
	rule := b.Reason.Rule()
	if rule.Says == "" {
		return string(b.Reason)
	}
	return rule.Says + "; ended by " + rule.Ends
}

func stateOf(c operator.ConsumerBody) string {
	state := when(c.AsideOf != "", "aside, ") + string(c.State)
	if c.Condition == "ok" || c.Condition == "" {
		return state
	}
	return state + ", " + c.Condition
}
