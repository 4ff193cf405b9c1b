package cache

import (
	"slices"
	"sync"
)

// Ownership is the set of partitions that this replica works for: it watches their streams and acts on their
// deadlines. The store keeps it up to date. Two replicas may own a partition at once for a moment, which does no harm.
// It is safe for concurrent use.
type Ownership struct {
	mu         sync.RWMutex
	partitions []int
	owns       []bool
	changed    chan struct{}
	// losses counts for each partition how often the store may have lost its latest changes.
	losses []int64
}

// NewOwnership returns the Ownership of a replica that owns these of n partitions.
func NewOwnership(n int, partitions ...int) *Ownership {
	o := &Ownership{owns: make([]bool, n), losses: make([]int64, n), changed: make(chan struct{})}
	o.Replace(partitions)
	return o
}

// Replace sets the partitions that the replica owns, in ascending order.
func (o *Ownership) Replace(partitions []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(o.partitions, partitions) {
		return
	}
	owns := make([]bool, len(o.owns))
	for _, p := range partitions {
		owns[p] = true
	}
	o.partitions, o.owns = slices.Clone(partitions), owns
	o.change()
}

func (o *Ownership) change() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// CountLoss says that the store may have lost its latest changes to a partition. This replica must then tell the
// partition again what it had told it.
func (o *Ownership) CountLoss(partition int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.losses[partition]++
	o.change()
}

// Losses counts the calls of CountLoss for a partition.
func (o *Ownership) Losses(partition int) int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.losses[partition]
}

// Owns says whether this replica owns a partition.
func (o *Ownership) Owns(partition int) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.owns[partition]
}

// Partitions returns the partitions that this replica owns, in ascending order. The caller must not change the list.
func (o *Ownership) Partitions() []int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.partitions
}

// Changed returns a channel that is closed at the next change of what is owned, or the next loss.
func (o *Ownership) Changed() <-chan struct{} {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.changed
}
