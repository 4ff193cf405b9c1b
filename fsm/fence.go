package fsm

import "time"

// Fence keeps epochs from being handed out twice when the store has lost its latest changes: a crash before they
// reached the disk, a failover to a replica that lagged, an older backup. What was lost cannot be known, so the epochs
// of each new incarnation of the store begin above all that earlier ones can have handed out.
//
// A database that went back in time does not know it: whatever it holds is as it was. So the signs lie outside of it.
//
//   - What callers remember. A partition has a watermark that rises with every change. Each reply carries it, each
//     caller keeps the highest that it has seen and passes it on with its next call. If the partition's is lower, what
//     the caller has seen is lost. Every replica calls every partition with each heartbeat, so a loss is found within
//     one, by a replica that has seen what was lost.
//   - The server's incarnation, a name that changes with every restart and failover. Each script asks for it, so this
//     sign comes at once and also to a caller that has seen nothing of what was lost. Managed servers and proxies may
//     hide it, or show one that never changes.
//   - The clock, for a caller that remembers nothing, because it was just started: if no replica has held the
//     partition's lease for longer than a restart takes, every replica that remembered is gone, and a backup may have
//     been restored meanwhile.
//
// A server that hides its incarnation has its epochs follow its clock as well, so even a caller that is the first to
// act after a loss, and knows nothing of it, hands out none that was seen. What remains: a server that shows an
// incarnation that never changes, and loses changes of its last second while several replicas are up, of which one that
// has not seen them acts first.
type Fence struct {
	// Incarnation of the server that the partition's latest wake was made in, by a name that no other one has.
	Incarnation string
	// Base is what epochs of this incarnation lie above.
	Base int64
}

// EpochsPerMilli is how many epochs an incarnation sets aside for each millisecond until the next one begins: far more
// than a consumer can have wakes. At this rate the epochs stay below 2^53, the whole numbers that JSON and Lua keep
// exact, until the year 2248.
const EpochsPerMilli = 1024

// LeastEpochs is how many epochs an incarnation sets aside at least: the next one may have a clock that is behind.
const LeastEpochs = 1000 * EpochsPerMilli

// In returns the fence as it is for a wake in an incarnation of the server, at a time by its clock. The first
// incarnation of a partition has no earlier one and begins at 1.
func (f Fence) In(incarnation string, now time.Time) Fence {
	if f.Incarnation != "" && f.Incarnation != incarnation {
		f.Base = max(f.Base+LeastEpochs, now.UnixMilli()*EpochsPerMilli)
	}
	f.Incarnation = incarnation
	return f
}
