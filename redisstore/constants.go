package redisstore

import (
	"fmt"
	"strings"
	"time"

	"reveille/fsm"
)

// constants are the values that the scripts share with package fsm, under their names in the scripts. Times are
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

// withConstants puts the constants that are among the words of a script in front of it, on the script's first line. So
// errors still name the lines of the script's file.
func withConstants(script string, words map[string]bool) string {
	var names, values []string
	for _, c := range constants {
		if words[c.name] {
			names, values = append(names, c.name), append(values, fmt.Sprint(c.value))
		}
	}
	if len(names) == 0 {
		return script
	}
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + " " + script
}
