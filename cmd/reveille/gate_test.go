package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// flakyModule has three tests. What the second does at its first run is up to the case; run again, it passes.
const flakyModule = `package flaky

import (
	"os"
	"testing"
)

func TestA(t *testing.T) {}

func TestB(t *testing.T) {
	if _, err := os.Stat("ran"); err == nil {
		return
	}
	if err := os.WriteFile("ran", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	FIRST
}

func TestC(t *testing.T) {}
`

// leakyModule has a test that passes. Then the package fails, as it does if a goroutine is left.
const leakyModule = `package leaky

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	if _, err := os.Stat("ran"); err != nil && os.WriteFile("ran", nil, 0o600) == nil {
		os.Exit(1)
	}
}

func TestD(t *testing.T) {}
`

// A package that goes down in the middle of a test has not run the others: running that one again proves nothing of
// them.
func TestTheGateTakesNoCrashForATestThatMayRunAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, first string
		leaks       bool
		green       bool
		says        string
	}{
		{"gate-failed", `t.Fatal("once")`, false, true, "Run again"},
		{"gate-crashed", `os.Exit(3)`, false, false, "flaky TestB"},
		{"gate-leaked", `t.Fatal("once")`, true, false, "flaky/leaky"},
	} {
		t.Run(c.part, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := map[string]string{
				"go.mod":        "module flaky\n\ngo 1.26\n",
				"flaky_test.go": strings.Replace(flakyModule, "FIRST", c.first, 1),
			}
			if c.leaks {
				files["leaky/leaky_test.go"] = leakyModule
			}
			for file, text := range files {
				file = filepath.Join(dir, file)
				err := os.MkdirAll(filepath.Dir(file), 0o700)
				if err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			gate := exec.CommandContext(t.Context(), "../../.ci/test", c.part, dir, "./...")
			out, err := gate.CombinedOutput()
			if (err == nil) != c.green || !strings.Contains(string(out), c.says) {
				t.Errorf("green is %t, want %t, and %q in what it says:\n%s", err == nil, c.green, c.says, out)
			}
		})
	}
}
