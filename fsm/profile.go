package fsm

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Profile is what a consumer follows of its subscription's settings. The consumer keeps it, so that the store can act
// on a deadline without the subscription. A change of the subscription reaches the consumer with the report of its next
// attempt. The zero Profile is the profile of the webhook spec.
type Profile struct {
	// Attempt is how long a delivery attempt may be out; 0 for Timing.Waking.
	Attempt time.Duration
	// Delays after the first failed attempt, the second and so on (Subscription.Retry). Only reported failures count:
	// an attempt without a report by its deadline is made again. The attempt after the last delay is the last one. If
	// the profile is Lasting, the last delay repeats instead. Without Delays, spec.RetryDelay applies, and failures
	// give the consumer up by Timing.GCAfter.
	Delays []time.Duration
	// Lasting says that failures never give the consumer up: the replica that reports the last failure acks the events
	// as dead.
	Lasting bool
	// Aside says that the events of a failed attempt step aside. A consumer of their own retries them
	// (Consumer.IsAside) while this one goes on behind them. A profile with Aside is Lasting.
	Aside bool
}

// MaxAsides is how many asides a consumer may have. MaxSubscriptionAsides is how many its subscription may have in one
// partition. With so many, the consumer waits for its failed delivery.
const (
	MaxAsides             = 1000
	MaxSubscriptionAsides = 2000
)

// AttemptMargin is how much longer an attempt may be out than the endpoint may take (Profile.Attempt). In this time the
// attempt waits for a slot, reads its events, and is reported.
const AttemptMargin = 15 * time.Second

// Profile is what the consumers of the subscription follow.
func (s Subscription) Profile() Profile {
	if s.Mode != ModePush && len(s.Retry) == 0 {
		return Profile{}
	}
	return Profile{
		Attempt: cmp.Or(s.Timeout, PushTimeout) + AttemptMargin, Delays: s.Retry, Lasting: s.Mode == ModePush,
		Aside: s.Mode == ModePush && s.Ordering == OrderingNone,
	}
}

// IsZero says whether it is the profile of the webhook spec.
func (p Profile) IsZero() bool { return p.Attempt == 0 && len(p.Delays) == 0 && !p.Lasting }

// String returns the profile as stores keep it, with commas between the numbers. The first is the milliseconds of
// Attempt. The second is 2 if the profile is Aside, 1 if it is only Lasting, otherwise 0. The milliseconds of the
// Delays follow. The zero Profile is empty.
func (p Profile) String() string {
	if p.IsZero() {
		return ""
	}
	lasting := int64(0)
	switch {
	case p.Aside:
		lasting = 2
	case p.Lasting:
		lasting = 1
	}
	b := strconv.AppendInt(nil, p.Attempt.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, ','), lasting, 10)
	for _, d := range p.Delays {
		b = strconv.AppendInt(append(b, ','), d.Milliseconds(), 10)
	}
	return string(b)
}

// ErrProfile is the error of ParseProfile.
var ErrProfile = errors.New("not a profile")

// ParseProfile reads what String has written.
func ParseProfile(text string) (Profile, error) {
	if text == "" {
		return Profile{}, nil
	}
	var numbers []time.Duration
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 {
			return Profile{}, ErrProfile
		}
		numbers = append(numbers, time.Duration(n)*time.Millisecond)
	}
	if len(numbers) < 2 || numbers[1] > 2*time.Millisecond {
		return Profile{}, ErrProfile
	}
	return Profile{
		Attempt: numbers[0], Lasting: numbers[1] > 0, Aside: numbers[1] == 2*time.Millisecond, Delays: numbers[2:],
	}, nil
}

// MaxAttempts is how many attempts are made of a delivery; 0 if no number bounds them.
func (p Profile) MaxAttempts() int {
	if len(p.Delays) == 0 {
		return 0
	}
	return len(p.Delays) + 1
}

// Last says whether a failed attempt is the last: nothing is retried after it.
func (p Profile) Last(attempt int) bool { return p.MaxAttempts() > 0 && attempt >= p.MaxAttempts() }
