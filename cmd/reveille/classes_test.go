package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/console"
)

// TestThePageExplainsEveryFailure holds that the page for operators says what each class of failures means, and each
// cause for which a consumer leaves a dead letter.
func TestThePageExplainsEveryFailure(t *testing.T) {
	text, err := os.ReadFile("../../dispatcher/format/verdict.go")
	if err != nil {
		t.Fatal(err)
	}
	classes := regexp.MustCompile(`\bClass\w+ +Class = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(classes) < 15 {
		t.Fatalf("found are %q", classes)
	}
	names := []string{
		string(fsm.RemovedGivenUp), string(fsm.RemovedStreamDeleted), string(fsm.RemovedStreamGone),
		string(fsm.RemovedStreamRecreated),
	}
	for _, class := range classes {
		names = append(names, class[1])
	}
	for _, name := range names {
		if !console.Explains(name) {
			t.Errorf("the page does not explain %q", name)
		}
	}
}

// TestThePageAboutTracesHasEveryEndOfAWake holds that it explains each cause, in their order, and no other.
func TestThePageAboutTracesHasEveryEndOfAWake(t *testing.T) {
	text, err := os.ReadFile("TRACES.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)### How a wake ended\n(.*?)\n## `).FindString(string(text))
	var causes []fsm.EndCause
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\S").FindAllStringSubmatch(table, -1) {
		causes = append(causes, fsm.EndCause(row[1]))
	}
	if !slices.Equal(causes, fsm.EndCauses) {
		t.Errorf("the page has %q, the program %q", causes, fsm.EndCauses)
	}
}
