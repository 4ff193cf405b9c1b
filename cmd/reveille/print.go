package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// fields prints names and values, one pair a line. It leaves out names without a value.
func (c *cli) fields(fields [][]string) error {
	t := c.table()
	for _, f := range fields {
		if f[1] != "" {
			_, _ = fmt.Fprintf(t, "%s\t%s\n", f[0], printable(f[1]))
		}
	}
	return t.Flush()
}

// rows prints a table. If the list goes on, the last line is the command that shows more.
func (c *cli) rows(rows [][]string, list, next string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
		}
	}
	// Leave out columns without any value.
	for i := len(rows[0]) - 1; i >= 0; i-- {
		if len(rows) > 1 && !slices.ContainsFunc(rows[1:], func(r []string) bool { return r[i] != "" }) {
			for j, row := range rows {
				rows[j] = slices.Delete(row, i, i+1)
			}
		}
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		if _, err := fmt.Fprintln(c.out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return c.more(list, next)
}

// more says how to get the next page of a list, if there is one.
func (c *cli) more(list, next string) error {
	if next == "" {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "\nThere is more: reveille %s%s --cursor %s\n", list, c.filters(), next)
	return err
}

// filters returns the flags that the command for the next page repeats.
func (c *cli) filters() (flags string) {
	for _, f := range [][2]string{
		{"subscription", c.subscription},
		{"state", c.state},
		{"stream", c.stream},
		{"status", c.code},
		{"class", c.class},
		{"id", c.id},
		{"since", c.since},
		{"until", c.until},
		{"status", c.outbox.status},
		{"provider", c.outbox.provider},
		{"type", c.outbox.kind},
		{"host", c.outbox.host},
	} {
		if f[1] != "" {
			flags += " --" + f[0] + " " + shellWord(f[1])
		}
	}
	flags += when(c.watched, " --watched") + when(c.failed, " --failed") + when(c.details, " --details")
	if c.limit != defaultLimit {
		flags += fmt.Sprint(" --limit ", c.limit)
	}
	return flags
}

// plainWord is what every shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord returns a text as a shell is given it, in quotes if it needs them.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// when returns a text if it applies.
func when(applies bool, text string) string {
	if applies {
		return text
	}
	return ""
}

// some returns a number, or nothing for 0.
func some(n int) string { return when(n != 0, fmt.Sprint(n)) }

// counted returns a number of things, each of them a noun.
func counted(n int, noun string) string { return fmt.Sprintf("%d %s%s", n, noun, when(n != 1, "s")) }

// stamp returns a time, or nothing for none.
func stamp(t time.Time) string { return when(!t.IsZero(), t.UTC().Format(time.RFC3339)) }

// timeOf returns a time of an answer, the zero time if the answer lacks it.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func since(t, now time.Time) string { return when(!t.IsZero(), stamp(t)+", "+relative(t, now)) }

// relative returns a time as seen from now.
func relative(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := t.Sub(now)
	unit := time.Second
	if d.Abs() < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	if d < 0 {
		return (-d).Round(unit).String() + " ago"
	}
	return "in " + d.Round(unit).String()
}

// printable removes what could steer the terminal from text that this program did not write.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
