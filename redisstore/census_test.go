package redisstore

import (
	"testing"
	"time"
)

func TestFiguresThatCostMuchLastLongerButNeverLong(t *testing.T) {
	for _, c := range []struct {
		name       string
		up         bool
		took, last time.Duration
	}{
		{"counted at once", true, time.Millisecond, censusAge},
		{"counted in a tenth of a second", true, 100 * time.Millisecond, 10 * time.Second},
		{"counted by a redis that hardly answers", true, usual.census, censusOld},
		{"not answered", false, usual.census, censusAge},
	} {
		if got := lasts(figures{up: c.up}, c.took); got != c.last {
			t.Errorf("%s: good for %s, want %s", c.name, got, c.last)
		}
	}
}
