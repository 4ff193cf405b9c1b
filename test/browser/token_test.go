package browser

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"reveille/test/harness"
)

// TestABrowserSendsTheTokenThatItWasGiven holds that a page also refreshes itself with the token, and that the one for
// those who look shows no button.
func TestABrowserSendsTheTokenThatItWasGiven(t *testing.T) {
	t.Parallel()
	const admin, read = "the-admin-token-of-a-browser", "the-read-token-of-a-browser"
	i := install(t, map[string]string{"REVEILLE_ADMIN_TOKEN": admin, "REVEILLE_READ_TOKEN": read})
	receiver := harness.NewReceiver(t)
	i.subscribe("orders", receiver.URL, nil)
	receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	with := func(token string) *tab {
		p := open(t, i.rev.Operator, screen, mouse)
		p.do(chromedp.Navigate(strings.Replace(p.origin, "://", "://me:"+token+"@", 1)))
		p.visit("/subscriptions/orders")
		p.complained() // of the token in the first address
		p.visit("/subscriptions/orders")
		return p
	}

	reader := with(read)
	reader.must("✓ ok", "your token may only look")
	if buttons := value[int](reader, `document.querySelectorAll("form[method=post]").length`); buttons != 0 {
		t.Errorf("there are %d buttons", buttons)
	}
	i.gateway.Append("/orders/1", `{}`)
	reader.await("status 503")
	reader.clean("with the read token")

	p := with(admin)
	p.press("do-pause")
	p.must("orders is paused")
	p.clean("with the admin token")
}

// TestAnOpenPageSaysThatItsTokenIsNotValidAnyMore holds that a page keeps what it shows then, asks for no password, and
// says what to do.
func TestAnOpenPageSaysThatItsTokenIsNotValidAnyMore(t *testing.T) {
	t.Parallel()
	const before, after = "the-token-before-the-change", "the-token-after-the-change"
	i := install(t, map[string]string{"REVEILLE_ADMIN_TOKEN": before})
	i.subscribe("orders", harness.NewReceiver(t).URL, nil)
	p := open(t, i.rev.Operator, screen, mouse)
	with := func(token string) string { return strings.Replace(p.origin, "://", "://me:"+token+"@", 1) }
	p.do(chromedp.Navigate(with(before)))
	p.visit("/subscriptions/orders")
	p.must("✓ ok", "it refreshes every")
	p.complained() // of the token in the first address

	i.rev.Kill()
	settings := maps.Clone(i.settings)
	maps.Copy(settings, map[string]string{
		"REVEILLE_ADMIN_TOKEN": after, "REVEILLE_LISTEN_ADDR": strings.TrimPrefix(i.rev.URL, "http://"),
		"REVEILLE_OPERATOR_ADDR": strings.TrimPrefix(i.rev.Operator, "http://"),
	})
	next := harness.NewReveille(t, settings)
	next.URL, next.Operator = i.rev.URL, i.rev.Operator
	next.Start()
	p.await("Not refreshed: your token is not valid any more: load the page again.")
	p.must("✓ ok")
	for _, text := range p.complained() {
		if !strings.Contains(text, "net::ERR_") && !strings.Contains(text, "status of 401") &&
			!strings.Contains(text, "status of 503") && !strings.Contains(text, "writes error to the console") {
			t.Errorf("before it is loaded again: %s", text)
		}
	}

	p.do(chromedp.Navigate(with(after)))
	p.visit("/subscriptions/orders")
	p.must("✓ ok", "it refreshes every")
	if told := value[string](p, `document.getElementById("told").textContent`); told != "" {
		t.Errorf("with the new token, it says %q", told)
	}
}
