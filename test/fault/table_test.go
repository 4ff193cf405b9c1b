package fault

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is a scenario's row.
type result struct {
	Scenario string
	verdict
	// Err is set if the scenario could not be played to its end.
	Err  string
	Took time.Duration
	// Drawn counts what receivers and the proxy did wrong, by the names of drawable.
	Drawn map[string]int
}

func (r result) ok() bool { return r.Err == "" && len(r.Violations) == 0 }

func (r result) word() string {
	switch {
	case r.Err != "":
		return "not played: " + r.Err
	case len(r.Violations) == 1:
		return "1 violation"
	case len(r.Violations) > 1:
		return fmt.Sprintf("%d violations", len(r.Violations))
	}
	return "ok"
}

// table writes one row for each scenario, in Markdown so that it can be pasted.
func table(out io.Writer, results []result) {
	tw := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	line := func(cells ...any) {
		text := make([]string, len(cells))
		for i, c := range cells {
			text[i] = fmt.Sprint(c)
		}
		_, _ = fmt.Fprintln(tw, "| "+strings.Join(text, "\t| ")+"\t|")
	}
	titles := []any{
		"scenario", "events", "wakes", "lost", "duplicate wakes", "longest gap without a wake", "epochs that repeated",
		"events pushed", "pushed again", "stepped aside", "dead letters", "events replayed", "pushed beside replays",
		"handed over", "delivered again", "dead", "verdict",
	}
	line(titles...)
	line(slices.Repeat([]any{"---"}, len(titles))...)
	for _, r := range results {
		line(r.Scenario, r.Events, r.Wakes, r.Lost, r.Duplicates, r.Gap.Round(100*time.Millisecond), r.Repeated,
			r.Pushed, r.PushedAgain, r.Aside, r.Letters, r.Replayed, r.Beside, r.Handed,
			r.HandedAgain, r.Dead, r.word())
	}
	_ = tw.Flush()
}

// circumstances says what the figures of a table hold for.
func circumstances(form string, seed uint64, took time.Duration) string {
	return fmt.Sprintf("%s, commit %s, %s, FAULT_SEED=%d, %s in all\n\n%s\n",
		time.Now().UTC().Format("2006-01-02"), commit(), form, seed, took.Round(time.Second), machine())
}

func commit() string {
	out, err := exec.CommandContext(context.Background(), "git", "describe", "--always", "--dirty",
		"--abbrev=10").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func machine() string {
	return fmt.Sprintf("%d × %s, %s, %s; redis-server %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"),
		field("/proc/meminfo", "MemTotal"), runtime.Version(), redisVersion())
}

// field returns the value of the first line of a file of the kernel that has a name.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if k, v, found := strings.Cut(line, ":"); found && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

func redisVersion() string {
	out, _ := exec.CommandContext(context.Background(), "redis-server", "--version").Output()
	for _, word := range strings.Fields(string(out)) {
		if v, found := strings.CutPrefix(word, "v="); found {
			return v
		}
	}
	return "unknown"
}
