package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/ojs"
	"reveille/httpapi/web"
	"reveille/test/ports"
)

// ownTargets has a request for each resource of the API port, in the order of the table.
var ownTargets = []string{
	ojs.Subscriptions, ojs.Subscriptions + "/sub_1", ojs.Subscriptions + "/sub_1/test",
	ojs.Subscriptions + "/sub_1/rotate-secret",
	ojs.Deliveries, ojs.Deliveries + "/evt_1", ojs.Deliveries + "/evt_1/retry", ojs.Root + "/events",
	"/a/*?subscription=s", "/**?subscriptions", "/callback/s:%2Fa", "/callback/s:/a", "/consent/s?key=k", "/a/__ds/b",
}

// serve has both ports answer by another table.
func (h *harness) serve(table []web.Resource) {
	h.svc.table = table
	h.svc.api, h.svc.operator = h.svc.newAPI(), h.svc.newOperator()
	h.Harness.Serve(h.svc.API(), h.svc.Operator())
}

func TestEachResourceAnswersTheMethodsThatItNamesAndNoOther(t *testing.T) {
	h := newHarness(t, func(c *Config) {
		c.Pprof, c.MetricsPage, c.OJSStreams = true, http.NotFoundHandler(), "/ojs/**"
		c.Consents = &ports.Consents{}
	})
	table := h.svc.resources()
	for i := range table {
		for j, m := range table[i].Methods {
			table[i].Methods[j].Handle = func(c echo.Context) error {
				return c.String(http.StatusOK, fmt.Sprint(i, " by ", m.Name))
			}
		}
	}
	h.serve(table)
	left, example := ownTargets, strings.NewReplacer(":id", "s", "*", "s:%2Fa")
	for i, res := range table {
		ask, target := h.Operator, example.Replace(res.Route)
		if res.Route == "" {
			if len(left) == 0 {
				t.Fatalf("ownTargets has no request for resource %d of the table", i)
			}
			ask, target, left = h.API, left[0], left[1:]
		}
		for _, name := range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "PURGE"} {
			a := ask(name, target, "")
			named := slices.ContainsFunc(res.Methods, func(m web.Method) bool { return m.Name == name })
			switch {
			case named || res.Methods[0].Name == web.Every:
				by := name
				if !named {
					by = web.Every
				}
				if want := fmt.Sprint(i, " by ", by); a.Status != http.StatusOK || a.Text != want {
					t.Errorf("%s %s: %d %s, want %q", name, target, a.Status, a.Text, want)
				}
			case name == http.MethodOptions:
				if a.Status != http.StatusNoContent || a.Header.Get("Allow") != res.Allow() {
					t.Errorf("%s %s: %d, Allow %q", name, target, a.Status, a.Header.Get("Allow"))
				}
			default:
				h.Want(a, http.StatusMethodNotAllowed, fsm.CodeMethodNotAllowed, res.Usage)
				if a.Header.Get("Allow") != res.Allow() {
					t.Errorf("%s %s: Allow %q", name, target, a.Header.Get("Allow"))
				}
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("there is no resource for %q", left)
	}
}

func TestAResourceIsForItsRole(t *testing.T) {
	const reader fsm.Role = "reader"
	h := newHarness(t, nil)
	h.svc.permit = func(r *http.Request, needed fsm.Role) (fsm.Principal, error) {
		if needed == reader && r.Header.Get("Authorization") == "Bearer of-a-reader" {
			return permit(r, web.Anyone)
		}
		return permit(r, needed)
	}
	report := web.Get(func(c echo.Context) error {
		web.WriteJSON(c.Response(), http.StatusOK, map[string]string{"is": "a report"})
		return nil
	})
	at := func(path string) func(string) bool { return func(raw string) bool { return raw == path } }
	h.serve(append(h.svc.resources(),
		web.Resource{Path: at("/report"), Role: reader, Methods: report},
		web.Resource{Route: "/report", Role: reader, Methods: report},
		web.Resource{Path: at("/forgotten"), Methods: report},
		web.Resource{Route: "/forgotten", Methods: report},
	))
	for _, ask := range []func(method, target, body string, header ...string) ports.Answer{h.API, h.Operator} {
		for _, name := range []string{"GET", "POST"} {
			h.Want(ask(name, "/report", ""), 403, fsm.CodeForbidden, `the role "reader"`)
			h.Want(ask(name, "/forgotten", "", "Authorization", "Bearer of-a-reader"), 403, fsm.CodeForbidden, "")
		}
		if a := ask("GET", "/report", "", "Authorization", "Bearer of-a-reader"); a.Status != 200 {
			t.Errorf("a reader: %d %s", a.Status, a.Text)
		}
		h.Want(ask("POST", "/report", "", "Authorization", "Bearer of-a-reader"), 405, fsm.CodeMethodNotAllowed, "")
		if a := ask("OPTIONS", "/report", ""); a.Status != 204 {
			t.Errorf("a preflight, which carries no token: %d %s", a.Status, a.Text)
		}
	}
}

func TestAPreflightOfTheOperatorsPageNamesTheMethodsOfTheResource(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Origins = []string{app} })
	for target, want := range map[string]string{
		"/api/v1/streams": "GET, POST, DELETE", "/api/v1/log-level": "GET, PUT",
	} {
		a := h.Operator("OPTIONS", target, "", "Origin", app, "Access-Control-Request-Method", "PUT")
		if a.Status != 204 || a.Header.Get("Access-Control-Allow-Methods") != want {
			t.Errorf("%s: %d %v", target, a.Status, a.Header)
		}
	}
}
