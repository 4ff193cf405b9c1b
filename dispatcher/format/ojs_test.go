package format

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// ojsExample is the event of the OJS text (Webhook Delivery 5.3).
const ojsExample = `{
  "specversion": "1.0",
  "id": "evt_019539a4-b68c-7def-8000-112233445566",
  "type": "job.completed",
  "source": "ojs://my-service/workers/worker-1",
  "time": "2026-02-15T22:00:00Z",
  "subject": "019539a4-b68c-7def-8000-1a2b3c4d5e6f",
  "data": {
    "job_type": "payment.process",
    "queue": "payments",
    "duration_ms": 1200,
    "attempt": 1,
    "result": { "transaction_id": "txn_abc123" }
  }
}`

// ojsRequest returns the request that a subscription with the format ojs gets for a delivery.
func ojsRequest(t *testing.T, d Content) (http.Header, string) {
	t.Helper()
	return ojsSignedBy(t, d, "")
}

func ojsSignedBy(t *testing.T, d Content, s fsm.Signature) (http.Header, string) {
	t.Helper()
	f, err := Of(fsm.Subscription{
		ID: "sub_1", Mode: fsm.ModePush, Format: fsm.FormatOJS, Signature: s, Secret: d.Secret,
	}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	h, body, err := f.Request(d)
	if err != nil {
		t.Fatal(err)
	}
	return h, string(body)
}

func ojsDelivery(b fsm.Batch) Content {
	b.From = "1002"
	wake := fsm.Delivery{
		Consumer: "sub_1:%2Forders", Generation: "g", Primary: stream, Born: 7,
		WokeAt: time.UnixMilli(1704067100250),
	}
	return Content{
		Delivery: wake, ID: b.DeliveryID(wake), Batch: b, PublicURL: publicURL, Secret: "whsec_bmV3",
		At: time.Unix(1704067200, 999_999_999),
	}
}

// TestAnOJSEventGoesOnUnchanged holds the body and every header of the text's own example (5.3). The signature is by
// 8.1: over the time and the body, by the secret as it stands. Beside it is the signature of either scheme.
func TestAnOJSEventGoesOnUnchanged(t *testing.T) {
	d := ojsDelivery(jsonBatch(ojsExample))
	// { printf '1704067200.'; printf %s "$example"; } | openssl dgst -sha256 -hmac whsec_bmV3
	const signature = "sha256=fb750b13f04b97b0182d3f81ba8a7f70347df520dba160db226b21a2f25d66c8"
	standard := http.Header{}
	if err := signStandardWebhooks(standard, d, []byte(ojsExample)); err != nil {
		t.Fatal(err)
	}
	for s, beside := range map[fsm.Signature]http.Header{
		"":                            standard,
		fsm.SignatureStandardWebhooks: standard,
		fsm.SignatureHMAC:             {IDHeader: {d.ID}, SignatureHeader: {Sign(d.Secret, d.At, []byte(ojsExample))}},
	} {
		h, body := ojsSignedBy(t, d, s)
		want := http.Header{
			"Content-Type": {"application/json"}, "User-Agent": {"OJS-Webhook/1.0"},
			"X-Ojs-Event-Type": {"job.completed"}, "X-Ojs-Delivery-Id": {d.ID}, "X-Ojs-Subscription-Id": {"sub_1"},
			"X-Ojs-Timestamp": {"1704067200"}, "X-Ojs-Signature": {signature}, StreamHeader: {stream},
		}
		maps.Copy(want, beside)
		if body != ojsExample || !maps.EqualFunc(h, want, slices.Equal) {
			t.Errorf("%q: got %v %s, want %v", s, h, body, want)
		}
	}
}

// TestTheDeliveryIDOfOJSIsTheSameForAllAttempts holds 7.5. The time is the attempt's own: receivers refuse an old one
// (8.2).
func TestTheDeliveryIDOfOJSIsTheSameForAllAttempts(t *testing.T) {
	d := ojsDelivery(jsonBatch(`{"n":1}`))
	first, body := ojsRequest(t, d)
	d.Delivery.Attempt, d.At = 2, d.At.Add(time.Hour)
	second, again := ojsRequest(t, d)
	if id := first.Get("X-OJS-Delivery-ID"); id == "" || id != second.Get("X-OJS-Delivery-ID") || body != again {
		t.Errorf("got %v %s, then %v %s", first, body, second, again)
	}
	if first.Get("X-OJS-Timestamp") != "1704067200" || second.Get("X-OJS-Timestamp") != "1704070800" ||
		first.Get("X-OJS-Signature") == second.Get("X-OJS-Signature") {
		t.Errorf("got %v, then %v", first, second)
	}
}

// TestAnOJSEventIsMadeOfWhatIsNone holds the envelope. Its time is the event's own, or else the time of the wake.
func TestAnOJSEventIsMadeOfWhatIsNone(t *testing.T) {
	const delivered = `"2023-12-31T23:58:20.25Z"`
	ours := func(kind, contentType, time, data string) string {
		return `{"specversion":"1.0","id":"` + ourID(0) + `","source":"https://wake.example.com/orders/7","type":` +
			kind + `,"subject":"/orders/7","datacontenttype":"` + contentType + `","time":` + time + `,` + data + `}`
	}
	const plain, json = `"durable-streams.event"`, "application/json"
	for _, tc := range []struct {
		name   string
		batch  fsm.Batch
		header string
		body   string
	}{
		{
			"an object", jsonBatch(`{"a" : "<é>"}`), "durable-streams.event",
			ours(plain, json, delivered, `"data":{"a" : "<é>"}`),
		},
		{"an array", jsonBatch(`[1]`), "durable-streams.event", ours(plain, json, delivered, `"data":[1]`)},
		{
			"an object with a type and a time", jsonBatch(`{"type":"order.paid","time":"2026-01-02T03:04:05+02:00"}`),
			"order.paid",
			ours(`"order.paid"`, json, `"2026-01-02T01:04:05Z"`,
				`"data":{"type":"order.paid","time":"2026-01-02T03:04:05+02:00"}`),
		},
		{
			"a type that no header can have", jsonBatch(`{"type":"Euro €"}`), "Euro%20%E2%82%AC",
			ours(`"Euro €"`, json, delivered, `"data":{"type":"Euro €"}`),
		},
		{
			"a type with a line break", jsonBatch(`{"type":"a\r\nX-OJS-Signature: 0"}`), "durable-streams.event",
			ours(plain, json, delivered, `"data":{"type":"a\r\nX-OJS-Signature: 0"}`),
		},
		{
			"bytes",
			fsm.Batch{ContentType: "image/png", Events: eventsOf("a\x00\xff\n")},
			"durable-streams.event",
			ours(plain, "image/png", delivered, `"data_base64":"YQD/Cg=="`),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, body := ojsRequest(t, ojsDelivery(tc.batch))
			if body != tc.body || h.Get("X-OJS-Event-Type") != tc.header || h.Get("Content-Type") != json {
				t.Errorf("got %v %s, want %s %s", h, body, tc.header, tc.body)
			}
		})
	}
}

