package native_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/test/ports"
)

func TestCallbacksAreCountedByCode(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	h := woken(t, func(c *httpapi.Config) { c.Metrics = r })
	for _, a := range []attempt{
		{forged: true},
		{foreign: true},
		{malformed: true},
		{stale: true},
		{offset: "201"},
		{offset: "150"},
		{},
		{gone: true},
	} {
		a.send(h)
	}
	want := map[string]int{
		"OK": 2, string(fsm.CodeTokenInvalid): 2, string(fsm.CodeInvalidRequest): 1, string(fsm.CodeStaleEpoch): 1,
		string(fsm.CodeInvalidOffset): 1, string(fsm.CodeConsumerGone): 1,
	}
	if got := ports.Counted(t, r, "reveille_callbacks_total"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got := ports.Counted(t, r, "reveille_callback_duration_seconds"); got[""] != 8 {
		t.Errorf("the time of %d callbacks was taken, want 8", got[""])
	}
}
