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

// The layouts of CloudEvents are tested with events of this stream. ourID names its event i, counted from the first
// that is read.
const (
	publicURL = "https://wake.example.com"
	stream    = "/orders/7"
)

func ourID(i int) string {
	return fsm.Batch{From: "1002"}.EventID(fsm.Delivery{Generation: "g", Primary: stream, Born: 7}, i)
}

// delivers builds the request of a delivery. It returns its header without the parts that all layouts share.
func delivers(t *testing.T, f fsm.Format, b fsm.Batch, path string) (http.Header, string) {
	t.Helper()
	b.From = "1002"
	format, err := Of(fsm.Subscription{
		ID: "s", Mode: fsm.ModePush, Format: f, Batch: max(1, len(b.Events)), Secret: exampleSecret,
	}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	wake := fsm.Delivery{Consumer: "s:%2Forders", Generation: "g", Primary: path, Epoch: 3, Born: 7}
	d := Content{
		Delivery: wake, ID: b.DeliveryID(wake), Batch: b, PublicURL: publicURL, Secret: exampleSecret,
		At: time.Unix(1704067200, 0),
	}
	if n := format.Most(d); n < len(b.Events) {
		t.Fatalf("%s: no more than %d events are to be read", f, n)
	}
	h, body, err := format.Request(d)
	if err != nil {
		t.Fatalf("%s: %v", f, err)
	}
	if e := ExamineStandard(exampleSecret, h.Get(IDHeader), h.Get(TimestampHeader), h.Get(SignatureHeader), body, d.At,
		SignatureTolerance); !e.OK() || h.Get(IDHeader) != d.ID || h.Get(StreamHeader) != path {
		t.Errorf("%s: the header is %v", f, h)
	}
	for _, name := range []string{SignatureHeader, TimestampHeader, IDHeader, StreamHeader} {
		h.Del(name)
	}
	return h, string(body)
}

func jsonBatch(events ...string) fsm.Batch {
	return fsm.Batch{ContentType: "application/json", JSON: true, Events: eventsOf(events...)}
}

// The examples A to D of the JSON format (3.2), with base64 in place of an ellipsis. For the headers by which the text
// encodes them again, see attributesOfExample.
const (
	exampleA = `{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext",
    "id" : "A234-1234-1234",
    "time" : "2018-04-05T17:31:00Z",
    "comexampleextension1" : "value",
    "comexampleothervalue" : 5,
    "datacontenttype" : "application/vnd.apache.thrift.binary",
    "data_base64" : "AP8\/"
}`
	exampleB = `{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext",
    "id" : "B234-1234-1234",
    "time" : "2018-04-05T17:31:00Z",
    "comexampleextension1" : "value",
    "comexampleothervalue" : 5,
    "unsetextension": null,
    "datacontenttype" : "application/xml",
    "data" : "<much wow=\"xml\"/>"
}`
	exampleC = `{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext",
    "subject": null,
    "id" : "C234-1234-1234",
    "time" : "2018-04-05T17:31:00Z",
    "comexampleextension1" : "value",
    "comexampleothervalue" : 5,
    "datacontenttype" : "application/json",
    "data" : {
        "appinfoA" : "abc",
        "appinfoB" : 123,
        "appinfoC" : true
    }
}`
	exampleD = `{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext",
    "subject": null,
    "id" : "D234-1234-1234",
    "time" : "2018-04-05T17:31:00Z",
    "comexampleextension1" : "value",
    "comexampleothervalue" : 5,
    "data" : "I'm just a string"
}`
)

func attributesOfExample(id, contentType string) http.Header {
	return header("ce-specversion", "1.0", "ce-type", "com.example.someevent", "ce-source", "/mycontext", "ce-id", id,
		"ce-time", "2018-04-05T17:31:00Z", "ce-comexampleextension1", "value", "ce-comexampleothervalue", "5",
		"content-type", contentType)
}

func header(pairs ...string) http.Header {
	h := http.Header{}
	for pair := range slices.Chunk(pairs, 2) {
		h.Set(pair[0], pair[1])
	}
	return h
}

// least is a CloudEvent with more members, which begin with a comma.
func least(more string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + more + `}`
}

func leastHeader(more ...string) http.Header {
	return header(append(more, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t")...)
}

func withData(more string) string { return least(more + `,"data":1`) }

func withDataHeader(more ...string) http.Header {
	return leastHeader(append(more, "content-type", "application/json")...)
}

// TestACloudEventGoesOnUnchanged holds that a CloudEvent in a stream stays one for the receiver, with its own id and
// attributes. In structured and batched mode, it stays the same to the letter; binary mode follows the HTTP binding.
// Without a header here, the event has no data for a body: it is sent in structured mode.
func TestACloudEventGoesOnUnchanged(t *testing.T) {
	for _, tc := range []struct {
		name, event string
		header      http.Header
		body        string
	}{
		{
			"bytes, as JSON may escape their base64", exampleA,
			attributesOfExample("A234-1234-1234", "application/vnd.apache.thrift.binary"), "\x00\xff\x3f",
		},
		{
			"a text that is not JSON", exampleB, attributesOfExample("B234-1234-1234", "application/xml"),
			`<much wow="xml"/>`,
		},
		{
			"JSON", exampleC, attributesOfExample("C234-1234-1234", "application/json"),
			"{\n        \"appinfoA\" : \"abc\",\n        \"appinfoB\" : 123,\n        \"appinfoC\" : true\n    }",
		},
		{
			"JSON without a content type", exampleD, attributesOfExample("D234-1234-1234", "application/json"),
			`"I'm just a string"`,
		},
		{
			"no data", least(`,"subject":"a"`), nil, "",
		},
		{
			"data that are null", least(`,"data":null`), leastHeader("content-type", "application/json"), "null",
		},
		{
			"JSON of another type", least(`,"datacontenttype":"application/geo+json; a=b","data":[1, 2]`),
			leastHeader("content-type", "application/geo+json; a=b"), "[1, 2]",
		},
		{
			"bytes without a content type", least(`,"data_base64":"YWI="`),
			leastHeader("content-type", "application/octet-stream"), "ab",
		},
		{
			"no bytes", least(`,"datacontenttype":"image/png","data_base64":""`), nil, "",
		},
		{
			"an empty text", least(`,"datacontenttype":"text/plain","data":""`), nil, "",
		},
		{
			"the text of the HTTP binding that is to be encoded", withData(`,"subject":"Euro € 😀"`),
			withDataHeader("ce-subject", "Euro%20%E2%82%AC%20%F0%9F%98%80"), "1",
		},
		{
			"a percent sign, a quote and a tilde", withData(`,"subject":"100%25 \"~\" \u20ac"`),
			withDataHeader("ce-subject", "100%2525%20%22~%22%20%E2%82%AC"), "1",
		},
		{
			"numbers and booleans",
			withData(`,"a":-5,"b":2147483647,"c":true,"d":false,"e":"5","f":"","g":-2147483648,"h":-0`),
			withDataHeader("ce-a", "-5", "ce-b", "2147483647", "ce-c", "true", "ce-d", "false", "ce-e", "5", "ce-f", "",
				"ce-g", "-2147483648", "ce-h", "0"), "1",
		},
		{
			"a time with a zone and a schema",
			withData(`,"time":"2018-04-05T17:31:00.10+02:00","dataschema":"urn:a:b"`),
			withDataHeader("ce-time", "2018-04-05T17:31:00.10+02:00", "ce-dataschema", "urn:a:b"), "1",
		},
		{
			"a source that a URL library would write otherwise",
			`{"specversion":"1.0","id":" 1","source":"HTTP://a/%7e?b#c","type":"t","data":1}`,
			header("ce-specversion", "1.0", "ce-id", "%201", "ce-source", "HTTP://a/%257e?b#c", "ce-type", "t",
				"content-type", "application/json"), "1",
		},
		{
			"extensions with the names of former versions", withData(`,"schemaurl":"a","datacontentencoding":"b"`),
			withDataHeader("ce-schemaurl", "a", "ce-datacontentencoding", "b"), "1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, body := delivers(t, fsm.FormatCloudEvents, jsonBatch(tc.event), stream)
			if body != tc.event || h.Get("Content-Type") != "application/cloudevents+json" || len(h) != 1 {
				t.Errorf("structured: got %v %s", h, body)
			}
			if tc.header == nil {
				tc.header, tc.body = h, body
			}
			h, body = delivers(t, fsm.FormatCloudEventsBinary, jsonBatch(tc.event), stream)
			if body != tc.body || !maps.EqualFunc(h, tc.header, slices.Equal) {
				t.Errorf("binary: got %v %q, want %v %q", h, body, tc.header, tc.body)
			}
			h, body = delivers(t, fsm.FormatCloudEventsBatch, jsonBatch(tc.event, exampleC), stream)
			if body != "["+tc.event+","+exampleC+"]" || len(h) != 1 ||
				h.Get("Content-Type") != "application/cloudevents-batch+json" {
				t.Errorf("batched: got %v %s", h, body)
			}
		})
	}
}

// TestACloudEventIsMadeOfWhatIsNone holds its attributes and where its data are.
func TestACloudEventIsMadeOfWhatIsNone(t *testing.T) {
	ours := func(attributes, data string) string {
		return `{"specversion":"1.0","id":"` + ourID(0) + `","source":"https://wake.example.com/orders/7",` +
			attributes + `,"data":` + data + `}`
	}
	const plain = `"type":"durable-streams.event","subject":"/orders/7","datacontenttype":"application/json"`
	plainHeader := func(more ...string) http.Header {
		h := header("ce-specversion", "1.0", "ce-id", ourID(0), "ce-source", "https://wake.example.com/orders/7",
			"ce-type", "durable-streams.event", "ce-subject", "/orders/7", "content-type", "application/json")
		maps.Copy(h, header(more...))
		return h
	}
	for _, tc := range []struct {
		name       string
		batch      fsm.Batch
		structured string
		header     http.Header
	}{
		{"an object", jsonBatch(`{"a" : "<é>"}`), ours(plain, `{"a" : "<é>"}`), plainHeader()},
		{"an array", jsonBatch(`[1]`), ours(plain, `[1]`), plainHeader()},
		{"a text", jsonBatch(`"type"`), ours(plain, `"type"`), plainHeader()},
		{"null", jsonBatch(`null`), ours(plain, `null`), plainHeader()},
		{
			"an object with a type and a time",
			jsonBatch(`{"type":"order \"paid\" €","time":"2026-01-02T03:04:05.60+02:00"}`),
			ours(`"type":"order \"paid\" €","subject":"/orders/7","datacontenttype":"application/json",`+
				`"time":"2026-01-02T01:04:05.6Z"`, `{"type":"order \"paid\" €","time":"2026-01-02T03:04:05.60+02:00"}`),
			plainHeader("ce-type", "order%20%22paid%22%20%E2%82%AC", "ce-time", "2026-01-02T01:04:05.6Z"),
		},
		{
			"an object with a type and a time that are none", jsonBatch(`{"type":7,"time":"yesterday","id":"x"}`),
			ours(plain, `{"type":7,"time":"yesterday","id":"x"}`), plainHeader(),
		},
		{
			"an object with an empty type, and a time beyond the years that there are",
			jsonBatch(`{"type":"","time":"9999-12-31T23:59:59-01:00"}`),
			ours(plain, `{"type":"","time":"9999-12-31T23:59:59-01:00"}`), plainHeader(),
		},
		{
			"an object whose type the SDK would change", jsonBatch(`{"type":" a"}`), ours(plain, `{"type":" a"}`),
			plainHeader(),
		},
		{
			"an object whose type is a space", jsonBatch(`{"type":" "}`), ours(plain, `{"type":" "}`), plainHeader(),
		},
		{
			"an object whose type has a control character", jsonBatch(`{"type":"a\nb","Time":"2026-01-02T03:04:05Z"}`),
			ours(plain, `{"type":"a\nb","Time":"2026-01-02T03:04:05Z"}`), plainHeader(),
		},
		{
			"bytes",
			fsm.Batch{ContentType: "text/plain; charset=utf-8", Events: eventsOf("a\x00\xff\n")},
			strings.Replace(ours(strings.Replace(plain, "application/json", "text/plain; charset=utf-8", 1),
				`"YQD/Cg=="`), `"data":`, `"data_base64":`, 1),
			plainHeader("content-type", "text/plain; charset=utf-8"),
		},
		{
			"bytes without a content type",
			fsm.Batch{Events: eventsOf(`{}`)},
			strings.Replace(ours(strings.Replace(plain, "json", "octet-stream", 1), `"e30="`), `"data":`,
				`"data_base64":`, 1),
			plainHeader("content-type", "application/octet-stream"),
		},
		{
			"bytes with a content type that is none",
			fsm.Batch{ContentType: "a;b;;", Events: eventsOf(`{}`)},
			strings.Replace(ours(strings.Replace(plain, "json", "octet-stream", 1), `"e30="`), `"data":`,
				`"data_base64":`, 1),
			plainHeader("content-type", "application/octet-stream"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, body := delivers(t, fsm.FormatCloudEvents, tc.batch, stream); body != tc.structured {
				t.Errorf("structured: got %s, want %s", body, tc.structured)
			}
			h, body := delivers(t, fsm.FormatCloudEventsBinary, tc.batch, stream)
			if body != string(tc.batch.Events[0]) || !maps.EqualFunc(h, tc.header, slices.Equal) {
				t.Errorf("binary: got %v %q, want %v", h, body, tc.header)
			}
			if _, body := delivers(t, fsm.FormatCloudEventsBatch, tc.batch, stream); body != "["+tc.structured+"]" {
				t.Errorf("batched: got %s", body)
			}
		})
	}
}

// TestWhatIsNoCloudEvent holds that an event that only resembles a CloudEvent is wrapped in one, under an id of ours.
// Otherwise a receiver could refuse it, or take it for something else.
func TestWhatIsNoCloudEvent(t *testing.T) {
	for _, tc := range []struct{ name, event string }{
		{"no id", `{"specversion":"1.0","source":"/s","type":"t"}`},
		{"an id that is null", `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`},
		{"an empty id", `{"specversion":"1.0","id":"","source":"/s","type":"t"}`},
		{"an id of spaces", `{"specversion":"1.0","id":" ","source":"/s","type":"t"}`},
		{"an id that is a number", `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`},
		{"no source", `{"specversion":"1.0","id":"1","type":"t"}`},
		{"a source that is no URI", `{"specversion":"1.0","id":"1","source":"http://[","type":"t"}`},
		{"no type", `{"specversion":"1.0","id":"1","source":"/s"}`},
		{"no version", `{"id":"1","source":"/s","type":"t"}`},
		{"a former version", `{"specversion":"0.3","id":"1","source":"/s","type":"t"}`},
		{"a version that is a number", `{"specversion":1.0,"id":"1","source":"/s","type":"t"}`},
		{"names in capitals", `{"SpecVersion":"1.0","Id":"1","Source":"/s","Type":"t"}`},
		{"a time that is none", least(`,"time":"2018-04-05"`)},
		{"an empty time", least(`,"time":""`)},
		{"an empty subject", least(`,"subject":""`)},
		{"a subject that is a number", least(`,"subject":7`)},
		{"a subject with a control character", least(`,"subject":"a\u0085"`)},
		{"a subject with a line break", least(`,"subject":"a\r\nce-id: 2"`)},
		{"a subject with what is no character", least(`,"subject":"\ufffe"`)},
		{"a schema that is relative", least(`,"dataschema":"/a"`)},
		{"a schema that is no URI", least(`,"dataschema":"https://a/%zz"`)},
		{"a content type that is none", least(`,"datacontenttype":"a/b;c;;","data":1`)},
		{"a content type of two lines", least(`,"datacontenttype":"a/b;\r\n c=d","data":"1"`)},
		{"an extension in capitals", least(`,"Ext":"a"`)},
		{"an extension with a dash", least(`,"an-ext":"a"`)},
		{"an extension without a name", least(`,"":"a"`)},
		{"an extension that is an object", least(`,"ext":{"a":1}`)},
		{"an extension that is a list", least(`,"ext":["a"]`)},
		{"an extension that is a fraction", least(`,"ext":1.5`)},
		{"an extension with an exponent", least(`,"ext":1e3`)},
		{"an extension beyond 32 bits", least(`,"ext":2147483648`)},
		{"data twice", least(`,"data":"a","data_base64":"YQ=="`)},
		{"bytes that are a digit", least(`,"data_base64":5`)},
		{"bytes that are null", least(`,"data_base64":null`)},
		{"bytes that are no base64", least(`,"data_base64":"a"`)},
		{"data that their content type does not allow", least(`,"datacontenttype":"text/xml","data":{"a":1}`)},
		{"a list", `[` + least("") + `]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, body := delivers(t, fsm.FormatCloudEvents, jsonBatch(tc.event), stream)
			var made struct {
				ID, Source, Subject string
				Data                json.RawMessage
			}
			err := json.Unmarshal([]byte(body), &made)
			if err != nil || made.ID != ourID(0) || made.Subject != stream || made.Source != publicURL+stream ||
				string(made.Data) != tc.event {
				t.Errorf("structured: got %v %s, %v", h, body, err)
			}
			h, body = delivers(t, fsm.FormatCloudEventsBinary, jsonBatch(tc.event), stream)
			if h.Get("ce-id") != ourID(0) || h.Get("ce-subject") != stream || body != tc.event {
				t.Errorf("binary: got %v %s", h, body)
			}
		})
	}
}

// TestTheSourceIsTheURLOfTheStream holds that it is a URI whatever the name of the stream is, and the same in each
// mode.
func TestTheSourceIsTheURLOfTheStream(t *testing.T) {
	for _, tc := range []struct{ path, source string }{
		{"/a%2Fb/c%20d/%e2%82%ac", "/a%2Fb/c%20d/%e2%82%ac"},
		{"/!$&'()+,;=:@-._~/", "/!$&'()+,;=:@-._~/"},
		{"/a|b^c[d]%2Fe", "/a%7Cb%5Ec%5Bd%5D%2Fe"},
		{"/100%/%zz%2", "/100%25/%25zz%252"},
	} {
		_, body := delivers(t, fsm.FormatCloudEvents, jsonBatch(`1`), tc.path)
		var made struct{ Source, Subject string }
		err := json.Unmarshal([]byte(body), &made)
		if err != nil || made.Source != publicURL+tc.source || made.Subject != tc.path {
			t.Errorf("%s: structured: %s, %v", tc.path, body, err)
		}
		h, _ := delivers(t, fsm.FormatCloudEventsBinary, jsonBatch(`1`), tc.path)
		if h.Get("ce-source") != strings.ReplaceAll(publicURL+tc.source, "%", "%25") ||
			h.Get("ce-subject") != strings.ReplaceAll(tc.path, "%", "%25") {
			t.Errorf("%s: binary: %v", tc.path, h)
		}
	}
}

// TestTheEventsOfABatchHaveTheirOwnIDs holds that an event has the same id by itself and in any batch.
func TestTheEventsOfABatchHaveTheirOwnIDs(t *testing.T) {
	_, body := delivers(t, fsm.FormatCloudEventsBatch, jsonBatch(`1`, exampleC, `3`), stream)
	var made []struct{ ID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || len(made) != 3 || made[0].ID != ourID(0) ||
		made[1].ID != "C234-1234-1234" || made[2].ID != ourID(2) {
		t.Errorf("got %s, %v", body, err)
	}
	wake := fsm.Delivery{Generation: "g", Primary: stream, Born: 7}
	if id := fsm.EventID(wake, fsm.Offset("1002").At(2, "1005")); id != ourID(2) {
		t.Errorf("the third one by itself is %s, in the batch %s", id, ourID(2))
	}
}

// TestEveryFormatOfAPushSaysHowManyEventsItTakes holds that formats for one event never get two, whatever is stored.
// Long names do not make a batch much larger than its events.
func TestEveryFormatOfAPushSaysHowManyEventsItTakes(t *testing.T) {
	for _, f := range fsm.Formats[fsm.ModePush] {
		format, err := Of(fsm.Subscription{
			ID: "s", Mode: fsm.ModePush, Format: f, Batch: fsm.MaxBatch, Secret: exampleSecret,
		}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		want := fsm.MaxBatch
		if f.Single() {
			want = 1
		}
		d := Content{PublicURL: publicURL, Delivery: fsm.Delivery{Primary: stream}, Secret: exampleSecret}
		if n := format.Most(d); n != want {
			t.Errorf("%s: %d events, want %d", f, n, want)
		}
		d.Delivery.Primary = "/" + strings.Repeat("x", fsm.MaxPathLen-1)
		n := format.Most(d)
		d.Batch = jsonBatch(slices.Repeat([]string{`1`}, n)...)
		_, body, err := format.Request(d)
		if err != nil || n < 1 || len(body) > fsm.MaxDeliveryBytes/2 {
			t.Errorf("%s: %d events of a stream with a long name take %d bytes, %v", f, n, len(body), err)
		}
	}
}

// TestATestDeliveryIsACloudEvent holds that it has the id of the delivery, and neither a stream nor its name.
func TestATestDeliveryIsACloudEvent(t *testing.T) {
	at := time.Unix(1704067200, 500_600_000)
	const data = `{"type":"webhook.test","id":"test_1","subscription_id":"s","time":"2024-01-01T00:00:00.5Z"}`
	const event = `{"specversion":"1.0","id":"test_1","source":"https://wake.example.com","type":"webhook.test",` +
		`"datacontenttype":"application/json","time":"2024-01-01T00:00:00.5Z","data":` + data + `}`
	for format, want := range map[fsm.Format]string{
		fsm.FormatCloudEvents: event, fsm.FormatCloudEventsBinary: data, fsm.FormatCloudEventsBatch: "[" + event + "]",
	} {
		sub := fsm.Subscription{ID: "s", Mode: fsm.ModePush, Format: format}.WithDefaults()
		f, err := OfTest(sub)
		if err != nil {
			t.Fatal(err)
		}
		h, body, err := f.Request(Content{
			ID: "test_1", Batch: TestBatch(sub, "test_1", at), PublicURL: publicURL, Secret: exampleSecret, At: at,
		})
		if err != nil || string(body) != want {
			t.Errorf("%s: got %s, %v", format, body, err)
		}
		binary := format == fsm.FormatCloudEventsBinary
		if h.Get(IDHeader) != "test_1" || h.Get(StreamHeader) != "" || binary != (h.Get("ce-id") == "test_1") {
			t.Errorf("%s: the header is %v", format, h)
		}
	}
}
