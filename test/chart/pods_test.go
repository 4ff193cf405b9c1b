package chart

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestThePartsOfAPodAreThoseOfTheValues holds that each value arrives where it belongs; the matrix holds that the whole
// is valid.
func TestThePartsOfAPodAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	m := render(t, chartDir, newest, required, everything)
	c, p := m.program(t)
	env := m.environment(t, c)
	limit := c.Resources.Limits.Memory().Value()
	d := named[*apps.Deployment](t, m, "wake-reveille")
	if c.StartupProbe == nil || c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PreStop == nil {
		t.Fatalf("the startup probe is %v, the hooks are %v", c.StartupProbe, c.Lifecycle)
	}
	names := func(containers []core.Container) (list string) {
		for _, c := range containers {
			list += c.Name + " "
		}
		return list
	}
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"the image", strings.HasPrefix(c.Image, "registry.example.com/mirror/reveille:"), true},
		{"GOMEMLIMIT", env["GOMEMLIMIT"], fmt.Sprint(limit * 80 / 100)},
		{"the start's probe", c.StartupProbe.HTTPGet.Path, "/healthz"},
		{"its port", hasPort(c, c.StartupProbe.HTTPGet.Port.String()), true},
		{"its patience", c.StartupProbe.FailureThreshold, int32(30)},
		{"the hook after the start", c.Lifecycle.PostStart.Exec.Command, []string{"/reveille", "version"}},
		{"the hook before the stop", c.Lifecycle.PreStop.Sleep.Seconds, int64(10)},
		{"how pods are replaced", d.Spec.Strategy, apps.DeploymentStrategy{Type: apps.RecreateDeploymentStrategyType}},
		{"containers before", names(p.spec.InitContainers), "before "},
		{"containers", names(p.spec.Containers), "reveille beside "},
		{"/etc/hosts", p.spec.HostAliases, []core.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"streams"}}}},
		{"the DNS policy", p.spec.DNSPolicy, core.DNSNone},
		{"the DNS", p.spec.DNSConfig, &core.PodDNSConfig{Nameservers: []string{"10.1.2.4"}}},
		{"the URL of Redis", env["REVEILLE_REDIS_URL"], "rediss://reveille@redis:6380/2"},
		{"its password", env["REVEILLE_REDIS_PASSWORD"], "secret redis-auth/redis-password"},
		{"a token", env["REVEILLE_ADMIN_TOKEN"], "secret operators/admin-token"},
		{"another one", env["REVEILLE_READ_TOKEN"], "secret operators/read-token"},
		{"a webhook", env["REVEILLE_NOTICE_WEBHOOK"], "secret operators/notice-webhook"},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %v, want %v", x.what, x.got, x.want)
		}
	}
}

// TestValuesArriveInTheOtherObjects is the same for those beside the pods.
func TestValuesArriveInTheOtherObjects(t *testing.T) {
	t.Parallel()
	m := render(t, chartDir, newest, required, everything)
	const name = "wake-reveille"
	monitor := named[*monitoring.ServiceMonitor](t, m, name)
	rule := named[*monitoring.PrometheusRule](t, m, name)
	scaler := named[*autoscaling.HorizontalPodAutoscaler](t, m, name).Spec
	from := named[*networking.NetworkPolicy](t, m, name).Spec.Ingress
	budget := named[*policy.PodDisruptionBudget](t, m, name).Spec
	rules := rule.Spec.Groups[0].Rules
	if e := monitor.Spec.Endpoints[0]; monitor.Namespace != "monitoring" || len(e.RelabelConfigs) != 1 ||
		e.RelabelConfigs[0].Action != "labeldrop" || len(e.MetricRelabelConfigs) != 1 ||
		e.MetricRelabelConfigs[0].Action != "drop" ||
		!slices.Equal(monitor.Spec.NamespaceSelector.MatchNames, []string{namespace}) {
		t.Errorf("the ServiceMonitor is %+v", monitor)
	}
	if last := rules[len(rules)-1]; rule.Namespace != "monitoring" || last.Record != "reveille:up" || len(rules) < 10 {
		t.Errorf("the PrometheusRule in %s ends with %+v", rule.Namespace, last)
	}
	if scaler.Metrics[1].Resource == nil || scaler.Behavior == nil || scaler.Behavior.ScaleUp == nil {
		t.Fatalf("the HorizontalPodAutoscaler is %+v", scaler)
	}
	if r := scaler.Metrics[1].Resource; r.Name != "memory" || *r.Target.AverageUtilization != 80 ||
		*scaler.Behavior.ScaleUp.StabilizationWindowSeconds != 60 || scaler.Behavior.ScaleDown == nil {
		t.Errorf("the HorizontalPodAutoscaler is %+v", scaler)
	}
	if last := from[len(from)-1]; len(from) != 3 || last.From[0].PodSelector.MatchLabels["app"] != "probe" {
		t.Errorf("the NetworkPolicy lets in %+v", from)
	}
	if budget.MaxUnavailable != nil || budget.MinAvailable == nil || budget.MinAvailable.String() != "50%" {
		t.Errorf("the PodDisruptionBudget is %+v", budget)
	}
	named[*core.ConfigMap](t, m, "one")
	named[*core.ConfigMap](t, m, "wake-two")
}