// TestWhatIsNoOJSEvent holds that an event is wrapped if it lacks anything that every event of OJS has. An event with
// more than that stays as it is.
func TestWhatIsNoOJSEvent(t *testing.T) {
	const all = `"specversion":"1.0","id":"1","type":"t","source":"ojs://s","time":"2026-02-15T22:00:00Z"`
	without := func(member string) string { return `{` + strings.Replace(all, member, `"a":1`, 1) + `}` }
	for _, tc := range []struct {
		name, event string
		unchanged   bool
	}{
		{"all that it must have", `{` + all + `}`, true},
		{"members beyond those of the text", `{` + all + `,"trace_id":{"a":1},"Ext":1.5,"data":7}`, true},
		{"a subject that is null", `{` + all + `,"subject":null,"datacontenttype":"application/json"}`, true},
		{"no specversion", without(`"specversion":"1.0"`), false},
		{"no id", without(`"id":"1"`), false},
		{"no type", without(`"type":"t"`), false},
		{"no source", without(`"source":"ojs://s"`), false},
		{"no time, as CloudEvents may", without(`"time":"2026-02-15T22:00:00Z"`), false},
		{"another version", strings.Replace(`{`+all+`}`, `"1.0"`, `"1.1"`, 1), false},
		{"an empty id", strings.Replace(`{`+all+`}`, `"1",`, `"",`, 1), false},
		{"an id that is a number", strings.Replace(`{`+all+`}`, `"1",`, `1,`, 1), false},
		{"a time without a zone", strings.Replace(`{`+all+`}`, `00Z`, `00`, 1), false},
		{"a source that is no URI", strings.Replace(`{`+all+`}`, `ojs://s`, `http://[`, 1), false},
		{"a type with a line break", strings.Replace(`{`+all+`}`, `"t"`, `"t\n"`, 1), false},
		{"a subject that is a number", `{` + all + `,"subject":7}`, false},
		{"data that are not JSON", `{` + all + `,"datacontenttype":"text/xml","data":"<a/>"}`, false},
		{"names in capitals", strings.Replace(`{`+all+`}`, `"id"`, `"ID"`, 1), false},
		{"a list", `[{` + all + `}]`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, body := ojsRequest(t, ojsDelivery(jsonBatch(tc.event)))
			var made struct {
				ID, Source, Time string
				Data             json.RawMessage
			}
			switch err := json.Unmarshal([]byte(body), &made); {
			case tc.unchanged && body != tc.event, err != nil:
				t.Errorf("got %s, %v", body, err)
			case !tc.unchanged && (made.ID != ourID(0) || made.Source != publicURL+stream || made.Time == "" ||
				string(made.Data) != tc.event):
				t.Errorf("got %s", body)
			}
		})
	}
}

