package format

import (
	"encoding/json"
	"time"

	"reveille/fsm"
)

// TestType is the type of a test delivery's event.
const TestType = "webhook.test"

// TestIDPrefix begins the ID of a test delivery.
const TestIDPrefix = "test_"

// OfTest returns the format of a test delivery. A subscription of fsm.ModeWake gets the event, too: a wake would name a
// consumer and a token, which a test does not have.
func OfTest(sub fsm.Subscription) (Format, error) {
	f, err := Of(sub)
	switch f := f.(type) {
	case wake:
		return push{plainJSON{1}, f.sign}, nil
	case outbox:
		return push{plainJSON{1}, f.sign}, nil
	}
	return f, err
}

// TestBatch returns the event of a test delivery. It has no stream.
func TestBatch(sub fsm.Subscription, id string, at time.Time) fsm.Batch {
	event, err := json.Marshal(struct {
		Type         string    `json:"type"`
		ID           string    `json:"id"`
		Subscription string    `json:"subscription_id"`
		Time         time.Time `json:"time"`
	}{TestType, id, sub.ID, at.UTC().Truncate(time.Millisecond)})
	if err != nil {
		panic("format: " + err.Error()) // cannot happen: texts and a time of today
	}
	return fsm.Batch{ContentType: "application/json", JSON: true, Events: [][]byte{event}}
}
