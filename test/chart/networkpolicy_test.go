package chart

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestTheNetworkPolicyOpensThePortsOfRedisThatTheProgramConnectsTo(t *testing.T) {
	for _, c := range []struct {
		url  string
		want []int
	}{
		{"redis://redis", []int{6379}},
		{"rediss://u:hunter2@redis:6380/1", []int{6380}},
		{"redis+cluster://u:hunter2@a:7000,b:7001,a2:7000", []int{7000, 7001}},
		{"redis+cluster://a:7000,b", []int{7000, 6379}},
		{"redis+sentinel://a,b/main", []int{26379, 6379}},
		{"rediss+sentinel://u:hunter2@a:5000,[::1]:5001/main", []int{5000, 5001, 6379}},
	} {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			m := render(t, chartDir, newest, required, `{networkPolicy: {enabled: true}, redis: {url: "`+c.url+`"}}`)
			// After that for names, before that for the stream server.
			var ports []int
			for _, p := range named[*networking.NetworkPolicy](t, m, "wake-reveille").Spec.Egress[1].Ports {
				ports = append(ports, p.Port.IntValue())
			}
			if !slices.Equal(ports, c.want) {
				t.Errorf("ports %d, want %d", ports, c.want)
			}
		})
	}
}

func TestTheNetworkPolicyLetsTheHelmTestReachTheOperatorPort(t *testing.T) {
	for name, values := range map[string]string{
		"by default": `{networkPolicy: {enabled: true}}`,
		"with a Prometheus somewhere else": `{networkPolicy: {enabled: true, operatorFrom: [` +
			`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := render(t, chartDir, newest, required, values)
			asking := labels.Set(named[*core.Pod](t, m, "wake-reveille-test").Labels)
			from := named[*networking.NetworkPolicy](t, m, "wake-reveille").Spec.Ingress[1].From
			if !slices.ContainsFunc(from, func(p networking.NetworkPolicyPeer) bool {
				if p.PodSelector == nil || p.NamespaceSelector != nil {
					return false
				}
				s, err := meta.LabelSelectorAsSelector(p.PodSelector)
				return err == nil && s.Matches(asking)
			}) {
				t.Errorf("the test's pod may not connect: %+v", from)
			}
		})
	}
}
