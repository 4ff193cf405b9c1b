package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReadmeListsEverySetting holds the README's table against the struct that the program reads.
func TestReadmeListsEverySetting(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	var want []string
	for _, f := range fields() {
		def := f.Tag.Get("default")
		if def != "" {
			def = "`" + def + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", fullName(f), def, strings.ReplaceAll(f.Tag.Get("desc"), "|", `\|`)))
	}
	table := strings.Join(want, "\n")
	if !strings.Contains(readme, table) {
		t.Errorf("the README's settings are not those of the program; they should be\n%s", table)
	}
}
