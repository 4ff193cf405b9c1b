package redisstore

import (
	"fmt"
	"strings"
	"time"

	"reveille/fsm"
)

// constants are the values that the scripts share with package fsm. In the scripts they are fields of FSM. Times are
// milliseconds.
var constants = []struct {
	name  string
	value int64
}{
	{"VERSIONS", fsm.VersionsPerMilli},
	{"CLOCK_SKEW", millis(fsm.MaxClockSkew)},
	{"EPOCHS", fsm.EpochsPerMilli},
	{"LEAST_EPOCHS", fsm.LeastEpochs},
	{"JITTER_SPAN", fsm.JitterSpan},
	{"STALL_LIMIT", fsm.StallLimit},
	{"RETRY_BASE", millis(fsm.RetryBase)},
	{"RETRY_CAP", millis(fsm.RetryCap)},
	{"RETRY_JITTER", millis(fsm.RetryJitter)},
	{"RETRY_SLOW_AFTER", fsm.RetrySlowAfter},
	{"RETRY_SLOW", millis(fsm.RetrySlow)},
	{"RETRY_SLOW_JITTER", millis(fsm.RetrySlowJitter)},
	{"RETRY_VARIANCE", fsm.RetryVariance},
	{"RETRY_AFTER_MAX", millis(fsm.MaxRetryAfter)},
	{"DOWN_AFTER", fsm.DownAfter},
	{"PROBE_PAUSE", millis(fsm.ProbePause)},
	{"PROBE_PAUSE_MAX", millis(fsm.ProbePauseMax)},
	{"MAX_ASIDES", fsm.MaxAsides},
	{"MAX_REPLAY_SPANS", fsm.MaxReplaySpans},
	{"OUTBOX_RETENTION", millis(fsm.OutboxRetention)},
	{"OUTBOX_PUT_OFF", millis(fsm.OutboxPutOff)},
	{"OUTBOX_REMOVAL", millis(fsm.OutboxRemoval)},
	{"OUTBOX_COUNTED", millis((fsm.MaxOutboxHours + 1) * time.Hour)},
	{"MAX_OUTBOX_COUNTS", fsm.MaxOutboxCounts},
	{"MAX_OUTBOX_TRIES", fsm.MaxOutboxTries},
	{"MAX_SUBSCRIPTION_ASIDES", fsm.MaxSubscriptionAsides},
}

func millis(d time.Duration) int64 { return d.Milliseconds() }

// withConstants puts the constants in front of a script that uses some, on its first line.
func withConstants(script string) string {
	if !strings.Contains(script, "FSM.") {
		return script
	}
	var text strings.Builder
	text.WriteString("local FSM = {")
	for _, c := range constants {
		fmt.Fprintf(&text, " %s = %d,", c.name, c.value)
	}
	return text.String() + " } " + script
}
