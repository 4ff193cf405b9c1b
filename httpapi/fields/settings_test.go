package fields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/ports"
)

// seconds lists delays.
func seconds(list ...float64) (delays []time.Duration) {
	for _, s := range list {
		delays = append(delays, time.Duration(s*float64(time.Second)))
	}
	return delays
}

// members returns a JSON object with n members, each of them a text of a size.
func members(n int, name string, size int) string {
	object := map[string]string{}
	for i := range n {
		object[fmt.Sprintf(name, i)] = strings.Repeat("v", size)
	}
	text, _ := json.Marshal(object)
	return string(text)
}

// allowed returns a filter with n paths.
func allowed(n int) string {
	object := map[string][]int{}
	for i := range n {
		object[fmt.Sprint("a", i)] = []int{i}
	}
	text, _ := json.Marshal(object)
	return string(text)
}

func TestASubscriptionIsStoredAndShownWithItsSettings(t *testing.T) {
	const standard = `"signature":"standard-webhooks",`
	const push = standard + `"mode":"push","format":"json",`
	const once = `"batch":1,"ordering":"stream","timeout":"30s",`
	const patient = `"retry":{"schedule":["30s","2m","10m","1h","4h","12h","24h"]}`
	for _, c := range []struct {
		name, fields string
		want         fsm.Subscription // of which only the settings count
		shown        string           // behind the webhook
	}{
		{"a wake has none", ``, fsm.Subscription{}, ``},
		{
			"the defaults of a wake are not shown",
			`,"start":"now","signature":"hmac","mode":"wake","format":"wake","retry":null,"headers":{},"metadata":{}`,
			fsm.Subscription{},
			``,
		},
		{
			"null is the default", `,"start":null,"mode":null,"signature":null,"format":null,"batch":null,` +
				`"ordering":null,"events":null,"type_path":null,"filter":null,"timeout":null,"retry":null,` +
				`"headers":null,"metadata":null`, fsm.Subscription{}, ``,
		},
		{
			"a wake with delays, headers and metadata",
			`,"retry":{"schedule":["1500ms","120s"]},"headers":{"x-team":"a"},"metadata":{"k":"v"}`,
			fsm.Subscription{
				Retry: seconds(1.5, 120), Headers: map[string]string{"X-Team": "a"},
				Metadata: map[string]string{"k": "v"},
			},
			`,"retry":{"schedule":["1.5s","2m"]},"headers":["X-Team"],"metadata":{"k":"v"}`,
		},
		{
			"from the start of each stream", `,"start":"-1"`, fsm.Subscription{Start: fsm.Start}, `,"start":"-1"`,
		},
		{"a push has defaults", `,"mode":"push"`, fsm.Subscription{Mode: fsm.ModePush}, "," + push + once + patient},
		{
			"null is the default of a push",
			`,"signature":null,"mode":"push","format":null,"batch":null,"ordering":null,"timeout":null,"retry":null`,
			fsm.Subscription{Mode: fsm.ModePush},
			"," + push + once + patient,
		},
		{
			"a push signed as wakes are", `,"signature":"hmac","mode":"push"`,
			fsm.Subscription{Mode: fsm.ModePush, Signature: fsm.SignatureHMAC},
			`,"signature":"hmac","mode":"push","format":"json",` + once + patient,
		},
		{
			"a wake signed as pushes are", `,"signature":"standard-webhooks"`,
			fsm.Subscription{Signature: fsm.SignatureStandardWebhooks},
			`,"signature":"standard-webhooks"`,
		},
		{
			"a push of Open Job Spec has the default of its mode", `,"mode":"push","format":"ojs"`,
			fsm.Subscription{Mode: fsm.ModePush, Format: fsm.FormatOJS},
			`,` + standard + `"mode":"push","format":"ojs",` + once + patient,
		},
		{
			"the mode may come last", `,"batch":1000,"timeout":"60s","format":"json","mode":"push"`,
			fsm.Subscription{Mode: fsm.ModePush, Batch: 1000, Timeout: time.Minute},
			"," + push + `"batch":1000,"ordering":"stream","timeout":"1m",` + patient,
		},
		{
			"a time after which it is disabled", `,"mode":"push","disable_after":"72h"`,
			fsm.Subscription{Mode: fsm.ModePush, DisableAfter: 72 * time.Hour},
			"," + push + once + patient + `,"disable_after":"72h"`,
		},
		{
			"the least of all", `,"mode":"push","batch":1,"timeout":"5s","retry":{"schedule":["1s"]}`,
			fsm.Subscription{Mode: fsm.ModePush, Timeout: 5 * time.Second, Retry: seconds(1)},
			"," + push + `"batch":1,"ordering":"stream","timeout":"5s","retry":{"schedule":["1s"]}`,
		},
		{
			"a format of CloudEvents with one event in a request",
			`,"mode":"push","batch":1,"format":"cloudevents-binary"`,
			fsm.Subscription{Mode: fsm.ModePush, Format: fsm.FormatCloudEventsBinary},
			`,` + standard + `"mode":"push","format":"cloudevents-binary",` + once + patient,
		},
		{
			"a format of CloudEvents with several", `,"mode":"push","format":"cloudevents-batch","batch":1000`,
			fsm.Subscription{Mode: fsm.ModePush, Format: fsm.FormatCloudEventsBatch, Batch: 1000},
			`,` + standard + `"mode":"push","format":"cloudevents-batch","batch":1000,"ordering":"stream",` +
				`"timeout":"30s",` + patient,
		},
		{
			"a filter",
			`,"mode":"push","events":["job.failed","job.*"],"type_path":"meta.kind",` +
				`"filter":{"queues":["p\u0061y<",""],"data.b\\.c":[1.50,-2E3,true,false],"job_types":null}`,
			fsm.Subscription{Mode: fsm.ModePush, Filter: fsm.Filter{
				Events: []string{"job.failed", "job.*"}, TypePath: "meta.kind", Values: map[string][]fsm.Value{
					"data.queue": {`"pay<"`, `""`}, `data.b\.c`: {"1.50", "-2E3", "true", "false"},
				},
			}},
			"," + push + `"batch":1,"events":["job.failed","job.*"],"type_path":"meta.kind","filter":` +
				`{"data.b\\.c":[1.50,-2E3,true,false],"data.queue":["pay<",""]},"ordering":"stream",` +
				`"timeout":"30s",` + patient,
		},
		{
			"a filter that takes all", `,"mode":"push","events":["*"],"type_path":"type","filter":{}`,
			fsm.Subscription{Mode: fsm.ModePush, Filter: fsm.Filter{Events: []string{"*"}}},
			"," + push + `"batch":1,"events":["*"],"ordering":"stream","timeout":"30s",` + patient,
		},
		{
			"no ordering", `,"ordering":"none","mode":"push"`,
			fsm.Subscription{Mode: fsm.ModePush, Ordering: fsm.OrderingNone},
			"," + push + strings.Replace(once, "stream", "none", 1) + patient,
		},
		{
			"delays of every kind", `,"mode":"push","retry":{"schedule":["168h","90s","1h0m30s","90m","24h0m0s"]}`,
			fsm.Subscription{Mode: fsm.ModePush, Retry: seconds(604800, 90, 3630, 5400, 86400)},
			"," + push + once + `"retry":{"schedule":["168h","1m30s","1h0m30s","1h30m","24h"]}`,
		},
		{
			"delays that double", `,"mode":"push","retry":{"max_attempts":5}`,
			fsm.Subscription{Mode: fsm.ModePush, Retry: seconds(1, 2, 4, 8)},
			"," + push + once + `"retry":{"schedule":["1s","2s","4s","8s"]}`,
		},
		{
			"delays that grow to their bound",
			`,"mode":"push","retry":{"max_attempts":5,"initial":"2s","factor":1.5,"max":"5s","schedule":null}`,
			fsm.Subscription{Mode: fsm.ModePush, Retry: seconds(2, 3, 4.5, 5)},
			"," + push + once + `"retry":{"schedule":["2s","3s","4.5s","5s"]}`,
		},
		{
			"delays that stay", `,"mode":"push","retry":{"max_attempts":3,"initial":"1h","factor":1,"max":null}`,
			fsm.Subscription{Mode: fsm.ModePush, Retry: seconds(3600, 3600)},
			"," + push + once + `"retry":{"schedule":["1h","1h"]}`,
		},
		{
			"headers that name who calls",
			`,"headers":{"Authorization":"Bearer tell-no-one","cookie":"a=b","X-Empty":"",` +
				`"X-Quote":"\"é ü\"","Reveille":"x","X-Gone":null}`,
			fsm.Subscription{Headers: map[string]string{
				"Authorization": "Bearer tell-no-one", "Cookie": "a=b", "X-Empty": "", "X-Quote": `"é ü"`,
				"Reveille": "x",
			}},
			`,"headers":["Authorization","Cookie","Reveille","X-Empty","X-Quote"]`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.Secret("tell-no-one")
			h.Rec.OnSubscribed = func(sub fsm.Subscription) { h.Store.DB.SetBackfill(sub, nil) }
			const target = "/agents/*?subscription=s"
			body := `{"webhook":"https://w.example/hook"` + c.fields + `}`
			made := h.API(http.MethodPut, target, body)
			secret, _ := made.Body["webhook_secret"].(string)
			h.Secret(secret)
			stored := h.Store.DB.Subscriptions()["s"]
			want := c.want
			want.Pattern, want.Webhook = "/agents/*", "https://w.example/hook"
			if made.Status != http.StatusCreated || !stored.SameConfig(want.WithDefaults()) {
				t.Fatalf("got %d %s; stored is %+v, want %+v", made.Status, made.Text, stored, want.WithDefaults())
			}
			shown := `{"subscription_id":"s","pattern":"/agents/*","webhook":"https://w.example/hook"` + c.shown + `}`
			list := strings.TrimSpace(h.API(http.MethodGet, "/**?subscriptions", "").Text)
			for name, text := range map[string]string{
				"PUT":       strings.Replace(made.Text, `,"webhook_secret":"`+secret+`"`, "", 1),
				"PUT again": h.API(http.MethodPut, target, body).Text,
				"PATCH":     h.API(http.MethodPatch, target, `{}`).Text,
				"GET":       h.API(http.MethodGet, target, "").Text,
				"the list":  strings.TrimSuffix(strings.TrimPrefix(list, `{"subscriptions":[`), "]}"),
			} {
				if text = strings.TrimSpace(text); text != shown {
					t.Errorf("%s shows %s, want %s", name, text, shown)
				}
			}
			// All but the headers can be sent as it is shown, and asks for the same.
			fields := map[string]any{}
			if err := json.Unmarshal([]byte(shown), &fields); err != nil {
				t.Fatal(err)
			}
			delete(fields, "subscription_id")
			delete(fields, "pattern")
			fields["headers"] = stored.Headers
			again, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			if a := h.API(http.MethodPut, target, string(again)); a.Status != http.StatusOK {
				t.Errorf("PUT of %s: %d %s", again, a.Status, a.Text)
			}
		})
	}
}

