package fsm

import (
	"testing"
	"time"
)

// TestPercentilesAreCloseToTheTimes holds that each time lies in one bucket, and how wide that is.
func TestPercentilesAreCloseToTheTimes(t *testing.T) {
	most := -1
	for millis := int64(0); millis < 100_000; millis++ {
		bucket := OutboxBucket(millis)
		longest := MostOfOutboxBucket(bucket).Milliseconds()
		if bucket < most || longest < millis || longest > millis+millis/16 {
			t.Fatalf("%d ms is in bucket %d, up to %d ms", millis, bucket, longest)
		}
		most = bucket
	}
	var tally OutboxTally
	for millis := range int64(1000) {
		tally.Add(OutboxTally{Delivered: 1, Times: map[int]int64{OutboxBucket(millis): 1}})
	}
	for share, exact := range map[float64]time.Duration{0.5: 499, 0.95: 949, 0.99: 989, 1: 999, 0: 0} {
		exact *= time.Millisecond
		if got := tally.Percentile(share); got < exact || got > exact+exact/16 {
			t.Errorf("a share of %v took %s, want %s", share, got, exact)
		}
	}
	if got := (OutboxTally{}).Percentile(0.5); got != 0 {
		t.Errorf("of none, it is %s", got)
	}
}
