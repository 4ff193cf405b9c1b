package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestAReplicaNeedsAFileForEachConnectionThatItsSettingsAllow(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings map[string]string
		need     uint64
	}{
		{"the defaults", enough(), 10_000 + 2*10_000 + 2*1024 + otherFiles},
		{"no gateway", enough("GATEWAY", "false"), 10_000 + 10_000 + 2*1024 + otherFiles},
		{"live requests that share connections", enough("UPSTREAM_H2C", "true"), 101 + 2*10_000 + 2*1024 + otherFiles},
		{
			"few of everything", enough("TAIL_MAX_LIVE", "10", "MAX_CONNECTIONS", "20", "MAX_IN_FLIGHT", "100"),
			10 + 40 + 200 + otherFiles,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			environ(t, c.settings)
			s, _, err := load()
			if err != nil {
				t.Fatal(err)
			}
			if got := filesNeeded(s); got != c.need {
				t.Errorf("%d files, want %d", got, c.need)
			}
		})
	}
}

// TestTooLowALimitOfOpenFilesIsWarnedAbout runs itself as a process that has the limit.
func TestTooLowALimitOfOpenFilesIsWarnedAbout(t *testing.T) {
	const live = "REVEILLE_TEST_LIVE"
	if n, ok := os.LookupEnv(live); ok {
		environ(t, enough("TAIL_MAX_LIVE", n, "MAX_CONNECTIONS", "1", "MAX_IN_FLIGHT", "100", "GATEWAY", "false"))
		s, _, err := load()
		if err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zapcore.DebugLevel)
		warnOfFiles(s, zap.New(core))
		for _, e := range logs.All() {
			t.Log(e.Message, e.ContextMap())
		}
		return
	}
	for _, c := range []struct {
		name, hard, live string
		says             []string
	}{
		{
			"one too low", "2000", "900",
			[]string{"more open files than this process may have", "limit:", "may_need:2101"},
		},
		{"one that will do", "2000", "700", nil},
		{"one of which the soft limit alone is too low, which Go raises", "4000", "900", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c",
				`ulimit -Sn 256; ulimit -Hn `+c.hard+`; exec "$0" -test.v -test.run '^TestTooLowALimit'`, os.Args[0])
			cmd.Env = append(os.Environ(), live+"="+c.live, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range c.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q is missing in\n%s", want, out)
				}
			}
			if warned := strings.Contains(string(out), "open files than"); warned != (c.says != nil) {
				t.Errorf("warned: %v\n%s", warned, out)
			}
		})
	}
}
