package operator_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/test/ports"
)

func TestOperatorTestsAnEndpoint(t *testing.T) {
	p := &ports.Tester{}
	h := newHarness(t, func(c *httpapi.Config) { c.Tester = p })
	const path = "/api/v1/subscriptions/a/test"
	h.Want(h.Operator("POST", path, ""), 404, fsm.CodeSubscriptionNotFound, "")
	h.Want(h.Operator("POST", "/api/v1/subscriptions/a:b/test", ""), 400, fsm.CodeInvalidSubscriptionID, "':'")
	h.Subscribe("a", 1)
	if err := h.Store.RefreshCatalog(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub, _ := h.Store.Catalog().Get("a")
	h.Want(h.Operator("POST", path, `{"type":"x"}`), 400, fsm.CodeInvalidRequest, `"type"`)
	h.Want(h.Operator("GET", path, ""), 405, fsm.CodeMethodNotAllowed, "")
	if len(p.Tested) != 0 {
		t.Fatalf("%d were tested", len(p.Tested))
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
		p.Result, p.Tested = c.result, nil
		a := h.Operator("POST", path, "{}")
		if a.Status != 200 || a.Text != c.want+"\n" || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %s, want %s", a.Status, a.Text, c.want)
		}
		if len(p.Tested) != 1 || !p.Tested[0].Equal(sub) {
			t.Errorf("%+v was tested, want %+v", p.Tested, sub)
		}
	}
	if n := h.Logs.FilterMessage("test delivery").Len(); n != 3 {
		t.Errorf("%d are logged, want 3", n)
	}
	p.Err = fsm.ErrTesting
	h.Want(h.Operator("POST", path, ""), 429, fsm.CodeTooManyRequests, "try again")
	p.Err = errors.New("boom")
	h.Want(h.Operator("POST", path, ""), 500, fsm.CodeInternal, "")
	h.Store.Fail(fsm.ErrUnavailable)
	h.Want(h.Operator("POST", path, ""), 503, fsm.CodeUnavailable, "")
}

func TestATestDeliveryMayTakeLongerThanTheTimeOutsOfTheOperatorPort(t *testing.T) {
	h := newHarness(t, func(c *httpapi.Config) {
		c.Tester = &ports.Tester{Takes: 1500 * time.Millisecond, Result: fsm.TestDelivery{Status: 204}}
	})
	h.Subscribe("a", 0)
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
		if a := h.Read(res); a.Status != 200 || a.Body["success"] != true {
			t.Errorf("with the body %q: %d %s", body, a.Status, a.Text)
		}
		_ = res.Body.Close()
	}
}
