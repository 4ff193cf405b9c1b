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
	// Waited, Exchanged, Remote, HTTP, TLS and Answer are as in Attempt. Answer is empty unless the log keeps answers.
	Waited, Exchanged time.Duration
	Remote, HTTP, TLS string
	Answer            string
}

// LoggedAttemptOf returns the log entry of an attempt. It contains no part of what was sent, and of the answer only if
// answers takes its result.
func LoggedAttemptOf(a Attempt, answers DeliveryLog) LoggedAttempt {
	if !answers.Takes(a.Result) {
		a.Answer = ""
	}
	a.Answer = strings.ToValidUTF8(a.Answer[:min(len(a.Answer), MaxLetterAnswer)], "")
	return LoggedAttempt{
		Subscription: a.Delivery.Subscription, At: a.Began, Took: a.Took, Stream: a.Delivery.Primary,
		Consumer: a.Delivery.Consumer, WakeID: a.Delivery.WakeID, Epoch: a.Delivery.Epoch,
		DeliveryID: cmp.Or(a.DeliveryID, a.Delivery.WakeID), Attempt: a.Delivery.Attempt, MaxAttempts: a.MaxAttempts,
		Result: a.Result.String(), Status: a.Status,
		Class: a.Class, Reason: a.Reason[:min(len(a.Reason), MaxReason)], Events: a.Events,
		Bytes: a.Bytes, From: a.From, Waited: a.Waited, Exchanged: a.Exchanged, Remote: a.Remote, HTTP: a.HTTP,
		TLS: a.TLS, Answer: a.Answer,
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
