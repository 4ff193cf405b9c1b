package fsm

import "time"

// StreamState is what discovery knows of a stream.
type StreamState string

// The states of a stream's record. A stream without a record has the empty state.
const (
	// StreamAwaited is a stream that Reveille waits for and upstream has not shown yet.
	StreamAwaited StreamState = "awaited"
	// StreamPresent is a stream that upstream has shown.
	StreamPresent StreamState = "present"
)

// Stream is the record of a stream that discovery has found. It lies in the partition of its path, with the consumers
// whose primary stream it is. So a store that loses its latest changes takes both back to the same moment.
//
// The versions of their list tell subscriptions apart. A subscription has the version that the list got when it was
// created (Subscription.Version). Versions only go up and never repeat.
type Stream struct {
	Path  string
	State StreamState
	// Stamp moves with every link, deletion and restart of the stream. Without a record, it is the stamp of the latest
	// deletion of any stream in the partition. An answer of upstream counts only if the stamp is still the same as
	// before the question.
	Stamp int64
	// First is when the store first heard of the stream, by the store's clock. A stream that was deleted or made anew
	// is another one. So First identifies the stream that a write belongs to.
	First time.Time
	// Until is when the record is due for a look: an awaited stream that upstream does not have by then is forgotten.
	Until time.Time
	// Noted is a version of the list that was read after the stream was first noted; 0 if none was read yet.
	// Subscriptions above it came later than the stream.
	Noted int64
	// Linked is the version through which the stream is linked. Every matching subscription up to it has had its
	// consumer, and gets no second one.
	Linked int64
	// Lost is a version of the list; 0 for none. To subscriptions up to it, what the stream held when it was noted may
	// be news. The store may have lost its record of the stream, or was not told of a write to it.
	Lost int64
	// Begin is where a subscription begins that came earlier than the stream was noted.
	Begin Offset
	// Tail is a tail that was seen before any subscription above Linked was created; empty if no tail was seen.
	Tail Offset
	// NotedTail is the tail that the store has noted for the consumers that watch the stream; empty if there are none.
	// It is filled in where records are scanned.
	NotedTail Offset
}

// Found says whether there is a record.
func (s Stream) Found() bool { return s.State != "" }

// Present says whether upstream has shown the stream.
func (s Stream) Present() bool { return s.State == StreamPresent }

// LinkedTo says whether a subscription has had its consumer of the stream.
func (s Stream) LinkedTo(sub Subscription) bool { return s.Present() && sub.Version <= s.Linked }

// NewStream returns the record of a stream that was not on record, before it is stored.
//
// The argument seen is the tail that upstream showed. It is empty if upstream did not show the stream, or was not
// asked. Existing subscriptions begin at it (D12). If the caller cannot tell what is news to them, it then sets Begin
// to Start.
func NewStream(path string, seen Offset) Stream {
	if seen == "" {
		return Stream{Path: path, State: StreamAwaited, Begin: Start}
	}
	return Stream{Path: path, State: StreamPresent, Begin: seen, Tail: seen}
}

// NewLink is a consumer that a stream gets, and where it begins.
type NewLink struct {
	Subscription Subscription
	Acked        Offset
}

// Linking is the input of LinkStream. Links and record change together.
type Linking struct {
	// Stamp of the record that was read before Tail was asked for.
	Stamp int64
	// Tail of the stream.
	Tail Offset
	// Version of the list of subscriptions, read after Tail was known. Links has all matching subscriptions above
	// Stream.Linked and up to Version.
	Version int64
	Links   []NewLink
	// Look is how long after now the record is due for a look.
	Look time.Duration
}

// Write is a write that is on its way upstream. The zero Write is for a stream that does not matter.
type Write struct {
	Path string
	// First is the First of the stream's record before the write; zero if it is not known.
	First time.Time
	// Present says whether upstream had shown a stream of the name before. If the write makes the stream, the earlier
	// one no longer exists.
	Present bool
	// Kept is true if the write is remembered until it has ended.
	Kept bool
}

// RegistryPlace is how far the registry stream was read.
type RegistryPlace struct {
	Offset Offset
	// Mark identifies what was read up to there, in the words of the reader; empty if that is not known.
	Mark string
	// Since is when the store was told that another incarnation is read, by the store's clock; zero for the first one.
	Since time.Time
}

// Absence is what is known of a stream that upstream said is gone.
type Absence int

const (
	// Missing is the answer to a caller that asked once.
	Missing Absence = iota
	// MissingAnew is the first such answer to a watcher that goes on asking; what upstream had before is not known.
	MissingAnew
	// MissingStill is a later answer to a watcher that has asked without a gap since MissingAnew and had no other
	// answer.
	MissingStill
)

// StreamInfo is what a HEAD of a stream says.
type StreamInfo struct {
	// Exists is true if the server has the stream. If it is false, the other fields are zero, except Empty and its
	// Tail.
	Exists bool
	// Empty is true if every name is a stream to the server, and this one shows no event, or none any more. Tail is
	// then Start.
	Empty bool
	Tail  Offset
	// TTL is true if the stream has a sliding time to live, which any read would extend.
	TTL bool
	// Closed is true if no append can follow.
	Closed bool
	// NotJSON is true if the server has said that the stream is of another content type.
	NotJSON bool
}

// Gone says whether the server has said that there is no such stream.
func (i StreamInfo) Gone() bool { return !i.Exists && !i.Empty }

// Observation is a partition's reply to an observed tail.
type Observation struct {
	Outcome
	// Watched is false if no consumer of the partition is subscribed to the stream.
	Watched bool
	// Busy is true if all subscribed consumers are awake or cannot be woken, so further events would wake no consumer.
	Busy bool
	// Noted is the noted end, with this tail included. It lies beyond the observed tail if that tail is old news, or if
	// the stream was made anew under the same name. It lies before the observed tail only if the stream was seen closed
	// there.
	Noted Noted
}

// LinkReply is the reply to a Linking.
type LinkReply struct {
	Outcome
	// Done is false if nothing was changed, because the record has another stamp or is gone.
	Done bool
	// Stream is the record as it is now.
	Stream Stream
}

// Watched is one stream that consumers of a partition are subscribed to.
type Watched struct {
	Path string
	Tail Offset
	// Seq orders the streams of a partition by when they were first watched.
	Seq int64
}
