package outbox

import (
	"encoding/json"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
)

// event is an event in an answer (delivery semantics, Storage). Times are in milliseconds since 1970.
type event struct {
	ID            string           `json:"id"`
	Key           string           `json:"idempotency_key"`
	Provider      *string          `json:"provider"`
	Type          string           `json:"event_type"`
	Payload       json.RawMessage  `json:"payload,omitempty"`
	Target        string           `json:"target_url"`
	Status        fsm.OutboxStatus `json:"status"`
	Attempts      int              `json:"attempts"`
	MaxAttempts   int              `json:"max_attempts"`
	NextRetryAt   *int64           `json:"next_retry_at"`
	LastAttemptAt *int64           `json:"last_attempt_at"`
	LastError     *string          `json:"last_error"`
	LastStatus    *int             `json:"last_status_code"`
	DeliveredAt   *int64           `json:"delivered_at"`
	CreatedAt     int64            `json:"created_at"`
	ExpiresAt     *int64           `json:"expires_at"`
	Metadata      json.RawMessage  `json:"metadata"`
	DeliverAt     *int64           `json:"deliver_at,omitempty"`
	ReplayOf      *string          `json:"replay_of,omitempty"`
	// History has the last attempts, the first of them first. Lists leave it out.
	History []try `json:"history,omitempty"`
}

type try struct {
	At     int64   `json:"at"`
	Status *int    `json:"status_code"`
	Error  *string `json:"error"`
}

func (f *Face) bodyOf(h control.Handed, payload string) event {
	e := h.Event
	body := event{
		ID: e.ID, Key: e.Key, Provider: orNull(e.Provider), Type: e.Type, Payload: json.RawMessage(payload),
		Target: e.Target,
		Status: h.OutboxState.Status, Attempts: h.OutboxState.Attempts,
		MaxAttempts: f.Outbox.Config().Most(e), NextRetryAt: millis(h.NextRetryAt),
		LastAttemptAt: millis(h.LastAttemptAt),
		LastError:     orNull(h.LastError), LastStatus: orNull(h.LastStatus), DeliveredAt: millis(h.DeliveredAt),
		CreatedAt: e.CreatedAt, ExpiresAt: millis(h.ExpiresAt), Metadata: e.Metadata, ReplayOf: orNull(e.ReplayOf),
		DeliverAt: orNull(e.DeliverAt),
	}
	for _, t := range h.Tries {
		body.History = append(body.History, try{t.At.UnixMilli(), orNull(t.Status), orNull(t.Error)})
	}
	if body.Metadata == nil {
		body.Metadata = json.RawMessage("null")
	}
	return body
}

// orNull is a value in an answer; null if it is zero.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMilli()
	return &n
}
