package control

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/httpapi/paging"
)

const (
	// AttemptsAtATime bounds the entries of a delivery log that one call of the store returns.
	AttemptsAtATime = 200
	// logsAtATime bounds the logs that one call of the store reads, and readAtATime the entries of all of them.
	logsAtATime = 500
	readAtATime = 2000
	// letterSlack is how much older a dead letter may seem than the attempt that has left it. The clocks of the
	// replicas and of the store may differ.
	letterSlack = 5 * time.Minute
)

// ListAttempts calls a function with the entries of the delivery logs of some subscriptions, in the order of
// fsm.CompareLogged. It begins behind an entry, or with the latest if behind is zero. It ends when the function returns
// false, or with what was stored at a time, if since is not zero.
func (s *Service) ListAttempts(
	ctx context.Context, subs []fsm.Subscription, behind fsm.LoggedAttempt, since time.Time,
	f func(fsm.LoggedAttempt) bool,
) error {
	left := make(mergedLogs, len(subs))
	for i, sub := range subs {
		left[i] = &openLog{place: behind.PlaceIn(sub), more: true}
		left[i].place.Since = since
	}
	most := max(AttemptsAtATime/max(len(subs), 1), 1) // few at first, as most logs are read no further
	for some := range slices.Chunk(left, logsAtATime) {
		if err := s.read(ctx, some, most); err != nil {
			return err
		}
	}
	left = slices.DeleteFunc(left, func(l *openLog) bool { return len(l.entries) == 0 })
	for heap.Init(&left); len(left) > 0; {
		l := left[0]
		if !f(l.entries[0]) {
			return nil
		}
		if len(l.entries) == 1 && l.more {
			most := min(2*l.most, AttemptsAtATime)
			if err := s.read(ctx, left.short(max(readAtATime/most, 1)), most); err != nil {
				return err
			}
		}
		if l.entries = l.entries[1:]; len(l.entries) == 0 {
			heap.Pop(&left)
		} else {
			heap.Fix(&left, 0)
		}
	}
	return nil
}

// openLog is a delivery log that is read from a place on. entries are those that were read and not listed. The last
// read was for most entries, and more says that there may be others.
type openLog struct {
	place   fsm.LogPlace
	entries []fsm.LoggedAttempt
	most    int
	more    bool
}

// read reads the next entries of some logs.
func (s *Service) read(ctx context.Context, logs []*openLog, most int) error {
	places := make([]fsm.LogPlace, len(logs))
	for i, l := range logs {
		places[i] = l.place
	}
	lists, err := s.View.LoggedAttempts(ctx, places, most)
	if err != nil {
		return err
	}
	for i, l := range logs {
		l.entries, l.most, l.more = append(l.entries, lists[i]...), most, len(lists[i]) == most
		if l.more {
			l.place.Before = lists[i][most-1].ID
		}
	}
	return nil
}

// short returns some logs that have one entry left, the first log among them.
func (m mergedLogs) short(most int) (some []*openLog) {
	for _, l := range m {
		if len(l.entries) == 1 && l.more && len(some) < most {
			some = append(some, l)
		}
	}
	return some
}

// mergedLogs implements heap.Interface. The first log has the entry that is listed next.
type mergedLogs []*openLog

func (m mergedLogs) Len() int { return len(m) }
func (m mergedLogs) Less(i, j int) bool {
	return fsm.CompareLogged(m[i].entries[0], m[j].entries[0]) < 0
}
func (m mergedLogs) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *mergedLogs) Push(l any)   { *m = append(*m, l.(*openLog)) }
func (m *mergedLogs) Pop() any {
	all := *m
	*m = all[:len(all)-1]
	return all[len(all)-1]
}

// Delivery is what is known of a delivery: of all attempts to bring the same events, or the same wake.
type Delivery struct {
	Subscription fsm.Subscription
	// Attempts are those that the log has, the latest first.
	Attempts []fsm.LoggedAttempt
	// Consumer, unless it is nil, works on the delivery. If the delivery is dead, Letter is what it has left.
	Consumer *fsm.Consumer
	Letter   *fsm.DeadLetter
}

// Known says whether anything is known of the delivery.
func (d Delivery) Known() bool { return len(d.Attempts) > 0 || d.Letter != nil }

