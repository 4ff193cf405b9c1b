package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"reveille/test/harness"
)

func TestASmallHeapGrowsByItsRoomAndALargeOneAsUsual(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int{
		0: 800, mib: 800, 4 * mib: 800, 10 * mib: 300, 31 * mib: 100, 32 * mib: 100, 1 << 40: 100,
	} {
		if got := growth(live); got != want {
			t.Errorf("with %d bytes, the heap grows by %d %%, want %d %%", live, got, want)
		}
	}
}

func TestTheHeapGrowsByWhatItsLivePartCallsFor(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	t.Setenv("GOGC", "100")
	if collectLessOften(); percentNow() != 100 {
		t.Fatalf("a GOGC of 100 became %d", percentNow())
	}
	t.Setenv("GOGC", "")
	collectLessOften()
	for _, held := range []int{0, 64 << 20, 0} {
		memory := make([]byte, held)
		harness.Eventually(t, harness.Wait, "the collections adapt to the heap", func() error {
			runtime.GC()
			if percent := percentNow(); held > 0 && percent != 100 || held == 0 && percent <= 100 {
				return fmt.Errorf("with %d bytes held, the heap grows by %d %%", held, percent)
			}
			return nil
		})
		runtime.KeepAlive(memory)
	}
}

// percentNow is GOGC as it is now.
func percentNow() int {
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(percent)
	return int(percent[0].Value.Uint64())
}
