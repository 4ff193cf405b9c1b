package httpapi

import (
	"net/http"
	"slices"
	"testing"

	"reveille/fsm"
)

// TestAFilterNeedsJSON holds that a filter of the one stream of a pattern is refused if the stream is known not to be
// JSON, whether it comes with the subscription or later.
func TestAFilterNeedsJSON(t *testing.T) {
	const filter = `{"webhook":"https://w.example/hook","mode":"push","events":["a.*"]}`
	const all = `{"webhook":"https://w.example/hook","mode":"push","events":["*"]}`
	const attribute = `{"webhook":"https://w.example/hook","mode":"push","filter":{"a":[1]}}`
	for _, tc := range []struct {
		name, pattern, body, patch string
		refused                    bool
	}{
		{"of bytes", "/bytes", filter, "", true},
		{"of bytes, by an attribute", "/bytes", attribute, "", true},
		{"of JSON", "/json", filter, "", false},
		{"of a stream that is not there yet", "/none", filter, "", false},
		{"of a stream of which nothing is known", "/broken", filter, "", false},
		{"of many streams", "/*", filter, "", false},
		{"that takes all", "/bytes", all, "", false},
		{"that comes later", "/bytes", all, `{"events":["a"]}`, true},
		{"of JSON that comes later", "/json", all, `{"events":["a"]}`, false},
		{"of many streams that comes later", "/*", all, `{"filter":{"a":[1]}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.up.streams = map[string]fsm.StreamInfo{
				"/bytes": {Exists: true, Tail: "1", NotJSON: true}, "/json": {Exists: true, Tail: "1"},
			}
			h.up.broken = map[string]bool{"/broken": true}
			target := tc.pattern + "?subscription=s"
			a := h.api(http.MethodPut, target, tc.body)
			if a.status == http.StatusCreated {
				h.secret(a.body["webhook_secret"].(string))
			}
			before := h.store.db.Subscriptions()["s"]
			if tc.patch != "" {
				a = h.api(http.MethodPatch, target, tc.patch)
			}
			after := h.store.db.Subscriptions()["s"]
			switch {
			case !tc.refused && a.status/100 != 2:
				t.Errorf("got %d %s", a.status, a.text)
			case tc.refused:
				h.want(a, http.StatusConflict, fsm.CodeStreamNotJSON, "the stream is not JSON")
				if !after.Equal(before) {
					t.Errorf("stored is %+v", after)
				}
			}
		})
	}
	// What is there already is not asked for again.
	h := newHarness(t, nil)
	h.secret(h.api(http.MethodPut, "/bytes?subscription=s", filter).body["webhook_secret"].(string))
	asked := h.up.asked()
	h.up.streams = map[string]fsm.StreamInfo{"/bytes": {Exists: true, Tail: "1", NotJSON: true}}
	for method, body := range map[string]string{
		http.MethodPut: filter, http.MethodPatch: `{"batch":1,"events":["a.*"]}`,
	} {
		if a := h.api(method, "/bytes?subscription=s", body); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", method, a.status, a.text)
		}
	}
	if again := h.up.asked(); !slices.Equal(again, asked) {
		t.Errorf("the stream server was asked %q, and %q before", again, asked)
	}
}

func TestAPutWithAnotherFilterIsAnotherConfiguration(t *testing.T) {
	const target, hook = "/agents/*?subscription=s", `{"webhook":"https://w.example/hook","mode":"push"`
	const filter = `,"events":["a","b"],"filter":{"queues":["a",1.5]}`
	h := newHarness(t, nil)
	h.secret(h.api(http.MethodPut, target, hook+filter+"}").body["webhook_secret"].(string))
	for fields, names := range map[string]string{ // of a name that comes twice the last counts
		`,"events":["b","a"]`: "events", `,"events":null,"filter":null`: "events, filter",
		`,"type_path":"k"`:               "type_path",
		`,"filter":{"data.queue":["a"]}`: "filter", `,"filter":{"queues":["a",1.5],"b":[2]}`: "filter",
		`,"filter":{"queues":["a","1.5"]}`: "filter", `,"filter":{"queues":["a",1.50001]}`: "filter",
	} {
		h.want(h.api(http.MethodPut, target, hook+filter+fields+"}"), 409, fsm.CodeSubscriptionConflict,
			"it has another "+names)
	}
	for _, fields := range []string{"", `,"type_path":"type"`, `,"filter":{"data.queue":["\u0061",15e-1]}`} {
		if a := h.api(http.MethodPut, target, hook+filter+fields+"}"); a.status != http.StatusOK {
			t.Errorf("the same in another spelling: %d %s", a.status, a.text)
		}
	}
}
