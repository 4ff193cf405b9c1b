// Package refusal has the error of a request that is answered with a code.
package refusal

import (
	"fmt"
	"strings"

	"reveille/fsm"
)

// Error refuses a request.
type Error struct {
	Code    fsm.Code
	Message string
}

func (r *Error) Error() string { return string(r.Code) + ": " + r.Message }

// New returns a refusal. Its message is for the client.
func New(code fsm.Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Clipped bounds a name that an answer repeats.
func Clipped(name string) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
