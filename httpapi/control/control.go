// Package control is what can be done to subscriptions and to their deliveries, whatever the dialect that asks for it.
// It knows no HTTP: a face reads what is asked for, and answers. Its refusals are for clients. It logs what was done.
package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/throttle"
)

// Upstream asks the stream server.
type Upstream interface {
	// Head returns a stream's metadata, newer than the call. Callers that wait at the same time may share one answer.
	Head(ctx context.Context, path string) (fsm.StreamInfo, error)
	// Locate returns where an offset lies, as a position that counts from where a read from another one shows it. It
	// may read what lies between them. It need not check whether the offset lies behind the end of the stream. The
	// error fsm.ErrOffset says that they are not such offsets of the stream, and fsm.ErrNoStream that there is no
	// stream.
	Locate(ctx context.Context, path string, from, to fsm.Offset) (fsm.Offset, error)
	// Readable returns nil if the stream server shows what lies behind an offset. Its errors are those of Locate.
	Readable(ctx context.Context, path string, at fsm.Offset) error
}

// Tester makes test deliveries.
type Tester interface {
	// Test sends a synthetic event to a subscription's endpoint, as a delivery is sent, and changes nothing. It returns
	// fsm.ErrTesting if the largest number of test deliveries is under way.
	Test(ctx context.Context, sub fsm.Subscription) (fsm.TestDelivery, error)
}

// Service has the use cases. All fields but Consents are required. It is safe for concurrent use.
type Service struct {
	View     *View
	Upstream Upstream
	Tester   Tester
	// Rebuilder builds the requests of attempts again.
	Rebuilder Rebuilder
	// Consents is nil if no endpoint is asked for its consent.
	Consents Consents
	Outcomes *router.Router
	Clock    func() time.Time
	// Differences returns the fields, as JSON, that differ between two subscriptions, without secrets.
	Differences func(was, is fsm.Subscription) (before, after json.RawMessage)
	// Log gets no secret and no URL of a webhook.
	Log *zap.Logger

	// unaudited limits the log lines about changes that the audit lacks.
	unaudited throttle.Trouble
}

// Random returns random bytes for a secret.
func Random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it would end the program
	return b
}
