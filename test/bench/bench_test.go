package bench

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"reveille/test/harness"
)

// parts of the benchmark, in the order of the report. limit bounds each, whatever happens.
var parts = []struct {
	name  string
	limit time.Duration
	run   func(b *bench)
}{
	{"wakes", 20 * time.Minute, wakes},
	{"cycles", 20 * time.Minute, cycles},
	{"push", 20 * time.Minute, pushes},
	{"hand-overs", 20 * time.Minute, handOvers},
	{"round trips", 20 * time.Minute, roundTrips},
	{"scripts", 20 * time.Minute, scripts},
	{"silent streams", 30 * time.Minute, silentStreams},
	{"burst", 20 * time.Minute, burst},
	{"subscriptions", 30 * time.Minute, subscriptions},
	{"replicas", 20 * time.Minute, replicas},
	{"letters", 30 * time.Minute, letters},
	{"go benchmarks", 20 * time.Minute, goBenchmarks},
	{"builds", 40 * time.Minute, builds},
}

// bench is a part under way.
type bench struct {
	*testing.T
	sizes
	ctx context.Context
	out *report
	// bin is the build of Reveille that is measured, base the one that it is compared with: empty for that of this
	// commit, and for none.
	bin, base string
}

// TestBench is run by make bench, which sets BENCH.
func TestBench(t *testing.T) {
	form := os.Getenv("BENCH")
	if form == "" {
		t.Skip("takes long: make bench runs it")
	}
	if form != "full" && form != "quick" {
		t.Fatalf("BENCH=%q, expected full or quick", form)
	}
	only, err := regexp.Compile("(?i)" + os.Getenv("BENCH_ONLY"))
	if err != nil {
		t.Fatalf("BENCH_ONLY: %v", err)
	}
	base := os.Getenv("BENCH_BASE")
	if base != "" {
		if base, err = root(base); err == nil {
			_, err = os.Stat(base)
		}
		if err != nil {
			t.Fatalf("BENCH_BASE: %v", err)
		}
	}
	// The first Ctrl-C ends the measuring and prints what there is, the second ends everything.
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	began, out := time.Now(), newReport(len(parts))
	for i, p := range parts {
		if ctx.Err() == nil && only.MatchString(p.name) {
			progress("%s: begins", p.name)
			t.Run(p.name, func(t *testing.T) { play(ctx, t, i, forms[form], base, out) })
		}
	}
	took := time.Since(began)
	text := out.text(heading(form, os.Getenv("BENCH_ONLY"), took))
	fmt.Print("\n" + text)
	switch {
	case ctx.Err() != nil:
		t.Fatal("interrupted; nothing was written")
	case t.Failed():
		t.Log("something failed, see above; nothing was written")
	case os.Getenv("BENCH_RESULTS") != "":
		if err := writeResults(os.Getenv("BENCH_RESULTS"), text); err != nil {
			t.Fatal(err)
		}
	}
}

// play runs one part. base is the build that this one is compared with, if any.
func play(ctx context.Context, t *testing.T, i int, s sizes, base string, out *report) {
	ctx, cancel := context.WithTimeout(ctx, parts[i].limit)
	defer cancel()
	own := &report{tables: out.tables[i : i+1], aims: out.aims[i : i+1]}
	parts[i].run(&bench{T: t, sizes: s, ctx: ctx, base: base, out: own})
	if ctx.Err() == context.DeadlineExceeded {
		t.Errorf("took longer than %s", parts[i].limit)
	}
}

// smoke are the parts that the short form plays: they need all that others do.
var smoke = []string{"wakes", "push"}

// TestBenchShort plays every part with tiny numbers; only two of them in the short form.
func TestBenchShort(t *testing.T) {
	base, err := harness.BuildPlainReveille(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, played := newReport(len(parts)), 0
	t.Run("parts", func(t *testing.T) {
		for i, p := range parts {
			if testing.Short() && !slices.Contains(smoke, p.name) {
				continue
			}
			played++
			t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				play(t.Context(), t, i, forms["tiny"], base, out)
				if len(out.tables[i]) == 0 || len(out.tables[i][0].rows) == 0 {
					t.Error("it measured nothing")
				}
			})
		}
	})
	if testing.Short() && played != len(smoke) {
		t.Errorf("%d parts were played, want %q", played, smoke)
	}
}

func TestTheLatestRunStandsFirstInTheFileOfResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "RESULTS.md")
	for _, text := range []string{"## the first run\n\nits table\n", newReport(len(parts)).text("## the second run")} {
		if err := writeResults(file, text); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, second := strings.Index(string(text), "## the first run"), strings.Index(string(text), "## the second run")
	if !strings.HasPrefix(string(text), "# ") || second < 0 || first < second {
		t.Errorf("the latest run does not stand first in the file of results:\n%s", text)
	}
}

// in runs f in a world of its own, of a number of replicas. It returns false if that failed.
func (b *bench) in(s system, replicas int, f func(w *world)) bool {
	b.Helper()
	if b.ctx.Err() != nil {
		return false
	}
	return b.Run(string(s), func(t *testing.T) { f(newWorld(b.ctx, t, s, b.bin, replicas)) })
}

// byTurns measures in each of some systems, as many times as there are rounds; they take turns.
func (b *bench) byTurns(systems []system, measure func(w *world) measured) map[system]*measured {
	b.Helper()
	all := map[system]*measured{}
	for range b.rounds {
		for _, s := range systems {
			b.in(s, 1, func(w *world) {
				m := measure(w)
				if all[s] == nil {
					all[s] = &measured{}
				}
				all[s].add(m)
			})
		}
	}
	return all
}

// once waits until a condition holds, at most until the part's time is over. It returns false if it does not.
func (b *bench) once(within time.Duration, holds func() bool) bool {
	until := time.Now().Add(within)
	for !holds() {
		if time.Now().After(until) || !pause(b.ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

// pause returns false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// lose books lost wakes, which are a defect whatever the speed; those of the floor, which repeats nothing, are only
// printed.
func (b *bench) lose(s system, n int, where string) {
	if n > 0 && s != floor {
		b.Errorf("%s, %s: %d wakes were lost", s, where, n)
	}
}

// root resolves a path that is relative to the project's top folder.
func root(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	top, err := harness.Root()
	return filepath.Join(top, path), err
}
