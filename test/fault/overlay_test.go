package fault

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"reveille/test/harness"
)

// patch is a change of one place in a file. File is a path in the project, or an absolute one. An empty Old adds a
// file.
type patch struct{ File, Old, New string }

// apply returns the text of a file with the change made.
func (p patch) apply(file string) (string, error) {
	if p.Old == "" {
		return p.New, nil
	}
	was, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(was), p.Old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", p.File, p.Old, n)
	}
	return strings.Replace(string(was), p.Old, p.New, 1), nil
}

// buildPatched builds Reveille with changes that are in no file of the project. It fails if a place to change is not
// there exactly once: the code has moved on and the patch has to follow.
func buildPatched(t *testing.T, name string, patches ...patch) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for i, p := range patches {
		file := p.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(root, file)
		}
		source := replace[file]
		if source == "" {
			source = file
		}
		text, err := p.apply(source)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		patched := filepath.Join(dir, string(rune('a'+i))+"-"+filepath.Base(file))
		if err := os.WriteFile(patched, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = patched
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "reveille")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-overlay", file,
		"-o", binary, "./cmd/reveille")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: go build: %v\n%s", name, err, out)
	}
	return binary
}
