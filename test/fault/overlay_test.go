package fault

import (
	"encoding/json"
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
		var text string
		if p.Old != "" {
			was, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(was), p.Old); n != 1 {
				t.Fatalf("%s: %s has %q %d times, want once", name, p.File, p.Old, n)
			}
			text = strings.Replace(string(was), p.Old, p.New, 1)
		} else {
			text = p.New
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
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", file, "-o", binary,
		"./cmd/reveille")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: go build: %v\n%s", name, err, out)
	}
	return binary
}
