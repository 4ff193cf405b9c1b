package workers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

func startGoWorker(t *testing.T, secret, streams string) *harness.NodeScript {
	t.Helper()
	return startGoWorkerWith(t, secret, streams, nil)
}

// buildGoWorker returns the path of the binary.
var buildGoWorker = sync.OnceValues(func() (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".tools", "test", "goworker")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", bin, "./goworker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

// startGoWorkerWith starts the worker as a process of its own, with further settings.
func startGoWorkerWith(t *testing.T, secret, streams string, settings map[string]string) *harness.NodeScript {
	t.Helper()
	bin, err := buildGoWorker()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	cmd.Env = append(harness.Environ(settings), "WEBHOOK_SECRET="+secret, "STREAMS_URL="+streams,
		"LISTEN_ADDR=127.0.0.1:0")
	out := &harness.Output{}
	p, err := harness.Start("the Go worker", out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of the Go worker:\n%s", p.Log())
		}
	})
	worker := &harness.NodeScript{Process: p}
	harness.Eventually(t, harness.Wait, "the Go worker says where it listens", func() (err error) {
		worker.URL, err = harness.AnnouncedURL(p.Log())
		return err
	})
	return worker
}

// world is a stream server, Reveille, a Go worker with a recorder in front of it, and an empty stream /agents/task-1,
// at rest.
type world struct {
	streams  *harness.Client
	recorder *harness.Worker
	worker   *harness.NodeScript
	// consumer returns how the stream's consumer stands.
	consumer func(context.Context) (fsm.Consumer, error)
	// restart starts another worker, which gets the wakes from then on.
	restart func(settings map[string]string)
	// settled is how many wakes there were until it was at rest.
	settled int
}

func newWorld(t *testing.T, settings map[string]string) *world {
	t.Helper()
	redis := harness.StartRedis(t)
	server := harness.StartRefServer(t, harness.RefOptions{})
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot,
		"REVEILLE_REDIS_URL":    redis.URL,
		// No consumer counts as asleep while a test lasts.
		"REVEILLE_LIVENESS_TIMEOUT": time.Hour.String(),
	})
	w := &world{
		streams: harness.NewClient(t, server.StreamRoot), recorder: harness.NewWorker(t),
		consumer: consumerOf(redis, "example", "/agents/task-1"),
	}
	api := harness.NewClient(t, reveille.URL)
	sub := api.Subscribe("/agents/*", "example", w.recorder)
	w.restart = func(settings map[string]string) {
		w.worker = startGoWorkerWith(t, sub.Secret, server.StreamRoot, settings)
		w.recorder.Answer(forwardTo(t, w.worker.URL))
	}
	w.restart(settings)
	tail := api.Create("/agents/task-1")
	w.recorder.Wake(1) // the stream is new
	awaitRest(t, w.consumer, tail)
	w.settled = len(w.recorder.Wakes())
	return w
}

func TestGoWorkerStaysAliveWhileItsWorkIsSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"PROCESSING_TIME": "1h", "KEEP_ALIVE": "50ms"})
	w.streams.Append("/agents/task-1", `{"n":1}`)
	// The claim gives it a deadline. While it is busy with the event, nothing but its empty callbacks moves that.
	var deadline time.Time
	for n := range 4 {
		harness.Eventually(t, harness.Wait, fmt.Sprintf("deadline %d, later than the one before", n+1), func() error {
			c, err := w.consumer(t.Context())
			if err != nil {
				return err
			}
			if c.State != fsm.Live || !c.Deadline.After(deadline) {
				return fmt.Errorf("it is %s until %s", c.State, c.Deadline)
			}
			deadline = c.Deadline
			return nil
		})
	}
	if got := processed(w.worker); len(got) > 0 {
		t.Errorf("processed %v: it was not busy", got)
	}
}

func TestGoWorkerThatIsStoppedLeavesTheRestToAnotherAtOnce(t *testing.T) {
	t.Parallel()
	// Nothing but its done can wake another: the consumer counts as asleep only after an hour.
	w := newWorld(t, map[string]string{"PROCESSING_TIME": "1h"})
	first := w.worker
	tail := w.streams.Append("/agents/task-1", `{"n":1}`)
	w.recorder.Wake(w.settled + 1)
	w.restart(nil)
	first.Signal(syscall.SIGTERM)
	awaitProcessed(t, w.worker, 1)
	if err := first.Err(); err != nil {
		t.Errorf("the worker that was stopped ended with %v", err)
	}
	if before := w.recorder.Wake(w.settled + 2).Offset("/agents/task-1"); before == tail {
		t.Errorf("the second wake begins at %q: what was not processed was acknowledged", before)
	}
	awaitRest(t, w.consumer, tail)
}
