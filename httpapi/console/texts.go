package console

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/httpapi/operator"
)

// texts are the functions of the templates.
var texts = template.FuncMap{
	"ago": ago, "stamp": stamp, "millis": millis, "sign": sign, "state": state, "result": result, "means": means,
	"chart": chart, "waits": waits, "words": words, "counted": counted,
	"button": button, "letters": letters, "matching": matching, "again": again,
	"line": func(list []operator.DeliveryBody, p *page, shown *shownRequest) linePart {
		return linePart{list, p, shown}
	},
	"failed": func() string { return failedResults },
	"attempts": func(list []operator.DeliveryBody, ofAll bool, p *page) attemptsPart {
		return attemptsPart{list, ofAll, p.Next != "", p.Log}
	},
}

// buttonPart is a form that is no more than a button.
type buttonPart struct {
	ID, Title, To, CSRF string
	Fields              map[string]string
}

// button does something to a subscription or to a dead letter.
func button(p *page, what, title, of, id string) buttonPart {
	return buttonPart{ID: "do-" + what, Title: title, To: replaced("/"+of+"/:id/"+what, id), CSRF: p.CSRF}
}

// letters does something with all dead letters of a subscription.
func letters(p *page, what, title, subscription string) buttonPart {
	return buttonPart{
		ID: "all-" + what, Title: title, To: "/dead-letters/" + what, CSRF: p.CSRF,
		Fields: map[string]string{"subscription": subscription},
	}
}

// matching does something with all that the filters of a list match.
func matching(p *page, what, title, of string) buttonPart {
	b := buttonPart{
		ID: "all-" + what, Title: title, To: "/" + of + "/" + what, CSRF: p.CSRF, Fields: map[string]string{},
	}
	for _, f := range p.Filters {
		if f.Value != "" {
			b.Fields[f.Key] = f.Value
		}
	}
	return b
}

// again sends a form once more, with another field.
func again(p *page, id, title string, form url.Values, key, value string) buttonPart {
	b := buttonPart{ID: id, Title: title, To: p.Path, CSRF: p.CSRF, Fields: map[string]string{}}
	for name := range form {
		b.Fields[name] = form.Get(name)
	}
	b.Fields[key] = value
	return b
}

// attemptsPart is a table of delivery attempts, of one subscription or of all.
type attemptsPart struct {
	List  []operator.DeliveryBody
	OfAll bool
	// More is true if there may be others, and Log is which attempts are kept.
	More bool
	Log  fsm.DeliveryLog
}

// shownRequest is the request of an attempt, or why it cannot be shown.
type shownRequest struct {
	Attempt string
	Request *operator.RequestBody
	Problem string
}

// linePart is the time line of a delivery's attempts, the latest first. Shown is nil if no request is shown.
type linePart struct {
	List  []operator.DeliveryBody
	Page  *page
	Shown *shownRequest
}

// Of is what is shown of an attempt's request; nil for nothing.
func (l linePart) Of(d operator.DeliveryBody) *shownRequest {
	if l.Shown != nil && l.Shown.Attempt == d.ID {
		return l.Shown
	}
	return nil
}

// Links says whether there is a link that shows an attempt's request: on the page of the delivery, for those who may.
func (l linePart) Links(d operator.DeliveryBody) bool {
	return l.Page.Delivery && !l.Page.ReadOnly && d.Bytes > 0 && l.Of(d) == nil
}

// moment is a time that may not be known.
func moment(t any) time.Time {
	switch t := t.(type) {
	case time.Time:
		return t
	case *time.Time:
		if t != nil {
			return *t
		}
	}
	return time.Time{}
}

// stamp returns a time, or nothing for none.
func stamp(t any) string {
	if m := moment(t); !m.IsZero() {
		return m.UTC().Format(time.RFC3339)
	}
	return ""
}

// ago returns a time as seen from now.
func ago(t any, now time.Time) string {
	m := moment(t)
	if m.IsZero() {
		return ""
	}
	d := now.Sub(m)
	switch rounded := short(d.Abs()); {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + rounded
	default:
		return rounded + " ago"
	}
}