func TestASubscriptionToOneStreamBeginsAtAnOffset(t *testing.T) {
	const target, offset = "/agents/task-1?subscription=s", "0000000000000000_0000000000000012"
	h := newHarness(t, nil)
	body := func(start string) string {
		return fmt.Sprintf(`{"webhook":"https://w.example/hook","start":%q}`, start)
	}
	made := h.API(http.MethodPut, target, body(offset))
	if made.Status != http.StatusCreated {
		t.Fatalf("got %d %s", made.Status, made.Text)
	}
	h.Secret(made.Body["webhook_secret"].(string))
	if start := h.Store.DB.Subscriptions()["s"].Start; start != offset {
		t.Errorf("stored is %q", start)
	}
	for name, a := range map[string]ports.Answer{
		"PUT": made, "PUT again": h.API(http.MethodPut, target, body(offset)), "GET": h.API(http.MethodGet, target, ""),
		"PATCH": h.API(http.MethodPatch, target, `{"start":"`+offset+`"}`),
	} {
		if a.Status/100 != 2 || a.Body["start"] != offset {
			t.Errorf("%s: %d %s", name, a.Status, a.Text)
		}
	}
	h.Want(h.API(http.MethodPut, target, body("now")), 409, fsm.CodeSubscriptionConflict, "it has another start")
	for _, start := range []string{`"now"`, `"-1"`, `null`, `"13"`} {
		h.Want(h.API(http.MethodPatch, target, `{"description":"d","start":`+start+`}`), 400, fsm.CodeInvalidRequest,
			`start cannot be changed from "`+offset+`"`)
	}
	if sub := h.Store.DB.Subscriptions()["s"]; sub.Start != offset || sub.Description != "" {
		t.Errorf("refused requests made %+v", sub)
	}
}

