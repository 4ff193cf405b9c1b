package fsm

import (
	"testing"
)

func TestTheIDOfADeadLetterIsReadAsItIsWritten(t *testing.T) {
	id := LetterID{Partition: 17, Number: 1764167412345678}
	if got, err := ParseLetterID(id.String(), 64); err != nil || got != id {
		t.Errorf("%s is read as %+v, %v", id, got, err)
	}
	for _, text := range []string{
		"", "dl_", "dl_1", "dl_1_", "dl__1", "dl_64_1", "dl_-1_1", "dl_1_0", "dl_1_-1", "dl_01_1", "dl_1_+1",
		"dl_1_1_1", "evt_1_1", "dl_1_99999999999999999999",
	} {
		if got, err := ParseLetterID(text, 64); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
