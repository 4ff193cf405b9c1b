package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

// letter is what is stored of a dead letter, besides its number and what the script knows itself.
type letter struct {
	Generation string     `json:"g"`
	Consumer   string     `json:"c"`
	Stream     string     `json:"s"`
	Born       int64      `json:"o,omitempty"`
	Delivery   string     `json:"d,omitempty"`
	From       fsm.Offset `json:"f"`
	To         fsm.Offset `json:"t"`
	Within     fsm.Offset `json:"w"`
	Events     int64      `json:"n,omitempty"`
	Attempts   int        `json:"a,omitempty"`
	Class      string     `json:"k,omitempty"`
	Reason     string     `json:"r,omitempty"`
	Status     int        `json:"h,omitempty"`
	Answer     string     `json:"b,omitempty"`
}

// writeLetter returns the argument of deliver.lua for a dead letter, "" for none.
func writeLetter(l *fsm.DeadLetter) string {
	if l == nil {
		return ""
	}
	text, _ := json.Marshal(letter{ // a struct of texts and numbers cannot fail
		Generation: l.Generation, Consumer: l.Consumer, Stream: l.Stream, Born: l.Born,
		Delivery: l.DeliveryID,
		From:     l.From, To: l.To, Within: l.Within, Events: l.Events, Attempts: l.Attempts,
		Class: l.Class, Reason: l.Reason[:min(len(l.Reason), fsm.MaxReason)], Status: l.Status,
		Answer: strings.ToValidUTF8(l.Answer[:min(len(l.Answer), fsm.MaxLetterAnswer)], ""),
	})
	return string(text)
}

// reasonUnreadable is the reason of a letter that this version cannot read. An operator can still drop the letter.
const reasonUnreadable = "this dead letter cannot be read"

// readLetter decodes what keep_letters in lua/library/letters.lua stores.
func readLetter(id fsm.LetterID, kept string) fsm.DeadLetter {
	failing, rest, _ := strings.Cut(kept, " ")
	sub, text, _ := strings.Cut(rest, " ")
	since, err := strconv.ParseInt(failing, 10, 64)
	var l letter
	if err != nil || json.Unmarshal([]byte(text), &l) != nil {
		l = letter{Reason: reasonUnreadable}
	}
	// A letter of a stream that is gone has a reason of its own only if an attempt failed.
	l.Reason = cmp.Or(l.Reason, fsm.RemovalReasons[fsm.RemovalCause(l.Class)])
	return fsm.DeadLetter{
		ID: id, Subscription: sub, Generation: l.Generation, Consumer: l.Consumer, Stream: l.Stream,
		Born: l.Born, DeliveryID: l.Delivery, From: l.From, To: l.To, Within: l.Within, Events: l.Events,
		Attempts: l.Attempts, Class: l.Class, Reason: l.Reason, Status: l.Status, Answer: l.Answer,
		FirstFailure: moment(since), DeadAt: time.UnixMicro(id.Number),
	}
}

// DeadLetters implements control.LetterStore.
func (s *Store) DeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (list []fsm.DeadLetter, err error) {
	r := s.run(ctx, scriptListLetters, span.Partition, span.Subscription, span.From, span.Through, most)
	r.each(func(l *reply) {
		id := fsm.LetterID{Partition: span.Partition, Number: l.int()}
		list = append(list, readLetter(id, l.text()))
	})
	return list, r.err()
}

// DropDeadLetters implements control.LetterStore.
func (s *Store) DropDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (fsm.LetterWork, fsm.Outcome, error) {
	return s.letterWork(ctx, scriptDropLetters, span, most)
}

// letterWork calls a script that works through dead letters.
func (s *Store) letterWork(
	ctx context.Context, sc *script, span fsm.LetterSpan, most int,
) (w fsm.LetterWork, o fsm.Outcome, err error) {
	consumer := ""
	if span.Stream != "" {
		consumer = fsm.ConsumerID(span.Subscription, span.Stream)
	}
	r := s.run(ctx, sc, span.Partition, span.Subscription, consumer, span.From, span.Through, most)
	w = fsm.LetterWork{Done: int(r.int()), Refused: int(r.int()), Looked: int(r.int()), Last: r.int()}
	o = r.outcome()
	return w, o, r.err()
}

// LettersOf implements control.LetterStore.
func (s *Store) LettersOf(ctx context.Context, ids []string) ([]fsm.LetterCounts, error) {
	wanted := []any{flag(false)}
	for _, id := range ids {
		wanted = append(wanted, id)
	}
	return s.countLetters(ctx, wanted)
}

// CountDeadLetters counts the letters of each partition, and of each subscription that has some.
func (s *Store) CountDeadLetters(ctx context.Context) ([]fsm.LetterCounts, error) {
	return s.countLetters(ctx, []any{flag(true)})
}

func (s *Store) countLetters(ctx context.Context, wanted []any) ([]fsm.LetterCounts, error) {
	byPartition := make([]fsm.LetterCounts, s.keys.partitions)
	var failure error
	for i, r := range s.pipeline(ctx, scriptCountLetters, len(byPartition), func(i int) ([]string, []any) {
		return s.keys.guard(i), s.arguments(i, wanted...)
	}) {
		byPartition[i].Of = map[string]int{}
		byPartition[i].Last, byPartition[i].All = r.int(), int(r.int())
		r.each(func(l *reply) {
			sub := l.text()
			byPartition[i].Of[sub] = int(l.int())
		})
		if r.bad != nil {
			failure = r.bad
		}
	}
	return byPartition, failure
}
