package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"reveille/test/harness"
)

// evil is a text that would run if it were not shown as text.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(2)>`

// installation is a real one: Redis, a stream server, Reveille.
type installation struct {
	t testing.TB
	// settings are those of rev.
	settings map[string]string
	rev      *harness.Reveille
	gateway  *harness.Client
}

func install(t testing.TB, settings map[string]string) *installation {
	t.Helper()
	env := map[string]string{
		"REVEILLE_UPSTREAM_URL": harness.StartRefServer(t, harness.RefOptions{}).StreamRoot,
		"REVEILLE_REDIS_URL":    harness.StartRedis(t).URL,
		"REVEILLE_DELIVERY_LOG": "all",
	}
	maps.Copy(env, settings)
	rev := harness.StartReveille(t, env)
	return &installation{t: t, settings: env, rev: rev, gateway: harness.NewClient(t, rev.URL)}
}

// of is the installation, for a part of a test.
func (i *installation) of(t testing.TB) *installation {
	return &installation{t: t, settings: i.settings, rev: i.rev, gateway: harness.NewClient(t, i.rev.URL)}
}

// subscribe makes a subscription to /ID/* and the stream /ID/1. What fails once waits for hours.
func (i *installation) subscribe(id, webhook string, more map[string]any) harness.Subscription {
	i.t.Helper()
	want := map[string]any{"mode": "push", "webhook": webhook, "retry": map[string]any{"schedule": []string{"10h"}}}
	maps.Copy(want, more)
	body, err := json.Marshal(want)
	if err != nil {
		i.t.Fatal(err)
	}
	var sub harness.Subscription
	res := i.gateway.PutSubscription("/"+id+"/*", id, string(body))
	if res.Status != http.StatusCreated {
		i.t.Fatal(res)
	}
	res.Decode(i.t, &sub)
	i.gateway.Create("/" + id + "/1")
	return sub
}

// answers starts an endpoint that always answers with a status and a text.
func answers(t testing.TB, status int, text string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// letters returns the IDs of the dead letters of a subscription.
func (i *installation) letters(sub string) (ids []string) {
	i.t.Helper()
	var body struct {
		DeadLetters []struct{ ID string } `json:"dead_letters"`
	}
	operator := harness.NewClient(i.t, i.rev.Operator)
	operator.Do(http.MethodGet, "/api/v1/dead-letters?subscription="+sub, "").Decode(i.t, &body)
	for _, letter := range body.DeadLetters {
		ids = append(ids, letter.ID)
	}
	return ids
}

// awaitLetter waits for the dead letter of a subscription.
func (i *installation) awaitLetter(sub string) (id string) {
	i.t.Helper()
	harness.Eventually(i.t, harness.Wait, sub+" has a dead letter", func() error {
		ids := i.letters(sub)
		if len(ids) != 1 {
			return fmt.Errorf("%q", ids)
		}
		id = ids[0]
		return nil
	})
	return id
}

// delivery returns the page of the latest delivery of a subscription, and that with its request.
func (i *installation) delivery(sub string) (page, request string) {
	i.t.Helper()
	var body struct {
		Deliveries []struct {
			ID         string
			DeliveryID string `json:"delivery_id"`
		}
	}
	harness.Eventually(i.t, harness.Wait, "the log has a delivery of "+sub, func() error {
		operator := harness.NewClient(i.t, i.rev.Operator)
		operator.Do(http.MethodGet, "/api/v1/subscriptions/"+sub+"/deliveries?stream=/orders/1", "").Decode(i.t, &body)
		return harness.True(func() bool { return len(body.Deliveries) > 0 }, "it has none")()
	})
	page = "/subscriptions/" + sub + "/deliveries/" + body.Deliveries[0].DeliveryID
	return page, page + "?request=" + body.Deliveries[0].ID
}

// pagesOf are the kinds of pages, with what the subscription "orders" has.
func pagesOf(letter, delivery, request string) []string {
	const consumer = "orders:%2Forders%2F1"
	return []string{
		"/", "/subscriptions", "/subscriptions?failing=true", "/subscriptions/orders",
		"/subscriptions/orders?refresh=off",
		"/deliveries", "/deliveries?result=failed%2Cretired%2Cdead", "/consumers", "/consumers/" + consumer,
		"/dead-letters", "/dead-letters?subscription=orders", "/dead-letters/" + letter, "/replays", "/audit",
		delivery, request,
		"/find?q=" + url.QueryEscape("/orders/1"), "/find?q=" + url.QueryEscape(letter),
	}
}

// TestEveryPageIsForEverybody holds that axe finds no barrier on a page, on a screen and on a phone, that no text of
// others runs, and that a page asks nobody else for anything.
func TestEveryPageIsForEverybody(t *testing.T) {
	t.Parallel()
	i := install(t, nil)
	webhook := answers(t, http.StatusBadRequest, evil)
	i.subscribe("orders", webhook, map[string]any{"description": evil})
	i.gateway.Append("/orders/1", `{"text":"`+strings.ReplaceAll(evil, `"`, `\"`)+`"}`)
	stream := "/orders/" + url.PathEscape(evil)
	i.gateway.Create(stream)
	letter := i.awaitLetter("orders")
	i.gateway.Append(stream, `{}`)
	harness.Eventually(t, harness.Wait, "both streams have a dead letter", func() error {
		if n := len(i.letters("orders")); n != 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	delivery, request := i.delivery("orders")
	for _, l := range []look{screen, phone} {
		t.Run(l.name, func(t *testing.T) {
			p := open(t, i.rev.Operator, l, mouse)
			look := func(where string) {
				t.Helper()
				for _, found := range p.barriers() {
					t.Errorf("%s: %s", where, found)
				}
				if wide := value[int64](p, "document.documentElement.scrollWidth"); wide > l.width {
					t.Errorf("%s is %d wide", where, wide)
				}
				p.clean(where)
			}
			for _, target := range pagesOf(letter, delivery, request) {
				p.visit(target)
				look(target)
			}
			p.visit(delivery)
			p.press("show-" + request[strings.LastIndex(request, "=")+1:])
			p.must("POST http://", `{"text":"`+strings.ReplaceAll(evil, `"`, `\"`)+`"}`, "Webhook-Signature: [masked]")
			p.clean("the request of a delivery")
			p.visit("/subscriptions/orders")
			p.must(evil)
			p.press("do-rotate-secret")
			p.must("shown once")
			look("a question")
			p.press("cancel")
			p.press("do-test")
			p.must("the test failed", "status 400", evil)
			look("what a button did")
		})
	}
}
