package web

import (
	"cmp"
	"net/http"

	"reveille/fsm"
)

var statuses = map[fsm.Code]int{
	fsm.CodeInvalidRequest:        http.StatusBadRequest,
	fsm.CodeTokenExpired:          http.StatusUnauthorized,
	fsm.CodeTokenInvalid:          http.StatusUnauthorized,
	fsm.CodeAlreadyClaimed:        http.StatusConflict,
	fsm.CodeInvalidOffset:         http.StatusConflict,
	fsm.CodeStaleEpoch:            http.StatusConflict,
	fsm.CodeConsumerGone:          http.StatusGone,
	fsm.CodeInvalidSubscriptionID: http.StatusBadRequest,
	fsm.CodeInvalidPattern:        http.StatusBadRequest,
	fsm.CodeInvalidWebhook:        http.StatusBadRequest,
	fsm.CodeSubscriptionConflict:  http.StatusConflict,
	fsm.CodeSubscriptionNotFound:  http.StatusNotFound,
	fsm.CodeBodyTooLarge:          http.StatusRequestEntityTooLarge,
	fsm.CodeInvalidPath:           http.StatusBadRequest,
	fsm.CodeNotFound:              http.StatusNotFound,
	fsm.CodeIdempotencyConflict:   http.StatusConflict,
	fsm.CodeCancelRefused:         http.StatusConflict,
	fsm.CodeReplayRefused:         http.StatusConflict,
	fsm.CodeRetryRefused:          http.StatusConflict,
	fsm.CodeRequestUnknown:        http.StatusConflict,
	fsm.CodeEventsGone:            http.StatusGone,
	fsm.CodeEventsChanged:         http.StatusConflict,
	fsm.CodeSubscriptionChanged:   http.StatusConflict,
	fsm.CodeStreamNotJSON:         http.StatusConflict,
	fsm.CodeNotImplemented:        http.StatusNotImplemented,
	fsm.CodeMethodNotAllowed:      http.StatusMethodNotAllowed,
	fsm.CodeForbidden:             http.StatusForbidden,
	fsm.CodeUnauthorized:          http.StatusUnauthorized,
	fsm.CodeUnsupportedMediaType:  http.StatusUnsupportedMediaType,
	fsm.CodeTooManyRequests:       http.StatusTooManyRequests,
	fsm.CodeUnavailable:           http.StatusServiceUnavailable,
	fsm.CodeUpstreamUnavailable:   http.StatusBadGateway,
	fsm.CodeInternal:              http.StatusInternalServerError,
}

// Status returns the HTTP status that goes with a code.
func Status(c fsm.Code) int {
	return cmp.Or(statuses[c], http.StatusInternalServerError)
}
