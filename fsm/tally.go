package fsm

import "time"

// Condition is what is wrong with a consumer, beside its State, or with an endpoint.
type Condition string

// The conditions.
const (
	ConditionOK Condition = "ok"
	// ConditionDown: the endpoint gets one delivery at a time. ConditionAskedToWait: the endpoint gets none for a
	// while, as it has asked.
	ConditionDown        Condition = "down"
	ConditionAskedToWait Condition = "asked_to_wait"
	// ConditionRefusing: the endpoint has refused the latest delivery for good, and has taken none since.
	ConditionRefusing Condition = "refusing"
	// ConditionFailing: the consumer's deliveries fail, until one succeeds.
	ConditionFailing Condition = "failing"
	// ConditionRetired: the consumer's endpoint answered 410. It ends when the subscription is resumed.
	ConditionRetired Condition = "retired"
	// ConditionHidden: the consumer's primary stream is gone upstream.
	ConditionHidden Condition = "hidden"
)

// Severities are the conditions of an endpoint, or of its consumers, that are trouble: the worst first.
var Severities = []Condition{
	ConditionRetired, ConditionDown, ConditionRefusing, ConditionFailing, ConditionAskedToWait,
}

// AsOf is the consumer as it is shown at a time: an attempt whose request may be open has not failed.
func (c Consumer) AsOf(now time.Time) Consumer {
	if c.FirstFailure.After(now) {
		c.FirstFailure, c.LastError = time.Time{}, ""
	}
	return c
}

// Condition of the consumer, which is to be AsOf the present. One that is hidden is nothing else: its endpoint gets no
// delivery meanwhile.
func (c Consumer) Condition() Condition {
	switch {
	case !c.HiddenAt.IsZero():
		return ConditionHidden
	case c.Retired:
		return ConditionRetired
	case !c.FirstFailure.IsZero():
		return ConditionFailing
	}
	return ConditionOK
}

// Tally counts the consumers of a subscription. Its asides (Consumer.IsAside) count by themselves, by their State and
// by their Condition, but not among Consumers.
type Tally struct {
	Consumers, Asides int
	// Idle, Waking, Live and GivenUp count them by State. Together they are Consumers and Asides.
	Idle, Waking, Live, GivenUp int
	// Pending counts those that are waking or live, unless they are Retired: that takes an operator.
	Pending int
	// Failing, Retired and Hidden count them by Condition.
	Failing, Retired, Hidden int
	// FailingSince is the earliest FirstFailure of the consumers that are failing or retired, zero if none has one.
	// LastError is the error of the consumer with that FirstFailure.
	FailingSince time.Time
	LastError    string
	// WaitingSince is the earliest WokeAt of those that are waking, zero if none is.
	WaitingSince time.Time
	// Partial is true if not all were looked at. Consumers and Asides are right then. The other numbers are at least
	// what they say, and Idle is 0. FailingSince and WaitingSince may be earlier, and zero says nothing.
	Partial bool
}

// Add adds what other consumers of the same subscription count. On a tie of FailingSince it keeps its own error.
func (t *Tally) Add(o Tally) {
	t.Consumers += o.Consumers
	t.Asides += o.Asides
	t.Idle += o.Idle
	t.Waking += o.Waking
	t.Live += o.Live
	t.GivenUp += o.GivenUp
	t.Pending += o.Pending
	t.Failing += o.Failing
	t.Retired += o.Retired
	t.Hidden += o.Hidden
	t.Partial = t.Partial || o.Partial
	if !o.FailingSince.IsZero() && (t.FailingSince.IsZero() || o.FailingSince.Before(t.FailingSince)) {
		t.FailingSince, t.LastError = o.FailingSince, o.LastError
	}
	if !o.WaitingSince.IsZero() && (t.WaitingSince.IsZero() || o.WaitingSince.Before(t.WaitingSince)) {
		t.WaitingSince = o.WaitingSince
	}
}
