package format

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// pushFormat is the format of a subscription of ModePush that takes so many events at a time.
func pushFormat(t *testing.T, batch int, s fsm.Signature, secret string) Format {
	t.Helper()
	f, err := Of(fsm.Subscription{
		ID: "s", Generation: "g", Mode: fsm.ModePush, Batch: batch, Signature: s, Secret: secret,
	}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func eventsOf(texts ...string) (events [][]byte) {
	for _, s := range texts {
		events = append(events, []byte(s))
	}
	return events
}

// TestTheRequestOfEvents holds the body and the header of events as they stand, by both signature schemes.
func TestTheRequestOfEvents(t *testing.T) {
	at := time.Unix(1704067200, 0)
	const stream = "/agents/a%2Fb'(c)"
	idAt := func(from fsm.Offset) string {
		return fsm.EventID(fsm.Delivery{Generation: "g", Primary: stream, Born: 7}, from)
	}
	inside := fsm.Offset("1002").At(40, "1005")
	for _, tc := range []struct {
		name        string
		most        int
		batch       fsm.Batch
		body        string
		contentType string
		id          string
	}{
		{
			name: "one event is the message to the letter", most: 1,
			batch: fsm.Batch{
				ContentType: "application/json; charset=utf-8", JSON: true, Events: eventsOf(`{"a" : "<é>"}`),
				From: "1002",
			},
			body: `{"a" : "<é>"}`, contentType: "application/json", id: idAt("1002"),
		},
		{
			name: "several are an array", most: 3,
			batch: fsm.Batch{JSON: true, Events: eventsOf(`{"a":1}`, `[2]`, `"3"`), From: "1002"},
			body:  `[{"a":1},[2],"3"]`, contentType: "application/json", id: idAt("1002") + "-2",
		},
		{
			name: "one where there may be several is an array, too", most: 3,
			batch: fsm.Batch{JSON: true, Events: eventsOf(`[1]`), From: "1002"},
			body:  `[[1]]`, contentType: "application/json", id: idAt("1002"),
		},
		{
			name: "a batch from the middle of a read is named by its first and its last event", most: 3,
			batch: fsm.Batch{JSON: true, Events: eventsOf(`1`, `2`), From: inside},
			body:  `[1,2]`, contentType: "application/json", id: idAt(inside) + "-41",
		},
		{
			name: "bytes are as they are, with their content type", most: 3,
			batch: fsm.Batch{
				ContentType: "text/plain; charset=utf-8", Events: eventsOf("a\x00\xff\n"), From: fsm.Start,
			},
			body: "a\x00\xff\n", contentType: "text/plain; charset=utf-8", id: idAt(fsm.Start),
		},
		{
			name: "bytes without a content type", most: 1, batch: fsm.Batch{Events: eventsOf("a"), From: inside},
			body: "a", contentType: "application/octet-stream", id: idAt(inside),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, s := range fsm.Signatures {
				wake := fsm.Delivery{
					Consumer: "s:%2Fagents", Generation: "g", Primary: stream, Epoch: 3, WakeID: "w_1", Born: 7,
				}
				d := Content{
					Delivery: wake, ID: tc.batch.DeliveryID(wake), Batch: tc.batch,
					PublicURL: "https://streams.example.com", Token: "TOKEN", Secret: exampleSecret,
					At: at,
				}
				header, body, err := pushFormat(t, tc.most, s, exampleSecret).Request(d)
				if err != nil || string(body) != tc.body {
					t.Fatalf("%s: got %s, %v", s, body, err)
				}
				want := http.Header{
					"Content-Type": {tc.contentType}, "Webhook-Id": {tc.id}, "Reveille-Stream": {stream},
				}
				signature := header.Get(SignatureHeader)
				var e Examination
				switch s {
				case fsm.SignatureHMAC:
					e = Examine(exampleSecret, signature, body, at, SignatureTolerance)
				case fsm.SignatureStandardWebhooks:
					e = ExamineStandard(
						exampleSecret, tc.id, header.Get(TimestampHeader), signature, body, at, SignatureTolerance)
					want[TimestampHeader] = []string{"1704067200"}
				}
				want[SignatureHeader] = []string{signature}
				if !e.OK() || !maps.EqualFunc(header, want, slices.Equal) {
					t.Errorf("%s: the header is %v, want %v; its signature: %+v", s, header, want, e)
				}
			}
		})
	}
}

// TestADeliveryHasOneIDOverAllAttempts holds that the id has neither the time nor the number of the attempt in it. It
// can stand in a signature of Standard Webhooks.
func TestADeliveryHasOneIDOverAllAttempts(t *testing.T) {
	var ids []string
	for attempt := 1; attempt <= 2; attempt++ {
		wake := fsm.Delivery{
			Primary: "/a", Born: 7, Attempt: attempt, Epoch: int64(attempt), WakeID: strings.Repeat("w", attempt),
		}
		batch := fsm.Batch{JSON: true, Events: eventsOf("1", "2"), From: fsm.Start}
		header, _, err := pushFormat(t, 2, fsm.SignatureHMAC, "whsec_1").Request(Content{
			Delivery: wake, ID: batch.DeliveryID(wake), Batch: batch, Secret: "whsec_1",
			At: time.Unix(int64(attempt), 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, header.Get(IDHeader))
	}
	if ids[0] != ids[1] || !strings.HasSuffix(ids[0], "_0-1") || strings.ContainsAny(ids[0], ". ") {
		t.Errorf("the IDs are %q", ids)
	}
}

// TestTheVerdictOnEveryAnswerToEvents holds what differs from the policy for wakes, and what does not.
func TestTheVerdictOnEveryAnswerToEvents(t *testing.T) {
	done := Verdict{Result: fsm.AttemptDone}
	refused := func(c Class, reason string) Verdict {
		return Verdict{Result: fsm.AttemptDead, Class: c, Reason: reason}
	}
	for _, tc := range []struct {
		name       string
		status     int
		retryAfter string
		body       string
		want       Verdict
	}{
		{"200 has taken the events", 200, "", ``, done},
		{"200 has taken them whatever its body says", 200, "", `{"done":false}`, done},
		{"201 has taken them", 201, "", ``, done},
		{"202 has taken them", 202, "", `not JSON`, done},
		{"204 has taken them", 204, "", ``, done},
		{"299 has taken them", 299, "", ``, done},
		{"408 failed", 408, "", ``, Verdict{Class: ClassClientError, Reason: "status 408"}},
		{"425 failed", 425, "", ``, Verdict{Class: ClassClientError, Reason: "status 425"}},
		{
			"429 waits as long as it says", 429, "7", ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429", RetryAfter: 7 * time.Second},
		},
		{"500 failed", 500, "7", ``, Verdict{Class: ClassServerError, Reason: "status 500"}},
		{
			"503 waits as long as it says", 503, "7", ``,
			Verdict{Class: ClassUnavailable, Reason: "status 503", RetryAfter: 7 * time.Second},
		},
		{
			"502 waits as long as it says", 502, "7", ``,
			Verdict{Class: ClassServerError, Reason: "status 502", RetryAfter: 7 * time.Second},
		},
		{
			"504 waits as long as it says", 504, "7", ``,
			Verdict{Class: ClassServerError, Reason: "status 504", RetryAfter: 7 * time.Second},
		},
		{"429 without Retry-After failed", 429, "", ``, Verdict{Class: ClassRateLimited, Reason: "status 429"}},
		{"599 failed", 599, "", ``, Verdict{Class: ClassServerError, Reason: "status 599"}},
		{"a switch of protocols failed", 101, "", ``, Verdict{Class: ClassInvalid, Reason: "status 101"}},
		{"a status beyond 599 failed", 999, "", ``, Verdict{Class: ClassInvalid, Reason: "status 999"}},
		{"410 retires", 410, "", ``, Verdict{Result: fsm.AttemptRetired, Class: ClassGone, Reason: "status 410"}},
		{"400 is final", 400, "", ``, refused(ClassClientError, "status 400")},
		{"401 is final", 401, "", ``, refused(ClassClientError, "status 401")},
		{"404 is final, and its Retry-After does not count", 404, "7", ``, refused(ClassClientError, "status 404")},
		{"415 is final", 415, "", ``, refused(ClassClientError,
			"status 415 (the endpoint does not understand the format)")},
		{"499 is final", 499, "", ``, refused(ClassClientError, "status 499")},
		{
			"a redirect is final", 302, "", ``,
			refused(ClassRedirect, "status 302 (redirects are not followed)"),
		},
		{
			"a permanent redirect is final", 308, "", ``,
			refused(ClassRedirect, "status 308 (redirects are not followed)"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.retryAfter != "" {
				h.Set("Retry-After", tc.retryAfter)
			}
			got := pushFormat(t, 1, fsm.SignatureHMAC, "whsec_1").Judge(Answer{
				Status: tc.status, Header: h, Body: []byte(tc.body), At: time.Unix(1704067200, 0),
			})
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
