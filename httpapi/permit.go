package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// permits returns the function that says who asks, or why it may not use what needs a role. Without an admin token,
// everybody has all roles. With one, the roles of the operator port belong to who sends it. Who sends the read token
// has the role to read.
func permits(admin, read string) func(*http.Request, fsm.Role) (fsm.Principal, error) {
	all, _ := fsm.ParsePattern(fsm.AllStreams)
	as := func(roles ...fsm.Role) fsm.Principal {
		return fsm.Principal{Roles: append(roles, web.Anyone), Paths: []fsm.Pattern{all}}
	}
	anyone, reader, operator := as(), as(web.RoleRead), as(web.RoleRead, web.RoleOperate)
	who := func(r *http.Request) fsm.Principal {
		given := operatorToken(r)
		switch {
		case admin == "" || same(given, admin):
			return operator
		case read != "" && same(given, read):
			return reader
		}
		return anyone
	}
	return func(r *http.Request, needed fsm.Role) (fsm.Principal, error) {
		if needed == web.Anyone {
			return anyone, nil
		}
		p := who(r)
		switch {
		case p.Has(needed):
			return p, nil
		case !p.Has(web.RoleRead):
			return p, refusal.New(fsm.CodeUnauthorized, "this port asks for a token: send the one of "+
				"REVEILLE_ADMIN_TOKEN or REVEILLE_READ_TOKEN, as a bearer token or as the password of any user")
		}
		if needed == web.RoleOperate {
			return p, refusal.New(fsm.CodeForbidden, "this token may only look: send the one of REVEILLE_ADMIN_TOKEN")
		}
		return p, refusal.New(fsm.CodeForbidden, "this request needs the role %q", needed)
	}
}

// challenge says how to send a token. Browsers ask their users for a password then, but they should not while a page
// refreshes itself.
func challenge(header http.Header, r *http.Request, err error) {
	if refused := new(refusal.Error); !errors.As(err, &refused) || refused.Code != fsm.CodeUnauthorized {
		return
	}
	header.Add("WWW-Authenticate", `Bearer realm="Reveille"`)
	if r.Header.Get("HX-Request") == "" {
		header.Add("WWW-Authenticate", `Basic realm="Reveille", charset="UTF-8"`)
	}
}

// operatorToken is the token that comes with a request: a bearer token, or the password that a browser asks for.
func operatorToken(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// same compares in a time that tells nothing about either text.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
