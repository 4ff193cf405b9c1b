package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	// root is the top folder of the project, and chartDir the chart.
	root     = "../.."
	chartDir = root + "/charts/reveille"
	// release and namespace are those of everything that is rendered here.
	release   = "wake"
	namespace = "streams"
	// newest is the version of Kubernetes that a case renders for if it names none.
	newest = "1.37.0"
)

// required are the values that a user must give, in the shortest form.
const required = `
upstream: {url: "http://streams:4437"}
redis: {url: "redis://:hunter2@redis:6379/0"}
publicUrl: https://reveille.example.com
`

// longForm leaves a test out of the short form: it needs Helm itself.
func longForm(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("the long form runs it, with Helm: make test-all")
	}
}

// helmBinary builds Helm as go.mod pins it. Go keeps it in its build cache.
var helmBinary = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

// helm runs Helm and returns what it printed. Nothing of the user's own configuration takes part.
func helm(t testing.TB, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	bin, err := helmBinary()
	if err != nil {
		t.Fatalf("build helm: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + filepath.Join(home, "none")},
		env...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err = cmd.Run()
	return out.String(), diag.String(), err
}

// valuesFiles writes each document of values into a file and returns the arguments that name them.
func valuesFiles(t testing.TB, values []string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range values {
		name := filepath.Join(dir, fmt.Sprintf("values-%d.yaml", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values", name)
	}
	return args
}

// rendering renders a chart; later values go over earlier ones. The long form has Helm do it, and holds the engine of
// the short form against it.
func rendering(t testing.TB, dir, kubeVersion string, values ...string) (string, error) {
	t.Helper()
	here, hereErr := templateHere(dir, kubeVersion, values...)
	if testing.Short() {
		return here, hereErr
	}
	args := append([]string{"template", release, dir, "--namespace", namespace, "--kube-version", kubeVersion},
		valuesFiles(t, values)...)
	out, diag, err := helm(t, nil, args...)
	if (err == nil) != (hereErr == nil) {
		t.Errorf("Helm ends with %v, the engine of the short form with %v", err, hereErr)
	}
	if err != nil {
		return "", fmt.Errorf("helm template: %w\n%s", err, diag)
	}
	sameAsHelm(t, here, out)
	return out, nil
}

// render is rendering for values that are right, decoded.
func render(t testing.TB, dir, kubeVersion string, values ...string) *manifest {
	t.Helper()
	text, err := rendering(t, dir, kubeVersion, values...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// lint fails the test if helm lint --strict finds anything, in the long form.
func lint(t testing.TB, dir, kubeVersion string, values ...string) {
	t.Helper()
	if testing.Short() {
		return
	}
	args := append([]string{"lint", dir, "--strict", "--namespace", namespace, "--kube-version", kubeVersion},
		valuesFiles(t, values)...)
	if out, diag, err := helm(t, nil, args...); err != nil {
		t.Errorf("helm lint --strict: %v\n%s%s", err, out, diag)
	}
}
