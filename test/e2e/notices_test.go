package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestAnOperatorsWebhookGetsNotices has an endpoint fail and recover, and then the replica die that tells of that. The
// webhook gets a notice of each, once, from a subscription that clients cannot use.
func TestAnOperatorsWebhookGetsNotices(t *testing.T) {
	t.Parallel()
	const events, key = "/reveille/events", "s3cret-of-the-webhook"
	operator := harness.NewReceiver(t)
	f := startFleet(t, 2, map[string]string{
		"REVEILLE_EVENTS_STREAM": events, "REVEILLE_NOTICE_WEBHOOK": operator.URL + "?key=" + key,
		"REVEILLE_NOTICE_AFTER": "0s",
	})
	f.share(0, 1)
	type notice struct {
		ID, Type, Subject string
		Data              map[string]any
	}
	// await waits until the webhook has taken a notice of a type about a subject. It may come more than once, under
	// one id.
	await := func(kind, subject string) (found notice) {
		t.Helper()
		harness.Eventually(t, harness.Wait, kind+" "+subject, func() error {
			_, list := operator.Taken(events)
			ids := map[string]bool{}
			for _, text := range list {
				var n notice
				if err := json.Unmarshal([]byte(text), &n); err != nil {
					t.Fatal(err)
				}
				if n.Type == kind && n.Subject == subject {
					found, ids[n.ID] = n, true
				}
			}
			switch len(ids) {
			case 0:
				return fmt.Errorf("there are %q", list)
			case 1:
				return nil
			}
			t.Fatalf("it came under several ids: %q", list)
			return nil
		})
		return found
	}
	var own string
	harness.Eventually(t, soon, "the webhook has a subscription", func() error {
		var list struct {
			Subscriptions []struct {
				ID string `json:"subscription_id"`
			}
		}
		a := f.operator().Do(http.MethodGet, "/api/v1/subscriptions", "")
		a.Decode(t, &list)
		if strings.Contains(string(a.Body), key) {
			t.Fatalf("the operator port shows the key of the webhook: %s", a.Body)
		}
		for _, sub := range list.Subscriptions {
			if own = sub.ID; strings.HasPrefix(own, "notices.") {
				return nil
			}
		}
		return fmt.Errorf("there are %+v", list.Subscriptions)
	})
	p := f.pushes(t, map[string]any{"retry": map[string]any{"schedule": slices.Repeat([]string{"3s"}, 20)}})
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	path := p.folder + "/a"
	f.gateway.Create(path)
	appended := p.add(path, 0, 1)
	n := await("reveille.endpoint.failing", p.sub.ID)
	if n.Data["endpoint"] != p.receiver.URL || n.Data["reason"] != "status 503" {
		t.Errorf("the endpoint fails: %+v", n)
	}
	p.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
	p.want(path, appended)
	await("reveille.endpoint.recovered", p.sub.ID)

	for _, request := range [][2]string{
		{http.MethodGet, ""}, {http.MethodDelete, ""}, {http.MethodPut, `{"webhook":"` + p.receiver.URL + `"}`},
	} {
		a := f.gateway.Do(request[0], events+"?subscription="+own, request[1])
		if a.Status != http.StatusBadRequest || strings.Contains(string(a.Body), key) {
			t.Errorf("%s of the subscription by a client: %d %s", request[0], a.Status, a.Body)
		}
	}
	if a := f.gateway.Do(http.MethodGet, "/**?subscriptions", ""); strings.Contains(string(a.Body), own) {
		t.Errorf("clients see it: %s", a.Body)
	}

	leader, err := f.redis.Client().Get(t.Context(), "rv:{0}:lease").Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range f.replicas {
		if strings.HasSuffix(leader, strings.TrimPrefix(r.URL, "http://")) {
			r.Kill()
			f.rev, f.gateway = f.replicas[1-i], f.gateways[1-i]
		}
	}
	await("reveille.replica.lost", leader)
}

// TestOperatorsAreToldOfConsumersThatAreLost holds that the transitions which lose consumers make their notices, and
// that a stream which a client deletes makes none.
func TestOperatorsAreToldOfConsumersThatAreLost(t *testing.T) {
	t.Parallel()
	const events = "/reveille/events"
	h := &hop{}
	e := start(t, options{upstream: h.before(t), settings: map[string]string{
		"REVEILLE_EVENTS_STREAM": events, "REVEILLE_STREAM_GONE_GRACE": "1s", "REVEILLE_GC_AFTER": "1s",
	}})
	e.streams.Create(events)
	deleted, gone, givenUp := e.idle(t), e.idle(t), e.idle(t)
	deleted.gateway.DeleteStream(deleted.path)
	deleted.awaitRemoved(deleted.path, soon)
	h.do(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == gone.path {
			w.WriteHeader(http.StatusNotFound)
		}
		return r.URL.Path == gone.path
	})
	givenUp.worker.AnswerStatus(http.StatusInternalServerError)
	givenUp.append()
	want := []string{
		"reveille.consumers.given_up " + givenUp.sub.ID + " " + givenUp.path + " 1",
		"reveille.stream.gone " + gone.sub.ID + " " + gone.path + " 1",
	}
	harness.Eventually(t, soon, "both notices", func() error {
		told := map[string]string{} // by ID, as one may come again
		messages, _ := e.streams.Read(events, "-1")
		for _, text := range messages {
			var n struct {
				ID, Type, Subject string
				Data              struct {
					Stream    string
					Consumers int
				}
			}
			if err := json.Unmarshal(text, &n); err != nil {
				t.Fatal(err)
			}
			told[n.ID] = fmt.Sprintf("%s %s %s %d", n.Type, n.Subject, n.Data.Stream, n.Data.Consumers)
		}
		if got := slices.Sorted(maps.Values(told)); !slices.Equal(got, want) {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}
