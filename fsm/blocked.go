package fsm

import "time"

// BlockReason is why the next delivery of a consumer is not made now. BlockRules says what each reason means.
type BlockReason string

// The reasons. Those that are also conditions have the same names.
const (
	BlockedPaused      BlockReason = "paused"
	BlockedRetired     BlockReason = "retired"
	BlockedGivenUp     BlockReason = "given_up"
	BlockedHidden      BlockReason = "hidden"
	BlockedDown        BlockReason = "down"
	BlockedAskedToWait BlockReason = "asked_to_wait"
	BlockedRetry       BlockReason = "retry"
	BlockedStalled     BlockReason = "stalled"
	BlockedRate        BlockReason = "rate"
	BlockedConsent     BlockReason = "consent"
	BlockedSlot        BlockReason = "slot"
	BlockedUnread      BlockReason = "unread"
	BlockedFilter      BlockReason = "filter"
	BlockedUnknown     BlockReason = "unknown"
	BlockedUnlisted    BlockReason = "unlisted"
)

// BlockRule is what a reason means: who has set it, what an operator reads, and what ends it.
type BlockRule struct {
	Reason         BlockReason
	By, Says, Ends string
}

// BlockRules has a rule for each reason. Only of a retry does the time count before a consumer is given up. Function
// failed of redisstore/lua/library/transitions.lua decides when a retry is due.
// The calls of blocked in the dispatcher say how long most others wait.
var BlockRules = []BlockRule{
	{BlockedPaused, "operator", "the subscription is paused", "a resume"},
	{BlockedRetired, "endpoint", "the endpoint answered 410", "a resume"},
	{BlockedGivenUp, "reveille", "deliveries failed for too long", "a new event, a replay, or a resume"},
	{BlockedHidden, "stream server", "the stream is gone from the stream server", "the stream, once it is back"},
	{BlockedRetry, "reveille", "the last attempt failed", "the time of the next attempt, or a retry"},
	{BlockedDown, "reveille", "the endpoint is down", "a delivery that the endpoint takes"},
	{BlockedAskedToWait, "endpoint", "the endpoint has asked to wait", "that time"},
	{BlockedStalled, "reveille", "wake after wake has acked nothing", "the time of the next wake"},
	{BlockedRate, "reveille", "the rate allows no request now", "its turn"},
	{BlockedConsent, "endpoint", "the endpoint has not agreed to deliveries", "its consent"},
	{BlockedSlot, "reveille", "no slot is free", "a free slot"},
	{BlockedUnread, "stream server", "the events cannot be read", "a read that succeeds"},
	{BlockedFilter, "reveille", "the filter has changed, or may have", "a look at the subscription"},
	{BlockedUnknown, "reveille", "this version does not know how to deliver", "a replica of a later version"},
	{BlockedUnlisted, "reveille", "the subscription cannot be read", "a look at the list of subscriptions"},
}

// Rule returns what the reason means. If this version does not know the reason, the rule has no more than its name.
func (r BlockReason) Rule() BlockRule {
	for _, rule := range BlockRules {
		if rule.Reason == r {
			return rule
		}
	}
	return BlockRule{Reason: r}
}

// Stays says whether a delivery waits on though the reason for other waits has ended: its endpoint works again, or its
// subscription is resumed. Otherwise all that waits for its own reason would come up, only to wait again.
func (r BlockReason) Stays() bool { return r == BlockedRate || r == BlockedConsent }

// Blocked says why the consumer, which is to be AsOf now, gets no delivery. It is empty if the consumer needs none, or
// if one is due or under way. The argument paused says whether its subscription is paused.
func (c Consumer) Blocked(now time.Time, paused bool) BlockReason {
	switch {
	case c.State == GivenUp:
		return BlockedGivenUp
	case !c.HiddenAt.IsZero():
		return BlockedHidden
	case c.State != Waking || c.Sent:
		return ""
	case c.Retired:
		return BlockedRetired
	case paused:
		return BlockedPaused
	case !c.Deadline.After(now):
		return ""
	case c.Held != "":
		return c.Held
	case c.Attempt > 0:
		return BlockedRetry
	case c.Stalled >= StallLimit:
		return BlockedStalled
	}
	return ""
}
