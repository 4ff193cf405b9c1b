package fsm

// PartitionStore says which partitions there are.
type PartitionStore interface {
	// Partitions is the number of partitions, numbered from 0. PartitionOf is the partition of the consumers with a
	// home (ConsumerRef), and of the record of a stream with this path.
	Partitions() int
	PartitionOf(home string) int
}

// AllPartitions returns the numbers of n partitions.
func AllPartitions(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
