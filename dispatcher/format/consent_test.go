package format

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

func TestWhatAnAnswerSaysAboutConsent(t *testing.T) {
	const ours = "eventemitter.example.com"
	h := func(pairs ...string) http.Header {
		header := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			header.Add(pairs[i], pairs[i+1])
		}
		return header
	}
	const origin, rate = "WebHook-Allowed-Origin", "WebHook-Allowed-Rate"
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		state  fsm.ConsentState // empty if the answer is lost
		rate   int
	}{
		{"the text's example", 200, h(origin, ours, rate, "100"), fsm.ConsentGranted, 100},
		{"any origin, any rate", 200, h(origin, "*", rate, "*"), fsm.ConsentGranted, 0},
		{"no rate", 204, h(origin, ours), fsm.ConsentGranted, 0},
		{"the case of DNS names", 200, h(origin, "EventEmitter.Example.COM."), fsm.ConsentGranted, 0},
		{"all twice", 200, h(origin, ours, origin, ours, rate, "5", rate, "5"), fsm.ConsentGranted, 5},
		{"consent by a status that says no", 405, h(origin, ours, rate, "7"), fsm.ConsentGranted, 7},
		{"a redirect that consents", 302, h(origin, "*", "Location", "http://10.0.0.1/"), fsm.ConsentGranted, 0},
		{"a high rate", 200, h(origin, "*", rate, "99999999999999999999"), fsm.ConsentGranted, fsm.MaxRate},
		{"zeros in front", 200, h(origin, "*", rate, "0100"), fsm.ConsentGranted, 100},
		{"Azure Event Grid's name", 200, h(origin, "eventgrid.azure.net", rate, "120"), fsm.ConsentRefused, 0},
		{"Azure Web PubSub's sample", 200, h(origin, "*"), fsm.ConsentGranted, 0},
		{"Azure Event Grid's samples that repeat it", 200, h(origin, ours, rate, "*"), fsm.ConsentGranted, 0},
		{"another origin", 200, h(origin, "other.example.com", rate, "*"), fsm.ConsentRefused, 0},
		{"a name above ours", 200, h(origin, "example.com"), fsm.ConsentRefused, 0},
		{"a longer name", 200, h(origin, ours+".evil.example"), fsm.ConsentRefused, 0},
		{"the beginning of ours, as sdk-go answers", 200, h(origin, "eventemitter."), fsm.ConsentGranted, 0},
		{"such a beginning without a dot", 200, h(origin, "EventEmitter.Example"), fsm.ConsentRefused, 0},
		{"a longer beginning", 200, h(origin, "EventEmitter.Example."), fsm.ConsentGranted, 0},
		{"a beginning within a label", 200, h(origin, "eventemitter.exam"), fsm.ConsentRefused, 0},
		{"a beginning of one letter", 200, h(origin, "e"), fsm.ConsentRefused, 0},
		{"a dot", 200, h(origin, "."), fsm.ConsentUnsupported, 0},
		{"a web origin", 200, h(origin, "https://"+ours), fsm.ConsentUnsupported, 0},
		{"a list", 200, h(origin, ours+", other.example.com"), fsm.ConsentUnsupported, 0},
		{"two origins", 200, h(origin, ours, origin, "other.example.com"), fsm.ConsentUnsupported, 0},
		{"several asterisks", 200, h(origin, "**"), fsm.ConsentUnsupported, 0},
		{"an empty origin", 200, h(origin, ""), fsm.ConsentUnsupported, 0},
		{"null", 200, h(origin, "null"), fsm.ConsentRefused, 0},
		{"a rate of 0", 200, h(origin, ours, rate, "0"), fsm.ConsentUnsupported, 0},
		{"a negative rate", 200, h(origin, ours, rate, "-1"), fsm.ConsentUnsupported, 0},
		{"a rate with a sign", 200, h(origin, ours, rate, "+1"), fsm.ConsentUnsupported, 0},
		{"a broken rate", 200, h(origin, ours, rate, "1.5"), fsm.ConsentUnsupported, 0},
		{"two rates", 200, h(origin, ours, rate, "1", rate, "2"), fsm.ConsentUnsupported, 0},
		{"an empty rate", 200, h(origin, ours, rate, ""), fsm.ConsentUnsupported, 0},
		{"a rate alone", 200, h(rate, "100"), fsm.ConsentUnsupported, 0},
		{"nothing", 200, h(), fsm.ConsentPending, 0},
		{"CORS", 204, h("Access-Control-Allow-Origin", "*", "Allow", "POST"), fsm.ConsentPending, 0},
		{"the request's own header", 200, h("WebHook-Request-Origin", "*"), fsm.ConsentPending, 0},
		{"not found", 404, h(), fsm.ConsentPending, 0},
		{"a redirect", 301, h("Location", "http://10.0.0.1/"), fsm.ConsentPending, 0},
		{"no OPTIONS", 405, h("Allow", "POST"), fsm.ConsentUnsupported, 0},
		{"no OPTIONS now", 405, h("Retry-After", "1"), fsm.ConsentUnsupported, 0},
		{"not implemented", 501, h(), fsm.ConsentUnsupported, 0},
		{"a proxy without its server", 502, h(), "", 0},
		{"too many", 429, h("Retry-After", "1"), "", 0},
	} {
		got := JudgeConsent(ours, tt.status, tt.header, time.Now())
		if got.State != tt.state || got.Rate != tt.rate || got.Lost != (tt.state == "") {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if got.RetryAfter != 0 && got.State != "" {
			t.Errorf("%s: %s", tt.name, got.RetryAfter)
		}
		if (got.Reason == "") != (got.State == fsm.ConsentGranted) || strings.Contains(got.Reason, "example.com") {
			t.Errorf("%s: the reason is %q", tt.name, got.Reason)
		}
		if got.Withheld && len(tt.header.Values(origin)) > 0 {
			t.Errorf("%s: withheld", tt.name)
		}
	}
}

func TestAnAnswerAsksToBeLeftAlone(t *testing.T) {
	header := http.Header{"Retry-After": {"1800"}}
	if got := JudgeConsent("a.example", http.StatusServiceUnavailable, header, time.Now()); !got.Lost ||
		got.RetryAfter != 30*time.Minute {
		t.Errorf("%+v", got)
	}
}

func TestARequestForConsentNamesTheOrigin(t *testing.T) {
	header := http.Header{}
	AskConsent(header, "a.example", "https://a.example/consent/s?key=k", 0)
	if header.Get("WebHook-Request-Origin") != "a.example" || len(header) != 2 ||
		header.Get("WebHook-Request-Callback") != "https://a.example/consent/s?key=k" {
		t.Errorf("%v", header)
	}
	if AskConsent(header, "a.example", "", 120); header.Get("WebHook-Request-Rate") != "120" {
		t.Errorf("%v", header)
	}
}
