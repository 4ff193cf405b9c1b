package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

func TestRetrySchedule(t *testing.T) {
	for _, tt := range []struct {
		retry  int
		jitter fsm.Jitter
		want   time.Duration
	}{
		{1, 0, 200 * time.Millisecond},
		{2, 0, 400 * time.Millisecond},
		{8, 0, 25600 * time.Millisecond},
		{9, 0, 30 * time.Second},
		{10, 0, 30 * time.Second},
		{10, 999_999, 30*time.Second + 999*time.Millisecond},
		{1, 500_000, 700 * time.Millisecond},
		{11, 0, 60 * time.Second},
		{11, 999_999, 64*time.Second + 999*time.Millisecond},
		{100_000, 0, 60 * time.Second},
	} {
		if got := RetryDelay(tt.retry, tt.jitter); got != tt.want {
			t.Errorf("retry %d with jitter %d: %v, want %v", tt.retry, tt.jitter, got, tt.want)
		}
	}
}
