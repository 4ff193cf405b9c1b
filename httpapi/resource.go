package httpapi

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
)

// resource is one of Reveille's own on the API port: what it answers each of its methods, and what it says to other
// methods.
type resource struct {
	methods []method
	usage   string
	// refusal, if set, is the answer to every method.
	refusal func() error
}

type method struct {
	name   string
	handle echo.HandlerFunc
}

// refusing is a resource that refuses every request.
func refusing(because func() error) *resource { return &resource{refusal: because} }

// answer answers a request. OPTIONS and the headers of CORS are as the origins say, and never those of upstream.
func (res *resource) answer(c echo.Context, from origins) error {
	r, header := c.Request(), c.Response().Header()
	from.mark(header, r)
	if res.refusal != nil {
		return res.refusal()
	}
	if r.Method == http.MethodOptions {
		header.Set("Allow", res.allow())
		from.preflight(header, r, res.allow())
		header.Set("Cache-Control", "no-store")
		return c.NoContent(http.StatusNoContent)
	}
	for _, m := range res.methods {
		if m.name == r.Method {
			return m.handle(c)
		}
	}
	header.Set("Allow", res.allow())
	return refuse(fsm.CodeMethodNotAllowed, "%s", res.usage)
}

func (res *resource) allow() string {
	names := make([]string, 0, len(res.methods))
	for _, m := range res.methods {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}
