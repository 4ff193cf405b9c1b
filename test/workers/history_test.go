package workers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"reveille/test/anycable"
	"reveille/test/harness"
)

func TestExampleWorkersReadOnFromWhatTheServerStillKeeps(t *testing.T) {
	const path = "/agents/task-1"
	for _, example := range examples {
		t.Run(example.name, func(t *testing.T) {
			broker := anycable.New(anycable.Options{History: 2})
			server := httptest.NewServer(broker)
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			old := broker.Publish("agents/task-1", `{"n":1}`)
			tail := broker.Publish("agents/task-1", `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`)

			streams := []harness.StreamOffset{{Path: path, Offset: old}}
			claimed, err := json.Marshal(map[string]any{"ok": true, "token": "t-2", "streams": streams})
			if err != nil {
				t.Fatal(err)
			}
			success := callbackAnswer{200, `{"ok":true,"token":"t-3","streams":[]}`}
			callbacks := answerCallbacks(t, []callbackAnswer{{200, string(claimed)}, success, success})
			body, err := json.Marshal(harness.Payload{
				ConsumerID: "s:%2Fagents%2Ftask-1", Epoch: 1, WakeID: "w_1", Streams: streams, Callback: callbacks.url,
				Token: "t-1",
			})
			if err != nil {
				t.Fatal(err)
			}
			host := example.start(t, "whsec_test", server.URL+"/ds")
			res := harness.NewClient(t, host.URL).Do(http.MethodPost, "/", string(body), "traceparent", traceparent,
				"Webhook-Signature", harness.Sign("whsec_test", time.Now(), body))
			if res.Status >= 300 {
				t.Fatalf("the wake was answered %d: %s", res.Status, res.Body)
			}
			awaitProcessed(t, host, 4, 5)
			if example.name == "AWS Lambda" { // its answer acknowledges what it has read
				return
			}
			want := []harness.StreamOffset{{Path: path, Offset: tail}}
			harness.Eventually(t, harness.Wait, "the tail is acknowledged", harness.True(
				func() bool { return slices.Equal(callbacks.acked(), want) }, "other acks"))
		})
	}
}
