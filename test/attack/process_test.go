package attack

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/test/harness"
)

// usage is what a process takes of the machine.
type usage struct {
	// rss is its resident memory, peak the highest that it was, in MiB.
	rss, peak int
	files     int
}

func usageOf(t *testing.T, p *harness.Process) (u usage) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Fatalf("the process is gone: %v\n%s", err, p.Log())
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmRSS":
			u.rss = kib / 1024
		case "VmHWM":
			u.peak = kib / 1024
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	u.files = len(entries)
	return u
}

// fileWatch notes the most files that a process had open.
type fileWatch struct {
	stop func() int
}

func watchFiles(t *testing.T, p *harness.Process) fileWatch {
	end := make(chan struct{})
	var most int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid())); err == nil {
				most = max(most, len(entries))
			}
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	stop := sync.OnceValue(func() int { close(end); wg.Wait(); return most })
	t.Cleanup(func() { stop() })
	return fileWatch{stop}
}
