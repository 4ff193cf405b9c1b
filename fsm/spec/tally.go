package spec

import "reveille/fsm"

// Count counts a consumer in, AsOf the present. Of several that fail since the same time, the first that is counted
// tells its error.
func Count(t *fsm.Tally, c fsm.Consumer) {
	one := fsm.Tally{Consumers: 1}
	if c.IsAside() {
		one = fsm.Tally{Asides: 1}
	}
	switch c.State {
	case fsm.Idle:
		one.Idle = 1
	case fsm.Waking:
		one.Waking, one.WaitingSince = 1, c.WokeAt
	case fsm.Live:
		one.Live = 1
	case fsm.GivenUp:
		one.GivenUp = 1
	case fsm.InQuarantine: // the store counts none
	}
	if c.State == fsm.Live || c.State == fsm.Waking && !c.Retired {
		one.Pending = 1
	}
	switch c.Condition() {
	case fsm.ConditionFailing:
		one.Failing = 1
	case fsm.ConditionRetired:
		one.Retired = 1
	case fsm.ConditionHidden:
		one.Hidden = 1
	case fsm.ConditionOK:
	case fsm.ConditionDown, fsm.ConditionAskedToWait, fsm.ConditionRefusing: // of endpoints
	}
	if one.Failing+one.Retired > 0 {
		one.FailingSince, one.LastError = c.FirstFailure, c.LastError
	}
	t.Add(one)
}
