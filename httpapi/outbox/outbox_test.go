package outbox_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/httpapi/control"
	"reveille/test/ports"
	"reveille/test/ports/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a stream server that is away.
type server struct{ control.OutboxServer }

func (server) Append(context.Context, string, string, []byte) (fsm.Offset, error) {
	return "", errors.New("nobody answers")
}

func newHarness(t *testing.T) *ports.Harness {
	t.Helper()
	h, _ := service.New(t, func(c *httpapi.Config) { c.Outbox, c.OutboxServer = "/outbox", server{} })
	return h
}

// TestWhatIsHandedOverIsChecked holds that a wrong field is named, and that nothing is done then.
func TestWhatIsHandedOverIsChecked(t *testing.T) {
	h := newHarness(t)
	const target = `"target_url":"https://w.example/hook"`
	const right = target + `,"event_type":"push","payload":{}`
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for fields, want := range map[string]string{
		``:                              "target_url is missing",
		`"target_url":1`:                "target_url must be a URL",
		target:                          "event_type is missing",
		target + `,"event_type":"push"`: "payload is missing",
		`"target_url":"","event_type":"push","payload":1`:     "target_url is empty",
		target + `,"event_type":"","payload":1`:               "event_type is empty",
		right + `,"event_type":` + long(256):                  "event_type is longer than 255 bytes",
		right + `,"provider":7`:                               "provider must be a string",
		right + `,"provider":"a\nb"`:                          "provider must not hold control characters",
		right + `,"idempotency_key":""`:                       "idempotency_key is empty",
		right + `,"idempotencyKey":""`:                        "idempotencyKey is empty",
		right + `,"idempotency_key":` + long(256):             "idempotency_key is longer than 255 bytes",
		right + `,"idempotency_key":"a","idempotencyKey":"b"`: "are not the same",
		right + `,"max_attempts":0`:                           "max_attempts must be a whole number from 1 to 100",
		right + `,"max_attempts":1.5`:                         "max_attempts must be a whole number",
		right + `,"delay_ms":-1`:                              "delay_ms must be a whole number from 0 to 31536000000",
		right + `,"delay_ms":31536000001`:                     "delay_ms must be a whole number from 0",
		right + `,"delay_ms":1,"deliver_at":1`:                "deliver_at and delay_ms cannot both be given",
		right + `,"deliver_at":"tomorrow"`:                    "deliver_at must be a time such as",
		right + `,"deliver_at":""`:                            "deliver_at must be a time",
		right + `,"deliver_at":9999999999999`:                 "deliver_at must be a time within 365 days",
		right + `,"metadata":[]`:                              "metadata must be an object",
		right + `,"metadata":{"a":` + long(16<<10) + `}`:      "metadata is larger than 16384 bytes",
		right + `,"targetUrl":"x"`:                            `unknown field \"targetUrl\"`,
		right + `,"target_url":` + long(2049):                 "target_url is longer than 2048 bytes",
	} {
		body := "{" + fields + "}"
		a := h.API(http.MethodPost, "/webhooks/deliver", body)
		if a.Status != http.StatusBadRequest || !strings.Contains(a.Text, want) {
			t.Errorf("%.100s: %d %s, want %s", body, a.Status, a.Text, want)
		}
	}
	for _, payload := range []string{long(1 << 20), "[" + strings.Repeat(`"",`, 300_000) + "1]"} { // a text is longer
		body := "{" + strings.Replace(right, "{}", payload, 1) + "}"
		h.Want(h.API(http.MethodPost, "/webhooks/deliver", body), http.StatusRequestEntityTooLarge,
			fsm.CodeBodyTooLarge, "is larger than 1048576 bytes")
	}
	if n := h.Store.DB.Calls("ReserveKey"); n != 0 {
		t.Errorf("%d keys were reserved", n)
	}
}

// TestATargetThatNoWebhookMayHaveIsRefused holds that the message names the field, and that nothing is done then.
func TestATargetThatNoWebhookMayHaveIsRefused(t *testing.T) {
	h := newHarness(t)
	h.Rec.Refuse = errors.New("webhook has no host")
	a := h.API(http.MethodPost, "/webhooks/deliver", `{"target_url":"https:///hook","event_type":"push","payload":1}`)
	h.Want(a, http.StatusBadRequest, fsm.CodeInvalidWebhook, "target_url: webhook has no host")
	if n := h.Store.DB.Calls("ReserveKey") + h.Store.DB.Calls("CreateSubscription"); n != 0 {
		t.Errorf("the store was told of it by %d calls", n)
	}
}

// TestAnEventForWhichThereIsNoRoomIsRefused holds that the message says what fills the room, and that nothing is done.
func TestAnEventForWhichThereIsNoRoomIsRefused(t *testing.T) {
	h := newHarness(t)
	const body = `{"target_url":"https://w.example/hook","event_type":"push","payload":1,"idempotency_key":"k"}`
	h.Store.DB.Crowd(fsm.MaxOutboxEvents)
	h.Want(h.API(http.MethodPost, "/webhooks/deliver", body), http.StatusTooManyRequests, fsm.CodeTooManyRequests,
		"0 events beside it wait, and 100000 are dead")
	if n := h.Store.DB.Calls("ReserveKey"); n != 0 {
		t.Errorf("%d keys were reserved", n)
	}
	h.Store.DB.Crowd(fsm.MaxOutboxEvents - 1)
	h.Want(h.API(http.MethodPost, "/webhooks/deliver", body), http.StatusServiceUnavailable, fsm.CodeUnavailable, "")
}

// TestNothingElseIsThere holds that no path of direct deliveries goes to the stream server.
func TestNothingElseIsThere(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{
		"/webhooks", "/webhooks/", "/webhooks/x", "/webhooks/events/a/b", "/outbox", "/outbox/a", "/outb%6fx/a",
		"/webhooks/events/whe_0_1", "/webhooks/events/x", "/webhooks/idempotency/x",
	} {
		h.Want(h.API(http.MethodGet, path, ""), http.StatusNotFound, fsm.CodeNotFound, "")
	}
	h.Want(h.API(http.MethodPut, "/outbox/x?subscription=s", `{"webhook":"https://w.example/"}`),
		http.StatusNotFound, fsm.CodeNotFound, "")
	h.Want(h.API(http.MethodGet, "/webhooks/deliver", ""), http.StatusMethodNotAllowed, fsm.CodeMethodNotAllowed,
		"by POST")
}
