package fsm

import "time"

// What Reveille knows of a stream may concern an earlier stream of the same name. This table says what each piece of
// evidence decides. Nothing else decides any of it. A process may lose what it remembers on the way: a consumer then
// begins once too often, or a stream is kept for longer.
//
//	evidence                                          it decides
//	a write through the gateway has made the stream   gone, and there is another
//	a client has deleted it through the gateway       gone, and there may be another already
//	the registry stream reports its deletion:
//	  through the gateway, and dealt with then        nothing
//	  another replica has read on                     nothing
//	  the message was there already when an earlier
//	  deletion of the stream was dealt with           nothing
//	  in the first reading of the registry ever       gone if upstream then says 404, else nothing
//	  else                                            gone, and there may be another already
//	404, and 404 again to a second request            nothing: its consumers are hidden until there is more
//	404 for all of the grace, and no outage           its own consumers are removed; others keep their offsets
//	a HEAD belies the noted end, and so does the
//	answer to a second one (Noted.BeliedBy)           another
//	a tail, from any source                           how far it goes, if that is further than noted, and whether it
//	                                                  is closed there; nothing beyond a closed end (spec.Raised)
//	a write that was announced to another record:
//	  the consumers of the present one begin at Start nothing: upstream is asked where it ends
//	  else, for it may be before where they begin     another
//	a subscription                                    where its consumer begins (StartOffset)
//
// Another: its own consumers are replaced, and all consumers begin at Start. Gone: its own consumers are removed. The
// consumers with another primary stream begin at Start once there is another stream of the name.

// Noted is the end of a stream as the store has noted it for the consumers that are linked to it.
type Noted struct {
	// Tail is the highest tail of the stream that the store knows; empty if it knows none.
	Tail Offset
	// Closed says that the stream was seen closed at Tail. It never gets an event again.
	Closed bool
}

// EndsBefore says whether an offset lies beyond the end of a closed stream, and so belongs to another stream.
func (n Noted) EndsBefore(o Offset) bool { return n.Closed && o.After(n.Tail) }

// BeliedBy says whether a HEAD shows another stream. That stream ends before this one, is of another incarnation, or
// goes on where this one was closed. The HEAD must show a stream, and must have been sent after this end was noted.
func (n Noted) BeliedBy(info StreamInfo) bool {
	return n.Tail.Ahead(info.Tail) || n.Closed && (!info.Closed || n.Tail != info.Tail)
}

// Deletion is the evidence of a deleted stream.
type Deletion struct {
	// Of is the First of the record that the evidence concerns. If the record now has another First, the deletion was
	// dealt with before and nothing happens. Of is zero for evidence that concerns whatever is on record.
	Of time.Time
	// Anew says that another stream of the name may exist already. Reveille awaits it from then on, so that a write to
	// it does not pass for the first write that Reveille has heard of.
	Anew bool
	// Expect says that the registry stream will report the deletion, too.
	Expect bool
	// Doubt says that a write may have come after the deletion. The stream is then awaited for the grace. During the
	// grace it is no evidence if upstream says that there is no such stream (D8).
	Doubt bool
}

// StartRule names the case of StartOffset by which a consumer's first offset was chosen.
type StartRule string

// The cases, in the order in which they are tried. If the two sides of a race cannot be told apart, the earlier offset
// is chosen: better a wake too many than one too few.
const (
	// StartAsked: the other cases say that the stream was there before the subscription. Subscription.Start says where
	// the subscription begins in such streams. A Start that is not within the stream counts as StartBack. A Start
	// beyond the offset of StartEarlier does not count: what is there may be a stream that came later.
	StartAsked StartRule = "asked for"
	// StartSeen: the stream was looked at after the subscription was created and before its creator was told. The
	// subscription begins at the tail that the stream had then, or at Start if there was no stream.
	StartSeen StartRule = "seen before the answer"
	// StartLost: since the subscription was created, the store has lost its latest changes, or may have missed a write.
	// It did not know the stream afterwards. What is in the stream may be pending for a consumer that was lost with the
	// record, or may come from such a write.
	StartLost StartRule = "record or write may be lost"
	// StartEarlier: the subscription came earlier than the stream was noted, or the order is not known. It begins where
	// Reveille first heard of the stream.
	StartEarlier StartRule = "earlier than the stream"
	// StartUnseen: the subscription came later, and no replica had seen a tail of the stream before it.
	StartUnseen StartRule = "no tail seen before"
	// StartBack: the stream is a new one under an old name. The present tail lies before the tail seen before the
	// subscription, or before the offset that the subscription asks for.
	StartBack StartRule = "tail moved back"
	// StartLater: the subscription came later. It begins at the latest tail that was seen before it.
	StartLater StartRule = "later than the stream"
)

// StartOffset returns where the consumer that a subscription gets for a stream begins, and by which case. Its argument
// tail is the present tail. The argument seen is the tail that was seen after the subscription was created and before
// its creator was told (discovery's tailBefore). It is Start if there was no stream, and empty if the stream was not
// looked at then. Stream.Begin is the tail before the first write through the gateway (discovery's announce), or Start.
// A stream that a callback adds does not come here (lookAtSubscribed in httpapi/native).
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

// startOfNews returns where a stream holds news for a subscription: behind Start only if the stream was there before.
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
