package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBashCompletesCommandsAndFlags has a real bash do so.
func TestBashCompletesCommandsAndFlags(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	_, script, _ := call("", "completion", "bash")
	file := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"reveille su": "subscribe subscriptions", "reveille subscribe --si": "--signature",
		"reveille streams f":    "forget",
		"reveille completion z": "zsh", "reveille log-level ": "debug info warn error --addr --output --help",
		"reveille nothing ": "", "reveille dead-letters d": "discard", "reveille pause --addr x --o": "--output",
	} {
		words := strings.Split(line, " ")
		ask := fmt.Sprintf("source %q\n", file) +
			`COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _reveille; echo "${COMPREPLY[@]}"`
		out, err := exec.CommandContext(t.Context(), bash, append([]string{"-c", ask, "bash"}, words...)...).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s<TAB>: %q, %v, want %q", line, got, err, want)
		}
	}
}

// TestEachShellCompletesEachCommand holds that none is missing, and that shells that are here can read the script.
func TestEachShellCompletesEachCommand(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		status, out, errs := call("", "completion", shell)
		if status != 0 || errs != "" {
			t.Errorf("%s: status %d, %q", shell, status, errs)
		}
		for _, cmd := range commands {
			if !strings.Contains(out, " "+cmd.name+")") && !strings.Contains(out, "-a "+cmd.name+" ") {
				t.Errorf("%s does not complete %s", shell, cmd.name)
			}
			for _, fl := range flagsOf(cmd) {
				if !strings.Contains(out, "-"+fl.Name) && !strings.Contains(out, "-l "+fl.Name+" ") {
					t.Errorf("%s does not complete --%s of %s", shell, fl.Name, cmd.name)
				}
			}
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program, "-n", "/dev/stdin")
		cmd.Stdin = strings.NewReader(out)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read it: %v, %s", shell, err, text)
		}
	}
}
