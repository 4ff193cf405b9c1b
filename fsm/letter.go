package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DeadLetter is a delivery that is not tried again: a pointer to its events, and why. The stream is the archive: the
// letter holds no part of the events. An attempt of ModePush leaves most letters. A stream that is gone and a consumer
// that is given up leave letters, too (fsm/spec/lost.go).
type DeadLetter struct {
	ID LetterID
	// Subscription, Generation and Consumer say for whom the events were: those of an aside were for its owner. Stream
	// is the stream of the events.
	Subscription, Generation, Consumer, Stream string
	// Born is Delivery.Born of the delivery: it tells the stream from later ones of the same name.
	Born int64
	// DeliveryID is the ID by which the receiver recognizes the delivery. It also names the events (Batch.DeliveryID).
	// It is empty if no attempt has left the letter.
	DeliveryID string
	// From is the position that the events are read from, and To the position behind the last one. Within is as in
	// Batch. Events is the number of events; 0 if it is not known.
	From, To, Within Offset
	Events           int64
	// Attempts counts the attempts that were made.
	Attempts int
	// Class and Reason of the last failure are as in Attempt. If no attempt has left the letter, Class is a
	// RemovalCause. Status is the status of the answer. Answer is the beginning of its body, at most MaxLetterAnswer
	// bytes of text. Both are zero without an answer.
	Class, Reason string
	Status        int
	Answer        string
	// FirstFailure is when the unbroken run of failures began; zero if this was the only failure. DeadAt is when the
	// letter came. Both are by the store's clock.
	FirstFailure, DeadAt time.Time
}

// MaxLetterAnswer bounds DeadLetter.Answer in bytes.
const MaxLetterAnswer = 1 << 10

// LetterID names a dead letter. In a partition, a later letter has a higher Number.
type LetterID struct {
	Partition int
	// Number is the time at which the letter came, in microseconds, or a little above, so that no other letter of the
	// partition has it.
	Number int64
}

// LetterPrefix begins the ID of a dead letter.
const LetterPrefix = "dl_"

// String returns the ID as operators see it.
func (id LetterID) String() string {
	return LetterPrefix + strconv.Itoa(id.Partition) + "_" + strconv.FormatInt(id.Number, 10)
}

// ParseLetterID reads what String has written.
func ParseLetterID(text string, partitions int) (id LetterID, err error) {
	rest, ok := strings.CutPrefix(text, LetterPrefix)
	partition, number, two := strings.Cut(rest, "_")
	if ok && two {
		id.Partition, err = strconv.Atoi(partition)
		if err == nil {
			id.Number, err = strconv.ParseInt(number, 10, 64)
		}
	}
	if !ok || !two || err != nil || id.Partition < 0 || id.Partition >= partitions || id.Number <= 0 ||
		id.String() != text {
		return LetterID{}, fmt.Errorf("%q is no id of a dead letter, such as dl_17_1764167412345678", text)
	}
	return id, nil
}

// LetterSpan is a range of the dead letters of one partition, from a number through another. It has the letters of one
// Subscription, or all letters if that is empty. If there is a Stream, it has only the letters of the subscription's
// consumer for that stream.
type LetterSpan struct {
	Partition            int
	Subscription, Stream string
	From, Through        int64
}

// LetterWork is the result of one call on some dead letters.
type LetterWork struct {
	// Done counts the letters that were dropped or queued for a replay. Refused counts the letters that cannot be
	// replayed. Their stream or subscription is gone, or is another one of the same name, or their consumer is not
	// given up any more.
	Done, Refused int
	// Looked counts the letters that were looked at, of any stream. Last is the number of the last of them; 0 if there
	// was none.
	Looked int
	Last   int64
}

// LetterCounts is the number of dead letters in a partition.
type LetterCounts struct {
	// All is the number of letters. Of is that by the ID of the subscription. A subscription without letters, or one
	// that was not asked for, is not in it.
	All int
	Of  map[string]int
	// Last is the number of the last letter; 0 if there is none. Later letters have higher numbers.
	Last int64
}

// MaxLetterNumber is higher than the number of every letter; Lua keeps it exact.
const MaxLetterNumber = 1<<53 - 1

// Only returns the span of one letter.
func (id LetterID) Only() LetterSpan {
	return LetterSpan{Partition: id.Partition, From: id.Number, Through: id.Number}
}

// RemovalReasons are the reasons of letters whose stream is gone, by their Class.
var RemovalReasons = map[RemovalCause]string{
	RemovedStreamDeleted:   "the stream was deleted",
	RemovedStreamGone:      "the stream server has no such stream any more",
	RemovedStreamRecreated: "the stream was made anew under its name",
}
