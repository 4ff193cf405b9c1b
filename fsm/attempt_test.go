package fsm

import "testing"

// TestEveryResultOfAnAttemptHasAName holds that no metric label is empty or means two results.
func TestEveryResultOfAnAttemptHasAName(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for r := range AttemptResults {
		names[AttemptResult(r).String()] = true
	}
	if len(names) != AttemptResults || names[""] {
		t.Errorf("the names are %v", names)
	}
}
