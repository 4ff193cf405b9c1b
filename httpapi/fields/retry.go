package fields

import (
	"encoding/json"
	"fmt"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	minDelay  = time.Second
	maxDelay  = 7 * 24 * time.Hour
	maxDelays = 100
	// An empty list of delays stands for the default, so there is no subscription that never retries.
	minAttempts = 2
	maxAttempts = 100
	maxFactor   = 10
)

// The defaults of a retry with max_attempts.
const (
	defaultInitial = time.Second
	defaultFactor  = 2
	defaultMax     = time.Hour
)

// readRetry reads the delays between attempts, or what they are computed from. The default depends on the mode.
func (Reader) readRetry(o web.Object) (setting, error) {
	const want = "an object with either schedule or max_attempts"
	fields, named, err := web.Optional[web.Object](o, "retry", want)
	if err != nil {
		return nil, err
	}
	var delays []time.Duration
	if named {
		r := fields.Under("retry")
		_, scheduled := r["retry.schedule"]
		_, counted := r["retry.max_attempts"]
		if err := r.Only(
			"retry.schedule", "retry.max_attempts", "retry.initial", "retry.factor", "retry.max",
		); err != nil {
			return nil, err
		}
		switch {
		case scheduled == counted:
			return nil, refusal.New(fsm.CodeInvalidRequest, "retry must be %s", want)
		case !scheduled:
			delays, err = readBackoff(r)
		case len(r) > 1:
			err = refusal.New(fsm.CodeInvalidRequest, "retry.schedule excludes the other fields of retry")
		default:
			delays, err = readSchedule(r)
		}
	}
	return always(func(sub *fsm.Subscription) { sub.Retry = delays }), err
}

func showRetry(delays any) any {
	var schedule []string
	for _, d := range delays.([]time.Duration) {
		schedule = append(schedule, durationText(d))
	}
	return map[string][]string{"schedule": schedule}
}

func readSchedule(r web.Object) ([]time.Duration, error) {
	const name = "retry.schedule"
	want := fmt.Sprintf(`a list of 1 to %d delays such as "30s"`, maxDelays)
	list, err := web.Required[[]json.RawMessage](r, name, want)
	if err != nil {
		return nil, err
	}
	if len(list) < 1 || len(list) > maxDelays {
		return nil, refusal.New(fsm.CodeInvalidRequest, "%s must be %s", name, want)
	}
	delays := make([]time.Duration, len(list))
	for i, raw := range list {
		if delays[i], err = duration(raw, fmt.Sprintf("%s[%d]", name, i), minDelay, maxDelay); err != nil {
			return nil, err
		}
	}
	return delays, nil
}

// readBackoff reads how delays grow, and returns the delays.
func readBackoff(r web.Object) ([]time.Duration, error) {
	want := fmt.Sprintf("an integer from %d to %d", minAttempts, maxAttempts)
	attempts, err := web.Required[int](r, "retry.max_attempts", want)
	if err != nil {
		return nil, err
	}
	if attempts < minAttempts || attempts > maxAttempts {
		return nil, refusal.New(fsm.CodeInvalidRequest, "retry.max_attempts must be %s", want)
	}
	initial, named, err := readDuration(r, "retry.initial", minDelay, maxDelay)
	if err != nil {
		return nil, err
	}
	if !named {
		initial = defaultInitial
	}
	want = fmt.Sprintf("a number from 1 to %d", maxFactor)
	factor, named, err := web.Optional[float64](r, "retry.factor", want)
	switch {
	case err != nil:
		return nil, err
	case !named:
		factor = defaultFactor
	case factor < 1 || factor > maxFactor:
		return nil, refusal.New(fsm.CodeInvalidRequest, "retry.factor must be %s", want)
	}
	most, named, err := readDuration(r, "retry.max", minDelay, maxDelay)
	if err != nil {
		return nil, err
	}
	if !named {
		most = defaultMax
	}
	if most < initial {
		return nil, refusal.New(fsm.CodeInvalidRequest, "retry.max is %s, which is less than retry.initial, %s",
			durationText(most), durationText(initial))
	}
	delays := make([]time.Duration, attempts-1)
	next := float64(initial)
	for i := range delays {
		delays[i] = time.Duration(next).Round(time.Millisecond)
		next = min(next*factor, float64(most))
	}
	return delays, nil
}
