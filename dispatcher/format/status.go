package format

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

// judgeFailure is the policy for answers to wakes that are no 2xx. By status:
//
//	410               retired
//	429, 502–504      failed, not before Retry-After
//	3xx               failed: redirects are not followed
//	4xx, 5xx, others  failed
func judgeFailure(a Answer) Verdict {
	v := Verdict{Result: fsm.AttemptFailed, Reason: "status " + strconv.Itoa(a.Status)}
	switch {
	case a.Status == http.StatusGone:
		v.Result, v.Class = fsm.AttemptRetired, ClassGone
	case a.Status == http.StatusTooManyRequests:
		v.Class = ClassRateLimited
	case a.Status == http.StatusServiceUnavailable:
		v.Class = ClassUnavailable
	case a.Status >= 300 && a.Status <= 399:
		v.Class = ClassRedirect
		if a.RedirectsTo != "" {
			v.Reason += " to " + a.RedirectsTo
		}
		v.Reason += " (redirects are not followed)"
	case a.Status >= 400 && a.Status <= 499:
		v.Class = ClassClientError
		if a.Status == http.StatusUnsupportedMediaType {
			v.Reason += " (the endpoint does not understand the format)"
		}
	case a.Status >= 500 && a.Status <= 599:
		v.Class = ClassServerError
	default:
		v.Class = ClassInvalid
	}
	switch a.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		v.RetryAfter = parseRetryAfter(a.Header.Get("Retry-After"), a.At)
	}
	return v
}

// judgePushFailure is judgeFailure for deliveries that bring events. An endpoint that refuses events once would refuse
// them again:
//
//	408, 425, 429      failed: the same may be taken later
//	3xx, other 4xx     dead
func judgePushFailure(a Answer) Verdict {
	v := judgeFailure(a)
	switch {
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusTooEarly:
	case v.Class == ClassRedirect, v.Class == ClassClientError:
		v.Result = fsm.AttemptDead
	}
	return v
}

// Success says whether a status is a 2xx. Only the body of a 2xx is judged.
func Success(status int) bool { return status >= 200 && status <= 299 }

// parseRetryAfter reads seconds or an HTTP date. A value that cannot be read, is negative or past gives 0. The result
// is at most fsm.MaxRetryAfter.
func parseRetryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(fsm.MaxRetryAfter/time.Second) {
			return fsm.MaxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), fsm.MaxRetryAfter)
}
