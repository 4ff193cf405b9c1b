package format

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The example of the specification of Standard Webhooks (Signing the message).
const (
	exampleSecret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	exampleID        = "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"
	exampleTime      = "1649367553"
	exampleBody      = `{"email":"test@example.com","username":"test_user"}`
	exampleSignature = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
)

func TestStandardWebhooksSignsAsItsSpecificationShows(t *testing.T) {
	h := http.Header{}
	err := signStandardWebhooks(h, Content{
		ID: exampleID, Secret: exampleSecret, At: time.Unix(1649367553, 999_999_999),
	}, []byte(exampleBody))
	if err != nil || h.Get("webhook-id") != exampleID || h.Get("webhook-timestamp") != exampleTime ||
		h.Get("webhook-signature") != exampleSignature {
		t.Errorf("got %v, %v", h, err)
	}
	if err := signStandardWebhooks(h, Content{Secret: "whsec_no base64"}, nil); err == nil ||
		strings.Contains(err.Error(), "no base64") {
		t.Errorf("a secret that is none: %v", err)
	}
}

func TestExamineStandard(t *testing.T) {
	at := time.Unix(1649367553, 0)
	for _, tc := range []struct {
		name                     string
		secret, id, time, header string
		body                     string
		late                     time.Duration
		ok, form                 bool
	}{
		{name: "the example is right", ok: true, form: true},
		{name: "five minutes late", late: 5 * time.Minute, ok: true, form: true},
		{name: "later than that", late: 5*time.Minute + time.Second, form: true},
		{name: "too early", late: -5*time.Minute - time.Second, form: true},
		{name: "another body", body: "{}", form: true},
		{name: "another id", id: "msg_2", form: true},
		{name: "another time", time: "1649367554", form: true},
		{name: "another secret", secret: "whsec_D2FVsBQIhrscChlQIMV+b5sSYspob7oD", form: true},
		{name: "the secret without its prefix", secret: exampleSecret[6:], ok: true, form: true},
		{name: "one of several", header: "v1,AAAA v1a,BBBB " + exampleSignature, ok: true, form: true},
		{name: "no base64", header: "v1,%%%", form: true},
		{name: "an asymmetric one alone", header: "v1a,BBBB"},
		{name: "that of the webhook spec", header: "t=1649367553,sha256=00"},
		{name: "no number of seconds", time: "now"},
		{name: "an id with a dot, which the signature could not tell from the time", id: "msg.1"},
		{name: "a secret that is no base64", secret: "whsec_-_"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := ExamineStandard(
				cmp.Or(tc.secret, exampleSecret), cmp.Or(tc.id, exampleID), cmp.Or(tc.time, exampleTime),
				cmp.Or(tc.header, exampleSignature), []byte(cmp.Or(tc.body, exampleBody)), at.Add(tc.late),
				SignatureTolerance)
			if e.OK() != tc.ok || (e.Form == nil) != tc.form {
				t.Errorf("got %+v", e)
			}
		})
	}
}
