package fields_test

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
			h.Up.Streams = map[string]fsm.StreamInfo{
				"/bytes": {Exists: true, Tail: "1", NotJSON: true}, "/json": {Exists: true, Tail: "1"},
			}
			h.Up.Broken = map[string]bool{"/broken": true}
			target := tc.pattern + "?subscription=s"
			a := h.API(http.MethodPut, target, tc.body)
			if a.Status == http.StatusCreated {
				h.Secret(a.Body["webhook_secret"].(string))
			}
			before := h.Store.DB.Subscriptions()["s"]
			if tc.patch != "" {
				a = h.API(http.MethodPatch, target, tc.patch)
			}
			after := h.Store.DB.Subscriptions()["s"]
			switch {
			case !tc.refused && a.Status/100 != 2:
				t.Errorf("got %d %s", a.Status, a.Text)
			case tc.refused:
				h.Want(a, http.StatusConflict, fsm.CodeStreamNotJSON, "the stream is not JSON")
				if !after.Equal(before) {
					t.Errorf("stored is %+v", after)
				}
			}
		})
	}
	// What is there already is not asked for again.
	h := newHarness(t, nil)
	h.Secret(h.API(http.MethodPut, "/bytes?subscription=s", filter).Body["webhook_secret"].(string))
	asked := h.Up.Asked()
	h.Up.Streams = map[string]fsm.StreamInfo{"/bytes": {Exists: true, Tail: "1", NotJSON: true}}
	for method, body := range map[string]string{
		http.MethodPut: filter, http.MethodPatch: `{"batch":1,"events":["a.*"]}`,
	} {
		if a := h.API(method, "/bytes?subscription=s", body); a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", method, a.Status, a.Text)
		}
	}
	if again := h.Up.Asked(); !slices.Equal(again, asked) {
		t.Errorf("the stream server was asked %q, and %q before", again, asked)
	}
}

func TestAPutWithAnotherFilterIsAnotherConfiguration(t *testing.T) {
	const target, hook = "/agents/*?subscription=s", `{"webhook":"https://w.example/hook","mode":"push"`
	const filter = `,"events":["a","b"],"filter":{"queues":["a",1.5]}`
	h := newHarness(t, nil)
	h.Secret(h.API(http.MethodPut, target, hook+filter+"}").Body["webhook_secret"].(string))
	for fields, names := range map[string]string{ // of a name that comes twice the last counts
		`,"events":["b","a"]`: "events", `,"events":null,"filter":null`: "events, filter",
		`,"type_path":"k"`:               "type_path",
		`,"filter":{"data.queue":["a"]}`: "filter", `,"filter":{"queues":["a",1.5],"b":[2]}`: "filter",
		`,"filter":{"queues":["a","1.5"]}`: "filter", `,"filter":{"queues":["a",1.50001]}`: "filter",
	} {
		h.Want(h.API(http.MethodPut, target, hook+filter+fields+"}"), 409, fsm.CodeSubscriptionConflict,
			"it has another "+names)
	}
	for _, fields := range []string{"", `,"type_path":"type"`, `,"filter":{"data.queue":["\u0061",15e-1]}`} {
		if a := h.API(http.MethodPut, target, hook+filter+fields+"}"); a.Status != http.StatusOK {
			t.Errorf("the same in another spelling: %d %s", a.Status, a.Text)
		}
	}
}
