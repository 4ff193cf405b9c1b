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
	if u.files, err = filesOf(p.Pid()); err != nil {
		t.Fatal(err)
	}
	return u
}

// filesOf counts the open files of a process. To read the list of ten thousand ten times a second would be an attack of
// its own; newer kernels tell the number as the size of the folder.
func filesOf(pid int) (int, error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = dir.Close() }()
	if info, err := dir.Stat(); err == nil && info.Size() > 0 {
		return int(info.Size()), nil
	}
	names, err := dir.Readdirnames(-1)
	return len(names), err
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
			if n, err := filesOf(p.Pid()); err == nil {
				most = max(most, n)
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
