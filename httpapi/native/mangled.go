package native

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// mangled refuses paths below "/callback/" that name no consumer. If a callback's path lost its "%2F" on the way, the
// refusal says so. The token shows whether it is such a callback: it must be for the consumer that the path would name.
func (f *Face) mangled(c echo.Context) error {
	r := c.Request()
	nothing := refusal.New(fsm.CodeNotFound,
		"there is no callback at this path; use callback URLs unchanged, including %%2F")
	id, ok := strings.CutPrefix(web.RawPath(r), callbackPrefix)
	if !ok || r.Method != http.MethodPost {
		return nothing
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nothing
	}
	token, err := f.Tokens.Parse(strings.TrimSpace(text))
	if err != nil {
		return nothing
	}
	came, badPath := url.PathUnescape(id)
	meant, badID := url.PathUnescape(token.Consumer)
	if badPath != nil || badID != nil || came != meant {
		return nothing
	}
	f.decoded.Log(f.Control.Log, f.Control.Clock()).Warn(
		"callbacks arrive with a decoded path; a proxy between the workers and Reveille turns %2F into a slash",
		zap.String("consumer", token.Consumer))
	return refusal.New(fsm.CodeNotFound,
		"the path of this callback was decoded on the way: a proxy in between must not "+
			"turn %%2F into a slash")
}
