package fsm

import "testing"

// TestAnOriginHasOneFormHoweverItIsWritten holds what counts as the same endpoint.
func TestAnOriginHasOneFormHoweverItIsWritten(t *testing.T) {
	for origin, webhooks := range map[string][]string{
		"https://example.com:443": {
			"https://example.com/a", "HTTPS://EXAMPLE.com/b?c", "https://example.com:443", "https://example.com.:0443/",
			"https://ｅｘａｍｐｌｅ.com/", "https://example。com/", "https://user@example.com/",
		},
		"http://example.com:80":             {"http://example.com/a", "http://example.com:80/b"},
		"https://xn--bcher-kva.example:443": {"https://bücher.example/", "https://BÜCHER.example/"},
		"https://93.184.216.34:443": {
			"https://93.184.216.34/", "https://[::FFFF:5db8:d822]/", "https://[::ffff:93.184.216.34]:443/",
			"https://[0:0:0:0:0:ffff:5db8:d822]/", "https://[64:ff9b::5db8:d822]/", "https://[64:ff9b::93.184.216.34]/",
		},
		"https://[2606:4700::1111]:443": {"https://[2606:4700:0:0:0:0:0:1111]:443/"},
		"":                              {"", "no URL", "https://", "https://a..b/", "https://%zz/"},
	} {
		for _, webhook := range webhooks {
			if got := (Subscription{Webhook: webhook}).Origin(); got != origin {
				t.Errorf("%s has the origin %q, want %q", webhook, got, origin)
			}
		}
	}
}
