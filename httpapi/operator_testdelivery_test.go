package httpapi

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// tester is a Tester that notes whose endpoint it is to test.
type tester struct {
	// takes is how long a test takes.
	takes  time.Duration
	result fsm.TestDelivery
	err    error
	tested []fsm.Subscription
}

func (p *tester) Test(ctx context.Context, sub fsm.Subscription) (fsm.TestDelivery, error) {
	p.tested = append(p.tested, sub)
	if p.takes > 0 {
		select {
		case <-ctx.Done():
			return fsm.TestDelivery{}, ctx.Err()
		case <-time.After(p.takes):
		}
	}
	return p.result, p.err
}

func TestOperatorTestsAnEndpoint(t *testing.T) {
	p := &tester{}
	h := newHarness(t, func(c *Config) { c.Tester = p })
	const path = "/api/v1/subscriptions/a/test"
	h.want(h.operator("POST", path, ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.want(h.operator("POST", "/api/v1/subscriptions/a:b/test", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.subscribe("a", 1)
	if err := h.store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub, _ := h.store.Catalog().Get("a")
	h.want(h.operator("POST", path, `{"type":"x"}`), 400, fsm.CodeInvalidRequest, `"type"`)
	h.want(h.operator("GET", path, ""), 405, fsm.CodeMethodNotAllowed, "")
	if len(p.tested) != 0 {
		t.Fatalf("%d were tested", len(p.tested))
	}
	for _, c := range []struct {
		result fsm.TestDelivery
		want   string
	}{
		{
			fsm.TestDelivery{Status: 204, Took: 12345 * time.Microsecond},
			`{"success":true,"status_code":204,"response_time_ms":12,"response_body":""}`,
		},
		{
			fsm.TestDelivery{Status: 401, Took: time.Second, Body: []byte("<b>\xff"), Failure: "status 401"},
			`{"success":false,"status_code":401,"response_time_ms":1000,"response_body":"<b>\ufffd",` +
				`"error":"status 401"}`,
		},
		{
			fsm.TestDelivery{Failure: "connection refused"},
			`{"success":false,"status_code":0,"response_time_ms":0,"response_body":"","error":"connection refused"}`,
		},
	} {
		p.result, p.tested = c.result, nil
		a := h.operator("POST", path, "{}")
		if a.status != 200 || a.text != c.want+"\n" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %s, want %s", a.status, a.text, c.want)
		}
		if len(p.tested) != 1 || !p.tested[0].Equal(sub) {
			t.Errorf("%+v was tested, want %+v", p.tested, sub)
		}
	}
	if n := h.logs.FilterMessage("test delivery").Len(); n != 3 {
		t.Errorf("%d are logged, want 3", n)
	}
	p.err = fsm.ErrTesting
	h.want(h.operator("POST", path, ""), 429, fsm.CodeTooManyRequests, "try again")
	p.err = errors.New("boom")
	h.want(h.operator("POST", path, ""), 500, fsm.CodeInternal, "")
	h.store.fail(fsm.ErrUnavailable)
	h.want(h.operator("POST", path, ""), 503, fsm.CodeUnavailable, "")
}

func TestATestDeliveryMayTakeLongerThanTheTimeOutsOfTheOperatorPort(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.Tester = &tester{takes: 1500 * time.Millisecond, result: fsm.TestDelivery{Status: 204}}
	})
	h.subscribe("a", 0)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = h.svc.OperatorServer("")
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	srv.Start()
	defer srv.Close()
	for _, body := range []string{"", "{}"} {
		at := srv.URL + "/api/v1/subscriptions/a/test"
		res, err := srv.Client().Post(at, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if a := h.read(res); a.status != 200 || a.body["success"] != true {
			t.Errorf("with the body %q: %d %s", body, a.status, a.text)
		}
		_ = res.Body.Close()
	}
}
