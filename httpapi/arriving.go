package httpapi

import (
	"context"
	"io"
	"sync"
)

// arrivingBody is the body of a request that goes upstream. Its end says that the request is complete.
type arrivingBody struct {
	io.ReadCloser
	arrived func()

	mu     sync.Mutex
	isOver bool
}

// arriving returns a body for the transport to read. over must be called before the request's handler returns.
func arriving(ctx context.Context, body io.ReadCloser) *arrivingBody {
	return &arrivingBody{ReadCloser: body, arrived: func() { arrived(ctx) }}
}

// Read implements io.Reader.
func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.isOver {
			b.arrived()
		}
	}
	return n, err
}

// over makes the end of the body report nothing any more. When upstream has answered, the transport may still read the
// body while the connection already waits for its next request.
func (b *arrivingBody) over() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOver = true
}
