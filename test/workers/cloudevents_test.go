package workers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// sdkEvent is an event as the SDK of CloudEvents has read it.
type sdkEvent struct {
	SpecVersion, ID, Source, Type, Subject, Time, DataContentType string
	DataBase64                                                    string `json:"data_base64"`
	Data                                                          json.RawMessage
	// Count and Flag are extensions: texts in binary mode, where they are headers.
	Count, Flag any
}

// sdkRequest is a request as the receiver with the SDK tells of it.
type sdkRequest struct {
	Path, Type, Delivery, Replay, Error string
	Status                              int
	Events                              []sdkEvent
}

// TestCloudEventsAreReadByTheirOwnSDK delivers the events of the reference server in each format of CloudEvents to a
// receiver that parses them with the JavaScript SDK: by themselves and in batches, what is JSON, bytes and a CloudEvent
// already, as a test, aside and as a replay.
func TestCloudEventsAreReadByTheirOwnSDK(t *testing.T) {
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot, "REVEILLE_REDIS_URL": redis.URL,
	})
	host := harness.StartNodeScript(t, folder, "host-cloudevents.mjs", nil)
	api, receiver := harness.NewClient(t, reveille.URL), harness.NewClient(t, host.URL)

	ask := func(t *testing.T, args ...string) string {
		t.Helper()
		status, out, errs := reveille.Ask("", args...)
		if status != 0 {
			t.Fatalf("reveille %s: %s%s", strings.Join(args, " "), out, errs)
		}
		return out
	}
	for _, format := range []fsm.Format{
		fsm.FormatCloudEvents, fsm.FormatCloudEventsBinary, fsm.FormatCloudEventsBatch,
	} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			name, batch := string(format), 1
			if !format.Single() {
				batch = 10
			}
			// seen are the requests for this format that the receiver has had, but for those that it had before.
			had := 0
			seen := func() (requests []sdkRequest) {
				receiver.Do(http.MethodGet, "/seen", "").Decode(t, &requests)
				requests = slices.DeleteFunc(requests, func(r sdkRequest) bool { return r.Path != "/"+name })
				for _, r := range requests {
					if r.Error != "" {
						t.Fatalf("the SDK says %s", r.Error)
					}
				}
				return requests[had:]
			}
			// taken are the events that the receiver has taken since, at least n.
			taken := func(n int) (events []sdkEvent, requests []sdkRequest) {
				t.Helper()
				harness.Eventually(t, harness.Wait, "the events are taken", func() error {
					events, requests = nil, seen()
					for _, r := range requests {
						if r.Status == http.StatusNoContent {
							events = append(events, r.Events...)
						}
					}
					if len(events) < n {
						return fmt.Errorf("%d of %d events: %+v", len(events), n, requests)
					}
					return nil
				})
				had += len(requests)
				return events, requests
			}
			// read is an attribute as it was sent: this SDK leaves it to its user to decode a header.
			read := func(text string) string {
				if format != fsm.FormatCloudEventsBinary {
					return text
				}
				plain, err := url.PathUnescape(text)
				if err != nil {
					t.Error(err)
				}
				return plain
			}

			const asked = `{"mode":"push","format":%q,"batch":%d,"webhook":%q,"ordering":"none",` +
				`"retry":{"schedule":["1s","1s"]}}`
			put := api.PutSubscription("/"+name+"/*", name, fmt.Sprintf(asked, format, batch, host.URL+"/"+name))
			if put.Status != http.StatusCreated || !strings.Contains(put.Body, `"format":"`+name+`"`) {
				t.Fatalf("PUT: %d %s", put.Status, put.Body)
			}
			if out := ask(t, "subscriptions", name); !strings.Contains(out, name+"\n") {
				t.Errorf("the command line shows %s", out)
			}

			ask(t, "test", name)
			events, requests := taken(1)
			if e := events[0]; e.Type != "webhook.test" || e.ID != requests[0].Delivery || e.Source != reveille.URL ||
				!strings.HasPrefix(e.ID, "test_") || e.Subject != "" {
				t.Errorf("the test delivery is %+v", e)
			}

			// What is JSON, and a CloudEvent already.
			path := "/" + name + "/a%2Fb"
			api.Create(path)
			api.Append(path, `[{"n":1,"text":"é"},{"n":2,"type":"order.paid","time":"2026-01-02T03:04:05.6Z"},`+
				`{"specversion":"1.0","id":"theirs","source":"urn:theirs","type":"their.type","subject":"Euro € 😀",`+
				`"count":5,"flag":true,"datacontenttype":"application/json","data":{"n":3}},`+
				`{"specversion":"1.0","source":"urn:theirs","type":"no.id","data":{"n":4}}]`)
			events, requests = taken(4)
			ids := map[string]bool{}
			for i, want := range []sdkEvent{
				{Type: "durable-streams.event", Data: json.RawMessage(`{"n":1,"text":"é"}`)},
				{
					Type: "order.paid", Time: "2026-01-02T03:04:05.600Z",
					Data: json.RawMessage(`{"n":2,"type":"order.paid","time":"2026-01-02T03:04:05.6Z"}`),
				},
				{
					ID: "theirs", Source: "urn:theirs", Type: "their.type", Subject: "Euro € 😀",
					Data: json.RawMessage(`{"n":3}`),
				},
				{
					Type: "no.id",
					Data: json.RawMessage(`{"specversion":"1.0","source":"urn:theirs","type":"no.id","data":{"n":4}}`),
				},
			} {
				got := events[i]
				ids[got.ID] = true
				if want.ID == "" {
					want.ID, want.Source, want.Subject = got.ID, reveille.URL+path, path
				}
				if want.Time == "" { // the SDK has its own
					want.Time = got.Time
				}
				if got.SpecVersion != "1.0" || got.ID != want.ID || read(got.Source) != want.Source ||
					got.Type != want.Type || read(got.Subject) != want.Subject || got.Time != want.Time ||
					string(got.Data) != string(want.Data) || got.DataContentType != "application/json" {
					t.Errorf("event %d is %+v, want %+v", i, got, want)
				}
				if isTheirs := got.ID == "theirs"; isTheirs != (fmt.Sprintf("%v %v", got.Count, got.Flag) == "5 true") {
					t.Errorf("event %d has the extensions %v and %v", i, got.Count, got.Flag)
				}
			}
			if len(ids) != 4 {
				t.Errorf("4 events have the ids %v", ids)
			}
			if format.Single() == (len(requests) == 1) {
				t.Errorf("they came in %d requests", len(requests))
			}

			// Bytes.
			path = "/" + name + "/bytes"
			api.Create(path, "Content-Type", "image/png")
			api.Append(path, "\x00\xff\n", "Content-Type", "image/png")
			events, _ = taken(1)
			if e := events[0]; e.DataBase64 != "AP8K" || e.DataContentType != "image/png" ||
				e.Source != reveille.URL+path {
				t.Errorf("the bytes are %+v", e)
			}

			// What fails steps aside and comes again, and what is refused comes again when it is replayed: each under
			// its id.
			for path, data := range map[string]string{
				"/" + name + "/later": `{"refuse":503,"times":2}`, "/" + name + "/dead": `{"refuse":422,"times":1}`,
			} {
				api.Create(path)
				api.Append(path, data)
				replays := strings.Contains(data, "422")
				if replays {
					harness.Eventually(t, harness.Wait, "the dead letter", harness.True(func() bool {
						return strings.Contains(ask(t, "dead-letters", "--subscription", name), "status 422")
					}, "there is none"))
					ask(t, "dead-letters", "replay", "--subscription", name)
				}
				events, requests = taken(1)
				for i, r := range requests {
					last := i == len(requests)-1
					if len(r.Events) != 1 || r.Events[0].ID != events[0].ID || r.Delivery != events[0].ID ||
						(r.Replay == "true") != (last && replays) {
						t.Errorf("%s: request %d is %+v", path, i, r)
					}
				}
				if n := len(requests); replays && n != 2 || !replays && n != 3 {
					t.Errorf("%s: it came %d times", path, n)
				}
			}
		})
	}
}
