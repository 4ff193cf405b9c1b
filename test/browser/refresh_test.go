package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"reveille/test/harness"
)

// TestAPageRefreshesItself holds that a page shows what has changed and keeps what the reader does, and that it says so
// if it cannot.
func TestAPageRefreshesItself(t *testing.T) {
	t.Parallel()
	i := install(t, nil)
	receiver := harness.NewReceiver(t)
	i.subscribe("orders", receiver.URL, nil)
	p := open(t, i.rev.Operator, phone, mouse)

	p.visit("/subscriptions/orders")
	p.must("it refreshes every", "✓ ok")
	p.do(chromedp.Evaluate[chromedp.Void](`
		document.getElementById("all").focus();
		document.getElementById("t-stats").scrollLeft = 40;
		window.same = true;`))
	receiver.Answer(func(int, harness.Push) int { return http.StatusServiceUnavailable })
	i.gateway.Append("/orders/1", `{}`)
	p.await("status 503")
	type kept struct {
		Focus    string
		Scrolled int
		Same     bool
	}
	if k := value[kept](p, `({
		Focus: document.activeElement.id, Scrolled: document.getElementById("t-stats").scrollLeft,
		Same: window.same === true,
	})`); k != (kept{"all", 40, true}) {
		t.Errorf("after a refresh there is %+v", k)
	}
	p.clean("a refresh")

	p.press("refresh")
	p.must("does not refresh itself")
	if refresh := value[int](p, `document.querySelectorAll("[hx-get]").length`); refresh != 0 {
		t.Errorf("%d elements refresh themselves", refresh)
	}
	p.press("refresh")
	p.must("it refreshes every")
	p.clean("stopping the refresh")

	i.rev.Kill()
	p.await("Not refreshed")
	i.rev.Start()
	harness.Eventually(t, harness.Wait, "the page is refreshed again", func() error {
		if said := p.says(); strings.Contains(said, "Not refreshed") {
			return fmt.Errorf("%s", said)
		}
		return nil
	})
	for _, text := range p.complained() {
		if !strings.Contains(text, "net::ERR_") && !strings.Contains(text, "status of 503") &&
			!strings.Contains(text, "writes error to the console") {
			t.Errorf("while there is no replica: %s", text)
		}
	}
}
