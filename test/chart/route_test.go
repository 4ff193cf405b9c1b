package chart

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// TestARouteForSubscriptionsHasTheMethodsThatTheProgramAnswers holds that no request for a subscription takes another
// way than through Reveille.
func TestARouteForSubscriptionsHasTheMethodsThatTheProgramAnswers(t *testing.T) {
	t.Parallel()
	m := render(t, chartDir, newest, required, `{replicaCount: 1, redis: {url: embedded}}`, onFreePorts(t),
		`{httpRoute: {enabled: true, requests: subscriptions, parentRefs: [{name: public}]}}`)
	var routed []string
	for _, match := range all[*gateway.HTTPRoute](m)[0].Spec.Rules[0].Matches {
		if len(match.QueryParams) > 0 && match.QueryParams[0].Name == "subscription" {
			routed = append(routed, string(*match.Method))
		}
	}
	r := startAsRendered(t, m)
	r.await(t, r.container.ReadinessProbe.HTTPGet.Path)
	api := named[*core.Service](t, m, "wake-reveille").Spec.Ports[0].TargetPort.String()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions,
		fmt.Sprintf("http://127.0.0.1:%d/a?subscription=s", r.port(t, api)), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	answered := strings.Split(res.Header.Get("Allow"), ", ")
	slices.Sort(routed)
	slices.Sort(answered)
	if !slices.Equal(routed, answered) {
		t.Errorf("the route has %q, the program answers %q", routed, answered)
	}
	r.stop(t)
}
