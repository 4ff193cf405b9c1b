package control

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	// LogsAtATime bounds the delivery logs that one page looks at.
	LogsAtATime = 1000
	// behindAll is greater than the ID of every subscription.
	behindAll = "\x7f"
)

// PageAttempts is ListAttempts for some subscriptions, by ID, and looks at no more than LogsAtATime logs in a call. If
// there are more, the list has two parts. First come the attempts of all, the latest first, as far back as the logs
// reach that have the latest entries (LatestLogs). Behind them come the older attempts: of one group of subscriptions
// after the other, by ID. No attempt is left out or comes twice, whatever comes meanwhile. A call ends when f returns
// false, at the end of a part or a group, or with an error. The result next is where it then goes on; nil at the end.
func (s *Service) PageAttempts(
	ctx context.Context, subs []fsm.Subscription, at paging.Place, since time.Time, f func(fsm.LoggedAttempt) bool,
) (next *paging.Place, err error) {
	switch {
	case at.Group != "":
		return s.pageOfGroup(ctx, subs, at, since, f)
	case len(subs) <= LogsAtATime:
		return s.merged(ctx, subs, at, since, f, nil)
	}
	ids, unread, err := s.View.LatestLogs(ctx, later(since, at.Floor), LogsAtATime)
	if err != nil {
		return &at, err
	}
	at.Floor = max(at.Floor, unread) // if others have come meanwhile, this part ends earlier
	var then *paging.Place
	if at.Floor > 0 && at.Floor >= since.UnixMilli() {
		top := fsm.LoggedAttempt{ID: strconv.FormatInt(at.Floor+1, 10) + "-0", Subscription: behindAll}
		if behind := placed(at); behind.ID != "" && fsm.CompareLogged(behind, top) > 0 {
			top = behind
		}
		then = groupFrom(subs, 0, top.ID, top.Subscription)
	}
	return s.merged(ctx, those(subs, ids), at, later(since, at.Floor), f, then)
}

// pageOfGroup goes on with a group of subscriptions.
func (s *Service) pageOfGroup(
	ctx context.Context, subs []fsm.Subscription, at paging.Place, since time.Time, f func(fsm.LoggedAttempt) bool,
) (next *paging.Place, err error) {
	first, _ := slices.BinarySearchFunc(subs, at.Group, byID)
	end, there := slices.BinarySearchFunc(subs, at.GroupEnd, byID)
	if there {
		end++
	}
	end = min(max(end, first), first+LogsAtATime) // the rest is of the next group
	return s.merged(ctx, subs[first:end], at, since, f, groupFrom(subs, end, at.Top, at.TopOf))
}

// merged is ListAttempts from a place on. It returns where it goes on, and then behind the last attempt.
func (s *Service) merged(
	ctx context.Context, subs []fsm.Subscription, at paging.Place, since time.Time, f func(fsm.LoggedAttempt) bool,
	then *paging.Place,
) (next *paging.Place, err error) {
	ended := true
	err = s.ListAttempts(ctx, subs, placed(at), since, func(a fsm.LoggedAttempt) bool {
		if ended = f(a); ended {
			at.After, at.Subscription = a.ID, a.Subscription
		}
		return ended
	})
	if err != nil || !ended {
		return &at, err
	}
	return then, nil
}

// placed is the attempt behind which a page begins.
func placed(at paging.Place) fsm.LoggedAttempt {
	return fsm.LoggedAttempt{ID: at.After, Subscription: at.Subscription}
}

// groupFrom is where the group begins whose first subscription has an index, behind an attempt; nil if there is none.
func groupFrom(subs []fsm.Subscription, first int, top, topOf string) *paging.Place {
	if first >= len(subs) {
		return nil
	}
	last := min(first+LogsAtATime, len(subs)) - 1
	return &paging.Place{
		After: top, Subscription: topOf, Top: top, TopOf: topOf, Group: subs[first].ID, GroupEnd: subs[last].ID,
	}
}

// later is a time, or the one behind some milliseconds since 1970 if that is later.
func later(since time.Time, floor int64) time.Time {
	if above := time.UnixMilli(floor + 1); floor > 0 && above.After(since) {
		return above
	}
	return since
}

// those returns the subscriptions with some IDs.
func those(subs []fsm.Subscription, ids []string) (some []fsm.Subscription) {
	for _, id := range ids {
		if i, there := slices.BinarySearchFunc(subs, id, byID); there {
			some = append(some, subs[i])
		}
	}
	return some
}

func byID(sub fsm.Subscription, id string) int { return strings.Compare(sub.ID, id) }

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

// FindDelivery returns the delivery of some subscriptions, by ID, that has an ID, or whose wake has it. It looks at as
// many entries of their logs as most says, the latest of all first, in LogsAtATime logs, and at as many dead letters as
// one request may. If it finds none, whole says whether it has looked at all.
func (s *Service) FindDelivery(
	ctx context.Context, subs []fsm.Subscription, id string, most int,
) (d Delivery, whole bool, err error) {
	looked, byID := 0, map[string]fsm.Subscription{}
	for _, sub := range subs {
		byID[sub.ID] = sub
	}
	matches := func(a fsm.LoggedAttempt) bool { return a.DeliveryID == id || a.WakeID == id }
	var latest *fsm.LoggedAttempt
	next, err := s.PageAttempts(ctx, subs, paging.Place{}, time.Time{}, func(a fsm.LoggedAttempt) bool {
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
		return d, all && next == nil, err
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
