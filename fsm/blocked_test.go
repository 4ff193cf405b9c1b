package fsm

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

// TestWhyAConsumerGetsNoDelivery holds which reason is shown where several apply.
func TestWhyAConsumerGetsNoDelivery(t *testing.T) {
	now := time.Unix(1000, 0)
	waking := func(change func(*Consumer)) Consumer {
		c := Consumer{Lease: Lease{State: Waking, Deadline: now.Add(time.Minute)}}
		change(&c)
		return c
	}
	for name, test := range map[string]struct {
		c      Consumer
		paused bool
		want   BlockReason
	}{
		"idle":                     {Consumer{Lease: Lease{State: Idle}}, true, ""},
		"live":                     {Consumer{Lease: Lease{State: Live}}, true, ""},
		"an attempt is out":        {waking(func(c *Consumer) { c.Sent = true }), true, ""},
		"due":                      {waking(func(c *Consumer) { c.Held, c.Deadline = "down", now }), false, ""},
		"due, and paused":          {waking(func(c *Consumer) { c.Deadline = now }), true, BlockedPaused},
		"given up":                 {Consumer{Lease: Lease{State: GivenUp, HiddenAt: now}}, true, BlockedGivenUp},
		"hidden while idle":        {Consumer{Lease: Lease{State: Idle, HiddenAt: now}}, true, BlockedHidden},
		"hidden, with a 410":       {waking(func(c *Consumer) { c.HiddenAt, c.Retired = now, true }), false, "hidden"},
		"a 410 of a paused one":    {waking(func(c *Consumer) { c.Retired = true }), true, BlockedRetired},
		"failed, and paused":       {waking(func(c *Consumer) { c.Attempt = 1 }), true, BlockedPaused},
		"failed, then held back":   {waking(func(c *Consumer) { c.Attempt, c.Held = 1, "down" }), false, BlockedDown},
		"waits for a slot":         {waking(func(c *Consumer) { c.Held = BlockedSlot }), false, BlockedSlot},
		"a later version's reason": {waking(func(c *Consumer) { c.Held = "later" }), false, "later"},
		"failed":                   {waking(func(c *Consumer) { c.Attempt = 1 }), false, BlockedRetry},
		"moved nothing":            {waking(func(c *Consumer) { c.Stalled = StallLimit }), false, BlockedStalled},
	} {
		if got := test.c.Blocked(now, test.paused); got != test.want {
			t.Errorf("%s: it is blocked for %q, want %q", name, got, test.want)
		}
	}
}

// TestEveryReasonHasOneRule reads the reasons from the source, where a new one may be without its rule.
func TestEveryReasonHasOneRule(t *testing.T) {
	source, err := os.ReadFile("blocked.go")
	if err != nil {
		t.Fatal(err)
	}
	var reasons, ruled []string
	for _, found := range regexp.MustCompile(`BlockReason += "(.+)"`).FindAllSubmatch(source, -1) {
		reasons = append(reasons, string(found[1]))
	}
	for _, rule := range BlockRules {
		ruled = append(ruled, string(rule.Reason))
		if rule.By == "" || rule.Says == "" || rule.Ends == "" {
			t.Errorf("the rule of %s is incomplete: %+v", rule.Reason, rule)
		}
	}
	slices.Sort(reasons)
	slices.Sort(ruled)
	if len(reasons) < 13 || !slices.Equal(reasons, ruled) {
		t.Errorf("the reasons are %q, and the rules are of %q", reasons, ruled)
	}
}
