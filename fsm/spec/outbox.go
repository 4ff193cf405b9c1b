package spec

import (
	"time"

	"reveille/fsm"
)

// ReserveKey reserves an idempotency key for an event, or returns the event that has it.
func ReserveKey(kept fsm.OutboxKey, k fsm.OutboxKey) fsm.OutboxKey {
	k.New = kept.ID == ""
	if !k.New {
		k.ID, k.Asked = kept.ID, kept.Asked
	}
	return k
}

// TakeEvent notes that an attempt of a consumer is about to send an event. It says no if the event is over, or if the
// consumer by brings it, which is at its place: then the event lies in its stream twice. A replay sends what is
// delivered or dead.
// If nothing is kept of the event, it is new, unless it was handed over so long ago that it has expired. An event whose
// time has not come is delayed.
func TakeEvent(
	kept, fresh fsm.OutboxRecord, c, by fsm.Consumer, now time.Time, replay bool,
) (_ fsm.OutboxRecord, deliver bool) {
	e := kept
	if e.Status == fsm.OutboxExpired {
		again := fresh.Event.CreatedAt <= e.Event.CreatedAt
		if again && (!replay || e.DeliveredAt.IsZero()) {
			return kept, false
		}
		e = fsm.OutboxRecord{}
	}
	elsewhere := e.Status == fsm.OutboxDelivering && by.ID != "" && (by.ID != c.ID || e.Place != c.Place()) &&
		by.Place() == e.Place
	switch {
	case e.Status == "":
		if e = fresh; fresh.Event.ExpiredUnseen(now) && !replay {
			return kept, false
		}
	case e.Status.Over() && !replay, e.Status == fsm.OutboxCancelled, elsewhere:
		return e, false
	}
	early := e.Status == fsm.OutboxPending && !fresh.Event.Released && e.Event.DeliverAt > now.UnixMilli()
	elsewhere = e.Status.Over() && e.Place != c.Place()
	if replay && e.Event.DeliverAt > 0 && (early || elsewhere) { // it lies in its stream once more
		return kept, false
	}
	e.Consumer, e.Place = c.ID, c.Place()
	if early {
		e.DelayedUntil = time.UnixMilli(e.Event.DeliverAt)
		return e, false
	}
	e.Status, e.DelayedUntil = fsm.OutboxDelivering, time.Time{}
	return e, true
}

// ReleaseEvent takes in that the time of a delayed event has come. It lies in its stream again, unless its payload is
// lost, for this reason: then it is dead.
func ReleaseEvent(e fsm.OutboxRecord, lost string) fsm.OutboxRecord {
	if !e.DelayedUntil.IsZero() && lost != "" {
		e.Status, e.LastError = fsm.OutboxDead, lost
	}
	e.DelayedUntil = time.Time{}
	return e
}

// PutOff returns a delayed event whose time has come, as it is once somebody sets about to release it. It comes up
// again if it is not released.
func PutOff(e fsm.OutboxRecord, now time.Time) fsm.OutboxRecord {
	e.DelayedUntil = now.Add(fsm.OutboxPutOff)
	return e
}

// EventFailed notes why an attempt to send an event has failed, and the consumer that brings the event from now on.
func EventFailed(e fsm.OutboxRecord, by string, attempts int, now time.Time, f fsm.Failure) fsm.OutboxRecord {
	if e.Status == fsm.OutboxDelivering {
		e.Consumer, e.Attempts, e.LastAttemptAt, e.LastError, e.LastStatus = by, attempts, now, f.Reason, f.Status
		e.Tries = fsm.Tried(e.Tries, fsm.OutboxTry{At: now, Status: f.Status, Error: f.Reason})
	}
	return e
}

// EventOver notes that an event is delivered, or dead. What was delivered before a replay stays delivered. Its consumer
// is as it was before.
func EventOver(e fsm.OutboxRecord, c fsm.Consumer, d fsm.Delivered, now time.Time) fsm.OutboxRecord {
	if e.Status != fsm.OutboxDelivering {
		return e
	}
	e.Attempts, e.LastAttemptAt, e.LastStatus = max(c.Attempt, 1), now, d.Status
	try := fsm.OutboxTry{At: now, Status: d.Status}
	if d.Dead != nil {
		try.Error = d.Dead.Reason
	}
	e.Tries = fsm.Tried(e.Tries, try)
	if d.Dead == nil {
		e.Status, e.LastError, e.DeliveredAt = fsm.OutboxDelivered, "", now
		e.ExpiresAt = now.Add(e.Event.Retention())
		return e
	}
	e.LastError = d.Dead.Reason
	if e.Status = fsm.OutboxDead; !e.DeliveredAt.IsZero() {
		e.Status = fsm.OutboxDelivered
	}
	return e
}

// ExpireEvent returns what is left of an event that has expired; keep is false if nothing is.
func ExpireEvent(e fsm.OutboxRecord, now time.Time) (left fsm.OutboxRecord, keep bool) {
	left = fsm.OutboxRecord{
		Event:  fsm.OutboxEvent{CreatedAt: e.Event.CreatedAt, DeliverAt: e.Event.DeliverAt},
		Status: fsm.OutboxExpired, DeliveredAt: e.DeliveredAt,
	}
	return left, now.Before(e.Event.Begins().Add(fsm.OutboxRetention))
}

// MayRemove says whether a stream of events may be removed from the stream server: none of its events is kept, and its
// consumer has brought all up to the tail, and has none to replay. The tail is empty if the server does not have the
// stream. From then on, no event in it is new.
func MayRemove(c fsm.Consumer, stream string, tail fsm.Offset, kept, replays int) bool {
	l, linked := c.Links[stream]
	brought := c.State == fsm.Idle && linked && l.Acked == tail && replays == 0
	return kept == 0 && (tail == "" || brought)
}

// CancelEvent cancels an event that is not over, or is dead, on behalf of a client. It says no if the event was
// delivered, even if it is being sent again, or if an attempt is under way. The consumer by brings the event.
func CancelEvent(
	e fsm.OutboxRecord, by fsm.OutboxBearer, now time.Time,
) (_ fsm.OutboxRecord, cancelled bool) {
	switch status := e.State(by).Status; {
	case status == fsm.OutboxCancelled:
		return e, true
	case status == fsm.OutboxDelivering, !e.DeliveredAt.IsZero():
		return e, false
	}
	e.Status, e.ExpiresAt, e.DelayedUntil = fsm.OutboxCancelled, now.Add(e.Event.Retention()), time.Time{}
	return e, true
}

// CountEvent returns what the tally of the hour counts of a change of an event. A delivery of what was delivered before
// does not count.
func CountEvent(was, is fsm.OutboxRecord, now time.Time) (t fsm.OutboxTally) {
	if was.Status == "" || was.Status == fsm.OutboxExpired {
		t.HandedOver, was = 1, fsm.OutboxRecord{}
	}
	if was.DeliveredAt.IsZero() && !is.DeliveredAt.IsZero() {
		t.Delivered, t.Times = 1, fsm.Times{fsm.TimeBucket(now.UnixMilli() - is.Event.Begins().UnixMilli()): 1}
	}
	if was.Status != is.Status && is.Status == fsm.OutboxDead {
		t.Dead = 1
	}
	if was.Status != is.Status && is.Status == fsm.OutboxCancelled {
		t.Cancelled = 1
	}
	return t
}
