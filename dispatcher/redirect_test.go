package dispatcher

import (
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
)

// TestWhereARedirectPoints holds what a reason shows of a Location: no user, no path, no query, and no echo of what was
// sent.
func TestWhereARedirectPoints(t *testing.T) {
	sub := fsm.Subscription{
		Webhook: "https://hook.example/in?key=k3y-of-the-hook", Secret: "whsec_of-the-hook",
		Headers: map[string]string{"X-Key": "h3ader"},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sub.Webhook, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"https://new.example/in?key=k3y-of-the-hook":      "https://new.example",
		"https://user:password@new.example:8443/in#token": "https://new.example:8443",
		"https://NEW.example":                             "https://new.example",
		"//new.example/in":                                "https://new.example",
		"https://[2001:db8::1]:8443/":                     "https://[2001:db8::1]:8443",
		"http://hook.example/in":                          "http://hook.example",
		"https://hook.example:8443/in":                    "https://hook.example:8443",
		"/login?next=%2Fin":                               "another path of the same host",
		"in/":                                             "another path of the same host",
		"https://HOOK.example:443/elsewhere":              "another path of the same host",
		"/in?session=1":                                   "the same path of the same host",
		"https://k3y-of-the-hook.example/":                "another host",
		"https://h3ader.example/":                         "another host",
		"https://пример.example/":                         "another host",
		"https://a_b.example/":                            "https://a_b.example",
		"https://a%20b%1b.example/":                       "",
		"https://" + strings.Repeat("a", 101) + "/":       "another host",
		"mailto:x@new.example":                            "",
		"ftp://new.example/":                              "",
		"https://":                                        "",
		"https://new.example:x/":                          "",
		"\x1b[31m":                                        "",
		"%":                                               "",
	} {
		if got := redirectsTo(sub, req, location); got != want {
			t.Errorf("%q points to %q, want %q", location, got, want)
		}
	}
}
