package browser

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// failure is an endpoint that fails in one way, and how an operator understands and mends that.
type failure struct {
	name string
	// endpoint starts it.
	endpoint func(i *installation) *endpoint
	// overview, reason and advice are what the overview, and then the attempt, say.
	overview, reason, advice string
	// mend is what is done elsewhere, beside mending the endpoint, and button what is then pressed.
	mend   func(i *installation, name string, e *endpoint)
	button string
}

const (
	retry, resume, replay = "do-retry", "do-resume", "all-replay"
	// rotated is the endpoint that does not know the new secret.
	rotated = "s401"
)

// served starts an endpoint that fails with an answer.
func served(fail http.HandlerFunc) func(*installation) *endpoint {
	return func(i *installation) *endpoint {
		e := newEndpoint(i.t, fail)
		e.serve("127.0.0.1:0")
		return e
	}
}

// failures are the ways in which endpoints fail.
func failures(t *testing.T, trusted *harness.CA) []failure {
	t.Helper()
	of := func(before *tls.Config) func(*installation) *endpoint {
		return func(i *installation) *endpoint {
			e := newEndpoint(i.t, nil)
			e.before, e.after = before, trusted.ServerTLS()
			e.serve("127.0.0.1:0")
			return e
		}
	}
	wrong := func(change func(*x509.Certificate)) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{trusted.Certificate(t, change)}}
	}
	return []failure{
		{"refused", func(i *installation) *endpoint {
			e := newEndpoint(i.t, nil)
			e.URL = fmt.Sprintf("http://127.0.0.1:%d", harness.FreePort(i.t))
			return e
		}, "failing", "refused", "Check that the endpoint runs", func(_ *installation, _ string, e *endpoint) {
			e.serve(strings.TrimPrefix(e.URL, "http://"))
		}, retry},
		{
			"reset", served(resets),
			"failing", "closed", "Check that the endpoint runs", nil, retry,
		},
		{"dns", func(i *installation) *endpoint {
			e := newEndpoint(i.t, nil)
			e.URL = "http://no-such-host.invalid/"
			return e
		}, "failing", "does not resolve", "Check the name", func(i *installation, name string, e *endpoint) {
			e.serve("127.0.0.1:0")
			a := i.gateway.Do(http.MethodPatch, "/**?subscription="+name, fmt.Sprintf(`{"webhook":%q}`, e.URL))
			if a.Status != http.StatusOK {
				i.t.Fatal(a)
			}
		}, retry},
		{
			"expired", of(wrong(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })),
			"failing", "the TLS certificate has expired", "Look at the reason", nil, retry,
		},
		{"name", of(wrong(func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = nil, []string{"other.example"}
		})), "failing", "the TLS certificate is not for this host name", "Look at the reason", nil, retry},
		{
			"authority", of(harness.NewCA(t).ServerTLS()),
			"failing", "signed by an unknown authority", "Look at the reason", nil, retry,
		},
		{"hangs", served(hangs), "failing", "no answer in time", "answer first and work later", nil, retry},
		{"hangs-later", served(hangsLater), "failing", "status 500", "at the log of the endpoint", nil, retry},
		{"slow", served(slow), "failing", "no answer in time", "answer first and work later", nil, retry},
		{
			"s302", served(status(302)),
			"refusing", "status 302", "the address that the endpoint redirects to", nil, replay,
		},
		{rotated, func(i *installation) *endpoint {
			e := newEndpoint(i.t, nil)
			e.serve("127.0.0.1:0")
			return e
		}, "refusing", "status 401", "check the authorization and the secret", nil, replay},
		{"s404", served(status(404)), "refusing", "status 404", "With 404, check the address", nil, replay},
		{"s410", served(status(410)), "retired", "status 410", "mend the endpoint and resume", nil, resume},
		{"s413", served(status(413)), "refusing", "status 413", "Look at the status and the answer", nil, replay},
		{"s429", served(status(429)), "asked to wait", "status 429", "A lower rate", nil, retry},
		{"s500", served(status(500)), "failing", "status 500", "at the log of the endpoint", nil, retry},
		{"s503", served(status(503)), "failing", "status 503", "the endpoint's load", nil, retry},
	}
}

// TestEndpointsAreMendedInFourClicks goes from the overview to an endpoint that fails, for each way to fail: to its
// subscription, to the attempt that failed, back, and to the button that mends it.
func TestEndpointsAreMendedInFourClicks(t *testing.T) {
	t.Parallel()
	trusted := harness.NewCA(t)
	i := install(t, map[string]string{"SSL_CERT_FILE": trusted.File})
	p := open(t, i.rev.Operator, screen, mouse)
	for _, f := range failures(t, trusted) {
		t.Run(f.name, func(t *testing.T) {
			i, p := i.of(t), p.of(t)
			e := f.endpoint(i)
			timeout := "1m"
			if strings.HasPrefix(f.reason, "no answer") {
				timeout = "5s"
			}
			sub, secret := i.subscribe(f.name, e.URL, map[string]any{"timeout": timeout}), ""
			if f.name == rotated {
				e.mend(sub.Secret)
				_, out, errs := i.rev.Ask("", "rotate-secret", f.name, "--overlap", "0s")
				if secret = strings.Fields(out + " - - -")[2]; !strings.HasPrefix(secret, "whsec_") {
					t.Fatal(errs)
				}
			}
			i.gateway.Append("/"+f.name+"/1", `{"n":1}`)
			harness.Eventually(t, harness.Wait, "the overview says what is wrong", func() error {
				p.visit("/")
				row := value[string](p, fmt.Sprintf(
					`(document.getElementById("w-" + %q)?.closest("tr").innerText || document.body.innerText)`, f.name))
				if !strings.Contains(row, f.overview) || !strings.Contains(row, f.reason) {
					return fmt.Errorf("%s", row)
				}
				return nil
			})

			p.press("w-" + f.name)
			p.await(f.advice) // of the delivery log, which is written a little later
			p.must(f.overview, f.reason)
			p.press(value[string](p, fmt.Sprintf("document.querySelector('[id^=%q]').id", "d-"+f.name+"-")))
			p.must(f.reason, f.advice)
			if code, isStatus := strings.CutPrefix(f.reason, "status "); isStatus {
				p.must("this endpoint answers " + code)
			}
			p.press("of")
			e.mend(secret)
			if f.mend != nil {
				f.mend(i, f.name, e)
			}
			p.press(f.button)
			e.await()
			harness.Eventually(t, harness.Wait, "the subscription is well", func() error {
				p.visit("/subscriptions/" + f.name)
				if said := p.says(); !strings.Contains(said, "✓ ok") || !strings.Contains(said, "\n0 pending") {
					return fmt.Errorf("%s", said)
				}
				return nil
			})
			p.clean(f.name)
		})
	}
}
