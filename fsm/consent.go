package fsm

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// ConsentMode says what an endpoint gets that has not agreed to deliveries.
type ConsentMode string

// The modes.
const (
	// ConsentOff asks no endpoint, and sends all.
	ConsentOff ConsentMode = "off"
	// ConsentAsk sends at a low rate to an endpoint that has not agreed.
	ConsentAsk ConsentMode = "ask"
	// ConsentRequire sends nothing to it.
	ConsentRequire ConsentMode = "require"
)

// ConsentState is what an endpoint has said.
type ConsentState string

// The states.
const (
	ConsentPending     ConsentState = "pending" // it has not said anything yet
	ConsentGranted     ConsentState = "granted"
	ConsentRefused     ConsentState = "refused"
	ConsentUnsupported ConsentState = "unsupported" // what it says cannot be understood
)

// ConsentStates are all of them.
var ConsentStates = []ConsentState{ConsentPending, ConsentGranted, ConsentRefused, ConsentUnsupported}

const (
	// ConsentFor is the time from one answer to the next request for consent.
	ConsentFor = 24 * time.Hour
	// ConsentSpread is the most that comes on top of it.
	ConsentSpread = ConsentFor / 4
	// ConsentRetry is the time until the first request that brought neither a yes nor a no is repeated. It doubles with
	// each further one, up to ConsentFor after an answer.
	ConsentRetry = 10 * time.Second
	// ConsentRetryMax is the longest such time without any answer.
	ConsentRetryMax = time.Hour
	// ConsentDoubts is how many such requests in a row end a consent by header: about an hour of them.
	ConsentDoubts = 9
	// ConsentLost is the time until the next request if nothing is known of one, because the replica has died.
	ConsentLost = time.Minute
)

// Consent is what the endpoint of a subscription has said about deliveries (CloudEvents webhook spec, Abuse
// Protection). The zero value was never asked for.
type Consent struct {
	State ConsentState
	// Origin is the name that the endpoint was asked by, and Webhook the HashOf the URL. For another origin or URL, the
	// consent says nothing.
	Origin, Webhook string
	// Rate is how many requests a minute the endpoint allows, up to MaxRate; 0 for any number.
	Rate int
	// ByCallback is true if consent was given by a callback. The answer to a later request need not repeat it.
	ByCallback bool
	// AskedAt is when the endpoint was asked last, and Until when it is asked again.
	AskedAt, Until time.Time
	// Failures counts the latest requests that brought neither a yes nor a no.
	Failures int
	// Reason says why there is no consent; empty if there is.
	Reason string
	// Key is what the callback must have, until KeyUntil. Once the key was used, it is a text of the one who used it.
	Key      string
	KeyUntil time.Time
}

// ErrNoTurn says that an endpoint cannot be asked for its consent now.
var ErrNoTurn = errors.New("the endpoint was asked too often, or has asked to wait")

// HashOf returns the SHA-256 of a text, in hexadecimal digits.
func HashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Equal says whether both are the same in all fields.
func (c Consent) Equal(o Consent) bool {
	times := c.AskedAt.Equal(o.AskedAt) && c.Until.Equal(o.Until) && c.KeyUntil.Equal(o.KeyUntil)
	c.AskedAt, c.Until, c.KeyUntil = o.AskedAt, o.Until, o.KeyUntil
	return times && c == o
}

// About returns the consent if it is about a webhook and an origin. Otherwise it returns one that is pending.
func (c Consent) About(webhook, origin string) Consent {
	if c.State == "" || c.Origin != origin || c.Webhook != HashOf(webhook) {
		return Consent{State: ConsentPending, Origin: origin}
	}
	return c
}

// Asked returns the consent from when the endpoint is asked for it. A key that is good for an hour more stays, so that
// a link which someone has found works on. Otherwise the argument key replaces it, and is good until a time.
func (c Consent) Asked(webhook, origin, key string, now, until time.Time) Consent {
	if c = c.About(webhook, origin); c.Webhook == "" {
		c.Webhook, c.Reason = HashOf(webhook), "the endpoint has not answered yet"
	}
	if c.KeyUntil.Before(now.Add(ConsentRetryMax)) {
		c.Key, c.KeyUntil = key, until
	}
	c.AskedAt, c.Until = now, now.Add(ConsentLost)
	return c
}

