package chart

import (
	"strings"
	"testing"
)

func TestWrongValuesAreRefusedWithALineThatNamesThem(t *testing.T) {
	for _, c := range []struct{ name, values, want string }{
		{"no upstream", `{upstream: {url: ""}}`, "upstream.url is missing: where the stream server is"},
		{"no Redis", `{redis: {url: ""}}`, "redis.url is missing: such as redis://"},
		{"no public URL", `{publicUrl: ""}`, "publicUrl is missing: where workers reach the API port"},
		{"two Redis", `{redis: {existingSecret: mine}}`, "redis.url and redis.existingSecret are set"},
		{
			"a Redis of one's own and one for trying out", `{tryOutRedis: {enabled: true}}`,
			"redis.url and tryOutRedis.enabled are set",
		},
		{"a Redis of another kind", `{redis: {url: "http://hunter2@redis"}}`, "redis.url is not one of redis://"},
		{
			"two replicas with a Redis in each", `{redis: {url: embedded}}`,
			"redis.url=embedded keeps the state in the process: it needs replicaCount=1",
		},
		{
			"a CA without TLS", `{redis: {ca: {existingSecret: ca}}}`,
			"redis.ca.existingSecret is set, but redis.url does not begin with rediss",
		},
		{"an unknown mode", `{mode: daemonset}`, "at '/mode': value must be one of 'gateway', 'sidecar'"},
		{"replicas in words", `{replicaCount: two}`, "at '/replicaCount': got string, want integer"},
		{"no replicas", `{replicaCount: 0}`, "at '/replicaCount': minimum: got 0, want 1"},
		{"a value that does not exist", `{replicas: 2}`, "additional properties 'replicas' not allowed"},
		{
			"a setting that does not exist", `{settings: {tailmode: sse}}`,
			"at '/settings': additional properties 'tailmode' not allowed",
		},
		{
			"a setting with another of its values", `{settings: {tailMode: poll}}`,
			"at '/settings/tailMode': value must be one of 'auto', 'long-poll', 'sse'",
		},
		{
			"a duration without a unit", `{settings: {tailCheck: 5}}`,
			"at '/settings/tailCheck': got number, want string",
		},
		{
			"a duration in words", `{settings: {gcAfter: 3 days}}`,
			"at '/settings/gcAfter': '3 days' does not match pattern",
		},
		{
			"a number beyond the program's limits", `{settings: {partitions: 5000}}`,
			"at '/settings/partitions': maximum: got 5,000, want 4,096",
		},
		{"a list in one text", `{settings: {streams: "/a,/b"}}`, "at '/settings/streams': got string, want array"},
		{"a range that is none", `{settings: {webhookAllowCidrs: [10.1.0.0]}}`, "at '/settings/webhookAllowCidrs/0'"},
		{
			"an upstream of another kind", `{upstream: {url: "ftp://streams"}}`,
			"at '/upstream/url': 'ftp://streams' does not match pattern",
		},
		{
			"an upstream with a password", `{upstream: {url: "http://u:hunter2@streams"}}`,
			"upstream.url is to be a URL without user, password",
		},
		{
			"a public URL with a query", `{publicUrl: "https://a.example.com/?b"}`,
			"publicUrl is to be a URL without user, password, query",
		},
		{
			"headers twice", `{upstream: {headers: {A: hunter2}, existingSecret: mine}}`,
			"upstream.headers and upstream.existingSecret are set",
		},
		{"a header with a comma", `{upstream: {headers: {A: "hunter2,b"}}}`, "upstream.headers.A holds a comma"},
		{
			"a setting among the further variables", `{extraEnv: [{name: REVEILLE_TAIL_MODE, value: hunter2}]}`,
			"extraEnv names REVEILLE_TAIL_MODE",
		},
		{"the same port twice", `{ports: {api: 9090}}`, "ports.api and ports.operator are the same"},
		{"a port that only root may have", `{ports: {api: 80}}`, "at '/ports/api': minimum: got 80, want 1,024"},
		{
			"a pod that is killed before it has stopped", `{preStopSeconds: 20}`,
			"terminationGracePeriodSeconds is too short",
		},
		{
			"a public operator port", `{service: {operatorType: LoadBalancer}}`,
			"additional properties 'operatorType' not allowed",
		},
		{
			"an Ingress that cannot tell subscriptions", `{ingress: {enabled: true, requests: subscriptions}}`,
			"ingress.requests=subscriptions needs settings.gateway=false",
		},
		{
			"an Ingress for what nobody answers",
			`{ingress: {enabled: true, requests: all}, settings: {gateway: false}}`,
			"ingress.requests=all needs settings.gateway",
		},
		{
			"an Ingress below a path", `{publicUrl: "https://a.example.com/b", ingress: {enabled: true}}`,
			"ingress.enabled needs a publicUrl without a path",
		},
		{"a route without a Gateway", `{httpRoute: {enabled: true}}`, "httpRoute.parentRefs is missing"},
		{
			"fewer replicas at most than at least", `{autoscaling: {enabled: true, minReplicas: 20}}`,
			"autoscaling.maxReplicas is less than",
		},
		{
			"autoscaling of somebody else's pods", `{mode: sidecar, autoscaling: {enabled: true}}`,
			"autoscaling.enabled is for mode gateway",
		},
		{
			"a network policy for somebody else's pods", `{mode: sidecar, networkPolicy: {enabled: true}}`,
			"networkPolicy.enabled is for mode gateway",
		},
		{
			"autoscaling by a share of nothing", `{autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}`,
			"autoscaling.enabled needs resources.requests.cpu",
		},
		{
			"an alert to leave out that there is not", `{prometheusRule: {enabled: true, disabled: [ReveileDown]}}`,
			"prometheusRule.disabled names ReveileDown, which is none of the alerts ReveilleDown,",
		},
		{
			"an alert after no time", `{prometheusRule: {oldestPendingWakeSeconds: 0}}`,
			"at '/prometheusRule/oldestPendingWakeSeconds': minimum",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			// one that the templates refuse, one that the schema does, and one with a password
			quick(t, "the same port twice", "a setting that does not exist", "an upstream with a password")
			t.Parallel()
			_, err := template(t, chartDir, newest, required, c.values)
			switch {
			case err == nil:
				t.Error("it was taken")
			case !strings.Contains(err.Error(), c.want):
				t.Errorf("%v\nwant a line with %q", err, c.want)
			case strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the refusal shows a password: %v", err)
			}
		})
	}
}

func TestAKubernetesThatIsTooOldIsRefused(t *testing.T) {
	_, err := template(t, chartDir, "1.29.9", required)
	if err == nil || !strings.Contains(err.Error(),
		"chart requires kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes v1.29.9") {
		t.Errorf("Kubernetes 1.29: %v", err)
	}
}
