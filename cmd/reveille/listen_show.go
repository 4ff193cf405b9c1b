package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// colours are the codes of a terminal for what a listener prints.
var colours = map[string]string{kindWake: "32", kindPush: "34", kindTest: "35", kindOther: "33", "wrong": "31"}

// show prints a request, once it is known how it was answered.
func (l *listener) show(got *received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.output == outputJSON {
		e := json.NewEncoder(l.out)
		e.SetEscapeHTML(false)
		_ = e.Encode(got)
		return
	}
	_, _ = io.WriteString(l.out, l.block(got))
}

// block is a request as a human reads it.
func (l *listener) block(got *received) string {
	const margin = "            "
	var b strings.Builder
	line := func(colour, format string, args ...any) {
		text := printable(fmt.Sprintf(format, args...))
		if l.colour && colour != "" {
			text = "\x1b[" + colours[colour] + "m" + text + "\x1b[0m"
		}
		b.WriteString(text + "\n")
	}
	verified, colour := "verified ("+strings.Join(got.Signatures, ", ")+")", got.Kind
	switch {
	case got.Verified == nil:
		verified = "not verified"
	case !*got.Verified:
		verified, colour = "NOT VERIFIED", "wrong"
	}
	line(colour, "%s  %s", got.At.Local().Format("15:04:05"), strings.Join(got.head(), ", ")+": "+verified)
	if got.NotVerified != "" {
		line("wrong", "%s%s", margin[2:], got.NotVerified)
	}
	for _, s := range got.Streams {
		if got.Kind == kindWake {
			line("", "%s%s of %s, up to offset %s", margin[2:], counted(s.Count, "event"), s.Path, s.To)
		}
		for _, e := range s.Events {
			line("", "%s%s", margin, string(e))
		}
		if left := s.Count - len(s.Events); left > 0 {
			line("", "%sand %s more", margin, counted(left, "event"))
		}
	}
	switch {
	case got.Failed != "":
		line("wrong", "%sfailed: %s", margin[2:], got.Failed)
	case got.Done:
		line("", "%sclaimed, read, acked and done", margin[2:])
	}
	line("", "%sanswered %d %s%s", margin[2:], got.Status, http.StatusText(got.Status),
		when(got.By != "", " by "+got.By))
	return b.String()
}

// head says in a few words what came.
func (got *received) head() []string {
	head := []string{got.Kind}
	if got.Kind == kindWake {
		return append(head, "subscription "+got.Subscription, fmt.Sprintf("epoch %d", got.Epoch), got.ID)
	}
	for _, s := range got.Streams {
		if s.Path != "" {
			head = append(head, counted(s.Count, "event")+" of "+s.Path)
		}
	}
	if got.Replay {
		head = append(head, "replayed")
	}
	for _, text := range []string{got.Format, got.ID} {
		if text != "" {
			head = append(head, text)
		}
	}
	return head
}
