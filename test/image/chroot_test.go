package image

import (
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"reveille/test/harness"
)

// inside runs the binary as the container does: as a user without a name, in a root that has no files but those of the
// image.
func inside(root string, args ...string) *exec.Cmd {
	cmd := exec.Command("/reveille", args...)
	cmd.Err = nil // it is looked up in the new root, not in this one
	cmd.Dir = "/"
	cmd.Env = []string{} // not this process's
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}

// emptyRoot has the binary in it and nothing else. Nobody may write into it.
func emptyRoot(t *testing.T, bin string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "reveille"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// running is the program in its root.
type running struct {
	*harness.Process
	api, operator string
}

func start(t *testing.T, root, upstream string) running {
	t.Helper()
	r := running{}
	api, operator := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	r.api, r.operator = "http://"+api, "http://"+operator
	cmd := inside(root)
	cmd.Env = []string{
		"REVEILLE_UPSTREAM_URL=" + upstream, "REVEILLE_REDIS_URL=embedded", "REVEILLE_LISTEN_ADDR=" + api,
		"REVEILLE_OPERATOR_ADDR=" + operator,
	}
	out := &harness.Output{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of the program:\n%s", out)
		}
	})
	p, err := harness.Start("the program in an empty root", out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	r.Process = p
	harness.Eventually(t, harness.Wait, "the program is ready",
		func() error { return harness.CheckReady(t.Context(), r.operator) })
	return r
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestTheProgramRunsInARootWithoutFiles(t *testing.T) {
	harness.Long(t)
	root := emptyRoot(t, build(t, runtime.GOARCH))
	out, err := inside(root, "--version").CombinedOutput()
	if want := "reveille " + version + "\n"; err != nil || string(out) != want {
		t.Errorf("--version: %q %v, want %q", out, err, want)
	}

	// The stream server has a certificate, of an authority that is none of the well-known.
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "an event")
	}))
	upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer upstream.Close()
	r := start(t, root, upstream.URL)
	if status, body := get(t, r.operator+"/healthz"); status != http.StatusOK {
		t.Errorf("GET /healthz: %d %s", status, body)
	}
	if status, body := get(t, r.api+"/a"); status != http.StatusBadGateway {
		t.Errorf("a stream server of an unknown authority: %d %s, want 502", status, body)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}

	// The same with the one file that the image has besides: it is where the program looks.
	const certificates = "etc/ssl/certs/ca-certificates.crt"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(certificates)), 0o755); err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(root, certificates), authority, 0o644); err != nil {
		t.Fatal(err)
	}
	r = start(t, root, upstream.URL)
	if status, body := get(t, r.api+"/a"); status != http.StatusOK || body != "an event" {
		t.Errorf("a stream server of an authority in the file: %d %s, want its answer", status, body)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}

	// Nothing was left behind.
	var files []string
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path[len(root)+1:])
		}
		return err
	})
	if want := []string{certificates, "reveille"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("the root holds %q %v, want %q", files, err, want)
	}
}