func TestTheLargestHeadersAndMetadata(t *testing.T) {
	for _, fields := range []string{
		`"headers":` + members(20, "X-%d", 1), `"headers":` + members(2, "X-%d", 4093),
		`"headers":` + members(1, "X-%d", 4096),
		`"metadata":` + members(50, "%128d", 1024),
	} {
		h := newHarness(t, nil)
		a := h.API(http.MethodPut, "/a?subscription=s", `{"webhook":"https://w.example/hook",`+fields+`}`)
		if a.Status != http.StatusCreated {
			t.Fatalf("%.80s: got %d %s", fields, a.Status, a.Text)
		}
		h.Secret(a.Body["webhook_secret"].(string))
	}
}

func TestAPutWithOtherSettingsIsAnotherConfiguration(t *testing.T) {
	const target, hook = "/agents/*?subscription=s", `{"webhook":"https://w.example/hook","mode":"push"`
	for fields, names := range map[string]string{
		`,"mode":"wake"`: "signature, mode, format, batch, ordering, timeout, retry", `,"batch":2`: "batch",
		`,"signature":"hmac"`:           "signature",
		`,"timeout":"5s"`:               "timeout",
		`,"retry":{"schedule":["30s"]}`: "retry", `,"headers":{"X-A":"2"}`: "headers", `,"headers":null`: "headers",
		`,"headers":{"X-A":"1","X-B":""}`: "headers", `,"metadata":{"k":"w"},"batch":2`: "batch, metadata",
		`,"metadata":null`: "metadata", `,"start":"-1"`: "start", `,"ordering":"none"`: "ordering",
		`,"batch":2,"start":"-1"`: "start, batch",
	} {
		h := newHarness(t, nil)
		base := hook + `,"headers":{"X-A":"1"},"metadata":{"k":"v"}`
		h.Secret(h.API(http.MethodPut, target, base+`}`).Body["webhook_secret"].(string))
		// Of a name that comes twice the last counts.
		h.Want(h.API(http.MethodPut, target, base+fields+`}`), 409, fsm.CodeSubscriptionConflict,
			"it has another "+names)
		for _, same := range []string{
			`,"headers":{"x-a":"1"}}`, `,"signature":"standard-webhooks"}`, `,"signature":null}`,
		} {
			if a := h.API(http.MethodPut, target, base+same); a.Status != http.StatusOK {
				t.Errorf("the same, said by %s: %d %s", same, a.Status, a.Text)
			}
		}
	}
}

