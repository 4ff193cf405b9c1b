package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reveille/test/harness"
)

// Two hundred files are enough for what a replica has open for itself and for some streams; clients that send nothing
// take the rest.
func TestAReplicaThatRunsOutOfFilesSaysSoServesOnAndRecovers(t *testing.T) {
	t.Parallel()
	bin, err := harness.BuildReveille(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limited := filepath.Join(t.TempDir(), "reveille")
	err = os.WriteFile(limited, []byte(fmt.Sprintf("#!/bin/sh\nulimit -n 200\nexec %q \"$@\"\n", bin)), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, redis: startRedis(t), ref: shared(t).ref}
	e.streams = harness.NewClient(t, e.ref.StreamRoot)
	e.rev = harness.NewReveilleOf(t, limited, e.settings(nil))
	e.rev.Start()
	e.gateway = harness.NewClient(t, e.rev.URL)
	log := e.rev.Log()
	if !strings.Contains(log, "the settings can require more open files than this process may have") ||
		!strings.Contains(log, `"limit":200,"may_need":33048`) {
		t.Error("the limit was not warned about")
	}

	sub := name(t)
	worker := harness.NewWorker(t)
	worker.AnswerDone()
	e.gateway.Subscribe("/"+sub+"/*", sub, worker)
	path := func(n int) string { return fmt.Sprintf("/%s/%d", sub, n) }
	awake := func(n, times int) {
		t.Helper()
		harness.Eventually(t, soon, fmt.Sprintf("wake %d for %s", times, path(n)), func() error {
			got := 0
			for _, w := range worker.Wakes() {
				if w.PrimaryStream == path(n) {
					got++
				}
			}
			return harness.True(func() bool { return got >= times }, "there were %d", got)()
		})
	}
	e.gateway.Create(path(1))
	awake(1, 1)

	var idle []net.Conn
	for range 400 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.rev.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	harness.Eventually(t, soon, "the log says so", harness.True(func() bool {
		return strings.Contains(e.rev.Log(), "no open file is left for a new connection")
	}, "nothing was said of the files"))
	e.streams.Append(path(1), `{"n":1}`)
	awake(1, 2)
	if res := e.gateway.Do("GET", "/**?subscription="+sub, ""); res.Status != 200 {
		t.Errorf("the API port answered %d %s", res.Status, res.Body)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	for n := 2; n < 6; n++ {
		e.gateway.Create(path(n))
		e.streams.Append(path(n), `{"n":1}`)
		awake(n, 1)
	}
}
