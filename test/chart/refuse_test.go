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
		{"a host beside a URL", `{redis: {host: redis}}`, "redis.url and redis.host are set"},
		{
			"two passwords", `{redis: {url: "redis://:hunter2@redis", existingPasswordSecret: mine}}`,
			"redis.url has a password, and redis.existingPasswordSecret is set",
		},
		{
			"a password for a Redis in the process",
			`{replicaCount: 1, redis: {url: embedded, existingPasswordSecret: mine}}`,
			"redis.existingPasswordSecret is set, but that Redis takes no password",
		},
		{
			"a password for a Redis for trying out",
			`{tryOutRedis: {enabled: true}, redis: {url: "", existingPasswordSecret: mine}}`,
			"redis.existingPasswordSecret is set, but that Redis takes no password",
		},
		{"TLS beside a URL", `{redis: {tls: true}}`, "redis.tls is for redis.host"},
		{
			"a token without its Secret", `{operatorTokens: {readKey: read-token}}`,
			"a key of operatorTokens is set, but operatorTokens.existingSecret is not",
		},
		{
			"another token without its Secret", `{operatorTokens: {adminKey: mine}}`,
			"a key of operatorTokens is set, but operatorTokens.existingSecret is not",
		},
		{
			"a webhook for notices without their stream", `{noticeWebhook: {existingSecret: mine}}`,
			"settings.eventsStream, the stream that notices come from, is not",
		},
		{"a user beside a URL", `{redis: {username: me}}`, "redis.username is for redis.host"},
		{"a host that is a URL", `{redis: {url: "", host: "redis://a"}}`, "at '/redis/host': 'redis://a' does not"},
		{"a port out of range", `{redis: {url: "", host: a, port: 70000}}`, "at '/redis/port': maximum: got 70,000"},
		{
			"a label of the chart's own", `{commonLabels: {app.kubernetes.io/name: a}}`,
			"commonLabels.app.kubernetes.io/name is",
		},
		{"a label that is none", `{commonLabels: {a: two words}}`, "at '/commonLabels/a': 'two words' does not match"},
		{"an annotation that is a number", `{commonAnnotations: {a: 1}}`, "at '/commonAnnotations/a': got number"},
		{"no DNS server", `{dnsPolicy: None}`, "dnsPolicy=None needs dnsConfig.nameservers"},
		{"another DNS policy", `{dnsPolicy: Cluster}`, "at '/dnsPolicy': value must be one of"},
		{"DNS in another form", `{dnsConfig: {servers: [a]}}`, "at '/dnsConfig': additional properties 'servers'"},
		{
			"an alias without a name", `{hostAliases: [{ip: 10.1.2.3}]}`,
			"at '/hostAliases/0': missing property 'hostnames'",
		},
		{
			"a container without an image", `{extraContainers: [{name: a}]}`,
			"at '/extraContainers/0': missing property 'image'",
		},
		{
			"a container without a name", `{initContainers: [{image: a}]}`,
			"at '/initContainers/0': missing property 'name'",
		},
		{"a user in words", `{podSecurityContext: {runAsUser: me}}`, "at '/podSecurityContext/runAsUser': got string"},
		{
			"a field of a pod that there is not", `{podSecurityContext: {readOnlyRootFilesystem: true}}`,
			"at '/podSecurityContext': additional properties 'readOnlyRootFilesystem'",
		},
		{
			"a field of a container that there is not", `{securityContext: {fsGroup: 1}}`,
			"at '/securityContext': additional properties 'fsGroup'",
		},
		{"OpenShift in words", `{openshift: auto}`, "at '/openshift': got string, want boolean"},
		{"a strategy that there is not", `{strategy: {type: BlueGreen}}`, "at '/strategy/type': value must be one of"},
		{"a hook that there is not", `{lifecycle: {prestop: {}}}`, "at '/lifecycle': additional properties 'prestop'"},
		{
			"a probe with a path of its own", `{startupProbe: {httpGet: {path: /}}}`,
			"at '/startupProbe': additional properties 'httpGet'",
		},
		{"a share of memory in text", `{goMemLimitPercent: 90%}`, "at '/goMemLimitPercent': got string, want integer"},
		{"more than all memory", `{goMemLimitPercent: 101}`, "at '/goMemLimitPercent': maximum: got 101, want 100"},
		{
			"a limit of memory that the chart cannot read", `{resources: {limits: {memory: "2e9"}}}`,
			"resources.limits.memory is to be a number with a unit",
		},
		{
			"a minimum in words", `{podDisruptionBudget: {minAvailable: half}}`,
			"at '/podDisruptionBudget/minAvailable'",
		},
		{"a registry with a space", `{image: {registry: "a b"}}`, "at '/image/registry': 'a b' does not match"},
		{"a registry for all that is none", `{global: {imageRegistry: [a]}}`, "at '/global/imageRegistry': got array"},
		{
			"authorities in the values", `{caBundle: {existingConfigMap: "-----BEGIN CERTIFICATE-----"}}`,
			"at '/caBundle/existingConfigMap': '-----BEGIN CERTIFICATE-----' does not match",
		},
		{"an object without a kind", `{extraObjects: [{apiVersion: v1}]}`, "at '/extraObjects/0'"},
		{
			"a rule without an expression", `{prometheusRule: {extraRules: [{alert: a}]}}`,
			"at '/prometheusRule/extraRules/0': missing property 'expr'",
		},
		{
			"relabelings in another form", `{serviceMonitor: {relabelings: {}}}`,
			"at '/serviceMonitor/relabelings': got object",
		},
		{
			"a namespace that is none", `{serviceMonitor: {namespace: A_B}}`,
			"at '/serviceMonitor/namespace': 'A_B' does not",
		},
		{
			"a way in that there is not", `{networkPolicy: {extraIngress: [{to: []}]}}`,
			"at '/networkPolicy/extraIngress/0': additional properties 'to'",
		},
		{
			"another scaling", `{autoscaling: {behavior: {scaleup: {}}}}`,
			"at '/autoscaling/behavior': additional properties 'scaleup'",
		},
		{
			"autoscaling by a share of no memory",
			`{autoscaling: {enabled: true, targetMemoryUtilizationPercentage: 80}, ` +
				`resources: {requests: {memory: null}, limits: null}}`,
			"autoscaling.enabled needs resources.requests.memory",
		},
		{
			"autoscaling by nothing", `{autoscaling: {enabled: true, targetCPUUtilizationPercentage: null}}`,
			"autoscaling.enabled needs a target",
		},
		{
			"authorities twice", `{caBundle: {existingConfigMap: a, existingSecret: b}}`,
			"caBundle.existingConfigMap and caBundle.existingSecret are set",
		},
		{
			"containers beside a sidecar", `{mode: sidecar, extraContainers: [{name: a, image: b}]}`,
			"extraContainers is for mode gateway",
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
			"a runbook that is no URL", `{prometheusRule: {runbookUrl: runbooks}}`,
			"at '/prometheusRule/runbookUrl': 'runbooks' does not match",
		},
		{
			"an alert after no time", `{prometheusRule: {oldestPendingWakeSeconds: 0}}`,
			"at '/prometheusRule/oldestPendingWakeSeconds': minimum",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := rendering(t, chartDir, newest, required, c.values)
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
	_, err := rendering(t, chartDir, "1.29.9", required)
	if err == nil || !strings.Contains(err.Error(),
		"chart requires kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes v1.29.9") {
		t.Errorf("Kubernetes 1.29: %v", err)
	}
}
