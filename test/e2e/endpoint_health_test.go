package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// known waits until each replica says that so many endpoints are in a trouble.
func (f *fleet) known(metric string, n int) {
	f.t.Helper()
	for _, r := range f.replicas {
		e := *f.env
		e.rev = r
		e.awaitMetrics(f.t, map[string]float64{metric: float64(n)})
	}
}

// TestARetryAfterHoldsForAnEndpointOverReplicas has an endpoint ask for a pause in its answer to a delivery of one
// stream. Those of other streams and of another subscription, on whichever replica, do not begin before it is over.
func TestARetryAfterHoldsForAnEndpointOverReplicas(t *testing.T) {
	t.Parallel()
	const pause, streams = 15 * time.Second, 20
	f := startFleet(t, 2, nil)
	f.share(0, 1)
	p := f.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1s", "1s", "1s"}}})
	path := func(i int) string { return fmt.Sprintf("%s%s/%d", p.folder, []string{"", "-too"}[i/2%2], i) }
	for i := range streams {
		f.gateways[i%2].Create(path(i))
	}
	too := map[string]any{"mode": "push", "webhook": p.receiver.URL + "?too"}
	a := p.gateway.PutSubscription(p.folder+"-too/*", p.sub.ID+"-too", jsonOf(t, too))
	if a.Status != http.StatusCreated {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	p.receiver.AskForPause(pause)
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n == 1 {
			return http.StatusTooManyRequests
		}
		return http.StatusNoContent
	})
	events := [][]string{p.add(path(0), 0, 1)}
	f.known("reveille_endpoints_asked_to_wait", 2)
	for i := 1; i < streams; i++ {
		events = append(events, p.add(path(i), i, i+1))
	}
	for i := range streams {
		p.want(path(i), events[i])
	}
	pushes := p.receiver.Pushes()
	slices.SortFunc(pushes, func(a, b harness.Push) int { return a.At.Compare(b.At) })
	for i, push := range pushes[1:] {
		if after := push.At.Sub(pushes[0].At); after < pause {
			t.Errorf("request %d, of %s, came %s after the first", i+2, push.Stream, after)
		}
	}
	if n := len(pushes); n != streams+1 {
		t.Errorf("%d requests came, want one for each stream, and one again", n)
	}
	f.known("reveille_endpoints_asked_to_wait", 0)
}

// TestAnEndpointThatIsDownIsAskedThoughNothingIsDue has all deliveries to an endpoint fail, so that each of them is due
// in hours. A probe finds that it works again, and all come.
func TestAnEndpointThatIsDownIsAskedThoughNothingIsDue(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 2, nil)
	f.share(0, 1)
	p := f.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"10h", "10h"}}})
	path := func(i int) string { return fmt.Sprintf("%s/%d", p.folder, i) }
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	var events [][]string
	for i := range fsm.DownAfter {
		f.gateways[i%2].Create(path(i))
		events = append(events, p.add(path(i), i, i+1))
	}
	harness.Eventually(t, harness.Wait, "probes are sent", func() error {
		if n := len(p.receiver.Pushes()); n < fsm.DownAfter+2 {
			return fmt.Errorf("%d requests came", n)
		}
		return nil
	})
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	for i := range events {
		p.want(path(i), events[i])
	}
	f.known("reveille_endpoints_down", 0)
	p.letters(map[string]string{})
}

// TestAnEndpointThatIsDownIsProbedOverReplicas has an endpoint fail for the streams of two replicas. While it is down
// it gets probes instead of a request for each stream, and once it takes one, all comes.
func TestAnEndpointThatIsDownIsProbedOverReplicas(t *testing.T) {
	t.Parallel()
	const streams = 50
	f := startFleet(t, 2, nil)
	f.share(0, 1)
	p := f.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"10h", "10h"}}})
	path := func(i int) string { return fmt.Sprintf("%s/%d", p.folder, i) }
	for i := range fsm.DownAfter + streams {
		f.gateways[i%2].Create(path(i))
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	var events [][]string
	began := time.Now()
	for i := range fsm.DownAfter {
		events = append(events, p.add(path(i), i, i+1))
	}
	f.known("reveille_endpoints_down", 1)
	for i := fsm.DownAfter; i < fsm.DownAfter+streams; i++ {
		events = append(events, p.add(path(i), i, i+1))
	}
	held := fmt.Sprintf(`reveille_delivery_attempts_total{outcome="blocked",status="none",subscription=%q}`, p.sub.ID)
	harness.Eventually(t, harness.Wait, "deliveries of all streams are held back", func() error {
		n := 0.0
		for _, r := range f.replicas {
			e := *f.env
			e.rev = r
			found, _ := e.scrape(t)
			n += found[held]
		}
		if n < streams {
			return fmt.Errorf("%g were", n)
		}
		return nil
	})
	probes, most := len(p.receiver.Pushes())-fsm.DownAfter, 0
	for pause := fsm.ProbePause; pause < time.Since(began); pause += fsm.ProbePause << most {
		most++
	}
	if probes > most {
		t.Errorf("%d requests came within %s beside those that failed at first, want %d at most", probes,
			time.Since(began), most)
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	for i := range events { // those that have failed too, whose own time comes long after this test
		p.want(path(i), events[i])
	}
	f.known("reveille_endpoints_down", 0)
	n := 0
	for _, r := range f.replicas {
		n += strings.Count(r.Log(), "the endpoint of a subscription is down")
	}
	if n != 1 {
		t.Errorf("%d lines say that it is down", n)
	}
}
