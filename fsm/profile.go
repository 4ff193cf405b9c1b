package fsm

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Profile is what a consumer goes by that its subscription has set. It is kept with the consumer, so that a deadline
// can be acted on without the subscription; a change of the subscription reaches it with the report of its next
// attempt. The zero Profile is that of the webhook spec.
type Profile struct {
	// Attempt is how long a delivery attempt may be out; 0 for Timing.Waking.
	Attempt time.Duration
	// Delays after the first failed attempt, the second and so on (Subscription.Retry). Only failures that are reported
	// count: an attempt of which nothing was heard by its deadline is made again. The attempt after the last delay is
	// the last, unless the profile is Lasting: then the last delay goes on. Without any, RetryDelay holds, and
	// failures give the consumer up by Timing.GCAfter.
	Delays []time.Duration
	// Lasting says that failures never give the consumer up: whoever reports the last one acks the events as dead.
	Lasting bool
	// Aside says that what an attempt has brought steps aside when the attempt fails: it is retried as a consumer of
	// its own (Consumer.IsAside) while this one goes on behind it. Such a profile is Lasting.
	Aside bool
}

// MaxAsides is how many asides a consumer may have, MaxSubscriptionAsides how many its subscription may have in one
// partition. With so many, it waits for its failed delivery.
const (
	MaxAsides             = 1000
	MaxSubscriptionAsides = 2000
)

// AttemptMargin is how much longer than the endpoint may take an attempt may be out (Profile.Attempt): it waits for a
// slot, its events are read, and it is reported.
const AttemptMargin = 15 * time.Second

// Profile is what the consumers of the subscription are to go by.
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

// Equal says whether p and o are the same.
func (p Profile) Equal(o Profile) bool {
	return p.Attempt == o.Attempt && p.Lasting == o.Lasting && p.Aside == o.Aside && slices.Equal(p.Delays, o.Delays)
}

// String returns the profile as stores keep it: the milliseconds of Attempt, 1 if it is Lasting, 2 if it is Aside as
// well, otherwise 0, and the milliseconds of the Delays, with commas between them. The zero Profile is empty.
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

// Last says whether a failed attempt is the last: nothing is retried after it.
func (p Profile) Last(attempt int) bool { return len(p.Delays) > 0 && attempt > len(p.Delays) }

// delay returns how long to wait after failed attempt n (from 1), in whole milliseconds.
func (p Profile) delay(n int, j Jitter) time.Duration {
	if len(p.Delays) == 0 {
		return RetryDelay(n, j)
	}
	// As Lua reckons, which has no integers.
	ms := float64(p.Delays[min(max(n, 1), len(p.Delays))-1].Milliseconds())
	least, span := ms*(100-RetryVariance)/100, ms*2*RetryVariance/100
	return time.Duration(math.Floor(least+span*float64(j)/JitterSpan)) * time.Millisecond
}

// takeBack has an attempt that is out and was not reported be made again, where only reported failures count.
func (c *Consumer) takeBack() {
	if c.Sent && len(c.Profile.Delays) > 0 {
		c.Attempt, c.Sent, c.Again = c.Attempt-1, false, true
	}
}

// requestEnds is when the request of the attempt that is out must have ended. Where the Profile says how long an
// attempt may be out, that is at its deadline.
func (c Consumer) requestEnds(t Timing) time.Time {
	if c.Profile.Attempt > 0 {
		return c.Deadline
	}
	return c.Deadline.Add(t.Open() - t.Waking)
}

// patience is how long an attempt of the consumer may be out.
func (c Consumer) patience(t Timing) time.Duration {
	if c.Profile.Attempt > 0 {
		return c.Profile.Attempt
	}
	return t.Waking
}
