package redisstore_test

import (
	"context"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

func TestAPartitionThatIsBrokenHidesNoDeadlineOfTheOthers(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	ctx := t.Context()
	const path = "/a"
	home := w.PartitionOf(path)
	must[fsm.Outcome](t)(w.Link(ctx, subscription("s"), path, "0", "1"))
	all, broken := []int{0, 1, 2, 3}, (home+1)%4
	if next := must[[]time.Duration](t)(w.NextDue(ctx, all)); next[home] != timing.Waking || next[broken] >= 0 {
		t.Fatalf("deadlines in %v", next)
	}
	if err := w.rdb.Set(ctx, "rv:{"+string(rune('0'+broken))+"}:due", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if next, err := w.NextDue(ctx, all); err == nil || next[home] != timing.Waking || next[broken] >= 0 {
		t.Errorf("deadlines in %v, %v", next, err)
	}
}

// BenchmarkNextDue is what a look at the deadlines of all partitions costs; an idle replica has five a second.
func BenchmarkNextDue(b *testing.B) {
	r := newBenchRig(b, false)
	partitions := make([]int, redisstore.DefaultPartitions)
	for i := range partitions {
		partitions[i] = i
	}
	spent, inRedis := cpuTime(b), r.redisTime(b)
	for range b.N {
		if _, err := r.NextDue(context.Background(), partitions); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-spent).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64((r.redisTime(b)-inRedis).Nanoseconds())/1e3/float64(b.N), "redis-cpu-µs/op")
}
