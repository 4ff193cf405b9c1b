package fsm

import (
	"slices"
	"testing"
)

func TestOnlyAnIDOfALogEntryIsOne(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"1764167412345-0": true, "1764167412345-12": true, "": false, "-": false, "+": false, "1764167412345": false,
		"1764167412345-": false, "-0": false, "(1-0": false, "1-0 ": false, "1-0\n": false,
		"1-9999999999999999999": false, "0-0": false,
	} {
		if got := ValidLogID(id); got != want {
			t.Errorf("%q: %t", id, got)
		}
	}
}

// TestEntriesOfSeveralLogsAreInOneOrder holds that it goes by the numbers in their IDs.
func TestEntriesOfSeveralLogsAreInOneOrder(t *testing.T) {
	t.Parallel()
	want := []string{"9-10", "10-9", "10-10", "11-0", "1764167412345-0"}
	got := slices.Clone(want)
	slices.Sort(got)
	if slices.SortFunc(got, CompareLogIDs); !slices.Equal(got, want) || CompareLogIDs("10-9", "10-9") != 0 {
		t.Errorf("got %q, want %q", got, want)
	}
}