// Taken says whether the endpoint has taken the delivery.
func (d Delivery) Taken() bool {
	return len(d.Attempts) > 0 && slices.Contains(
		[]string{fsm.AttemptDone.String(), fsm.AttemptAccepted.String()}, d.Attempts[0].Result)
}

// FindDelivery returns the delivery of some subscriptions that has an ID, or whose wake has it. It looks at as many
// entries of their logs as most says, the latest of all first, and at as many dead letters as one request may. If it
// finds none, whole says whether it has looked at all.
func (s *Service) FindDelivery(
	ctx context.Context, subs []fsm.Subscription, id string, most int,
) (d Delivery, whole bool, err error) {
	looked, byID := 0, map[string]fsm.Subscription{}
	for _, sub := range subs {
		byID[sub.ID] = sub
	}
	matches := func(a fsm.LoggedAttempt) bool { return a.DeliveryID == id || a.WakeID == id }
	var latest *fsm.LoggedAttempt
	err = s.ListAttempts(ctx, subs, fsm.LoggedAttempt{}, time.Time{}, func(a fsm.LoggedAttempt) bool {
		if looked++; matches(a) {
			latest = &a
		}
		return latest == nil && looked < most
	})
	if err != nil {
		return d, false, err
	}
	if latest == nil {
		which := s.LettersOf("")
		if len(subs) == 1 {
			which = s.LettersOf(subs[0].ID)
		}
		all, err := s.findLetter(ctx, which, byID, id, &d)
		return d, all && looked < most, err
	}
	d.Subscription = byID[latest.Subscription]
	one := []fsm.Subscription{d.Subscription}
	err = s.ListAttempts(ctx, one, fsm.LoggedAttempt{}, time.Time{}, func(a fsm.LoggedAttempt) bool {
		// What has stepped aside from a wake is the same delivery.
		if matches(a) || a.DeliveryID == latest.DeliveryID {
			d.Attempts = append(d.Attempts, a)
		}
		return true
	})
	if err != nil || len(d.Attempts) == 0 {
		return d, true, err
	}
	return d, true, s.whereItStands(ctx, byID, &d)
}

// whereItStands finds the consumer that works on a delivery with attempts in the log, or the delivery's dead letter. A
// delivery that was taken has neither.
func (s *Service) whereItStands(ctx context.Context, byID map[string]fsm.Subscription, d *Delivery) error {
	if d.Taken() {
		return nil
	}
	latest := d.Attempts[0]
	// The delivery has stepped aside since, or its consumer waits with it.
	for _, id := range []string{fsm.AsideID(latest.Consumer, latest.Epoch), latest.Consumer} {
		c, err := s.View.Consumer(ctx, fsm.ConsumerRef{ID: id, Home: latest.Stream})
		if err != nil && !errors.Is(err, fsm.ErrNotFound) {
			return err
		}
		same := c.Generation == d.Subscription.Generation && (id != latest.Consumer || c.WakeID == latest.WakeID)
		if err == nil && same && c.State == fsm.Waking {
			d.Consumer = &c
			return nil
		}
	}
	which := s.InPartitionOf(s.LettersOf(d.Subscription.ID), latest.Stream)
	if i := slices.IndexFunc(d.Attempts, func(a fsm.LoggedAttempt) bool {
		return a.Result == fsm.AttemptDead.String()
	}); i >= 0 {
		which.From = d.Attempts[i].At.Add(d.Attempts[i].Took - letterSlack).UnixMicro()
	}
	_, err := s.findLetter(ctx, which, byID, latest.DeliveryID, d)
	return err
}

// findLetter finds the dead letter that a delivery of some subscriptions has left, among as many letters as one request
// may look at. The result all says whether it looked at all letters.
func (s *Service) findLetter(
	ctx context.Context, which Letters, byID map[string]fsm.Subscription, id string, d *Delivery,
) (all bool, err error) {
	next, err := s.ListLetters(ctx, which, paging.Place{Partition: which.First}, func(l fsm.DeadLetter) bool {
		if sub, there := byID[l.Subscription]; there && sub.Generation == l.Generation && l.DeliveryID == id {
			d.Subscription, d.Letter = sub, &l
		}
		return d.Letter == nil
	})
	return next == "", err
}
