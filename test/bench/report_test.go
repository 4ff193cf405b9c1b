package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a run has measured, part by part.
type report struct {
	tables [][]*table
	aims   [][]aim
}

// table is one of Markdown.
type table struct {
	title, note string
	head        []string
	rows        [][]string
}

// aim is a figure that was set as one to reach.
type aim struct {
	figure, goal, measured string
	reached                bool
}

func newReport(parts int) *report {
	return &report{tables: make([][]*table, parts), aims: make([][]aim, parts)}
}

// table begins a table of the part.
func (b *bench) table(title, note string, head ...string) *table {
	t := &table{title: title, note: note, head: head}
	b.out.tables[0] = append(b.out.tables[0], t)
	return t
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	t.rows = append(t.rows, row)
	progress("  %s", strings.Join(row, " | "))
}

// aim notes a figure of those that are to be reached, at most or at least a goal.
func (b *bench) aim(figure string, measured float64, sign string, goal float64, unit string) {
	reached := measured <= goal
	if sign == "≥" {
		reached = measured >= goal
	}
	b.out.aims[0] = append(b.out.aims[0],
		aim{figure, fmt.Sprintf("%s %g%s", sign, goal, unit), decimal(measured) + unit, reached})
}

func cell(v any) string {
	switch v := v.(type) {
	case time.Duration:
		switch {
		case v == 0:
			return "-"
		case v < 10*time.Millisecond:
			return fmt.Sprintf("%.2f ms", v.Seconds()*1000)
		case v < time.Second:
			return fmt.Sprintf("%.1f ms", v.Seconds()*1000)
		}
		return fmt.Sprintf("%.2f s", v.Seconds())
	case float64:
		return decimal(v)
	}
	return fmt.Sprint(v)
}

func decimal(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", v), ".00")
}

// ratio is how many times b goes into a, or a dash.
func ratio[T time.Duration | float64](a, b T) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// text is the report under a heading.
func (r *report) text(heading string) string {
	var out strings.Builder
	out.WriteString(heading)
	reached := &table{head: []string{"figure", "aim", "measured", ""}}
	for _, part := range r.aims {
		for _, a := range part {
			verdict := "not reached"
			if a.reached {
				verdict = "reached"
			}
			reached.rows = append(reached.rows, []string{a.figure, a.goal, a.measured, verdict})
		}
	}
	for _, part := range append([][]*table{{reached}}, r.tables...) {
		for _, t := range part {
			if len(t.rows) > 0 {
				out.WriteString("\n" + t.text())
			}
		}
	}
	return out.String()
}

func (t *table) text() string {
	var out strings.Builder
	if t.title != "" {
		out.WriteString("### " + t.title + "\n\n")
	}
	if t.note != "" {
		out.WriteString(t.note + "\n\n")
	}
	tw := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
	line := func(cells []string) { _, _ = fmt.Fprintln(tw, "| "+strings.Join(cells, "\t| ")+"\t|") }
	line(t.head)
	line(strings.Split(strings.Repeat("---,", len(t.head)-1)+"---", ","))
	for _, row := range t.rows {
		line(row)
	}
	_ = tw.Flush()
	return out.String()
}

// heading says what the figures hold for.
func heading(form, only string, took time.Duration) string {
	command := "make bench BENCH=" + form
	if only != "" {
		command += " BENCH_ONLY='" + only + "'"
	}
	return fmt.Sprintf("## %s, commit %s\n\n`%s`, %s in all, on %d × %s, %s, %s; %s, Node %s, redis-server %s\n",
		time.Now().UTC().Format("2006-01-02 15:04"), said("git", "describe", "--always", "--dirty", "--abbrev=10"),
		command,
		took.Round(time.Second), runtime.NumCPU(), kernelSays("/proc/cpuinfo", "model name"),
		kernelSays("/proc/meminfo", "MemTotal"),
		load1(), runtime.Version()+", "+runtime.GOARCH, said("node", "--version"), redisVersion())
}

// load1 is the machine's load average at the end of the run: how busy it was, the run itself included.
func load1() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return "load " + first
}

func said(name string, args ...string) string {
	out, err := exec.CommandContext(context.Background(), name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func redisVersion() string {
	for _, word := range strings.Fields(said("redis-server", "--version")) {
		if v, found := strings.CutPrefix(word, "v="); found {
			return v
		}
	}
	return "unknown"
}

// kernelSays returns the value of the first line of a file that has a name.
func kernelSays(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if k, v, found := strings.Cut(line, ":"); found && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// resultsHead is what a file of results begins with.
const resultsHead = `# Results of make bench

Each block is what one run of ` + "`BENCH_RESULTS=test/bench/RESULTS.md make bench`" + ` printed, the latest first. The
floor is a small program that only turns an append into a webhook, and stores nothing (test/bench/floor). "tailed" is
Reveille with writers that append directly to the stream server, "gateway" with writers that append through Reveille.
"lost" counts the appends that no wake followed. Load, workers and all servers run on the same machine, so compare the
ratios of one run, not the times of two machines.
`

// writeResults adds a run to a file, which is made if need be, before those of earlier runs.
func writeResults(path, text string) error {
	path, err := root(path)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	earlier := ""
	if at := strings.Index(string(old), "\n## "); at >= 0 {
		earlier = string(old)[at:]
	}
	return os.WriteFile(path, []byte(resultsHead+"\n"+text+earlier), 0o644)
}