// TestATestDeliveryIsAnOJSEvent holds the type that the text demands of it (6.6).
func TestATestDeliveryIsAnOJSEvent(t *testing.T) {
	at := time.Unix(1704067200, 500_600_000)
	sub := fsm.Subscription{ID: "sub_1"}
	h, body := ojsRequest(t, Content{
		ID: "test_1", Batch: TestBatch(sub, "test_1", at), PublicURL: publicURL, Secret: "whsec_bmV3", At: at,
	})
	const want = `{"specversion":"1.0","id":"test_1","source":"https://wake.example.com","type":"webhook.test",` +
		`"datacontenttype":"application/json","time":"2024-01-01T00:00:00.5Z","data":{"type":"webhook.test",` +
		`"id":"test_1","subscription_id":"sub_1","time":"2024-01-01T00:00:00.5Z"}}`
	if body != want || h.Get("X-OJS-Event-Type") != "webhook.test" || h.Get("X-OJS-Delivery-ID") != "test_1" ||
		h.Get("X-OJS-Subscription-ID") != "sub_1" || h.Get(StreamHeader) != "" {
		t.Errorf("got %v %s", h, body)
	}
}

func TestExamineOJS(t *testing.T) {
	const body = `{"epoch":7}`
	// printf '1704067200.{"epoch":7}' | openssl dgst -sha256 -hmac whsec_abc123
	const right = "sha256=95252b658c25de3b811aa26eb2c2067f17e6f4f44e2d66cd17919f8844da1756"
	other := "sha256=" + strings.Repeat("0", 64)
	at := time.Unix(1704067200, 0)
	for _, tc := range []struct {
		name               string
		secret, time, head string
		body               string
		now                time.Time
		ok, form           bool
	}{
		{"it is right", "whsec_abc123", "1704067200", right, body, at, true, true},
		{"five minutes late", "whsec_abc123", "1704067200", right, body, at.Add(SignatureTolerance), true, true},
		{"later than that", "whsec_abc123", "1704067200", right, body, at.Add(SignatureTolerance + 1), false, true},
		{"earlier than that", "whsec_abc123", "1704067200", right, body, at.Add(-SignatureTolerance - 1), false, true},
		{"the second of two", "whsec_abc123", "1704067200", other + "," + right, body, at, true, true},
		{"the first of two", "whsec_abc123", "1704067200", right + ", " + other, body, at, true, true},
		{"another one", "whsec_abc123", "1704067200", other, body, at, false, true},
		{"another body", "whsec_abc123", "1704067200", right, "{}", at, false, true},
		{"another time", "whsec_abc123", "1704067201", right, body, at, false, true},
		{"the secret without its prefix", "abc123", "1704067200", right, body, at, false, true},
		{"no time", "whsec_abc123", "", right, body, at, false, false},
		{"no signature", "whsec_abc123", "1704067200", "", body, at, false, false},
		{"one cut short", "whsec_abc123", "1704067200", right[:40], body, at, false, false},
		{"another length beside it", "whsec_abc123", "1704067200", right + ",sha256=00", body, at, false, false},
		{"that of the webhook spec", "whsec_abc123", "1704067200", "t=1704067200," + right, body, at, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := ExamineOJS(tc.secret, tc.time, tc.head, []byte(tc.body), tc.now, SignatureTolerance)
			if e.OK() != tc.ok || (e.Form == nil) != tc.form {
				t.Errorf("got %+v", e)
			}
		})
	}
}
