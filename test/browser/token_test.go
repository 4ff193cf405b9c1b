package browser

import (
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
