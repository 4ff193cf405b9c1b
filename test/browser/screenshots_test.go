package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"reveille/test/harness"
)

// TestScreenshots makes the pictures of the documents in the folder SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		t.Skip("make screenshots runs it")
	}
	i := install(t, nil)
	takes := answers(t, http.StatusNoContent, "")
	for id, endpoint := range map[string]string{
		"billing": takes, "search-index": takes, "emails": takes,
		"invoices": answers(t, http.StatusServiceUnavailable, `{"error":"the database is being moved"}`),
		"crm":      answers(t, http.StatusUnprocessableEntity, `{"error":"amount must be a number"}`),
	} {
		i.subscribe(id, endpoint, nil)
		for n := range 12 {
			path := fmt.Sprintf("/%s/%d", id, 2+n%4)
			if n < 4 {
				i.gateway.Create(path)
			}
			i.gateway.Append(path, fmt.Sprintf(`{"n":%d}`, n))
		}
	}
	harness.Eventually(t, harness.Wait, "the endpoint has refused all", func() error {
		if n := len(i.letters("crm")); n != 12 {
			return fmt.Errorf("%d dead letters", n)
		}
		return nil
	})
	dark := screen
	dark.scheme = "dark"
	for _, picture := range []struct {
		name, target, says string
		look               look
	}{
		{"overview-light", "/", "0 without a replica", screen},
		{"overview-dark", "/", "0 without a replica", dark},
		{"subscription-phone", "/subscriptions/invoices", "Who changed it", phone},
	} {
		p := open(t, i.rev.Operator, picture.look, mouse)
		p.visit(picture.target)
		p.await(picture.says)
		image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, picture.name+".png"), image, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