// short returns a duration with its two largest units.
func short(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
		next time.Duration
		less string
	}{{24 * time.Hour, "d", time.Hour, "h"}, {time.Hour, "h", time.Minute, "m"}, {time.Minute, "m", time.Second, "s"}} {
		if d >= unit.of {
			whole, rest := d/unit.of, d%unit.of/unit.next
			if rest == 0 {
				return fmt.Sprintf("%d %s", whole, unit.name)
			}
			return fmt.Sprintf("%d %s %d %s", whole, unit.name, rest, unit.less)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// millis returns a number of milliseconds as a time.
func millis(ms any) string {
	d := time.Duration(0)
	switch n := ms.(type) {
	case float64:
		d = time.Duration(n * float64(time.Millisecond))
	case *int64:
		if n == nil {
			return "–"
		}
		d = time.Duration(*n) * time.Millisecond
	}
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// signs are for those who cannot tell colours apart.
var signs = map[string]string{"good": "✓", "bad": "✕", "warn": "▲", "plain": "•"}

// sign returns a sign for a state.
func sign(word any) string { return signs[state(word)] }

// state returns how good a state is: the class that the style sheet has for it.
func state(word any) string {
	switch fmt.Sprint(word) {
	case "ok", "up", "alive", "done", "accepted", "taken", "granted", "delivered":
		return "good"
	case "retired", "down", "dead", "dead_letter", "gone", "refused", "quarantined", "given_up", "not_seen":
		return "bad"
	case "refusing", "failing", "failed", "asked_to_wait", "paused", "hidden", "missing", "unsupported", "retrying",
		"waits":
		return "warn"
	}
	return "plain"
}

// counted returns a number of things, each of them a noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// are returns a number of things, and the verb for what they are.
func are(n int, noun string) string {
	if n != 1 {
		return counted(n, noun) + " are"
	}
	return counted(n, noun) + " is"
}

// words returns a name as words.
func words(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

// result says how an attempt ended, with the status of its answer.
func result(d operator.DeliveryBody) string {
	if d.StatusCode > 0 {
		return fmt.Sprintf("%s %d", d.Result, d.StatusCode)
	}
	return d.Result
}

// waits says why nothing is delivered now, and what ends that.
func waits(b *operator.BlockedBody) string {
	if b == nil {
		return ""
	}
	rule := b.Reason.Rule()
	if rule.Says == "" {
		return words(b.Reason)
	}
	return rule.Says + "; ended by " + rule.Ends
}

// The size of a chart, in the units of its picture.
const (
	chartWidth, chartHeight = 360, 48
	barGap                  = 1
)

// bar is one minute of a chart.
type bar struct{ X, Y, Width, Height, FailedY, FailedHeight float64 }

// drawn are the attempts of the last hour as bars, and in words.
type drawn struct {
	Bars          []bar
	Width, Height int
	Says          string
}

// chart draws the attempts by minute. The part of a bar that stands for failures is drawn by itself.
func chart(counts fsm.AttemptCounts) drawn {
	d := drawn{Width: chartWidth, Height: chartHeight}
	most, all, failed := int64(0), int64(0), int64(0)
	failures := func(t fsm.AttemptTally) int64 { return t.Of(fsm.AttemptFailed, fsm.AttemptRetired, fsm.AttemptDead) }
	for _, minute := range counts.Minutes {
		most = max(most, minute.Attempts())
		all, failed = all+minute.Attempts(), failed+failures(minute)
	}
	width := float64(chartWidth) / float64(max(len(counts.Minutes), 1))
	for i, minute := range counts.Minutes {
		height := float64(minute.Attempts()) * chartHeight / float64(max(most, 1))
		red := float64(failures(minute)) * chartHeight / float64(max(most, 1))
		if height > 0 {
			d.Bars = append(d.Bars, bar{
				X: float64(i) * width, Y: chartHeight - height, Width: width - barGap, Height: height,
				FailedY: chartHeight - red, FailedHeight: red,
			})
		}
	}
	d.Says = fmt.Sprintf("Attempts by minute in the last hour: %d, of which %d failed; at most %d in a minute",
		all, failed, most)
	return d
}
