package fsm

// Ack is one acknowledged offset of a callback.
type Ack struct {
	Path   string
	Offset Offset
}

// Subscribe is one stream that a callback subscribes to. From is the offset that counts as acknowledged: the stream's
// present tail, or Start if the stream does not exist yet (webhook spec, Dynamic Subscribe).
type Subscribe struct {
	Path string
	From Offset
}

// Callback is a callback with a well-formed token and body (webhook spec, Callback API).
type Callback struct {
	// Consumer is the consumer that the token and the URL name. Primary is its primary stream.
	Consumer ConsumerRef
	Primary  string
	// Generation and TokenEpoch are the token's; TokenExpired is true if the token has expired.
	Generation   string
	TokenEpoch   int64
	TokenExpired bool

	Epoch int64
	// WakeID is empty if the callback does not claim.
	WakeID      string
	Acks        []Ack
	Subscribe   []Subscribe
	Unsubscribe []string
	Done        bool

	// Tails are the tails that upstream reported because of this callback.
	Tails map[string]Offset
	// MaxStreams bounds how many streams one consumer may be subscribed to.
	MaxStreams int
}

// CallbackReply is the result of a callback (spec.CallbackResult) as the store returns it.
type CallbackReply struct {
	Code    Code
	Path    string
	Streams []StreamTail
	// WakeID is as in spec.CallbackResult.
	WakeID string
	Outcome
}
