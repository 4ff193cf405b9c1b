package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestARecordThatCannotBeReadStopsNoOther takes a field from the record of one of three consumers of a partition, which
// all wait for a retry: the other two are retried, and the log and the command line say what is wrong with the one.
func TestARecordThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"5s", "5s", "5s"}}})
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusInternalServerError })
	var paths []string
	partition := p.store.PartitionOf(p.folder + "/0")
	for i := 0; len(paths) < 3; i++ {
		path := fmt.Sprintf("%s/%d", p.folder, i)
		if p.store.PartitionOf(path) != partition {
			continue
		}
		p.gateway.Create(path)
		p.gateway.Append(path, `{"n":1}`)
		p.awaitOf(path, path+" has failed", func(c fsm.Consumer) bool {
			return !c.FirstFailure.IsZero()
		})
		paths = append(paths, path)
	}
	id := fsm.ConsumerID(p.sub.ID, paths[0])
	key := fmt.Sprintf("rv:{%d}:c:%s", partition, id)
	if err := e.redis.Client().Append(t.Context(), key, "\nand more").Err(); err != nil {
		t.Fatal(err)
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	for _, path := range paths[1:] {
		p.want(path, []string{`{"n":1}`})
	}
	harness.Eventually(t, soon, "the log says what is wrong", harness.True(func() bool {
		log := e.rev.Log()
		return strings.Contains(log, "a consumer is in quarantine") &&
			strings.Contains(log, "its record has another form")
	}, "it does not"))
	if strings.Contains(e.rev.Log(), "redis does not answer") {
		t.Error("the log says that Redis does not answer")
	}
	status, out, errs := e.rev.Ask("", "consumers", "--subscription", p.sub.ID, "--state", "quarantined")
	if status != 0 || !strings.Contains(out, paths[0]) || strings.Contains(out, paths[1]) ||
		!strings.Contains(out, "its record has another form") {
		t.Errorf("listed are %s, %d %s", out, status, errs)
	}
	harness.Eventually(t, soon, "the metrics count it", harness.True(func() bool {
		return strings.Contains(e.operator().Do(http.MethodGet, "/metrics", "").Body,
			`reveille_consumers{state="quarantined"} 1`)
	}, "they do not"))
}