// Opens says whether a key is the one that the callback must have.
func (c Consent) Opens(key string, now time.Time) bool {
	same := subtle.ConstantTimeCompare([]byte(HashOf(key)), []byte(HashOf(c.Key))) == 1
	return same && now.Before(c.KeyUntil)
}

// ByKey returns the consent that a callback has given. The endpoint is asked again at a time. The key is used up. The
// argument by is a text that no other caller has: of those who use the key at the same time, the store finds one only.
func (c Consent) ByKey(rate int, by string, until time.Time) Consent {
	c.State, c.Rate, c.ByCallback, c.Reason, c.Failures = ConsentGranted, rate, true, "", 0
	c.Until, c.Key, c.KeyUntil = until, by, time.Time{}
	return c
}

// ConsentAnswer is what the answer to a request for consent says.
type ConsentAnswer struct {
	State ConsentState
	Rate  int
	// Reason says why State is not ConsentGranted.
	Reason string
	// Withheld is true if the answer says neither yes nor no. Lost is true if it is no answer of the endpoint.
	Withheld, Lost bool
	// RetryAfter is the least time until the next request that a lost answer asks for.
	RetryAfter time.Duration
}

// Answered returns the consent after the answer to the request of asked, which is the consent as it was then. After a
// yes or a no, the endpoint is asked again at a time. If it was asked again or has consented meanwhile, that is what
// counts. A lost answer changes nothing that the endpoint has said. One that is withheld does not end a consent by
// callback, and a consent by header only if it comes again and again: a proxy may have answered for the endpoint.
func (c Consent) Answered(asked Consent, a ConsentAnswer, until time.Time) Consent {
	if c.Key != asked.Key || !c.AskedAt.Equal(asked.AskedAt) {
		return c
	}
	granted := c.State == ConsentGranted
	switch {
	case a.Withheld && granted && c.ByCallback, !a.Withheld && !a.Lost:
		c.Failures, c.Until = 0, until
	case a.Lost:
		c.Failures++
		c.Until = c.AskedAt.Add(max(ConsentPause(c.Failures, ConsentRetryMax), a.RetryAfter.Truncate(time.Millisecond)))
	default:
		c.Failures++
		c.Until = c.AskedAt.Add(ConsentPause(c.Failures, ConsentFor))
	}
	switch {
	case !granted && a.Lost:
		c.Reason = a.Reason
	case a.Lost, a.Withheld && granted && (c.ByCallback || c.Failures < ConsentDoubts):
	default:
		c.State, c.Rate, c.Reason, c.ByCallback = a.State, a.Rate, a.Reason, false
	}
	return c
}

// ConsentPause is the time until the next request, after so many that brought neither a yes nor a no, and at most a
// given time.
func ConsentPause(failures int, most time.Duration) time.Duration {
	return min(ConsentRetry<<min(failures-1, 20), most)
}

// IsDNSName says whether a text is a host name without a dot at its end: letters, digits and hyphens between dots. An
// address is none.
func IsDNSName(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return false
		}
	}
	return strings.Trim(text[strings.LastIndexByte(text, '.')+1:], "0123456789") != ""
}

// ParseAllowedRate reads the values of the header WebHook-Allowed-Rate. It returns the rate, up to MaxRate; 0 for any.
// It returns false if the rate cannot be understood.
func ParseAllowedRate(rates []string) (rate int, ok bool) {
	if len(rates) == 0 {
		return 0, true
	}
	text := strings.TrimSpace(rates[0])
	for _, other := range rates[1:] {
		if strings.TrimSpace(other) != text {
			return 0, false
		}
	}
	if text == "*" {
		return 0, true
	}
	if digits := strings.TrimLeft(text, "0"); digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	rate, err := strconv.Atoi(text)
	if err != nil || rate > MaxRate { // a number that is too large for an int
		return MaxRate, true
	}
	return rate, true
}
