package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RefOptions are the options of the reference server; the zero value is a server in memory, as it comes.
type RefOptions struct {
	// LongPoll is how long a long-poll waits before the server answers 204; 30 s if zero.
	LongPoll time.Duration
	// DataDir keeps the streams over restarts; in memory if empty.
	DataDir string
	// Registry makes the server record every stream that is created or deleted in its registry stream, __registry__.
	Registry bool
}

// RefServer is a Durable Streams reference server of a test's own.
type RefServer struct {
	*Process
	// URL is the server's origin.
	URL string
	// StreamRoot is what REVEILLE_UPSTREAM_URL takes. It is the origin; with a registry, the folder of streams follows
	// that the reference server's registry hook assumes.
	StreamRoot string

	t    testing.TB
	dir  string
	args []string
}

// StartRefServer starts the reference server.
func StartRefServer(t testing.TB, opts RefOptions) *RefServer {
	t.Helper()
	port := FreePort(t)
	s := &RefServer{
		URL: "http://" + loopback(port), t: t, dir: nodeModules(t, "test/refserver"),
		args: []string{"--port", strconv.Itoa(port), "--exit-with-stdin"},
	}
	s.StreamRoot = s.URL
	if opts.LongPoll > 0 {
		s.args = append(s.args, "--long-poll-timeout", strconv.FormatInt(opts.LongPoll.Milliseconds(), 10))
	}
	if opts.DataDir != "" {
		s.args = append(s.args, "--data-dir", opts.DataDir)
	}
	if opts.Registry {
		s.args = append(s.args, "--registry")
		s.StreamRoot += "/v1/stream"
	}
	s.start(testOutput(t, "the reference server at "+s.URL))
	t.Cleanup(func() { s.Kill() })
	return s
}

// Restart starts the server again on the same port, after a Kill or a Stop. Without a DataDir its streams are gone.
func (s *RefServer) Restart() {
	s.t.Helper()
	<-s.Done()
	s.start(s.output)
}

func (s *RefServer) start(out *Output) {
	s.t.Helper()
	before := len(out.String())
	cmd := exec.Command("node", append([]string{filepath.Join(s.dir, "server.mjs")}, s.args...)...)
	p, err := Start("the reference server", out, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
	ready(s.t, p, func(context.Context) error {
		_, err := AnnouncedURL(out.String()[before:])
		return err
	})
}

// NodeScript is a running Node script of a test's own.
type NodeScript struct {
	*Process
	// URL is where the script said that it listens.
	URL string
}

// StartNodeScript installs the packages in a folder's lock file. Then it runs a script of the folder with settings on
// top of the environment, and waits until it has an [AnnouncedURL].
func StartNodeScript(t testing.TB, folder, script string, settings map[string]string) *NodeScript {
	t.Helper()
	out := testOutput(t, script)
	cmd := exec.Command("node", filepath.Join(nodeModules(t, folder), script))
	cmd.Env = Environ(settings)
	p, err := Start(script, out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	s := &NodeScript{Process: p}
	ready(t, p, func(context.Context) (err error) {
		s.URL, err = AnnouncedURL(out.String())
		return err
	})
	return s
}

// AnnouncedURL returns the URL of the first line of JSON in the output of a server. By {"url": "..."}, servers written
// for these tests say that they listen, and where.
func AnnouncedURL(output string) (string, error) {
	for line := range strings.Lines(output) {
		var said struct{ URL string }
		if json.Unmarshal([]byte(line), &said) == nil && said.URL != "" {
			return said.URL, nil
		}
	}
	return "", fmt.Errorf("it has not said yet where it listens")
}
