// Package conformance runs the protocol's own conformance suite through the gateway.
package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/test/harness"
)

const (
	longPoll = 2 * time.Second
	// suiteTimeout bounds one run, which takes half a minute.
	suiteTimeout = 20 * time.Minute
	// minTests and minShort guard against a suite that runs next to nothing and so passes. The pinned version has over
	// 300, of which a slow machine fails some straight against the server, too.
	minTests, minShort = 250, 40
	// repeats is how often a test is played again that passes straight against the server and not through the gateway:
	// some have limits of half a second, within which a slow machine does nothing.
	repeats = 5
)

// all picks every test of the suite.
const all = "."

// shortSuite picks what the short form plays. Nothing in it waits, and the server passes all of it.
const shortSuite = "(Basic Stream Operations|Append Operations|HTTP Protocol|Content-Type Validation|HEAD Metadata|" +
	"Idempotent Producer Operations) "

// result of one test of the suite, as vitest's JSON reporter has it.
type result struct {
	FullName        string
	Status          string // "passed", "failed", "skipped" if it was not picked
	FailureMessages []string
}

// What passes straight against the server passes through the gateway. The reference server fails a few tests of its own
// suite; what those do through the gateway says nothing.
func TestGatewayConformsAsTheServerBehindItDoes(t *testing.T) {
	behind := harness.StartRefServer(t, harness.RefOptions{LongPoll: longPoll})
	redis := harness.StartRedis(t)
	gateway := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": behind.StreamRoot,
		"REVEILLE_REDIS_URL":    redis.URL,
		"REVEILLE_LOG_LEVEL":    "info",
	})
	// With a subscription to everything, Reveille watches each stream that the suite makes, and must not be noticed.
	worker := harness.NewWorker(t)
	worker.AnswerDone()
	harness.NewClient(t, gateway.URL).Subscribe("/**", "everything", worker)

	dir, err := filepath.Abs(".")
	if err == nil {
		err = harness.NodeModules(t.Context(), "test/conformance", func() { t.Log("npm ci in test/conformance") })
	}
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		playShort(t, dir, gateway.URL)
	} else {
		playAll(t, dir, gateway.URL)
	}
	if len(worker.Wakes()) == 0 {
		t.Error("no stream of the suite woke the worker: Reveille was not watching them")
	}
}

// playShort plays a part of the suite, all of which must pass.
func playShort(t *testing.T, dir, gateway string) {
	t.Helper()
	got, err := runSuite(t.Context(), dir, gateway, filepath.Join(t.TempDir(), "short.json"), shortSuite)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, name := range sortedKeys(got) {
		switch got[name].Status {
		case "passed":
			passed++
		case "failed":
			t.Errorf("%s\n%s", name, got[name].FailureMessages)
		}
	}
	t.Logf("%d tests pass", passed)
	if passed < minShort {
		t.Errorf("only %d tests pass, want at least %d", passed, minShort)
	}
}

// playAll plays the suite straight against a server and through the gateway.
func playAll(t *testing.T, dir, gateway string) {
	t.Helper()
	straight := harness.StartRefServer(t, harness.RefOptions{LongPoll: longPoll})
	var want, got map[string]result
	run, ctx := errgroup.WithContext(t.Context())
	out := t.TempDir()
	run.Go(func() (err error) {
		want, err = runSuite(ctx, dir, straight.URL, filepath.Join(out, "straight.json"), all)
		return err
	})
	run.Go(func() (err error) {
		got, err = runSuite(ctx, dir, gateway, filepath.Join(out, "gateway.json"), all)
		return err
	})
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}

	passed := 0
	for _, name := range sortedKeys(want) {
		if want[name].Status != "passed" {
			t.Logf("straight against the server %s: %s", want[name].Status, name)
			continue
		}
		passed++
		g := got[name]
		for range repeats {
			if g.Status == "passed" {
				break
			}
			t.Logf("through the gateway %s: %s: it is played again, by itself\n%s", g.Status, name, g.FailureMessages)
			again, err := runSuite(t.Context(), dir, gateway, filepath.Join(out, "again.json"),
				"^"+regexp.QuoteMeta(name)+"$")
			if err != nil {
				t.Fatal(err)
			}
			g = again[name]
		}
		if g.Status != "passed" {
			t.Errorf("passes straight against the server, %q through the gateway: %s\n%s", g.Status, name,
				g.FailureMessages)
		}
	}
	t.Logf("%d tests pass straight against the server", passed)
	if passed < minTests {
		t.Errorf("only %d tests pass straight against the server, want at least %d", passed, minTests)
	}
}

// runSuite runs the suite against a server and returns the results by the tests' full names. pick is a regular
// expression for those names.
func runSuite(ctx context.Context, dir, url, report, pick string) (map[string]result, error) {
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	vitest := filepath.Join(dir, "node_modules", "vitest", "vitest.mjs")
	// Some of its tests compute for longer than vitest's five seconds where the machine is busy.
	cmd := exec.CommandContext(ctx, "node", vitest, "run", "--testTimeout=600000", "--reporter=json",
		"--outputFile="+report, "--testNamePattern="+pick, "suite.test.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"CONFORMANCE_URL="+url, "LONG_POLL_MS="+strconv.FormatInt(longPoll.Milliseconds(), 10))
	output, runErr := cmd.CombinedOutput() // not 0 if a test fails, which is not for vitest to judge
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("vitest against %s left no report: %w (%w)\n%s", url, err, runErr, output)
	}
	var read struct {
		TestResults []struct {
			Message          string
			AssertionResults []result
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("vitest's report on %s: %w", url, err)
	}
	results := map[string]result{}
	for _, file := range read.TestResults {
		for _, r := range file.AssertionResults {
			if _, twice := results[r.FullName]; twice {
				return nil, fmt.Errorf("the suite has two tests named %q: they cannot be told apart", r.FullName)
			}
			results[r.FullName] = r
		}
		if file.Message != "" {
			return nil, fmt.Errorf("the suite did not run against %s: %s", url, file.Message)
		}
	}
	return results, nil
}

func sortedKeys(m map[string]result) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
