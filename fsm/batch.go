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
	// ContentType of the stream, as the server reports it. JSON is true if it is JSON: then each of Events is one JSON
	// text. In a delivery of any other stream, all bytes together are one event.
	ContentType string
	JSON        bool
	Events      [][]byte
	// Places are the numbers of events between From and each of Events, if a filter has looked at the events. It may
	// have passed over some. Otherwise Places is nil, and Events follow each other.
	Places []int64
	// Passed counts the events that a filter has passed over, before, between and behind Events.
	Passed int64
	// From names the first event (EventID). It is the position that the batch was read from. If the server numbers its
	// events, From is instead the position behind that many from the start, whether or not they are kept. To is the
	// position behind the last event. Tail is the end of the stream, as the read showed it.
	From, To, Tail Offset
	// Within is To as a position that counts from the same offset as From, so that the events behind it have the same
	// IDs.
	Within Offset
	// TooLarge is true if the event at From is larger than MaxDeliveryBytes, TooDeep if it is nested deeper than
	// MaxDepth. In both cases there are no Events, and To lies behind that event.
	TooLarge, TooDeep bool
	// Lost is the number of events that the server has dropped between the position and To, if it numbers its events.
	// Then there are no Events.
	Lost int64
	// NotKept is true if the server has dropped the events between the position and To. To is then the end of the read,
	// or the first event before that end which the server still keeps. There are no Events.
	NotKept bool
}

// MaxDepth is how deep the arrays and objects of an event may be nested. Many JSON readers, Go's among them, accept no
// more.
const MaxDepth = 10_000

// Span is the number of the stream's events from the position to the end of the batch's last event. It includes the
// events that a filter has passed over. For a stream that is not JSON, it counts bytes.
func (b Batch) Span() int64 {
	switch {
	case len(b.Places) > 0:
		return b.Places[len(b.Places)-1] + 1
	case b.JSON || len(b.Events) == 0:
		return int64(len(b.Events))
	}
	return int64(len(b.Events[0]))
}

// DeliveryID names the delivery of a batch for its receiver. It is the EventID of the first event. If there are more
// events, "-" and the index of the last one follow. So the receiver knows the ID of each event, unless a filter has
// passed over some in between. Then "-" and a checksum of the indices follow, because another filter may have picked
// other events.
func (b Batch) DeliveryID(w Delivery) string {
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
func (b Batch) EventID(w Delivery, i int) string {
	base, n := b.index(i)
	return eventID(w, base, n)
}

// First is the position of the batch's first event.
func (b Batch) First() Offset {
	base, n := b.index(0)
	return base.At(n, b.Tail)
}

// index returns the arguments of eventID for an event of the batch. Without events, they stand for From.
func (b Batch) index(i int) (base Offset, n int64) {
	base, n = b.From.Split()
	if i < len(b.Places) {
		return base, n + b.Places[i]
	}
	return base, n + int64(i)
}

// EventID names an event of a delivery's primary stream for its receiver. The name is the same in all attempts, by
// every replica. No other event of the subscription has it. Delivery.Born tells the incarnations of a stream apart:
// what is read from the start has the same IDs before and after its incarnation is known.
func EventID(w Delivery, at Offset) string {
	base, n := at.Split()
	return eventID(w, base, n)
}

var deliveryID = regexp.MustCompile(`^evt_[0-9a-f]{20}_[0-9]{1,19}(-[0-9]{1,19}(-[0-9a-f]{8})?)?$`)

// ValidDeliveryID says whether a text can be what Batch.DeliveryID returns.
func ValidDeliveryID(id string) bool { return deliveryID.MatchString(id) }

func eventID(w Delivery, base Offset, n int64) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s\n%s\n%d\n%s", w.Generation, w.Primary, w.Born, base.Value())))
	return "evt_" + hex.EncodeToString(sum[:10]) + "_" + strconv.FormatInt(n, 10)
}