func TestAPatchOfSettings(t *testing.T) {
	const headers, metadata = `"headers":{"X-A":"1","X-B":"2"}`, `"metadata":{"a":"1","b":"2"}`
	for _, c := range []struct {
		name, fields, patch string
		change              func(*fsm.Subscription)
	}{
		{"of none", `"mode":"push",` + headers, `{}`, func(*fsm.Subscription) {}},
		{
			"that has what is there", `"mode":"push"`,
			`{"start":"now","mode":"push","format":"json","batch":1,"ordering":"stream","timeout":"30s","retry":null}`,
			func(*fsm.Subscription) {},
		},
		{
			"with the mode that is the default", headers, `{"mode":null,"signature":null,"format":null}`,
			func(*fsm.Subscription) {},
		},
		{
			"that sets all", `"mode":"push"`,
			`{"batch":3,"ordering":"none","timeout":"10s","retry":{"max_attempts":2},"events":["a.*"],` +
				`"type_path":"kind","filter":{"queues":["q"]},` + headers + `,` + metadata + `}`,
			func(s *fsm.Subscription) {
				s.Batch, s.Timeout, s.Retry, s.Ordering = 3, 10*time.Second, seconds(1), fsm.OrderingNone
				s.Filter = fsm.Filter{
					Events: []string{"a.*"}, TypePath: "kind", Values: map[string][]fsm.Value{"data.queue": {`"q"`}},
				}
				s.Headers = map[string]string{"X-A": "1", "X-B": "2"}
				s.Metadata = map[string]string{"a": "1", "b": "2"}
			},
		},
		{
			"that sets the defaults",
			`"mode":"push","batch":3,"ordering":"none","timeout":"10s","retry":{"max_attempts":2}`,
			`{"batch":null,"ordering":null,"timeout":null,"retry":null}`, func(s *fsm.Subscription) {
				s.Batch, s.Timeout, s.Retry, s.Ordering = 1, fsm.PushTimeout, fsm.PushRetry, fsm.OrderingStream
			},
		},
		{
			"that adds, replaces and takes off of a filter",
			`"mode":"push","events":["a"],"type_path":"kind","filter":{"queues":["q"],"job_types":["j"],"a":[1]}`,
			`{"events":["b"],"type_path":null,"filter":{"data.queue":null,"job_types":["k","l"],"b":[true],"c":null}}`,
			func(s *fsm.Subscription) {
				s.Filter = fsm.Filter{Events: []string{"b"}, Values: map[string][]fsm.Value{
					"data.job_type": {`"k"`, `"l"`}, "a": {"1"}, "b": {"true"},
				}}
			},
		},
		{
			"that leaves a filter as it is", `"mode":"push","events":["a"],"filter":{"a":[1]}`,
			`{"batch":2,"filter":{}}`,
			func(s *fsm.Subscription) { s.Batch = 2 },
		},
		{
			"that takes off a filter", `"mode":"push","events":["a"],"type_path":"kind","filter":{"a":[1]}`,
			`{"events":null,"type_path":"type","filter":null}`, func(s *fsm.Subscription) { s.Filter = fsm.Filter{} },
		},
		{
			"that sets another format", `"mode":"push","batch":3`, `{"format":"cloudevents","batch":null}`,
			func(s *fsm.Subscription) { s.Format, s.Batch = fsm.FormatCloudEvents, 1 },
		},
		{
			"that sets the format that is the default", `"mode":"push","format":"cloudevents"`,
			`{"format":null,"batch":3}`, func(s *fsm.Subscription) { s.Format, s.Batch = fsm.FormatJSON, 3 },
		},
		{
			"that takes off the delays of a wake", `"retry":{"schedule":["1s"]}`, `{"retry":null,"batch":null}`,
			func(s *fsm.Subscription) { s.Retry = nil },
		},
		{
			"that adds, replaces and takes off", headers + `,` + metadata,
			`{"headers":{"x-a":"3","x-b":null,"X-C":"4","X-D":null},"metadata":{"a":null,"b":"3","c":""}}`,
			func(s *fsm.Subscription) {
				s.Headers = map[string]string{"X-A": "3", "X-C": "4"}
				s.Metadata = map[string]string{"b": "3", "c": ""}
			},
		},
		{
			"that takes off all one by one", headers + `,` + metadata,
			`{"headers":{"x-a":null,"x-b":null},"metadata":{"a":null,"b":null}}`,
			func(s *fsm.Subscription) { s.Headers, s.Metadata = nil, nil },
		},
		{
			"that takes off all at once", headers + `,` + metadata, `{"headers":null,"metadata":null}`,
			func(s *fsm.Subscription) { s.Headers, s.Metadata = nil, nil },
		},
		{
			"of what is full: one goes, one comes", `"headers":` + members(20, "X-%d", 1),
			`{"headers":{"X-0":null,"X-20":"v"}}`, func(s *fsm.Subscription) {
				s.Headers = maps.Clone(s.Headers)
				delete(s.Headers, "X-0")
				s.Headers["X-20"] = "v"
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			const target = "/agents/*?subscription=s"
			made := h.API(http.MethodPut, target, `{"webhook":"https://w.example/hook",`+c.fields+`}`)
			h.Secret(made.Body["webhook_secret"].(string))
			before := h.Store.DB.Subscriptions()["s"]
			headers, metadata := maps.Clone(before.Headers), maps.Clone(before.Metadata)
			want := before
			c.change(&want)
			a := h.API(http.MethodPatch, target, c.patch)
			if after := h.Store.DB.Subscriptions()["s"]; a.Status != http.StatusOK || !after.SameConfig(want) {
				t.Errorf("got %d %s; stored is %+v, want %+v", a.Status, a.Text, after, want)
			}
			if !maps.Equal(before.Headers, headers) || !maps.Equal(before.Metadata, metadata) {
				t.Error("the maps of the former subscription have changed")
			}
		})
	}
}

