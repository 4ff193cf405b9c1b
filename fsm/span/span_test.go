package span

import "testing"

func TestTraceOfIsTheSameForOneWakeOnly(t *testing.T) {
	t.Parallel()
	of := TraceOf("s:%2Fa", "w_1")
	if of != TraceOf("s:%2Fa", "w_1") {
		t.Error("the same wake has another trace the second time")
	}
	if of.ID == [16]byte{} || of.Root == [8]byte{} {
		t.Errorf("an ID is zero, which is none: %x", of)
	}
	for _, other := range []Trace{
		TraceOf("s:%2Fa", "w_2"), TraceOf("s:%2Fb", "w_1"), TraceOf("s:%2Faw", "_1"),
		TraceOf("", "s:%2Faw_1"),
	} {
		if other.ID == of.ID || other.Root == of.Root {
			t.Errorf("two wakes share an ID: %x and %x", of, other)
		}
	}
}
