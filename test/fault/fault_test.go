// Package fault puts several replicas of Reveille, between a real Redis and a real stream server, through what goes
// wrong in practice, and judges by what workers saw whether anything was lost. TestFaults, which make fault runs, plays
// every scenario; TestFaultsShort plays some of them for a few seconds each, and one of them in the short form. In all
// of them, receivers of pushes and the proxy on the way to some of them do wrong now and then: see brokenAnswers, used
// and proxyTrouble.
package fault

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reveille/test/harness"
)

// shortSpan and longSpan are how long the faults of a scenario last in the two forms.
const (
	shortSpan = 3 * time.Second
	longSpan  = 12 * time.Second
)

// TestFaults plays all scenarios, one after the other. It is run by make fault, which sets FAULT_MINUTES.
func TestFaults(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("FAULT_MINUTES"), 64)
	if os.Getenv("FAULT_MINUTES") == "" {
		t.Skip("takes long: make fault runs it")
	}
	if err != nil || minutes <= 0 {
		t.Fatalf("FAULT_MINUTES=%q, expected a number", os.Getenv("FAULT_MINUTES"))
	}
	only, err := regexp.Compile("(?i)" + os.Getenv("FAULT_SCENARIO"))
	if err != nil {
		t.Fatalf("FAULT_SCENARIO: %v", err)
	}
	began, seed := time.Now(), chosenSeed(t)
	progress("FAULT_SEED=%d", seed)
	var results []result
	for _, s := range scenarios {
		if !only.MatchString(s.name) {
			continue
		}
		span := longSpan
		if s.share > 0 {
			span = time.Duration(s.share * minutes * float64(time.Minute))
		}
		results = append(results, play(t, s, seed, span))
	}
	report(t, results, seed, fmt.Sprintf("FAULT_MINUTES=%v", minutes), began)
	if len(results) != len(scenarios) {
		return
	}
	for what, count := range map[string]func(result) int{
		"no push stepped aside":                                  func(r result) int { return r.Aside },
		"no event was replayed":                                  func(r result) int { return r.Replayed },
		"no push was taken while its stream's past was replayed": func(r result) int { return r.Beside },
		"no event that was handed over came again":               func(r result) int { return r.HandedAgain },
		"no event that was handed over is dead":                  func(r result) int { return r.Dead },
	} {
		if !slices.ContainsFunc(results, func(r result) bool { return count(r) > 0 }) {
			t.Errorf("%s in any scenario", what)
		}
	}
	for _, name := range drawable() {
		if !slices.ContainsFunc(results, func(r result) bool { return r.Drawn[name] > 0 }) {
			t.Errorf("this was not drawn in any scenario: %s", name)
		}
	}
}

// smoke is the scenario that the short form plays.
const smoke = "replica killed mid-delivery"

// TestFaultsShort plays the scenarios that need a few seconds, some at the same time.
func TestFaultsShort(t *testing.T) {
	began, seed := time.Now(), chosenSeed(t)
	progress("FAULT_SEED=%d", seed)
	var mu sync.Mutex
	var results []result
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			if s.short && (!testing.Short() || s.name == smoke) {
				t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
					t.Parallel()
					r := play(t, s, seed, shortSpan)
					mu.Lock()
					defer mu.Unlock()
					results = append(results, r)
				})
			}
		}
	})
	if len(results) == 0 {
		t.Error("no scenario was played")
	}
	report(t, results, seed, "short form", began)
}

func chosenSeed(t *testing.T) uint64 {
	text := os.Getenv("FAULT_SEED")
	if text == "" {
		return uint64(time.Now().UnixNano() % 1_000_000)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("FAULT_SEED=%q, expected a number", text)
	}
	return seed
}

// worlds has a place for each world that there may be at once: one keeps a core busy.
var worlds = make(chan struct{}, runtime.NumCPU())

