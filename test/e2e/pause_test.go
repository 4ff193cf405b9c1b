package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// operate runs an operator's command about a subscription at one of the replicas.
func (f *fleet) operate(replica int, command, id string) {
	f.t.Helper()
	if status, out, stderr := f.replicas[replica].Ask("", command, id); status != 0 {
		f.t.Fatalf("reveille %s %s: exit status %d, %s%s", command, id, status, out, stderr)
	}
}

// heldBack says whether a consumer has something to be delivered of which no attempt was made.
func heldBack(c fsm.Consumer) bool {
	return c.State == fsm.Waking && !c.Sent && c.Attempt == 0 && c.FirstFailure.IsZero()
}

// TestAPausedSubscriptionGetsWhatItHasMissedOnceItIsResumed has streams grow through both replicas and past them while
// nothing may be delivered, and one of the replicas die.
func TestAPausedSubscriptionGetsWhatItHasMissedOnceItIsResumed(t *testing.T) {
	t.Parallel()
	const streams = 6
	f := startFleet(t, 2, nil)
	f.share(0, 1)
	grow := func(folder string, add func(g *harness.Client, path string)) (paths []string) {
		for i, g := range []*harness.Client{f.gateways[0], f.gateways[1], f.streams} {
			for n := range streams / 3 {
				path := fmt.Sprintf("%s/%d-%d", folder, i, n)
				add(g, path)
				paths = append(paths, path)
			}
		}
		return paths
	}
	restart := func() {
		f.replicas[1].Kill()
		f.replicas[1].Start()
		f.share(0, 1)
	}

	t.Run("a push", func(t *testing.T) {
		p := f.pushes(t, map[string]any{"batch": 3, "retry": map[string]any{"schedule": []string{"10h"}}})
		had := map[string][]string{}
		add := func(g *harness.Client, path string) {
			q := *p
			q.gateway = g
			had[path] = append(had[path], q.add(path, len(had[path]), len(had[path])+4)...)
		}
		paths := grow(p.folder, func(_ *harness.Client, path string) { f.gateways[0].Create(path) })
		f.operate(0, "pause", p.sub.ID)
		f.known("reveille_subscriptions_paused", 1)
		grow(p.folder, add)
		for _, path := range paths {
			p.awaitOf(path, "it is held back", heldBack)
		}
		restart()
		grow(p.folder, add)
		if a := f.gateways[1].Do(http.MethodPatch, "/**?subscription="+p.sub.ID, `{"batch":2}`); a.Status != 200 {
			t.Fatalf("PATCH: %d %s", a.Status, a.Body)
		}
		for _, path := range paths {
			p.awaitOf(path, "it is still held back", heldBack)
		}
		if pushes := p.receiver.Pushes(); len(pushes) > 0 {
			t.Errorf("%d requests came: %+v", len(pushes), pushes[0])
		}
		f.operate(1, "resume", p.sub.ID)
		for _, path := range paths {
			p.want(path, had[path])
		}
		f.known("reveille_subscriptions_paused", 0)
	})

	t.Run("a wake, and a worker that goes on", func(t *testing.T) {
		s := f.subscribed(t)
		s.gateway.Create(s.path)
		tail := s.append()
		wake := s.wake(s.path, 1)
		s.awaitState(fsm.Live)
		f.operate(1, "pause", s.sub.ID)
		f.known("reveille_subscriptions_paused", 1)
		s.callback(wake, wake.Claim(false))
		paths := grow(s.folder, func(_ *harness.Client, path string) { f.gateways[1].Create(path) })
		tails := map[string]string{s.path: s.append()}
		s.callback(wake, wake.Claim(true, s.ack(tail)))
		for _, path := range append(paths, s.path) {
			s.awaitOf(path, "its wake is held back", heldBack)
		}
		restart()
		grow(s.folder, func(g *harness.Client, path string) { tails[path] = g.Append(path, `{"n":1}`) })
		if n := len(s.worker.Wakes()); n > 1 {
			t.Errorf("%d wakes came", n-1)
		}
		for path, tail := range tails { // so that one wake is for all
			s.awaitOf(path, "its tail is noted", func(c fsm.Consumer) bool {
				return c.Links[path].Tail.Value() == tail
			})
		}
		s.worker.AnswerDone()
		f.operate(0, "resume", s.sub.ID)
		for path, tail := range tails {
			s.awaitIdle(path, tail)
			want := 1
			if path == s.path {
				want++
			}
			s.wantWakes(path, want)
		}
	})
}
