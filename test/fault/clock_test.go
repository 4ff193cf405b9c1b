package fault

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clockSetting names, to a replica of jumpingClock, the file that says by how many seconds its clock is wrong. Others
// ignore it.
const clockSetting = "FAULT_CLOCK_FILE"

// jumpingClock has the replicas be built with a wall clock that can be put wrong while they run. A Go program asks the
// kernel for the time and no library that could be put in between; name spaces of the kernel move only the monotonic
// clock. So the one place where the time package makes a Time of what the kernel says is changed.
func jumpingClock(t *testing.T, o *options) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	clock := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	o.binary = buildPatched(
		t, "a clock that jumps",
		patch{
			clock, "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n",
			"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += FaultJump.Load()\n",
		},
		patch{clock, "import (\n", "import (\n\t\"sync/atomic\"\n"},
		patch{
			clock, "func runtimeNano() int64\n",
			"func runtimeNano() int64\n\n// FaultJump is by how many seconds the clock is wrong.\nvar FaultJump " +
				"atomic.Int64\n",
		},
		patch{"cmd/reveille/fault_clock.go", "", `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	file := os.Getenv("` + clockSetting + `")
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				time.FaultJump.Store(seconds)
			}
		}
	}()
}
`},
	)
}

func (w *world) clockFile(i int) string { return filepath.Join(w.clocks, fmt.Sprintf("clock-%d", i)) }

// jump puts the clock of a replica off by d. A replica looks at its file every 20 ms.
func (w *world) jump(i int, d time.Duration) {
	w.t.Helper()
	next := w.clockFile(i) + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%d", int64(d/time.Second)), 0o600)
	if err == nil {
		err = os.Rename(next, w.clockFile(i))
	}
	if err != nil {
		w.t.Errorf("clock of %s: %v", w.named(i), err)
	}
}
