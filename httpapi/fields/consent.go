package fields

import (
	"time"

	"reveille/fsm"
	"reveille/httpapi/web"
)

// Consent shows what an endpoint has said about deliveries. It has no key.
type Consent struct {
	State  fsm.ConsentState `json:"state"`
	Origin string           `json:"origin"`
	// Rate is in requests a minute.
	Rate int `json:"rate,omitempty"`
	// Until is when the endpoint is asked again.
	Until   *time.Time `json:"until,omitempty"`
	AskedAt *time.Time `json:"asked_at,omitempty"`
	Reason  string     `json:"reason,omitempty"`
}

// ConsentOf shows a consent.
func ConsentOf(c fsm.Consent) Consent {
	return Consent{
		State: c.State, Origin: c.Origin, Rate: c.Rate, Until: web.Time(c.Until), AskedAt: web.Time(c.AskedAt),
		Reason: c.Reason,
	}
}
