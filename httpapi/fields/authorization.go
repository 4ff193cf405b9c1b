package fields

import (
	"cmp"
	"maps"
	"net/url"
	"strings"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	headerAuthorization = "Authorization"
	// maxParameter bounds the name of the query's parameter that an authorization goes into.
	maxParameter = 64
)

// showAuthorization shows where an authorization goes. It never shows the secret itself, and a PUT refuses this form of
// it.
func showAuthorization(authorization any) any {
	if a := authorization.(fsm.Authorization); a.Query != "" {
		return map[string]string{"query": a.Query}
	}
	return map[string]string{"header": headerAuthorization}
}

// readAuthorization reads what proves to the endpoint that a delivery is allowed. Its errors have no secret.
func (Reader) readAuthorization(o web.Object) (setting, error) {
	const name = "authorization"
	a, err := fsm.Authorization{}, error(nil)
	switch raw := o[name]; {
	case web.IsNull(raw):
	case raw[0] == '{':
		a, err = readParameter(o)
	default:
		if a.Secret, err = web.Value[string](raw, name, "a string, or an object with query and token"); err == nil {
			err = cmp.Or(checkSecret(name, a.Secret), checkHeaderValue(name, a.Secret))
		}
	}
	return always(func(sub *fsm.Subscription) { sub.Authorization = a }), err
}

func readParameter(o web.Object) (a fsm.Authorization, err error) {
	const query, token = "authorization.query", "authorization.token"
	fields, err := web.Required[web.Object](o, "authorization", "an object with query and token")
	if err != nil {
		return a, err
	}
	fields = fields.Under("authorization")
	if err = fields.Only(query, token); err != nil {
		return a, err
	}
	if a.Query, err = web.Required[string](fields, query, "the name of a parameter"); err != nil {
		return a, err
	}
	if !isToken(a.Query) || len(a.Query) > maxParameter {
		return a, refusal.New(fsm.CodeInvalidRequest,
			"%s must have 1 to %d characters, of those that the name of a header has", query, maxParameter)
	}
	if a.Secret, err = web.Required[string](fields, token, "a string"); err != nil {
		return a, err
	}
	return a, checkSecret(token, a.Secret)
}

func checkSecret(name, secret string) error {
	if strings.TrimSpace(secret) == "" {
		return refusal.New(fsm.CodeInvalidRequest, "%s is empty", name)
	}
	return checkText(name, secret)
}

// checkAuthorization refuses an authorization beside another one, or one that makes the headers too large.
func checkAuthorization(sub fsm.Subscription) error {
	a := sub.Authorization
	_, header := sub.Headers[headerAuthorization]
	switch {
	case a.Secret == "":
	case header:
		return refusal.New(fsm.CodeInvalidRequest,
			"headers has Authorization, and authorization is set: one of them only")
	case a.Query == "" && headerBytes(sub.Headers)+len(headerAuthorization)+len(a.Secret) > maxHeaderBytes:
		return refusal.New(fsm.CodeInvalidRequest, "headers and authorization must have at most %d bytes together",
			maxHeaderBytes)
	case a.Query != "" && hasParameter(sub.Webhook, a.Query):
		return refusal.New(fsm.CodeInvalidRequest, "authorization.query is %q, which the query of webhook has already",
			a.Query)
	}
	return nil
}

// hasParameter says whether the query of a webhook has a parameter, for any reader: some take ";" for "&".
func hasParameter(webhook, name string) bool {
	_, query, _ := strings.Cut(webhook, "?")
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
		if key == name {
			return true
		}
	}
	return false
}

// checkMove refuses a change that would send the secrets of a subscription to another party. The argument bare is what
// the change makes of the subscription without them.
func checkMove(was, bare, sub fsm.Subscription) error {
	if party(was.Webhook) == party(sub.Webhook) {
		return nil
	}
	var kept []string
	if bare.Authorization != sub.Authorization {
		kept = append(kept, "authorization")
	}
	if !maps.Equal(bare.Headers, sub.Headers) {
		kept = append(kept, "headers")
	}
	if len(kept) == 0 {
		return nil
	}
	return refusal.New(fsm.CodeInvalidRequest,
		"webhook has another scheme, host or port, which would get what %s has for "+
			"the old one: give it anew in the same request, or take it away with null", strings.Join(kept, " and "))
}

// party identifies the receiver of a URL's requests: scheme, host and port.
func party(webhook string) string {
	u, err := url.Parse(webhook)
	if err != nil {
		return webhook
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