// play plays one scenario in a world of its own.
func play(t *testing.T, s scenario, seed uint64, span time.Duration) result {
	worlds <- struct{}{}
	defer func() { <-worlds }()
	r := result{Scenario: s.name, Err: "its world could not be set up or broke down, see above"}
	began := time.Now()
	progress("%s: begins (%s)", s.name, span)
	t.Run("world", func(t *testing.T) {
		o := s.options
		if s.prepare != nil {
			s.prepare(t, &o)
		}
		w := newWorld(t, seed, o)
		stop := w.load()
		w.pause(time.Second)
		s.faults(w, span)
		w.revive()
		stop()
		progress("%s: all works again, waiting for it to come to rest", s.name)
		r.verdict = w.settle(settleTime)
		if !t.Failed() {
			r.Err = ""
		}
		w.mu.Lock()
		r.Drawn = maps.Clone(w.drawn)
		w.mu.Unlock()
		if !r.ok() {
			w.dump()
			w.save(s.name, r)
		}
		w.stop()
	})
	r.Took = time.Since(began)
	progress("%s: %s after %s: %d events, %d wakes, %d lost, %d duplicate wakes, %d events pushed, %d again, "+
		"%d aside, %d dead letters, %d events replayed, %d pushes beside replays, %d events handed over, %d again, "+
		"%d dead",
		s.name, r.word(), r.Took.Round(time.Second), r.Events, r.Wakes, r.Lost, r.Duplicates, r.Pushed, r.PushedAgain,
		r.Aside, r.Letters, r.Replayed, r.Beside, r.Handed, r.HandedAgain, r.Dead)
	var drawn []string
	for _, name := range slices.Sorted(maps.Keys(r.Drawn)) {
		drawn = append(drawn, fmt.Sprintf("%d × %s", r.Drawn[name], name))
	}
	progress("  drawn: %s", strings.Join(drawn, "; "))
	return r
}

// progress says something at once; the testing package would wait until the end.
func progress(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// maxShown bounds the violations of a scenario that are printed.
const maxShown = 8

// report prints the table, and what was violated, and fails the test if anything was.
func report(t *testing.T, results []result, seed uint64, form string, began time.Time) {
	var out strings.Builder
	table(&out, results)
	bad := false
	for _, r := range results {
		if r.ok() {
			continue
		}
		bad = true
		fmt.Fprintf(&out, "\n%s: %s\n", r.Scenario, r.word())
		for _, v := range r.Violations[:min(maxShown, len(r.Violations))] {
			fmt.Fprintf(&out, "- %s: %s\n", v.Rule, v.How)
		}
	}
	fmt.Printf("\n%s\n%s\n", circumstances(form, seed, time.Since(began)), out.String())
	if bad {
		t.Errorf("violations; FAULT_SEED=%d draws the same faults again", seed)
	}
}

// dump ends the replicas in a way that has them write what each of their goroutines is at, which their logs keep.
func (w *world) dump() {
	for _, r := range w.replicas {
		r.Signal(syscall.SIGQUIT)
	}
	for _, r := range w.replicas {
		<-r.Done()
	}
}

// save keeps the journal and what the processes wrote of a scenario that went wrong.
func (w *world) save(name string, r result) {
	root, err := harness.Root()
	if err != nil {
		return
	}
	dir := filepath.Join(root, ".tools", "fault", strings.ReplaceAll(name, " ", "-"))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return
	}
	logs := w.logs()
	for _, part := range slices.Sorted(maps.Keys(logs)) {
		_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(part, " ", "-")+".log"), []byte(logs[part]), 0o600)
	}
	j := w.journal.copy()
	if text, err := json.MarshalIndent(map[string]any{
		"Heads": w.heads(), "Violations": r.Violations, "Arrivals": j.Arrivals, "Reads": j.Reads, "Calls": j.Calls,
		"Dones": j.Dones, "Appends": j.Appends,
		"Pushes": j.Pushes, "Marks": j.Marks, "Letters": j.Letters, "Asks": j.Asks,
		"Handed": j.Handed, "Directs": j.Directs,
	}, "", " "); err == nil {
		_ = os.WriteFile(filepath.Join(dir, "journal.json"), text, 0o600)
	}
	progress("%s: journal and logs are in %s", name, dir)
}
