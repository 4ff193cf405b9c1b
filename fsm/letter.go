package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DeadLetter is a delivery of ModePush that is not tried again: a pointer to its events, and why. The stream is the
// archive: nothing of the events is kept here.
type DeadLetter struct {
	ID LetterID
	// Subscription, Generation and Consumer say for whom the events were, Stream whose they are.
	Subscription, Generation, Consumer, Stream string
	// Born is Wake.Born of the delivery: it tells the stream from later ones of its name.
	Born int64
	// DeliveryID is what the receiver tells the delivery by. It names the events, too (Batch.DeliveryID).
	DeliveryID string
	// From is the position that they are read from, To the one behind the last of them, Within the same as
	// Batch.Within. Events is how many there are.
	From, To, Within Offset
	Events           int64
	// Attempts counts those that were made.
	Attempts int
	// Class and Reason of the last failure are as in Attempt. Status is that of its answer and Answer how the answer's
	// body began, at most MaxLetterAnswer bytes of text; zero without an answer.
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

const letterPrefix = "dl_"

// String returns the ID as operators see it.
func (id LetterID) String() string {
	return letterPrefix + strconv.Itoa(id.Partition) + "_" + strconv.FormatInt(id.Number, 10)
}

// ParseLetterID reads what String has written.
func ParseLetterID(text string, partitions int) (id LetterID, err error) {
	rest, ok := strings.CutPrefix(text, letterPrefix)
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

// LetterSpan is a stretch of the dead letters of one partition: those of a subscription, or of all if it is empty, from
// a number through another.
type LetterSpan struct {
	Partition     int
	Subscription  string
	From, Through int64
}

// Replay is what came of asking for the replay of dead letters.
type Replay struct {
	// Queued counts those that are to be replayed, Refused those that cannot be: their stream or their subscription is
	// gone, or is another one of its name.
	Queued, Refused int
	// Last is the number of the last letter that was looked at; 0 if there was none.
	Last int64
}

// MaxLetterNumber is beyond that of every letter; Lua keeps it exact.
const MaxLetterNumber = 1<<53 - 1

// Only is the span of one letter.
func (id LetterID) Only() LetterSpan {
	return LetterSpan{Partition: id.Partition, From: id.Number, Through: id.Number}
}

// Replays says whether the consumer can replay a dead letter: its events are of the stream that the consumer is of now.
func (c Consumer) Replays(l DeadLetter) bool {
	return l.Generation == c.Generation && l.Born == c.Born && l.Within.After(l.From)
}

// ReplayLetter makes the aside that replays a dead letter of the consumer, with its first attempt.
func (c Consumer) ReplayLetter(env Env, l DeadLetter) (Consumer, Effects) {
	aside := Consumer{
		ID: AsideID(c.ID, l.ID.Number), Subscription: c.Subscription, Generation: c.Generation, Primary: c.Primary,
		State: Waking, Profile: c.Profile, Born: c.Born, Epoch: c.Epoch, Replay: l.ID.Number,
		Links: map[string]Link{c.Primary: {Acked: l.From, Tail: l.Within}},
	}
	aside.begin(env)
	e := aside.handOut(env)
	return aside, e
}
