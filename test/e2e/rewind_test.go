package e2e

import (
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestAWorkerReadsAgainOnceItsConsumerIsRewound rewinds a consumer by command while a worker is at work. The worker is
// fenced off, and another wake brings the offset.
func TestAWorkerReadsAgainOnceItsConsumerIsRewound(t *testing.T) {
	t.Parallel()
	s, wake := shared(t).live(t)
	first := s.tail
	tail := s.gateway.Tail(s.path)
	// The worker has done its work, and not said so.
	if a := s.gateway.Callback(wake, wake.Claim(false, harness.StreamOffset{Path: s.path, Offset: tail})); !a.OK {
		t.Fatalf("the worker acks: %+v", a)
	}
	status, out, errs := s.rev.Ask("", "rewind", s.sub.ID, s.path, "--to", first)
	if status != 0 || !strings.Contains(out, "from "+tail+" to "+first) {
		t.Fatalf("rewind: %d %s %s", status, out, errs)
	}
	again := s.wake(s.path, 2)
	if again.Epoch <= wake.Epoch || len(again.Streams) != 1 || again.Streams[0].Offset != first {
		t.Errorf("after epoch %d it is woken by %+v", wake.Epoch, again)
	}
	late := s.gateway.Callback(wake, wake.Claim(true, harness.StreamOffset{Path: s.path, Offset: tail}))
	if late.OK || late.Error.Code != string(fsm.CodeStaleEpoch) {
		t.Errorf("the worker that was fenced off hears %+v", late)
	}
	if c := s.consumer(); c.Links[s.path].Acked.Value() != first {
		t.Errorf("acked is %+v", c.Links)
	}
	if events, _ := s.gateway.Read(s.path, again.Streams[0].Offset); len(events) != 1 {
		t.Errorf("there it reads %s", events)
	}
	if a := s.gateway.Callback(again, again.Claim(true, harness.StreamOffset{Path: s.path, Offset: tail})); !a.OK {
		t.Fatalf("the next worker: %+v", a)
	}
	s.awaitIdle(s.path, tail)
	if status, _, errs := s.rev.Ask("", "rewind", s.sub.ID, s.path, "--to", tail); status != 1 ||
		!strings.Contains(errs, "only goes back") {
		t.Errorf("rewind to the end: %d %s", status, errs)
	}
}
