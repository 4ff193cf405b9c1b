package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DeadLetter is a delivery that is not tried again: a pointer to its events, and why. The stream is the archive:
// nothing of the events is kept here. Most are of an attempt of ModePush. What a stream leaves that is gone, and a
// consumer that is given up, has a letter, too (lost, unwoken).
type DeadLetter struct {
	ID LetterID
	// Subscription, Generation and Consumer say for whom the events were, Stream whose they are.
	Subscription, Generation, Consumer, Stream string
	// Born is Wake.Born of the delivery: it tells the stream from later ones of its name.
	Born int64
	// DeliveryID is what the receiver tells the delivery by. It names the events, too (Batch.DeliveryID). It is empty
	// if no attempt has left the letter.
	DeliveryID string
	// From is the position that they are read from, To the one behind the last of them, Within the same as
	// Batch.Within. Events is how many there are; 0 if that is not known.
	From, To, Within Offset
	Events           int64
	// Attempts counts those that were made.
	Attempts int
	// Class and Reason of the last failure are as in Attempt. If no attempt has left the letter, Class is a GoneCause.
	// Status is that of the answer and Answer how the answer's body began, at most MaxLetterAnswer bytes of text; zero
	// without an answer.
	Class, Reason string
	Status        int
	Answer        string
	// FirstFailure is when the endpoint first failed without a break; zero if this was the only failure. DeadAt is when
	// the letter came. Both are by the store's clock.
	FirstFailure, DeadAt time.Time
}

// MaxLetterAnswer bounds DeadLetter.Answer in bytes.
const MaxLetterAnswer = 1 << 10

// LetterID names a dead letter. In a partition, a later letter has a higher Number.
type LetterID struct {
	Partition int
	// Number is the time at which the letter came, in microseconds, or a little above: no other letter of the partition
	// has it.
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

// LetterSpan is a stretch of the dead letters of one partition, from a number through another: those of a subscription,
// or of all if it is empty. If there is a Stream, only those of the consumer that the subscription has of it.
type LetterSpan struct {
	Partition            int
	Subscription, Stream string
	From, Through        int64
}

// LetterWork is what came of one call for some dead letters.
type LetterWork struct {
	// Done counts those that were dropped, or are to be replayed. Refused counts those that cannot be replayed: their
	// stream or their subscription is gone, or is another one of its name; or their consumer is not given up any more.
	Done, Refused int
	// Looked counts those that were looked at, of whatever stream. Last is the number of the one that was looked at
	// last; 0 if there was none.
	Looked int
	Last   int64
}

// LetterCounts says how many dead letters a partition has.
type LetterCounts struct {
	// Of has those of each subscription that has some, by ID.
	Of map[string]int
	// Last is the number of the last letter; 0 if there is none. What comes later has a higher one.
	Last int64
}

// MaxLetterNumber is beyond that of every letter; Lua keeps it exact.
const MaxLetterNumber = 1<<53 - 1

// Only is the span of one letter.
func (id LetterID) Only() LetterSpan {
	return LetterSpan{Partition: id.Partition, From: id.Number, Through: id.Number}
}
