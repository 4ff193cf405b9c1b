package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"reveille/test/harness"
)

// TestTheStatisticsCountWhatTheEndpointGot has an endpoint refuse an event and then take some, and holds that an
// operator reads so many attempts.
func TestTheStatisticsCountWhatTheEndpointGot(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1s"}}, "batch": 2})
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n == 1 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	p.want(p.path, p.add(p.path, 0, 7))

	type counts struct {
		Windows []struct {
			Window                                string
			Attempts, Taken, Failed, Dead, Events int64
			Failures                              map[string]int64
			P50                                   *int64 `json:"p50_ms"`
		}
		Pending int
	}
	stats := func(args ...string) (body counts, err error) {
		status, out, errs := e.rev.Ask("", append([]string{"stats", "--output", "json"}, args...)...)
		if status != 0 {
			return body, fmt.Errorf("status %d, %s", status, errs)
		}
		return body, json.Unmarshal([]byte(out), &body)
	}
	attempts := int64(len(p.receiver.Pushes()))
	harness.Eventually(t, harness.Wait, "all attempts are counted", func() error {
		body, err := stats(p.sub.ID)
		if err != nil || len(body.Windows) != 4 || body.Pending != 0 {
			return fmt.Errorf("%+v, %w", body, err)
		}
		for _, w := range body.Windows {
			if w.Attempts != attempts || w.Failed != 1 || w.Taken != attempts-1 || w.Dead != 0 || w.Events != 7 ||
				!maps.Equal(w.Failures, map[string]int64{"server_error": 1}) || w.P50 == nil {
				return fmt.Errorf("of %d attempts %s has %+v", attempts, w.Window, w)
			}
		}
		return nil
	})
	all, err := stats("--window", "24h")
	if err != nil || len(all.Windows) != 1 || all.Windows[0].Window != "24h" || all.Windows[0].Attempts < attempts {
		t.Errorf("of all subscriptions it shows %+v, %v", all, err)
	}
}
