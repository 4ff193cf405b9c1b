package image

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/test/harness"
)

// enoughFor is how many streams the chart's requests are made for, as values.yaml says. Its limit is for any number.
const enoughFor = 1000

// TestAnIdleReplicaFitsIntoWhatTheChartRequests watches streams to which nothing is written. How many is in
// IDLE_STREAMS, such as 0 10000; then it prints what the process needs, of which the chart's requests and README are
// made (make idle).
func TestAnIdleReplicaFitsIntoWhatTheChartRequests(t *testing.T) {
	sizes, watch := strings.Fields(os.Getenv("IDLE_STREAMS")), time.Minute
	if len(sizes) == 0 {
		harness.Long(t)
		sizes, watch = []string{"100"}, time.Second
	}
	for _, size := range sizes {
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatalf("IDLE_STREAMS: %v", err)
		}
		t.Run(size, func(t *testing.T) { idle(t, n, watch) })
	}
}

func idle(t *testing.T, n int, watch time.Duration) {
	redis, ref := harness.StartRedis(t), harness.StartRefServer(t, harness.RefOptions{})
	r := harness.NewPlainReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": redis.URL, "REVEILLE_LOG_LEVEL": "info",
	})
	r.Start()
	worker := harness.NewWorker(t)
	worker.AnswerDone()
	gateway := harness.NewClient(t, r.URL)
	gateway.Subscribe("/idle/*", "idle", worker)
	var wg sync.WaitGroup
	var failed atomic.Int32
	for lane := range 16 {
		wg.Go(func() {
			for i := lane; i < n; i += 16 {
				if put(t, fmt.Sprintf("%s/idle/%d", r.URL, i)) != http.StatusCreated {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Fatalf("%d of %d streams could not be made", failed.Load(), n)
	}
	// Each stream that is watched has a request open.
	harness.Eventually(t, 20*time.Minute, "all streams are watched", func() error {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.Pid()))
		if err == nil && len(files) < n {
			err = fmt.Errorf("%d files are open", len(files))
		}
		return err
	})
	time.Sleep(watch) // what making them cost is over
	before := processor(t, r.Pid())
	time.Sleep(watch)
	used, rss := processor(t, r.Pid())-before, resident(t, r.Pid())
	t.Logf("%d watched streams: %d MiB, %.1f%% of a core", n, rss, 100*used.Seconds()/watch.Seconds())
	request, limit := requested(t)
	if n <= enoughFor && rss > request || rss > limit {
		t.Errorf("the chart requests %d MiB, and the limit is %d", request, limit)
	}
}

func put(t *testing.T, url string) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// processor is the time that a process has run on processors.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const tick = 10 * time.Millisecond // of Linux, whatever the kernel's own is
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// resident is what a process has in memory, in MiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return number(t, string(text), `VmRSS:\s+(\d+) kB`) / 1024
}

// requested is the chart's request of memory and its limit, in MiB.
func requested(t *testing.T) (request, limit int) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "charts", "reveille", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const resources = `(?m)^resources:\n  requests:\n    cpu: \w+\n`
	return number(t, string(text), resources+`    memory: (\d+)Mi$`),
		number(t, string(text), resources+`    memory: \w+\n  limits:\n    memory: (\d+)Gi$`) * 1024
}

func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in\n%s", pattern, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
