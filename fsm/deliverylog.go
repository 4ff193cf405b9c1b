package fsm

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DeliveryLog says which delivery attempts the log of their subscription keeps. The log is not state: no decision
// depends on it, and it may have gaps.
type DeliveryLog string

// The values of DeliveryLog.
const (
	LogAll      DeliveryLog = "all"
	LogFailures DeliveryLog = "failures"
	LogOff      DeliveryLog = "off"
)

// Takes says whether the log keeps an attempt with this result. It keeps no attempt that was put off before anything
// was sent. While an endpoint is left alone, there may be many of them, and they would displace the others.
func (l DeliveryLog) Takes(r AttemptResult) bool {
	switch r {
	case AttemptEmpty, AttemptBlocked:
	case AttemptFailed, AttemptRetired, AttemptDead:
		return l == LogAll || l == LogFailures
	case AttemptAccepted, AttemptDone, AttemptAbandoned:
		return l == LogAll
	}
	return false
}

// LoggedAttempt is an entry of a delivery log.
type LoggedAttempt struct {
	// ID orders the entries of a subscription by the time at which they were stored. Each replica stores them at its
	// own pace.
	ID string
	// Subscription is whose log it is.
	Subscription string
	// At is when the attempt began, by the clock of the replica that made it; Took is as in Attempt.
	At   time.Time
	Took time.Duration
	// Stream is the primary stream of the Consumer.
	Stream, Consumer string
	// WakeID, Epoch, DeliveryID and MaxAttempts are as in the Attempt; for a wake the two IDs are the same. Attempt
	// counts from 1.
	WakeID, DeliveryID   string
	Epoch                int64
	Attempt, MaxAttempts int
	// Result is a text of AttemptResult; a later version may have others.
	Result string
	// Status, Class, Reason, Events, Bytes and From are as in Attempt.
	Status        int
	Class, Reason string
	Events, Bytes int
	From          Offset
	// Extent finds again what was sent. It is zero if nothing was sent.
	Extent Extent
	// Waited, Exchanged, Remote, HTTP, TLS and Answer are as in Attempt. Answer is empty unless the log keeps answers.
	Waited, Exchanged time.Duration
	Remote, HTTP, TLS string
	Answer            string
}

// Sent is when the request was sent, by the clock of At.
func (a LoggedAttempt) Sent() time.Time { return a.At.Add(a.Took - a.Exchanged) }

// Extent is what it takes to build the request of an attempt again: not what was sent, but where that is.
type Extent struct {
	// Shape stands for what of a subscription and of the settings a request depends on. If it is another one now, the
	// request would be another one, too.
	Shape string
	// Sum is the CRC-32 of the request's body, in hexadecimal. It is empty for a wake, whose body has a token.
	Sum string
	// At is the position that the events were read from, and Span the Batch.Span of what was read. Both are empty for a
	// wake.
	At   Offset
	Span int64
	// Replay is Delivery.Replay.
	Replay bool
	// WokeAt is Delivery.WokeAt, to the millisecond, if the format of the request may show it; zero otherwise.
	WokeAt time.Time
	// Streams are those of a wake, in its order. They are empty for a push, and for a wake that has more than an entry
	// of the log holds (MaxExtent).
	Streams []WokenStream
}

// WokenStream is a stream as a wake shows it: its path, the upstream's value of what is acknowledged, and whether it is
// pending.
type WokenStream struct {
	Path, Acked string
	Pending     bool
}

// MaxExtent bounds the streams in an Extent, as text, in bytes. A wake with more streams has an Extent without them.
const MaxExtent = 1 << 9

// StreamsOf returns the streams of a wake as an Extent has them; nil if they are too many.
func StreamsOf(w Delivery) (streams []WokenStream) {
	size := 0
	for _, s := range w.Streams {
		t := WokenStream{s.Path, s.Acked.Value(), Link{Acked: s.Acked, Tail: s.Tail}.Pending()}
		if size += len(t.Path) + len(t.Acked) + len("\n+ "); size > MaxExtent {
			return nil
		}
		streams = append(streams, t)
	}
	return streams
}

// Tails returns the streams of a wake as a Delivery has them. A tail says no more than whether its stream is pending.
func (e Extent) Tails() (streams []StreamTail) {
	for _, s := range e.Streams {
		t := StreamTail{Path: s.Path, Acked: Offset(s.Acked), Tail: Offset(s.Acked)}
		if s.Pending {
			t.Tail += "~"
		}
		streams = append(streams, t)
	}
	return streams
}

// Text returns the extent of an attempt as its log keeps it; "" if it is not known. from is LoggedAttempt.From, where
// most reads begin, and primary the Consumer's stream, which most wakes are about.
func (e Extent) Text(from Offset, primary string) string {
	if e.Shape == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(e.Shape)
	if e.Sum != "" {
		b.WriteString("-" + e.Sum)
	}
	number := func(letter byte, n int64) {
		if n != 0 {
			b.WriteByte(letter)
			b.WriteString(strconv.FormatInt(n, 10))
		}
	}
	number('n', e.Span)
	if e.Replay {
		number('r', 1)
	}
	if !e.WokeAt.IsZero() {
		number('w', e.WokeAt.UnixMilli())
	}
	if e.At != "" && e.At != from {
		b.WriteString(" " + string(e.At))
	}
	for _, s := range e.Streams {
		b.WriteByte('\n')
		if s.Path != primary {
			b.WriteString(s.Path)
		}
		if b.WriteByte(' '); s.Pending {
			b.WriteByte('+')
		}
		b.WriteString(s.Acked)
	}
	return b.String()
}

