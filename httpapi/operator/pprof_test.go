package operator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/httpapi/operator"
)

func TestThereAreNoProfilesUnlessTheyAreAskedFor(t *testing.T) {
	off := newHarness(t, nil)
	for _, name := range []string{"", "heap", "profile", "cmdline", "symbol", "trace"} {
		off.Want(off.Operator("GET", operator.PprofPrefix+name, ""), 404, fsm.CodeNotFound, "")
	}
	on := newHarness(t, func(c *httpapi.Config) { c.Pprof = true })
	on.Want(on.API("GET", operator.PprofPrefix+"heap", ""), 404, fsm.CodeNotFound, "")
	for name, says := range map[string]string{
		"": "Types of profiles available", "goroutine?debug=1": "goroutine profile:", "heap?debug=1": "heap profile:",
		"cmdline": os.Args[0], "symbol": "num_symbols: 1",
	} {
		if a := on.Operator("GET", operator.PprofPrefix+name, ""); a.Status != 200 || !strings.Contains(a.Text, says) {
			t.Errorf("%q: %d %.200s, want %q in it", name, a.Status, a.Text, says)
		}
	}
	if a := on.Operator("POST", operator.PprofPrefix+"symbol", "0x1"); a.Status != 200 ||
		!strings.Contains(a.Text, "num_symbols: 1") {
		t.Errorf("symbol by POST: %d %s", a.Status, a.Text)
	}
	if a := on.Operator("GET", operator.PprofPrefix+"nonsense", ""); a.Status != 404 {
		t.Errorf("an unknown profile: %d", a.Status)
	}
}

func TestAProfileMayTakeLongerThanTheTimeOutsOfTheOperatorPort(t *testing.T) {
	h := newHarness(t, func(c *httpapi.Config) { c.Pprof = true })
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = h.svc.OperatorServer("")
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	srv.Start()
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL + operator.PprofPrefix + "profile?seconds=2")
	if err != nil {
		t.Fatal(err)
	}
	profile, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", res.StatusCode, err)
	}
	file := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		t.Fatal(err)
	}
	// A profile of 2 s may come out a little short, and longer on a slow machine. The time-outs are half a second.
	longer := regexp.MustCompile(`Duration: ([1-9]|\d\d+)(\.\d+)?s`)
	if out, err := exec.Command("go", "tool", "pprof", "-top", file).CombinedOutput(); err != nil ||
		!longer.Match(out) {
		t.Errorf("%v, want %s in\n%s", err, longer, out)
	}
}