// TestABatchAndItsFormatAreChangedTogether holds that neither field makes the other one wrong, whichever is changed.
func TestABatchAndItsFormatAreChangedTogether(t *testing.T) {
	h := newHarness(t, nil)
	const target, hook = "/agents/*?subscription=", `{"webhook":"https://w.example/hook","mode":"push",`
	for id, fields := range map[string]string{"batches": `"batch":3`, "single": `"format":"cloudevents"`} {
		h.Secret(h.API(http.MethodPut, target+id, hook+fields+"}").Body["webhook_secret"].(string))
	}
	const says = `batch must be 1 for "format":"cloudevents", which has one event in a request, and is 3`
	h.Want(h.API(http.MethodPatch, target+"batches", `{"format":"cloudevents"}`), 400, fsm.CodeInvalidRequest, says)
	h.Want(h.API(http.MethodPatch, target+"single", `{"batch":3}`), 400, fsm.CodeInvalidRequest, says)
	for id, patch := range map[string]string{
		"batches": `{"format":"cloudevents-batch"}`, "single": `{"batch":3,"format":"json"}`,
	} {
		if a := h.API(http.MethodPatch, target+id, patch); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", id, a.Status, a.Text)
		}
	}
}

func TestARefusedSettingIsNamedAndChangesNothing(t *testing.T) {
	const timeout = `timeout must be a duration from "5s" to "1m", as a text such as "30s"`
	const delay = ` must be a duration from "1s" to "168h", as a text such as "30s"`
	const attempts = `retry.max_attempts must be an integer from 2 to 100`
	const start = `start must be "now", "-1" or an offset of the stream`
	const either = "retry must be an object with either schedule or max_attempts"
	const formats = `format must be "json" or "cloudevents" or "cloudevents-binary" or "cloudevents-batch" or ` +
		`"ojs" for "mode":"push"`
	type refused struct{ field, says string }
	both := []refused{ // whatever the mode
		{`"disable_after":60`, `disable_after must be a duration from "1m" to "2160h"`},
		{`"disable_after":"3d"`, `disable_after must be a duration from "1m" to "2160h"`},
		{`"disable_after":"59s"`, `disable_after must be a duration from "1m" to "2160h"`},
		{`"disable_after":"2161h"`, `disable_after must be a duration from "1m" to "2160h"`},
		{`"start":7`, start},
		{`"start":""`, start + ": not an offset: it is empty"},
		{`"start":"a b"`, start + ": not an offset: byte 1"},
		{`"start":"` + strings.Repeat("9", 257) + `"`, start + ": not an offset: it is longer than 256 bytes"},
		{`"mode":"pull"`, `mode must be "wake" or "push"`},
		{`"mode":""`, `mode must be "wake" or "push"`},
		{`"mode":1`, `mode must be "wake" or "push"`},
		{`"format":1`, `format must be a string`},
		{`"batch":0`, "batch must be an integer from 1 to 1000"},
		{`"batch":1001`, "batch must be an integer from 1 to 1000"},
		{`"batch":1.5`, "batch must be an integer from 1 to 1000"},
		{`"batch":"1"`, "batch must be an integer from 1 to 1000"},
		{`"batch":1e99`, "batch must be an integer from 1 to 1000"},
		{`"events":"a"`, "events must be a list of 1 to 100 types of events"},
		{`"events":{}`, "events must be a list of 1 to 100 types of events"},
		{`"events":[]`, "events must be a list of 1 to 100 types of events"},
		{`"events":["a"` + strings.Repeat(`,"a"`, 100) + `]`, "events must be a list of 1 to 100 types of events"},
		{`"events":["a",1]`, "events[1] must be a string"},
		{`"events":["a",null]`, "events[1] must be a string"},
		{`"events":["a",""]`, "events[1] must have 1 to 256 bytes"},
		{`"events":["` + strings.Repeat("a", 257) + `"]`, "events[0] must have 1 to 256 bytes"},
		{`"events":["job*"]`, `events[0] can have "*" only by itself, or at its end behind a dot, as in "job.*"`},
		{`"type_path":7`, "type_path must be a path such as data.kind"},
		{`"type_path":""`, "type_path must have 1 to 256 bytes"},
		{`"type_path":"a.#"`, `type_path has "#": a path is the names of members with dots between them`},
		{`"filter":[]`, "filter must be an object of lists"},
		{`"filter":{"queues":"a"}`, "filter.queues must be a list of 1 to 100 strings, numbers or booleans"},
		{`"filter":{"a":[]}`, "filter.a must be a list of 1 to 100 strings, numbers or booleans"},
		{`"filter":{"a":[1` + strings.Repeat(",1", 100) + `]}`, "filter.a must be a list of 1 to 100 strings"},
		{
			`"filter":{"data.queue":["a",null]}`,
			"filter.data.queue[1] must be a string, a number or a boolean of at most 256 bytes",
		},
		{`"filter":{"a":[{}]}`, "filter.a[0] must be a string, a number or a boolean"},
		{`"filter":{"a":[["b"]]}`, "filter.a[0] must be a string, a number or a boolean"},
		{`"filter":{"a":[1e999]}`, "filter.a[0] is a number beyond what most readers of JSON take"},
		{`"filter":{"a":["` + strings.Repeat("a", 255) + `"]}`, "filter.a[0] must be a string, a number or a boolean"},
		{`"filter":{"":[1]}`, `filter has the path "", which must have 1 to 256 bytes`},
		{`"filter":{"a.*":[1]}`, `filter has the path "a.*", which has "*"`},
		{`"filter":{"a..b":[1]}`, `filter has the path "a..b", which has an empty name`},
		{`"filter":{"a..b":null}`, `filter has the path "a..b", which has an empty name`},
		{`"filter":{"queues":["a"],"data.queue":["b"]}`, "filter has data.queue in two spellings"},
		{`"filter":{"queues":null,"data.queue":["b"]}`, "filter has data.queue in two spellings"},
		{`"filter":` + allowed(21), "filter must have at most 20 paths"},
		{`"ordering":"key"`, `ordering must be "stream" or "none"`},
		{`"ordering":""`, `ordering must be "stream" or "none"`},
		{`"ordering":1`, `ordering must be "stream" or "none"`},
		{`"timeout":30`, timeout},
		{`"timeout":"30"`, timeout},
		{`"timeout":""`, timeout},
		{`"timeout":"-30s"`, timeout},
		{`"timeout":"4999ms"`, timeout},
		{`"timeout":"60.001s"`, timeout},
		{`"timeout":"1000000h"`, timeout},
		{`"timeout":"99999999999h"`, timeout},
		{`"retry":3`, either},
		{`"retry":["30s"]`, either},
		{`"retry":{}`, either},
		{`"retry":{"schedule":null}`, either},
		{`"retry":{"initial":"1s"}`, either},
		{`"retry":{"schedule":["1s"],"max_attempts":2}`, either},
		{`"retry":{"schedule":["1s"],"max":"2s"}`, "retry.schedule excludes the other fields of retry"},
		{
			`"retry":{"schedule":["1s"],"jitter":1}`, `unknown field "retry.jitter"; known are retry.schedule, ` +
				`retry.max_attempts, retry.initial, retry.factor, retry.max`,
		},
		{`"retry":{"Max_attempts":2}`, `unknown field "retry.Max_attempts"`},
		{`"retry":{"schedule":[]}`, "retry.schedule must be a list of 1 to 100 delays"},
		{`"retry":{"schedule":"1s"}`, "retry.schedule must be a list of 1 to 100 delays"},
		{
			`"retry":{"schedule":["1s"` + strings.Repeat(`,"1s"`, 100) + `]}`,
			"retry.schedule must be a list of 1 to 100 delays",
		},
		{`"retry":{"schedule":["1s",2]}`, "retry.schedule[1]" + delay},
		{`"retry":{"schedule":["1s",null]}`, "retry.schedule[1]" + delay},
		{`"retry":{"schedule":["0s"]}`, "retry.schedule[0]" + delay},
		{`"retry":{"schedule":["999ms"]}`, "retry.schedule[0]" + delay},
		{`"retry":{"schedule":["168h0m1s"]}`, "retry.schedule[0]" + delay},
		{`"retry":{"schedule":["1d"]}`, "retry.schedule[0]" + delay},
		{`"retry":{"max_attempts":1}`, attempts},
		{`"retry":{"max_attempts":101}`, attempts},
		{`"retry":{"max_attempts":"5"}`, attempts},
		{`"retry":{"max_attempts":2.5}`, attempts},
		{`"retry":{"max_attempts":2,"initial":1}`, "retry.initial" + delay},
		{`"retry":{"max_attempts":2,"initial":"0s"}`, "retry.initial" + delay},
		{`"retry":{"max_attempts":2,"max":"169h"}`, "retry.max" + delay},
		{`"retry":{"max_attempts":2,"factor":0.9}`, "retry.factor must be a number from 1 to 10"},
		{`"retry":{"max_attempts":2,"factor":10.1}`, "retry.factor must be a number from 1 to 10"},
		{`"retry":{"max_attempts":2,"factor":"2"}`, "retry.factor must be a number from 1 to 10"},
		{`"retry":{"max_attempts":2,"factor":1e999}`, "retry.factor must be a number from 1 to 10"},
		{
			`"retry":{"max_attempts":2,"initial":"10s","max":"5s"}`,
			"retry.max is 5s, which is less than retry.initial, 10s",
		},
		{`"retry":{"max_attempts":2,"initial":"2h"}`, "retry.max is 1h, which is less than retry.initial, 2h"},
		{`"headers":[]`, "headers must be an object of strings"},
		{`"headers":"hush: hush"`, "headers must be an object of strings"},
		{`"headers":{"X-A":7}`, "headers.X-A must be a string"},
		{`"headers":{"X-A":["hush"]}`, "headers.X-A must be a string"},
		{`"headers":{"":"hush"}`, `headers has "", which is not the name of a header`},
		{`"headers":{"X A":"hush"}`, `headers has "X A", which is not the name of a header`},
		{`"headers":{"X-A:":"hush"}`, `headers has "X-A:", which is not the name of a header`},
		{`"headers":{"X-\u00e9":"hush"}`, `headers has "X-é", which is not the name of a header`},
		{`"headers":{"X\n":"hush"}`, `headers has "X\n", which is not the name of a header`},
		{`"headers":{"X-A":"hush","x-a":"hush"}`, "headers has X-A in two spellings"},
		{`"headers":{"X-A":"hush","x-a":null}`, "headers has X-A in two spellings"},
		{`"headers":{"X-A":"hush\r\nX-B: hush"}`, "headers.X-A has a control character"},
		{`"headers":{"X-A":"hush\u0000"}`, "headers.X-A has a control character"},
		{`"headers":{"X-A":"hush\thush"}`, "headers.X-A has a control character"},
		{`"headers":{"X-A":"hush\u007f"}`, "headers.X-A has a control character"},
		{`"headers":{"X-A":"hush\u0085"}`, "headers.X-A has a control character"},
		{`"headers":{"X-A":" hush"}`, "headers.X-A begins or ends with a space"},
		{`"headers":{"X-A":"hush "}`, "headers.X-A begins or ends with a space"},
		{`"headers":{"X-A":" "}`, "headers.X-A begins or ends with a space"},
		{`"headers":` + members(1, "X-%d", 4097), "headers.X-0 is longer than 4096 bytes"},
		{`"headers":` + members(21, "X-%d", 1), "headers must have at most 20 names"},
		{`"headers":` + members(2, "X-%d", 4094), "headers must have at most 8192 bytes of names and values"},
		{`"metadata":[]`, "metadata must be an object of strings"},
		{`"metadata":{"a":1}`, "metadata.a must be a string"},
		{`"metadata":{"a":{}}`, "metadata.a must be a string"},
		{`"metadata":{"":"a"}`, "metadata has an empty key"},
		{`"metadata":` + members(1, "%129d", 1), "which is longer than 128 bytes"},
		{`"metadata":` + members(1, "k%d", 1025), "metadata.k0 is longer than 1024 bytes"},
		{`"metadata":` + members(51, "k%d", 1), "metadata must have at most 50 keys"},
	}
	for _, name := range []string{
		"Host", "content-length", "Content-Type", "Content-Encoding", "TRANSFER-ENCODING", "Connection", "Upgrade",
		"TE", "Trailer", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "user-agent", "Webhook-Id",
		"webhook-signature", "Reveille-Stream", "X-Forwarded-For", "x-ojs-signature", "traceparent", "TraceState",
		"Expect", "Accept-Encoding", "ce-id", "Ce-Anything", "Origin", "ORIGIN", "WebHook-Request-Origin",
		"webhook-request-callback", "WebHook-Allowed-Origin", "Webhook_Signature", "content_length",
		"Transfer_Encoding", "X_Forwarded_For", "Forwarded",
	} {
		both = append(both, refused{
			fmt.Sprintf(`"headers":{%q:"hush"}`, name),
			"headers has " + http.CanonicalHeaderKey(name) + ", which a subscription cannot set",
		})
	}
	more := map[fsm.Mode][]refused{
		fsm.ModeWake: {
			{`"format":"json"`, `format must be "wake" for "mode":"wake"`},
			{`"format":""`, `format must be "wake" for "mode":"wake"`},
			{`"batch":1`, `batch is only for "mode":"push"`},
			{`"timeout":"30s"`, `timeout is only for "mode":"push"`},
			{`"events":["*"]`, `events is only for "mode":"push"`},
			{`"type_path":"type"`, `type_path is only for "mode":"push"`},
			{`"filter":{"queues":["a"]}`, `filter is only for "mode":"push"`},
			{`"ordering":"stream"`, `ordering is only for "mode":"push"`},
		},
		fsm.ModePush: {
			{`"format":"wake"`, formats},
			{`"format":"OJS"`, formats},
			{`"format":"CloudEvents"`, formats},
			{
				`"filter":{"a":["` + strings.Repeat(strings.Repeat("a", 200)+`","`, 90) + `"]}`,
				"events, type_path and filter must have at most 16384 bytes together",
			},
			{`"format":"cloudevents","batch":2`, `batch must be 1 for "format":"cloudevents"`},
			{`"batch":1000,"format":"cloudevents-binary"`, `batch must be 1 for "format":"cloudevents-binary"`},
			{`"batch":2,"format":"ojs"`, `batch must be 1 for "format":"ojs"`},
		},
	}
	// These are refused of a subscription that is there, which has one header and one key of metadata.
	changes := map[fsm.Mode][]refused{
		fsm.ModeWake: {
			{`"start":"-1"`, `start cannot be changed from "now"`},
			{`"start":"0000000000000000_0000000000000012"`, `start cannot be changed from "now"`},
			{`"mode":"push"`, `mode cannot be changed from "wake"`},
			{`"mode":"push","batch":2`, `mode cannot be changed from "wake"`},
			{`"headers":` + members(20, "Y-%d", 1), "headers must have at most 20 names"},
			{`"headers":` + members(2, "Y-%d", 4092), "headers must have at most 8192 bytes"},
			{`"metadata":` + members(50, "k%d", 1), "metadata must have at most 50 keys"},
		},
		fsm.ModePush: {
			{`"mode":"wake"`, `mode cannot be changed from "push"`},
			{`"mode":null`, `mode cannot be changed from "push"`},
		},
	}
	offset := refused{`"start":"12"`, `start must be "now" or "-1" for a pattern with a wildcard: an offset is`}
	for _, mode := range fsm.Modes {
		const target = "/agents/*?subscription="
		body := fmt.Sprintf(`{"webhook":"https://w.example/hook","mode":%q`, mode)
		h := newHarness(t, nil)
		h.Secret("hush")
		full := body + `,"headers":{"X-A":"1"},"metadata":{"a":"1"},"retry":{"schedule":["5s"]}}`
		h.Secret(h.API(http.MethodPut, target+"there", full).Body["webhook_secret"].(string))
		before := h.Store.DB.Subscriptions()["there"]
		refuses := func(c refused, method string, a ports.Answer) {
			t.Helper()
			if a.Status != http.StatusBadRequest || a.Code() != string(fsm.CodeInvalidRequest) ||
				!strings.Contains(a.Message(), c.says) || strings.Contains(a.Text, "hush") {
				t.Errorf("%s %s %.80s: got %d %s, want %s", mode, method, c.field, a.Status, a.Text, c.says)
			}
		}
		for _, c := range slices.Concat(both, more[mode]) {
			refuses(c, http.MethodPut, h.API(http.MethodPut, target+"new", body+","+c.field+"}"))
		}
		refuses(offset, http.MethodPut, h.API(http.MethodPut, target+"new", body+","+offset.field+"}"))
		for _, c := range slices.Concat(both, more[mode], changes[mode]) {
			patch := `{"description":"changed",` + c.field + "}"
			refuses(c, http.MethodPatch, h.API(http.MethodPatch, target+"there", patch))
		}
		subs := h.Store.DB.Subscriptions()
		if len(subs) != 1 || !subs["there"].Equal(before) {
			t.Errorf("refused requests made %+v of %+v", subs, before)
		}
	}
}
