package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"reveille/test/harness"
)

// mark is in the environment of the demo, and so of everything that the demo starts.
const mark = "DEMO_TEST_RUN"

func TestDemoEndsByItselfAfterTheWakesAskedFor(t *testing.T) {
	out, cmd, run := start(t, "DEMO_WAKES=3")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the demo ended with %v", err)
	}
	text := out.String()
	steps := []string{
		`writer    creates /agents/task-1 with \{"n":1\}`,
		`reveille  → worker`,
		`worker    woken: epoch 1, wake w_\S+, signature ok`,
		`worker    claimed the wake`,
		`worker    read \d events? \{"n":1\}.* from the stream server, up to offset \S+`,
		`worker    acknowledged that offset and said done`,
		`worker    woken: epoch 2,`,
		`worker    read \d event`,
		`worker    woken: epoch 3,`,
		`demo      that is all`,
	}
	rest := text
	for _, step := range steps {
		at := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}  ` + step).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("no line, in its place, that matches %q", step)
		}
		rest = rest[at[1]:]
	}
	for _, line := range []string{
		`receiver  got \{"n":1\} from /agents/task-1 by push, id evt_\S+, signature ok`,
		`(?s)receiver  refuses \{"n":2\} with status 422.*reveille  keeps dead letter dl_\d+_\d+: status 422, .*` +
			`demo      reveille dead-letters replay dl_.*` +
			`receiver  got \{"n":2\} from /agents/task-1 by replay, id evt_\S+, signature ok`,
	} {
		if !regexp.MustCompile(line).MatchString(text) {
			t.Errorf("no line matches %q", line)
		}
	}
	if n := strings.Count(text, "said done"); n != 3 {
		t.Errorf("%d wakes came to their end, want 3", n)
	}
	if strings.Contains(text, "\x1b[") {
		t.Error("there is colour in an output that is no terminal")
	}
	assertNothingLeft(t, text, run)
}

func TestInterruptEndsTheDemo(t *testing.T) {
	out, cmd, run := start(t)
	harness.Eventually(t, harness.Wait, "the first wake", harness.True(
		func() bool { return strings.Contains(out.String(), "said done") }, "no wake yet"))
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	assertNothingLeft(t, out.String(), run)
}

func TestDemoNamesASettingThatItCannotRead(t *testing.T) {
	out, cmd, _ := start(t, "DEMO_WAKES=three")
	if err := cmd.Wait(); err == nil {
		t.Error("the demo ended well")
	}
	if !strings.Contains(out.String(), `DEMO_WAKES is "three"`) {
		t.Error("the setting is not named")
	}
}

// start runs the demo as a program of its own. It returns its output, shown if the test fails, and the mark of its
// processes.
func start(t *testing.T, settings ...string) (out *harness.Output, cmd *exec.Cmd, run string) {
	t.Helper()
	bin, err := harness.BuildPlain(t.Context(), "./test/demo")
	if err != nil {
		t.Fatal(err)
	}
	out = &harness.Output{}
	run = fmt.Sprintf("%s=%d.%d", mark, os.Getpid(), time.Now().UnixNano())
	cmd = exec.CommandContext(t.Context(), bin)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir(), run), settings...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo printed:\n%s", out)
		}
	})
	return out, cmd, run
}

// assertNothingLeft fails the test if anything that the demo started still listens. Where the system shows the
// environments of processes, it also fails if any process still runs.
func assertNothingLeft(t *testing.T, output, run string) {
	t.Helper()
	urls := regexp.MustCompile(`listens on http://([\d.]+:\d+)`).FindAllStringSubmatch(output, -1)
	if len(urls) != 4 {
		t.Errorf("%d servers said where they listen, want 4", len(urls))
	}
	for _, u := range urls {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u[1])
		cancel()
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s still takes connections (%v)", u[1], err)
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	// The shell that guards against orphans ends on its own as soon as the demo has.
	harness.Eventually(t, harness.Wait, "no process is left", func() error {
		environments, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			return err
		}
		for _, file := range environments {
			if env, err := os.ReadFile(file); err == nil && bytes.Contains(env, []byte(run)) {
				return fmt.Errorf("process %s is", filepath.Base(filepath.Dir(file)))
			}
		}
		return nil
	})
}
