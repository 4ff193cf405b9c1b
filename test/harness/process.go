package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout bounds how long a process may take to become ready, on a machine that is busy with other tests.
	startTimeout = 5 * time.Minute
	// stopTimeout is how long a process may take to end after SIGTERM. Reveille promises 30 s, but on a machine that
	// has time for it.
	stopTimeout = 5 * time.Minute
	// maxLog bounds how much of a process's output is kept, in bytes.
	maxLog = 1 << 20
)

// Process is one run of a program, from Start to its end.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	output *Output
	done   chan struct{}
	err    error // of Wait; set before done is closed
}

// Start runs a command; messages call it name. Its output goes to out. Signals from a terminal to all its processes do
// not reach it: its owner ends it.
func Start(name string, out *Output, cmd *exec.Cmd) (*Process, error) {
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	guard.add(cmd.Process.Pid)
	p := &Process{name: name, cmd: cmd, stdin: stdin, output: out, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		guard.remove(cmd.Process.Pid)
		close(p.done)
	}()
	return p, nil
}

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, as [exec.Cmd.Wait] does. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Log returns what the process wrote to standard output and standard error, after the output of earlier runs of the
// same server.
func (p *Process) Log() string { return p.output.String() }

// Signal sends a signal. A process that has ended is no error.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Pause stops the process as it stands (SIGSTOP): its connections stay open and nothing is answered.
func (p *Process) Pause() { p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// Kill ends the process without warning (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end (SIGTERM) and waits for it. The error is the process's own, or says that Stop killed it.
func (p *Process) Stop() error {
	p.Signal(syscall.SIGTERM)
	p.Resume()
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.name, stopTimeout)
	}
}

// Output collects what a process writes, the last MiB of it. It is safe for concurrent use.
type Output struct {
	// Tee gets everything as well, if set.
	Tee io.Writer

	mu  sync.Mutex
	buf bytes.Buffer
}

// testOutput returns an Output. If the test fails, it keeps the output in a file and names the file.
func testOutput(t testing.TB, name string) *Output {
	o := &Output{}
	KeepOnFailure(t, name, o.String)
	return o
}

// KeepOnFailure writes the output of a server to a file if the test fails. The test names the file.
func KeepOnFailure(t testing.TB, name string, written func() string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		file, err := keep(t.Name()+" "+name, written())
		if err != nil {
			t.Logf("output of %s: %v", name, err)
			return
		}
		t.Logf("output of %s: %s", name, file)
	})
}

// keep writes a text into a file that outlives the test, in a folder of the system's for files that come and go.
func keep(name, text string) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("reveille-test-logs-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	f, err := os.CreateTemp(dir, name[:min(len(name), 150)]+"-*.log")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	return f.Name(), errors.Join(err, f.Close())
}

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if over := o.buf.Len() - maxLog; over > 0 {
		o.buf.Next(over)
	}
	if o.Tee != nil {
		_, _ = o.Tee.Write(p)
	}
	return len(p), nil
}

// String returns what was collected.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
