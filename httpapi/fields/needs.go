package fields

import (
	"context"

	"reveille/fsm"
)

// Offsets reads what clients and the stream server call an offset.
type Offsets interface {
	// ParseOffset makes an Offset of what a client or the server calls one; the error wraps fsm.ErrOffset.
	ParseOffset(s string) (fsm.Offset, error)
}

// Targets judges webhook URLs.
type Targets interface {
	// CheckTarget returns an error that says why wakes may not be sent to a URL. Its text is a sentence that begins
	// with "webhook" (webhook spec, SSRF Prevention).
	CheckTarget(ctx context.Context, url string) error
}