var extentText = regexp.MustCompile(`^([0-9a-f]{8})(?:-([0-9a-f]{8}))?(?:n([0-9]+))?(r1)?(?:w([0-9]+))?(?: (.+))?$`)

// ReadExtent is the reverse of Extent.Text. A text that it does not know is an Extent that is not known: a later
// version may write others.
func ReadExtent(text string, from Offset, primary string) Extent {
	lines := strings.Split(text, "\n")
	m := extentText.FindStringSubmatch(lines[0])
	if m == nil {
		return Extent{}
	}
	e := Extent{Shape: m[1], Sum: m[2], Replay: m[4] != "", At: Offset(m[6])}
	e.Span, _ = strconv.ParseInt(m[3], 10, 64)
	if millis, err := strconv.ParseInt(m[5], 10, 64); err == nil {
		e.WokeAt = time.UnixMilli(millis)
	}
	if e.Span > 0 {
		e.At = cmp.Or(e.At, from)
	}
	for _, line := range lines[1:] {
		path, acked, _ := strings.Cut(line, " ")
		s := WokenStream{Path: cmp.Or(path, primary), Acked: acked}
		s.Acked, s.Pending = strings.CutPrefix(acked, "+")
		e.Streams = append(e.Streams, s)
	}
	return e
}

// SentRequest is the request of an attempt as it was sent, without its secrets.
type SentRequest struct {
	// Method and URL of the request. The URL has the origin of the webhook; what is behind it may be a secret.
	Method, URL string
	// At is when it was sent.
	At time.Time
	// Header has "[masked]" in place of secrets.
	Header map[string][]string
	// Body is the beginning of the body, at most MaxShownBody bytes, with secrets masked. Size is the length of the
	// whole body as it was sent.
	Body []byte
	Size int
	// Cut is true if the body goes on behind Body.
	Cut bool
}

// MaxShownBody bounds SentRequest.Body in bytes, before masks are put in.
const MaxShownBody = 64 << 10

// NotRebuiltError says why the request of an attempt cannot be built again, for an operator.
type NotRebuiltError struct {
	Code Code
	Why  string
}

// Error implements error.
func (e *NotRebuiltError) Error() string { return e.Why }

// LoggedAttemptOf returns the log entry of an attempt. It contains no part of what was sent, and of the answer only if
// answers takes its result.
func LoggedAttemptOf(a Attempt, answers DeliveryLog) LoggedAttempt {
	if !answers.Takes(a.Result) {
		a.Answer = ""
	}
	a.Answer = strings.ToValidUTF8(a.Answer[:min(len(a.Answer), MaxLetterAnswer)], "")
	var extent Extent
	if a.Extent != nil {
		extent = a.Extent()
	}
	return LoggedAttempt{
		Subscription: a.Delivery.Subscription, At: a.Began, Took: a.Took, Stream: a.Delivery.Primary,
		Consumer: a.Delivery.Consumer, WakeID: a.Delivery.WakeID, Epoch: a.Delivery.Epoch,
		DeliveryID: cmp.Or(a.DeliveryID, a.Delivery.WakeID), Attempt: a.Delivery.Attempt, MaxAttempts: a.MaxAttempts,
		Result: a.Result.String(), Status: a.Status,
		Class: a.Class, Reason: a.Reason[:min(len(a.Reason), MaxReason)], Events: a.Events,
		Bytes: a.Bytes, From: a.From, Extent: extent, Waited: a.Waited, Exchanged: a.Exchanged,
		Remote: a.Remote, HTTP: a.HTTP, TLS: a.TLS, Answer: a.Answer,
	}
}

// logID does not match 0-0. No entry has this ID, and Redis refuses to read what comes before it.
var logID = regexp.MustCompile(`^[1-9][0-9]{0,17}-[0-9]{1,18}$`)

// ValidLogID says whether a text can be the ID of a LoggedAttempt.
func ValidLogID(id string) bool { return logID.MatchString(id) }

// LogPlace is a place in the delivery log of a subscription: before the entry with an ID, or at the end without one.
// What was stored before Since is not read from there.
type LogPlace struct {
	Subscription Subscription
	Before       string
	Since        time.Time
}

// PlaceIn returns where the log of a subscription goes on behind an entry, in the order of CompareLogged. A log that
// sorts later may still have an entry with the same ID. Without an ID, the entry is before all others.
func (a LoggedAttempt) PlaceIn(sub Subscription) LogPlace {
	if a.ID == "" || sub.ID <= a.Subscription {
		return LogPlace{Subscription: sub, Before: a.ID}
	}
	at, n, _ := strings.Cut(a.ID, "-")
	number, _ := strconv.ParseUint(n, 10, 64)
	return LogPlace{Subscription: sub, Before: at + "-" + strconv.FormatUint(number+1, 10)}
}

// LogMillis is when an entry was stored, in milliseconds since 1970; 0 if the ID is none.
func LogMillis(id string) int64 {
	at, _, _ := strings.Cut(id, "-")
	millis, _ := strconv.ParseInt(at, 10, 64)
	return millis
}

// CompareLogged orders the entries of several logs: the latest comes first.
func CompareLogged(a, b LoggedAttempt) int {
	return cmp.Or(CompareLogIDs(b.ID, a.ID), cmp.Compare(a.Subscription, b.Subscription))
}

// CompareLogIDs orders entries by when they were stored.
func CompareLogIDs(a, b string) int {
	ofA, nA, _ := strings.Cut(a, "-")
	ofB, nB, _ := strings.Cut(b, "-")
	return cmp.Or(compareDigits(ofA, ofB), compareDigits(nA, nB))
}

func compareDigits(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
