package fsm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
)

// Batch is what a delivery of ModePush brings: events of one stream, in their order.
type Batch struct {
	// ContentType of the stream, as the server says it. JSON is true if it is JSON: then each of Events is one JSON
	// text. Of any other stream all that a delivery brings is one event.
	ContentType string
	JSON        bool
	Events      [][]byte
	// Places are how many events lie between From and each of Events, if a filter has looked at them: it may have
	// passed over some. Otherwise they are nil, and Events follow each other.
	Places []int64
	// Passed counts the events that a filter has passed over: those before, between and behind Events.
	Passed int64
	// From names the first event (EventID). It is the position that the batch was read from, unless the server numbers
	// its events: then it is the one behind as many from the start, whether or not those are kept. To is the position
	// behind the last event, Tail how far the stream goes, as the read has shown.
	From, To, Tail Offset
	// Within is To as a position that counts from where From does, so that the events behind it have the same IDs.
	Within Offset
	// TooLarge is true if the event at From is larger than MaxDeliveryBytes, TooDeep if it is nested deeper than
	// MaxDepth. Then there are no Events, and To lies behind it.
	TooLarge, TooDeep bool
	// Lost is how many events the server has dropped between the position and To, if it numbers its events. Then there
	// are no Events.
	Lost int64
	// NotKept is true if the server has dropped what lay between the position and To, the end that was read to or the
	// first event before it that is kept. Then there are no Events.
	NotKept bool
}

// MaxDepth is how deep the arrays and objects of an event may be nested. Many readers of JSON, Go's among them, take no
// more.
const MaxDepth = 10_000

// Span is how many events of the stream lie from the position to the end of the last one that it has, those that a
// filter has passed over among them; or bytes of a stream that is not JSON.
func (b Batch) Span() int64 {
	switch {
	case len(b.Places) > 0:
		return b.Places[len(b.Places)-1] + 1
	case b.JSON || len(b.Events) == 0:
		return int64(len(b.Events))
	}
	return int64(len(b.Events[0]))
}

// DeliveryID names the delivery of a batch for its receiver: it is the EventID of the first event, followed by "-" and
// the index of the last one if there are more. So the receiver knows the ID of each event, unless a filter has passed
// over some in between: then "-" and a checksum of the indices follow, for another filter may have picked others.
func (b Batch) DeliveryID(w Wake) string {
	base, first := b.index(0)
	id := eventID(w, base, first)
	if len(b.Events) < 2 {
		return id
	}
	_, last := b.index(len(b.Events) - 1)
	id += "-" + strconv.FormatInt(last, 10)
	if last-first >= int64(len(b.Events)) {
		sum := sha256.New()
		for i := range b.Events {
			_, n := b.index(i)
			_, _ = fmt.Fprintln(sum, n) // never fails
		}
		id += "-" + hex.EncodeToString(sum.Sum(nil)[:4])
	}
	return id
}

// EventID names an event of the batch, counted from 0.
func (b Batch) EventID(w Wake, i int) string {
	base, n := b.index(i)
	return eventID(w, base, n)
}

// First is the position of the first of its events.
func (b Batch) First() Offset {
	base, n := b.index(0)
	return base.At(n, b.Tail)
}

// index returns what eventID is called with for an event of the batch. It is From if there are no events.
func (b Batch) index(i int) (base Offset, n int64) {
	base, n = b.From.Split()
	if i < len(b.Places) {
		return base, n + b.Places[i]
	}
	return base, n + int64(i)
}

// EventID names an event of a wake's primary stream for its receiver: the same over all attempts, by whichever replica,
// and another one for whatever other event of the subscription. Wake.Born tells the incarnations of a stream apart:
// what is read from the start has the same IDs before and after its incarnation is known.
func EventID(w Wake, at Offset) string {
	base, n := at.Split()
	return eventID(w, base, n)
}

var deliveryID = regexp.MustCompile(`^evt_[0-9a-f]{20}_[0-9]{1,19}(-[0-9]{1,19}(-[0-9a-f]{8})?)?$`)

// ValidDeliveryID says whether a text can be what Batch.DeliveryID returns.
func ValidDeliveryID(id string) bool { return deliveryID.MatchString(id) }

func eventID(w Wake, base Offset, n int64) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s\n%s\n%d\n%s", w.Generation, w.Primary, w.Born, base.Value())))
	return "evt_" + hex.EncodeToString(sum[:10]) + "_" + strconv.FormatInt(n, 10)
}
