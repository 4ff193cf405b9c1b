package fsm

// Hint is something that replicas tell each other so that they act on it at once. Each of them would find it out by
// itself within seconds.
type Hint struct {
	Kind HintKind
	// Partition that a HintWatch is about.
	Partition int
	// Path of the stream.
	Path string
}

// HintKind is what a hint is about.
type HintKind string

// The kinds of hints.
const (
	// HintWatch says that consumers of a partition are subscribed to the stream now.
	HintWatch HintKind = "watch"
	// HintIdle says that a consumer of the stream has become idle.
	HintIdle HintKind = "idle"
	// HintGone says that the stream's consumers were hidden, because upstream had no such stream a moment ago.
	HintGone HintKind = "gone"
	// HintRemoved says that the stream was deleted or must be forgotten, and that its consumers are removed.
	HintRemoved HintKind = "removed"
	// HintForgotten says that the stream was taken off the record, because upstream did not have it for long. Or its
	// record has another First, because upstream has another stream of the name.
	HintForgotten HintKind = "forgotten"
	// HintLook asks the owner of the stream's partition to look at it. A client has written to the stream through a
	// replica that stops or has too much to do, or the stream is awaited.
	HintLook HintKind = "look"
)
