// Demo shows what Reveille does, on this machine and with nothing set up before. It starts a stream server, Reveille
// beside it, and a writer that appends an event every second. Reveille wakes a worker for each event, and pushes each
// event to a receiver. The receiver refuses one event, which leaves a dead letter. The demo then replays the letter.
//
// It runs until Ctrl-C. With DEMO_WAKES=N in the environment, it ends by itself after N wakes, with exit status 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/test/harness"
)

const (
	pattern = "/agents/*"
	stream  = "/agents/task-1"

	appendEvery = time.Second
	// startWithin bounds how long each server may take to start. The demo waits for each wake at most wakeWithin.
	startWithin = 2 * time.Minute
	wakeWithin  = 2 * time.Minute
)

// errEnough ends the demo after DEMO_WAKES wakes.
var errEnough = errors.New("enough wakes seen")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := newConsole(os.Stdout)
	err := run(ctx, say)
	switch {
	case errors.Is(err, errEnough):
		say.line("demo", "that is all: %v", err)
	case ctx.Err() != nil:
		say.line("demo", "stopped; no process is left behind")
	case err != nil:
		say.line("demo", "failed: %v", err)
		os.Exit(1)
	}
}

// run is the whole demo. When it returns, everything that it started has ended.
func run(ctx context.Context, say *console) (err error) {
	enough, err := wakesWanted()
	if err != nil {
		return err
	}
	root, err := harness.Root()
	if err != nil {
		return err
	}
	if err := harness.NodeModules(ctx, "test/refserver", func() {
		say.line("demo", "installing the stream server with npm, this once")
	}); err != nil {
		return err
	}
	say.line("demo", "building Reveille (about a minute the first time)")
	binary, err := harness.BuildReveille(ctx)
	if err != nil {
		return err
	}

	server, serverURL, err := startStreamServer(ctx, root)
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	say.line("server", "a Durable Streams server listens on %s; it knows nothing of Reveille", serverURL)

	reveille, err := startReveille(ctx, binary, serverURL)
	if err != nil {
		return err
	}
	defer func() { _ = reveille.Stop() }()
	say.line("reveille", "listens on %s, watches the server, keeps its state in memory", reveille.url)
	say.line("reveille", "writes its log to %s", reveille.log)

	w := &worker{
		streams: serverURL, say: say, enough: enough, woken: make(chan struct{}, 1), result: make(chan error, 1),
	}
	workerServer, webhook, err := serve(ctx, w)
	if err != nil {
		return err
	}
	defer func() { _ = workerServer.Close() }()
	say.line("worker", "listens on %s and sleeps", webhook)
	if w.secret, err = subscribe(ctx, reveille.url, "woken", map[string]string{"webhook": webhook}); err != nil {
		return err
	}
	say.line("reveille", "subscription \"woken\": an event in a stream that matches %s wakes the worker", pattern)

	r := &receiver{say: say, result: w.result, replayed: make(chan struct{})}
	receiverServer, webhook, err := serve(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = receiverServer.Close() }()
	say.line("receiver", "listens on %s", webhook)
	push := map[string]string{"mode": "push", "webhook": webhook}
	if r.secret, err = subscribe(ctx, reveille.url, "pushed", push); err != nil {
		return err
	}
	say.line("reveille", "subscription \"pushed\": the same event itself is pushed to the receiver")
	if os.Getenv("DEMO_WAKES") == "" {
		say.line("demo", "an event a second from here on; Ctrl-C ends everything")
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return write(ctx, reveille.url, serverURL, say) })
	group.Go(func() error { return repair(ctx, reveille.operator, say) })
	group.Go(func() error {
		err := w.watch(ctx)
		if errors.Is(err, errEnough) { // the demo ends after the replay
			select {
			case <-r.replayed:
			case <-ctx.Done():
			}
		}
		return err
	})
	for _, p := range []*harness.Process{server, reveille.Process} {
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return nil
			case <-p.Done():
				return fmt.Errorf("a server ended by itself: %w\n%s", p.Err(), p.Log())
			}
		})
	}
	return group.Wait()
}

// serve starts an endpoint and returns its URL. It ends with the server.
func serve(ctx context.Context, endpoint http.Handler) (*http.Server, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	server := &http.Server{Handler: endpoint, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return server, "http://" + listener.Addr().String(), nil
}

func wakesWanted() (int, error) {
	text := os.Getenv("DEMO_WAKES")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("DEMO_WAKES is %q, want a number of wakes from 1 on", text)
	}
	return n, nil
}

func startStreamServer(ctx context.Context, root string) (*harness.Process, string, error) {
	script := filepath.Join(root, "test", "refserver", "server.mjs")
	cmd := exec.Command("node", script, "--exit-with-stdin")
	out := &harness.Output{}
	p, err := harness.Start("the stream server", out, cmd)
	if err != nil {
		return nil, "", err
	}
	var url string
	err = started(ctx, p, func() (err error) {
		url, err = harness.AnnouncedURL(out.String())
		return err
	})
	return p, url, err
}

// reveilleProcess is the Reveille of this demo.
type reveilleProcess struct {
	*harness.Process
	url, operator, log string
	release            func()
}

// Stop ends it, and gives back its ports and its log file.
func (r *reveilleProcess) Stop() error {
	defer r.release()
	return r.Process.Stop()
}

func startReveille(ctx context.Context, binary, upstream string) (*reveilleProcess, error) {
	dir, err := os.MkdirTemp("", "reveille-demo-")
	if err != nil {
		return nil, err
	}
	logFile, err := os.Create(filepath.Join(dir, "reveille.log"))
	if err != nil {
		return nil, err
	}
	apiPort, releaseAPI, err := harness.ReservePort()
	if err != nil {
		return nil, err
	}
	operatorPort, releaseOperator, err := harness.ReservePort()
	if err != nil {
		return nil, err
	}
	api, operator := fmt.Sprintf("127.0.0.1:%d", apiPort), fmt.Sprintf("127.0.0.1:%d", operatorPort)
	r := &reveilleProcess{url: "http://" + api, operator: "http://" + operator, log: logFile.Name(), release: func() {
		releaseAPI()
		releaseOperator()
		_ = logFile.Close()
	}}
	cmd := exec.Command(binary)
	cmd.Env = harness.Environ(map[string]string{
		"REVEILLE_UPSTREAM_URL":            upstream,
		"REVEILLE_REDIS_URL":               "embedded",
		"REVEILLE_LISTEN_ADDR":             api,
		"REVEILLE_OPERATOR_ADDR":           operator,
		"REVEILLE_PUBLIC_URL":              r.url,
		"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "true",
	})
	r.Process, err = harness.Start("Reveille", &harness.Output{Tee: logFile}, cmd)
	if err != nil {
		return nil, err
	}
	return r, started(ctx, r.Process, func() error { return harness.CheckReady(ctx, "http://"+operator) })
}

// started waits until a server is ready, and ends it if that takes too long.
func started(ctx context.Context, p *harness.Process, ready func() error) error {
	var ended error
	err := harness.Poll(startWithin, func() error {
		select {
		case <-ctx.Done():
			ended = ctx.Err()
			return nil
		case <-p.Done():
			ended = fmt.Errorf("a server did not start: %w\n%s", p.Err(), p.Log())
			return nil
		default:
			return ready()
		}
	})
	if err == nil {
		err = ended
	}
	if err != nil {
		p.Kill()
	}
	return err
}
