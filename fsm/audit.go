package fsm

import (
	"encoding/json"
	"time"
)

// MaxChanges is how many of the latest changes are kept for the audit.
const MaxChanges = 10_000

// Change is a change that somebody asked for. It holds no secret.
type Change struct {
	// ID orders the changes by when they were kept; At is that time. The store sets both.
	ID string    `json:"-"`
	At time.Time `json:"-"`
	// By is the name of the principal, From the address that the request came from. By is empty without keys.
	By   string `json:"by,omitempty"`
	From string `json:"from,omitempty"`
	// What was done, in a few words, such as "subscription paused".
	What string `json:"what"`
	// Subscription is the one that it is about. About is what else: streams, or the ID of a letter, a replay, a
	// delivery, an event or a replica. Both may be empty.
	Subscription string `json:"subscription,omitempty"`
	About        string `json:"about,omitempty"`
	// Count is to how many it was done, of what the words in What name; 0 if it is not counted.
	Count int `json:"count,omitempty"`
	// Before and After are JSON objects with the fields that became others. Before is empty for what was made, After
	// for what was deleted, and both if what was done changes no field.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}
