package redisstore

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestClocksThatDifferAreWarnedOfOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := newReplicas(New(nil, Options{Partitions: 1, Logger: zap.New(core)}), "r")
	for _, step := range []struct {
		name     string
		ahead    time.Duration
		warnings int
		ends     int
	}{
		{"they agree", 0, 0, 0},
		{"within what networks and drift make of it", 20 * time.Second, 0, 0},
		{"redis is ahead", 10 * time.Minute, 1, 0},
		{"still", 10 * time.Minute, 1, 0},
		{"they agree again", -time.Second, 1, 1},
		{"redis is behind", -10 * time.Minute, 2, 1},
	} {
		now := time.Now()
		r.noteTime(now.Add(step.ahead), now)
		warned, ended := logs.FilterMessageSnippet("differ").Len(), logs.FilterMessageSnippet("agree again").Len()
		if warned != step.warnings || ended != step.ends {
			t.Errorf("%s: %d warnings and %d ends, want %d and %d", step.name, warned, ended, step.warnings, step.ends)
		}
	}
	t.Run("a call that took long says nothing of the clocks", func(t *testing.T) {
		r := newReplicas(New(nil, Options{Partitions: 1, Logger: zap.New(core)}), "r")
		before := logs.Len()
		r.noteTime(time.Now(), time.Now().Add(-time.Minute))
		if logs.Len() != before {
			t.Errorf("logged %+v", logs.All()[before:])
		}
	})
}
