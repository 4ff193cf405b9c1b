package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Root returns the top folder of the project: the nearest one above the working directory that has this module. Tests
// may have a module of their own below it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil &&
			strings.HasPrefix(string(text), "module reveille\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the go.mod of the project is not in this folder or above it")
		}
		dir = parent
	}
}

// toolsDir returns the folder for built things that are not kept in the project.
func toolsDir(root string) (string, error) {
	dir := filepath.Join(root, ".tools", "test")
	return dir, os.MkdirAll(dir, 0o750)
}

// NodeModules installs the packages in the lock file of a folder below the project's top, unless they are installed.
// Test binaries that need the folder at the same time wait for each other. It calls installing before it downloads
// anything.
func NodeModules(ctx context.Context, folder string, installing func()) error {
	root, err := Root()
	if err != nil {
		return err
	}
	tools, err := toolsDir(root)
	if err != nil {
		return err
	}
	lock, err := waitLock(filepath.Join(tools, filepath.Base(folder)+".lock"))
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()

	dir := filepath.Join(root, folder)
	stamp := filepath.Join(dir, "node_modules", ".installed-lock.json")
	want, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, want) {
		return nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return errors.New("npm is not installed: Node 20 or later is needed for the reference server")
	}
	installing()
	cmd := exec.CommandContext(ctx, "npm", "ci")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s: %w\n%s", folder, err, out)
	}
	return os.WriteFile(stamp, want, 0o600)
}

// nodeModules is NodeModules for a test.
func nodeModules(t testing.TB, folder string) string {
	t.Helper()
	root, err := Root()
	if err == nil {
		err = NodeModules(t.Context(), folder, func() { t.Logf("npm ci in %s", folder) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, folder)
}

// BuildReveille builds ./cmd/reveille and returns the path of the binary. It builds with the race detector if the
// caller was built with it. The short form never does: the programs of a hundred tests would be too slow. All tests of
// a process share one build.
func BuildReveille(ctx context.Context) (string, error) {
	short := testing.Testing() && testing.Short() // the demo builds one, too
	return buildReveille(ctx, builtWithRace() && !short)
}

// BuildRaceReveille is BuildReveille, but the short form builds with the race detector, too, if the caller was.
func BuildRaceReveille(ctx context.Context) (string, error) {
	return buildReveille(ctx, builtWithRace())
}

// BuildPlainReveille is BuildReveille without the race detector, which multiplies memory and time. Use it to measure
// them.
func BuildPlainReveille(ctx context.Context) (string, error) { return buildReveille(ctx, false) }

func buildReveille(ctx context.Context, race bool) (string, error) {
	return build(ctx, "./cmd/reveille", race)
}

// BuildPlain builds another program of the project, such as ./test/bench/floor, as BuildPlainReveille does.
func BuildPlain(ctx context.Context, folder string) (string, error) { return build(ctx, folder, false) }

// built has the programs that this process has built, by folder and race detector. All tests of the process use the
// same build.
var built struct {
	sync.Mutex
	programs map[string]string
}

func build(ctx context.Context, folder string, race bool) (string, error) {
	built.Lock()
	defer built.Unlock()
	key := fmt.Sprintf("%s race=%t", folder, race)
	if bin := built.programs[key]; bin != "" {
		return bin, nil
	}
	bin, err := buildProgram(ctx, folder, race)
	if err == nil {
		if built.programs == nil {
			built.programs = map[string]string{}
		}
		built.programs[key] = bin
	}
	return bin, err
}

func buildProgram(ctx context.Context, folder string, race bool) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	tools, err := toolsDir(root)
	if err != nil {
		return "", err
	}
	lock, err := waitLock(filepath.Join(tools, "build.lock"))
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	// Leave the state of version control and this folder's name out of the binary. Then it changes only if the code
	// does, and another clone finds it built.
	bin, args := filepath.Join(tools, filepath.Base(folder)), []string{"build", "-buildvcs=false", "-trimpath"}
	if race {
		bin, args = bin+"-race", append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", bin, folder)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", folder, err, out)
	}
	return bin, nil
}

func builtWithRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
