package fsm

import "time"

// What is known of a stream can be of one that was there before it under the same name. This table says what each piece
// of evidence decides. Nothing else decides any of it. What a process remembers on the way may be lost: a consumer then
// begins once too often, or a stream is kept for longer.
//
//	evidence                                          it decides
//	a write through the gateway has made the stream   gone, and there is another
//	a client has deleted it through the gateway       gone, and there may be another by now
//	the registry stream says that it was deleted:
//	  through the gateway, as was dealt with then     nothing
//	  another replica has read on                     nothing
//	  the message was there already when an earlier
//	  deletion of the stream was dealt with           nothing
//	  in the first reading of the registry ever       gone if upstream then says 404, else nothing
//	  else                                            gone, and there may be another by now
//	404, and 404 when it was asked once more          nothing: its consumers are hidden until there is more
//	404 for all of the grace, and no outage           its own consumers are removed; others keep their offsets
//	HEAD belies the end that was noted, and so does
//	what was asked once more (Noted.BeliedBy)         another
//	a tail, from wherever                             how far it goes, if that is further than noted, and whether it
//	                                                  is closed there; nothing beyond a closed end (Noted.Raised)
//	a write that was announced to another record:
//	  the consumers of the present one begin at Start nothing: upstream is asked where it ends
//	  else, for it may be before where they begin     another
//	a subscription                                    where its consumer begins (StartOffset)
//
// Another: its own consumers are replaced, and all begin at Start. Gone: its own are removed, those of others begin at
// Start once there is another.

// Noted is the end of a stream as the store has noted it for the consumers that are linked to it.
type Noted struct {
	// Tail is the stream's highest tail that the store was told of; empty if it was told of none.
	Tail Offset
	// Closed says that the stream was seen closed at Tail. It never gets an event again.
	Closed bool
}

// EndsBefore says whether an offset lies beyond the end of a closed stream, and so is of another stream.
func (n Noted) EndsBefore(o Offset) bool { return n.Closed && o.After(n.Tail) }

// Begin returns where a consumer begins that is to begin at o: there, but never beyond the end of a closed stream. If o
// is of another stream, all consumers will start over.
func (n Noted) Begin(o Offset) Offset {
	if n.EndsBefore(o) {
		return n.Tail
	}
	return o
}

// Raised is what is noted once a caller has shown a tail, and whether the stream is closed there. The tail may be old
// news, or of the stream that came after.
func (n Noted) Raised(tail Offset, closed bool) Noted {
	if tail.After(n.Tail) && !n.EndsBefore(tail) {
		n.Tail = tail
	}
	n.Closed = n.Closed || closed && tail == n.Tail && tail != ""
	return n
}

// BeliedBy says whether a HEAD shows another stream: one that ends before this one, that is of another incarnation, or
// that goes on where this one was closed. The HEAD must show a stream, and must have been asked for after this was
// noted.
func (n Noted) BeliedBy(info StreamInfo) bool {
	return n.Tail.Ahead(info.Tail) || n.Closed && (!info.Closed || n.Tail != info.Tail)
}

// Deletion is what evidence says of a stream that is no more.
type Deletion struct {
	// Of is the First of the record that the evidence is of: if the record is another one by now, the deletion was
	// dealt with before and nothing happens. It is zero for evidence of whatever is on record.
	Of time.Time
	// Anew says that there may be another stream of the name by now: it is awaited from then on, so that a write to it
	// does not pass for the first that Reveille has heard of.
	Anew bool
	// Expect says that the registry stream will tell of the deletion, too.
	Expect bool
	// Doubt says that a write may have come after it. What is then awaited is awaited for the grace, in which it is no
	// evidence that upstream says that there is no such stream (D8).
	Doubt bool
}

// StartRule names the case of StartOffset by which a consumer's first offset was chosen.
type StartRule string

// The cases, in the order in which they are tried. Where two sides of a race cannot be told apart, the earlier offset
// is chosen: a wake too many, never one too few.
const (
	// StartAsked: by the other cases the stream was there before the subscription, which says where it begins in such
	// streams (Subscription.Start). An offset that is not within the stream counts as StartBack. One that lies beyond
	// the offset of StartEarlier does not count: what is there may be a stream that came later.
	StartAsked StartRule = "asked for"
	// StartSeen: the stream was looked at after the subscription was created and before its creator was told. The
	// subscription begins at the tail it had; at Start if it was not there.
	StartSeen StartRule = "seen before the answer"
	// StartLost: since the subscription was created, the store has lost its latest changes, or may not have been told
	// of writes, and knew nothing of the stream afterwards. What is in the stream may be pending for a consumer that
	// was lost with it, or may be of such a write.
	StartLost StartRule = "record or write may be lost"
	// StartEarlier: the subscription came earlier than the stream was noted, or the order is not known. It begins where
	// the stream was first heard of.
	StartEarlier StartRule = "earlier than the stream"
	// StartUnseen: the subscription came later, and no replica had seen a tail of the stream before it.
	StartUnseen StartRule = "no tail seen before"
	// StartBack: the tail seen before the subscription, or the offset that it asks for, lies beyond the present tail:
	// the stream is a new one under an old name.
	StartBack StartRule = "tail moved back"
	// StartLater: the subscription came later. It begins at the latest tail that was seen before it.
	StartLater StartRule = "later than the stream"
)

// StartOffset is where the consumer that a subscription gets for a stream begins, and by which case.
// tail is the present tail. seen is the tail that was seen after the subscription was created and before its creator
// was told of it (Start if the stream was not there); empty if it was not looked at then.
func StartOffset(sub Subscription, s Stream, tail, seen Offset) (Offset, StartRule) {
	from, rule := startOfNews(sub, s, tail, seen)
	switch {
	case sub.Start == "" || from == Start || rule == StartEarlier && sub.Start.After(from):
		return from, rule
	case !sub.Start.within(tail):
		return Start, StartBack
	}
	return sub.Start, StartAsked
}

// startOfNews is where a stream holds news for a subscription: behind Start only if it was there before.
func startOfNews(sub Subscription, s Stream, tail, seen Offset) (Offset, StartRule) {
	switch {
	case seen != "" && !seen.Ahead(tail):
		return seen, StartSeen
	case sub.Version <= s.Lost:
		return Start, StartLost
	case s.Noted == 0 || sub.Version <= s.Noted:
		if s.Begin.Ahead(tail) {
			return Start, StartBack
		}
		return s.Begin, StartEarlier
	case s.Tail == "":
		return Start, StartUnseen
	case s.Tail.Ahead(tail):
		return Start, StartBack
	}
	return s.Tail, StartLater
}
