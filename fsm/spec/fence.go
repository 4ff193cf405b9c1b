package spec

import (
	"time"

	"reveille/fsm"
)

// Fence keeps epochs from being handed out twice after the store has lost its latest changes. Such a loss may be a
// crash before they reached the disk, a failover to a replica that lagged, or an older backup. What was lost cannot be
// known. So the epochs of each new incarnation of the store begin above all epochs that earlier ones can have handed
// out.
//
// A database that went back in time does not know it: its data is as it was. So the signs lie outside of it.
//
//   - What callers remember. A partition has a watermark that rises with every change. Each reply carries it. Each
//     caller keeps the highest that it has seen and passes it on with its next call. If the partition's is lower, the
//     store has lost what the caller has seen. Every replica calls every partition with each heartbeat. So one that has
//     seen what was lost finds the loss within a heartbeat.
//   - The server's incarnation. This name changes with every restart and failover. Each script asks for it. So this
//     sign comes at once, also to a caller that has seen nothing of what was lost. Managed servers and proxies may hide
//     it. They may also show one that never changes.
//   - The clock, for a caller that was just started and so remembers nothing. If no replica has held the partition's
//     lease for longer than a restart takes, every replica that remembered is gone. A backup may have been restored
//     meanwhile.
//
// If a server hides its incarnation, its epochs follow its clock as well. So even if a caller that knows nothing of a
// loss acts first after it, the caller hands out no epoch that was seen. One risk remains. A server shows an
// incarnation that never changes, and loses changes of its last second while several replicas are up. Then a replica
// that has not seen those changes acts first.
type Fence struct {
	// Incarnation of the server in which the partition's latest wake was made, by a name that no other incarnation has.
	Incarnation string
	// Base is the number above which the epochs of this incarnation lie.
	Base int64
}

// In returns the fence for a wake in an incarnation of the server, at a time by its clock. The first incarnation of a
// partition has no earlier one and begins at 1.
func (f Fence) In(incarnation string, now time.Time) Fence {
	if f.Incarnation != "" && f.Incarnation != incarnation {
		f.Base = max(f.Base+fsm.LeastEpochs, now.UnixMilli()*fsm.EpochsPerMilli)
	}
	f.Incarnation = incarnation
	return f
}
