package native

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/fields"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const consentPrefix = "/consent/"

// isConsent says whether a path is below that of the callbacks by which endpoints agree to deliveries.
func isConsent(raw string) bool {
	canonical, _ := fsm.CanonicalPath(raw) // empty for a path that no stream can have
	return strings.HasPrefix(raw, consentPrefix) || strings.HasPrefix(canonical, consentPrefix)
}

// consent answers the callback by which an endpoint agrees to deliveries (CloudEvents webhook spec,
// WebHook-Request-Callback). Its key says that it comes from the endpoint. An ID that is unknown, a wrong key and one
// that was used are answered alike.
func (f *Face) consent(c echo.Context) error {
	r := c.Request()
	c.Response().Header().Set("Referrer-Policy", "no-referrer") // the URL has the key
	rate, ok := fsm.ParseAllowedRate(r.Header.Values("WebHook-Allowed-Rate"))
	if !ok {
		return refusal.New(fsm.CodeInvalidRequest,
			"the header WebHook-Allowed-Rate must be a whole number above 0, or *")
	}
	id, _ := url.PathUnescape(strings.TrimPrefix(web.RawPath(r), consentPrefix))
	keys, key := web.QueryValues(r.URL.RawQuery, "key"), ""
	if len(keys) == 1 {
		key, _ = url.QueryUnescape(keys[0])
	}
	sub, err := f.Control.Consents.GrantConsent(context.WithoutCancel(r.Context()), id, key, rate)
	switch {
	case errors.Is(err, fsm.ErrNotFound):
		return refusal.New(fsm.CodeNotFound, "this link is unknown, was used before, or has expired")
	case err != nil:
		return err
	case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
		return consentAsPage(c, sub)
	}
	return web.Answer(c, http.StatusOK, web.Members{}.With("subscription_id", sub.ID).
		With("consent", fields.ConsentOf(f.Control.Consents.ConsentOf(sub))), nil)
}

// consentPage says what was agreed. The host is all that it shows of the webhook: the rest may be a secret.
var consentPage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Deliveries allowed</title></head><body>
<h1>Deliveries allowed</h1>
<p><b>{{.Origin}}</b> may now send the events of its subscription <b>{{.ID}}</b> to your endpoint at
<b>{{.Host}}</b>.</p>
<p>{{if .Rate}}It sends at most {{.Rate}} requests a minute.{{else}}There is no limit of requests a minute.{{end}}</p>
</body></html>
`))

func consentAsPage(c echo.Context, sub fsm.Subscription) error {
	host := ""
	if u, err := url.Parse(sub.Webhook); err == nil {
		host = u.Host
	}
	h := c.Response().Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	c.Response().WriteHeader(http.StatusOK)
	_ = consentPage.Execute(c.Response(), struct { // fails only if the client is gone
		Origin, ID, Host string
		Rate             int
	}{sub.Consent.Origin, sub.ID, host, sub.Consent.Rate})
	return nil
}
