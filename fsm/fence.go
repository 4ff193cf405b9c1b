package fsm

import "time"

// Fence keeps epochs from being handed out twice when the store has lost its latest changes: a crash before they reached
// the disk, a failover to a replica that lagged, an older backup. What was lost cannot be known, so the epochs of each new
// life of the store begin above all that earlier lives can have handed out.
type Fence struct {
	// Life of the store that the partition's latest wake was made in: a server's run, by a name that no other run has.
	Life string
	// Base is what epochs of this life lie above.
	Base int64
}

// epochsPerMilli is how many epochs a life sets aside for each millisecond until the next one begins: far more than a consumer
// can have wakes. At this rate the epochs stay below 2^53, the whole numbers that JSON and Lua keep exact, until the year 2248.
const epochsPerMilli = 1024

// lifeSpan is what a life counts as at least: the next one may have a clock that is behind.
const lifeSpan = 1000 * epochsPerMilli

// In returns the fence as it is for a wake in a life, at a time by the store's clock. The first life of a partition has no
// earlier one and begins at 1.
func (f Fence) In(life string, now time.Time) Fence {
	if f.Life != "" && f.Life != life {
		f.Base = max(f.Base+lifeSpan, now.UnixMilli()*epochsPerMilli)
	}
	f.Life = life
	return f
}
