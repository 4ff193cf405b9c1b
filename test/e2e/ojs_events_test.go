package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestTheEventsOfOpenJobSpec has a client subscribe to the events of section 11.1, and another one whose deliveries
// fail, are retried, die and are replayed. Of its own deliveries the former hears nothing: there would be no end.
func TestTheEventsOfOpenJobSpec(t *testing.T) {
	t.Parallel()
	folder := "/" + name(t)
	e := beside(t, options{settings: map[string]string{
		"REVEILLE_OJS": "true", "REVEILLE_OJS_STREAMS": folder + "/**", "REVEILLE_EVENTS_STREAM": folder + "/webhooks",
	}})
	c, endpoint, watching := ojsClient{t, e.rev.URL}, newOJSEndpoint(t), newOJSEndpoint(t)
	make := func(to *ojsEndpoint, events string) (made ojsSubscription) {
		t.Helper()
		c.do(http.MethodPost, "/subscriptions", http.StatusCreated,
			ojsSubscription{URL: to.server.URL, Events: []string{events}}, &made)
		to.knows(made.Secret)
		return made
	}
	watcher, watched := make(watching, "webhook.*"), make(endpoint, "job.*")
	jobs, delivery := folder+"/jobs", ""
	e.gateway.Create(jobs)
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusBadRequest} {
		endpoint.fails(status)
		e.gateway.Append(jobs, fmt.Sprintf(`{"specversion":"1.0","id":"evt_%d","type":"job.done","source":"ojs://a",`+
			`"time":"2026-02-15T22:00:00Z","data":{}}`, status))
		delivery = endpoint.awaitFailed()
		c.awaitDelivery(map[int]string{503: "failed", 400: "dead"}[status], delivery)
		endpoint.fails(0)
		c.do(http.MethodPost, "/deliveries/"+delivery+"/retry", http.StatusAccepted, nil, nil)
		c.awaitDelivery("success", delivery)
	}
	c.do(http.MethodDelete, "/subscriptions/"+watched.ID, http.StatusNoContent, nil, nil)

	type event struct {
		ID, Type, Subject string
		Data              struct {
			SubscriptionID string `json:"subscription_id"`
			DeliveryID     string `json:"delivery_id"`
			StatusCode     int    `json:"status_code"`
			Attempt        int    `json:"attempt"`
		}
	}
	want := []string{
		watched.ID + " webhook.dead 400 1", watched.ID + " webhook.delivered 200 1",
		watched.ID + " webhook.delivered 200 2", watched.ID + " webhook.failed 503 1",
		watched.ID + " webhook.subscription.created 0 0", watched.ID + " webhook.subscription.deleted 0 0",
		watcher.ID + " webhook.subscription.created 0 0",
	}
	slices.Sort(want)
	check := func(texts []string) error {
		seen := map[string]event{}
		for _, text := range texts {
			var e event
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return err
			}
			seen[e.ID] = e
		}
		var got []string
		for _, e := range seen {
			d := e.Data
			got = append(got, fmt.Sprintf("%s %s %d %d", d.SubscriptionID, e.Type, d.StatusCode, d.Attempt))
			if e.Subject != e.Data.DeliveryID && e.Subject != e.Data.SubscriptionID {
				return fmt.Errorf("one is about %q", e.Subject)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("there are %q", got)
		}
		return nil
	}
	harness.Eventually(t, soon, "all events are delivered", func() error {
		watching.mu.Lock()
		defer watching.mu.Unlock()
		if len(watching.refused) > 0 {
			return errors.New(watching.refused[0])
		}
		return check(watching.bodies)
	})
	var appended []string
	messages, _ := e.gateway.Read(folder+"/webhooks", "-1")
	for _, m := range messages {
		appended = append(appended, string(m))
	}
	if err := check(appended); err != nil {
		t.Errorf("the stream: %v", err)
	}
}

// TestWhatTellsOfADeliveryMakesNoDelivery has a subscription to all of a stream's folder, the stream of events among
// them, whose webhook the settings do not allow any more. There are events of the deliveries of jobs, and of nothing
// else, and the endpoint counts as down.
func TestWhatTellsOfADeliveryMakesNoDelivery(t *testing.T) {
	t.Parallel()
	folder := "/" + name(t)
	o := options{settings: map[string]string{
		"REVEILLE_OJS": "true", "REVEILLE_OJS_STREAMS": folder + "/**", "REVEILLE_EVENTS_STREAM": folder + "/webhooks",
	}}
	e := beside(t, o)
	c, endpoint := ojsClient{t, e.rev.URL}, newOJSEndpoint(t)
	var made ojsSubscription
	c.do(http.MethodPost, "/subscriptions", http.StatusCreated,
		ojsSubscription{URL: endpoint.server.URL, Events: []string{"*"}}, &made)
	endpoint.knows(made.Secret)
	jobs := folder + "/jobs"
	e.gateway.Create(jobs)
	harness.Eventually(t, soon, "the event of the subscription is delivered", func() error {
		endpoint.mu.Lock()
		defer endpoint.mu.Unlock()
		return harness.True(func() bool { return len(endpoint.taken) == 1 }, "it is not")()
	})
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}

	o.settings["REVEILLE_ALLOW_INSECURE_WEBHOOKS"] = "false"
	e.run(o)
	c.root = e.rev.URL
	emitted := 0
	emit := func() {
		emitted++
		e.gateway.Append(jobs, fmt.Sprintf(`{"specversion":"1.0","id":"evt_%d","type":"job.done","source":"ojs://a",`+
			`"time":"2026-02-15T22:00:00Z","data":{}}`, emitted))
	}
	type delivery struct{ Stream, Result string }
	attempts := func(stream string) (n int) {
		t.Helper()
		status, out, errs := e.rev.Ask("", "deliveries", made.ID, "--output", "json")
		var body struct{ Deliveries []delivery }
		if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil {
			t.Fatalf("reveille deliveries: status %d, %v, %s", status, err, errs)
		}
		for _, d := range body.Deliveries {
			if d.Stream == stream && d.Result == "failed" {
				n++
			}
		}
		return n
	}
	emit()
	harness.Eventually(t, soon, "the event of its delivery is not delivered either", harness.True(func() bool {
		return attempts(folder+"/webhooks") > 0
	}, "that was not tried"))
	for range 7 {
		emit()
	}
	harness.Eventually(t, soon, "the endpoint counts as down", harness.True(func() bool {
		return strings.Contains(e.rev.Log(), `the endpoint of a subscription is down`)
	}, "it does not"))
	if err := e.rev.Stop(); err != nil { // so that all is published
		t.Fatal(err)
	}
	messages, _ := e.streams.Read(folder+"/webhooks", "-1")
	of := map[string]int{}
	for _, m := range messages {
		var event struct {
			Type string
			Data struct{ Stream string }
		}
		if err := json.Unmarshal(m, &event); err != nil {
			t.Fatal(err)
		}
		of[event.Type+" "+event.Data.Stream]++
	}
	failed := "webhook.failed " + jobs
	if n := of[failed]; n == 0 || n > 2*emitted || len(of) != 2 || of["webhook.subscription.created "] != 1 {
		t.Errorf("of %d jobs there are the events %v", emitted, of)
	}
}
