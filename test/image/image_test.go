// Package image tests the image that the Dockerfile makes, on a machine that has no engine to make it. The short form
// reads the Dockerfile and builds nothing.
package image

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// dockerfile is what the Dockerfile says, instruction by instruction.
type dockerfile struct{ lines []string }

func readDockerfile(t testing.TB) (root string, d dockerfile) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			d.lines = append(d.lines, line)
		}
	}
	return root, d
}

// all returns what stands after each instruction of a name.
func (d dockerfile) all(name string) (found []string) {
	for _, line := range d.lines {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			found = append(found, rest)
		}
	}
	return found
}

// sources copies what the Dockerfile copies, and nothing else, into a folder.
func (d dockerfile) sources(t testing.TB, root string) string {
	t.Helper()
	dir := t.TempDir()
	for _, copied := range d.all("COPY") {
		if strings.HasPrefix(copied, "--from") {
			continue
		}
		words := strings.Fields(copied)
		for _, name := range words[:len(words)-1] {
			from := filepath.Join(root, name)
			to := filepath.Join(dir, words[len(words)-1])
			info, err := os.Stat(from)
			switch {
			case err != nil:
				t.Fatalf("COPY %s: %v", copied, err)
			case info.IsDir():
				err = os.CopyFS(to, os.DirFS(from))
			default:
				var text []byte
				if text, err = os.ReadFile(from); err == nil {
					err = os.WriteFile(filepath.Join(to, name), text, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// build runs the Dockerfile's own line that builds the program, for one architecture, and returns the binary.
func build(t testing.TB, arch string) string {
	t.Helper()
	root, d := readDockerfile(t)
	var line string
	for _, run := range d.all("RUN") {
		if strings.Contains(run, "go build") {
			line = run
		}
	}
	const out = "/out/reveille"
	if !strings.Contains(line, " -o "+out+" ") || strings.Count(line, out) != 1 {
		t.Fatalf("no line of the Dockerfile builds %s", out)
	}
	bin := filepath.Join(t.TempDir(), "reveille")
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.Replace(line, out, bin, 1))
	cmd.Dir = d.sources(t, root)
	cmd.Env = append(slices.DeleteFunc(os.Environ(),
		func(kv string) bool { return strings.HasPrefix(kv, "GO") && !keep(kv) }),
		"TARGETOS=linux", "TARGETARCH="+arch, "VERSION="+version, "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, text)
	}
	return bin
}

// keep says which variables of Go's are about where it finds and keeps things, not about what it makes of them.
func keep(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return slices.Contains([]string{
		"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOROOT", "GOSUMDB", "GONOSUMDB",
		"GOPRIVATE", "GOTOOLCHAIN",
	}, name)
}

const version = "9.8.7-test"

func TestTheImageIsStaticForBothArchitectures(t *testing.T) {
	harness.Long(t)
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			f, err := elf.Open(build(t, arch))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if f.Machine != machine {
				t.Errorf("it is for %s, want %s", f.Machine, machine)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Errorf("it needs a dynamic linker, which scratch does not have: %s", p.Type)
				}
			}
		})
	}
}

func TestTheDockerfileSaysWhatTheChartReliesOn(t *testing.T) {
	root, d := readDockerfile(t)
	last := func(name string) string {
		found := d.all(name)
		if len(found) == 0 {
			t.Fatalf("the Dockerfile has no %s", name)
		}
		return found[len(found)-1]
	}
	for name, want := range map[string]string{
		"FROM": "scratch", "USER": "65532:65532", "EXPOSE": "8080 9090", "ENTRYPOINT": `["/reveille"]`,
	} {
		if got := last(name); got != want {
			t.Errorf("%s %s, want %s", name, got, want)
		}
	}
	const certificates = "/etc/ssl/certs/ca-certificates.crt"
	if want := "--from=build " + certificates + " " + certificates; !slices.Contains(d.all("COPY"), want) {
		t.Errorf("no COPY %s", want)
	}
	builder := d.all("FROM")[0]
	if !strings.HasPrefix(builder, "--platform=$BUILDPLATFORM ") {
		t.Errorf("FROM %s: the build runs on an emulated machine", builder)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	if want := fmt.Sprintf(" golang:%s AS build", language[1]); !strings.HasSuffix(builder, want) {
		t.Errorf("FROM %s, want%s, the language of go.mod", builder, want)
	}
	labels := strings.Join(d.all("LABEL"), " ")
	for _, label := range []string{"title", "description", "licenses", "version", "revision"} {
		if !strings.Contains(labels, "org.opencontainers.image."+label+"=") {
			t.Errorf("the image has no label %s", label)
		}
	}
	// What is left out of the context cannot be copied.
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	for _, copied := range d.all("COPY") {
		for _, name := range strings.Fields(copied)[:len(strings.Fields(copied))-1] {
			if !strings.HasPrefix(copied, "--from") &&
				!strings.Contains(string(ignore), "\n!"+strings.TrimSuffix(name, "/")+"\n") {
				t.Errorf(".dockerignore leaves out %s", name)
			}
		}
	}
}