// TestCommonLabelsAndAnnotationsAreEverywhere holds that no object or pod is without them, and that selectors are.
func TestCommonLabelsAndAnnotationsAreEverywhere(t *testing.T) {
	t.Parallel()
	const common = `{commonLabels: {cost: "7", release: mine}, commonAnnotations: {owner: streams, a: c}}`
	for _, m := range []*manifest{
		render(t, chartDir, newest, required, common, everything, `{extraObjects: []}`),
		render(t, chartDir, newest, required, common, `{redis: {url: ""}, tryOutRedis: {enabled: true}}`),
	} {
		metas := map[string]meta.Object{}
		for _, o := range m.objects {
			metas[kindOf(o)+" "+o.GetName()] = o
			if d, ok := o.(*apps.Deployment); ok {
				metas["the pods of "+d.Name] = &d.Spec.Template
				if d.Spec.Selector.MatchLabels["cost"] != "" {
					t.Errorf("%s selects by a common label: it cannot change", d.Name)
				}
			}
		}
		for name, o := range metas {
			if o.GetLabels()["cost"] != "7" || o.GetLabels()["app.kubernetes.io/name"] != "reveille" ||
				o.GetAnnotations()["owner"] != "streams" {
				t.Errorf("%s has the labels %v and the annotations %v", name, o.GetLabels(), o.GetAnnotations())
			}
		}
		checkWhole(t, m, "redis-ca", "streams-secret", "redis-auth", "operators")
		for _, monitor := range all[*monitoring.ServiceMonitor](m) { // the object's own go over the common ones
			if monitor.Labels["release"] != "prometheus" {
				t.Errorf("the ServiceMonitor has the labels %v", monitor.Labels)
			}
		}
	}
}

func TestAnImageIsTakenFromARegistry(t *testing.T) {
	t.Parallel()
	const global = `{global: {imageRegistry: mirror.example.com/}}`
	for values, want := range map[string]string{
		`{}`: "reveille:", global: "mirror.example.com/reveille:",
		`{global: {imageRegistry: a}, image: {registry: "localhost:5000"}}`: "localhost:5000/reveille:",
		`{global: {imageRegistry: a}, image: {repository: b.example/c}}`:    "b.example/c:",
		`{global: {imageRegistry: a}, image: {repository: b/c}}`:            "a/b/c:",
	} {
		c, _ := render(t, chartDir, newest, required, values).program(t)
		if !strings.HasPrefix(c.Image, want) {
			t.Errorf("%s: the image is %s", values, c.Image)
		}
	}
	m := render(t, chartDir, newest, required, `{redis: {url: ""}, tryOutRedis: {enabled: true}}`, global)
	for _, p := range m.pods() {
		if image := p.spec.Containers[0].Image; !strings.HasPrefix(image, "mirror.example.com/re") {
			t.Errorf("%s has the image %s", p.owner, image)
		}
	}
}

// TestGOMEMLIMITIsAShareOfTheLimit holds all forms of a quantity that the chart reads.
func TestGOMEMLIMITIsAShareOfTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ values, want string }{
		{`{}`, "1932735283"}, // 90% of 2Gi
		{`{resources: {limits: {memory: 1.5Gi}}}`, "1449551462"},
		{`{resources: {limits: {memory: 500M}}, goMemLimitPercent: 50}`, "250000000"},
		{`{resources: {limits: {memory: 2147483648}}}`, "1932735283"},
		{`{resources: {limits: {memory: "2000000000"}}}`, "1800000000"},
		{`{goMemLimitPercent: 0}`, ""},
		{`{resources: {limits: null}}`, ""},
		{`{extraEnv: [{name: GOMEMLIMIT, value: 1GiB}]}`, "1GiB"},
	} {
		m := render(t, chartDir, newest, required, c.values)
		container, _ := m.program(t)
		if got := m.environment(t, container)["GOMEMLIMIT"]; got != c.want {
			t.Errorf("%s: GOMEMLIMIT is %q, want %q", c.values, got, c.want)
		}
	}
}

func TestAHookBeforeTheStopReplacesTheOneOfTheChart(t *testing.T) {
	t.Parallel()
	c, _ := render(t, chartDir, newest, required, `{lifecycle: {preStop: {exec: {command: [a]}}}}`).program(t)
	if h := c.Lifecycle.PreStop; h.Sleep != nil || h.Exec == nil || c.Lifecycle.PostStart != nil {
		t.Errorf("the hooks are %+v", c.Lifecycle)
	}
}
