package web

import "reveille/fsm"

// Tested is the result of a test delivery.
type Tested struct {
	Success bool `json:"success"`
	// StatusCode is 0 without an answer of the endpoint.
	StatusCode     int    `json:"status_code"`
	ResponseTimeMS int64  `json:"response_time_ms"`
	ResponseBody   string `json:"response_body"`
	Error          string `json:"error,omitempty"`
}

// TestedOf shows the result of a test delivery.
func TestedOf(t fsm.TestDelivery) Tested {
	return Tested{
		Success: t.Failure == "", StatusCode: t.Status, ResponseTimeMS: t.Took.Milliseconds(),
		ResponseBody: string(t.Body), Error: t.Failure,
	}
}
