package chart

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// gatewayKinds are what mode gateway makes by default, beside which a case names what it adds or takes away.
var gatewayKinds = []string{
	"Deployment", "Pod", "PodDisruptionBudget", "Secret", "Secret", "Service", "Service", "ServiceAccount",
}

// everything switches on all that mode gateway has.
const everything = `
replicaCount: 3
upstream:
  name: streams
  headers: {Authorization: Bearer hunter2, X-Tenant: a}
  signingKey: {existingSecret: streams-secret}
redis:
  url: ""
  host: redis
  port: 6380
  database: 2
  username: reveille
  existingPasswordSecret: redis-auth
  tls: true
  ca: {existingSecret: redis-ca}
operatorTokens: {existingSecret: operators, readKey: read-token}
noticeWebhook: {existingSecret: operators}
settings:
  eventsStream: /events
  gateway: true
  streams: [/a, /b]
  webhookAllowCidrs: [10.1.0.0/16]
  allowInsecureWebhooks: true
otel: {endpoint: "http://collector:4318"}
image: {registry: registry.example.com/mirror/}
imagePullSecrets: [{name: registry}]
service: {annotations: {a: b}}
ingress:
  enabled: true
  requests: all
  className: nginx
  annotations: {a: b}
  tls: [{secretName: tls, hosts: [reveille.example.com]}]
httpRoute:
  enabled: true
  requests: all
  parentRefs: [{name: public, namespace: gateways, sectionName: https}]
  annotations: {a: b}
autoscaling:
  enabled: true
  targetMemoryUtilizationPercentage: 80
  behavior: {scaleUp: {stabilizationWindowSeconds: 60}}
  metrics:
    - type: Pods
      pods: {metric: {name: reveille_wakes_queued}, target: {type: AverageValue, averageValue: "100"}}
networkPolicy:
  enabled: true
  apiFrom: [{namespaceSelector: {}}]
  operatorFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  redisTo: [{podSelector: {matchLabels: {app: redis}}}]
  upstreamTo: [{podSelector: {matchLabels: {app: streams}}}]
  extraEgress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}]}]
  extraIngress: [{from: [{podSelector: {matchLabels: {app: probe}}}]}]
podDisruptionBudget: {minAvailable: 50%}
serviceMonitor:
  enabled: true
  namespace: monitoring
  labels: {release: prometheus}
  scrapeTimeout: 10s
  relabelings: [{action: labeldrop, regex: pod}]
  metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: go_.*}]
prometheusRule:
  enabled: true
  namespace: monitoring
  labels: {release: prometheus}
  alertLabels: {team: streams}
  runbookUrl: https://example.com/runbooks/
  extraRules: [{record: "reveille:up", expr: "sum(up)"}]
dashboard: {enabled: true, annotations: {grafana_folder: Reveille}}
serviceAccount: {annotations: {a: b}}
extraEnv:
  - {name: HTTPS_PROXY, value: "http://proxy:3128"}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
extraEnvFrom: [{secretRef: {name: more}}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
commonLabels: {cost: "7"}
commonAnnotations: {owner: streams}
caBundle: {existingConfigMap: authorities}
strategy: {type: Recreate}
startupProbe: {failureThreshold: 30}
lifecycle: {postStart: {exec: {command: [/reveille, version]}}}
goMemLimitPercent: 80
podSecurityContext: {supplementalGroups: [1000680000]}
securityContext: {procMount: Default}
initContainers: [{name: before, image: "registry.example.com/before:1"}]
extraContainers: [{name: beside, image: "registry.example.com/beside:1"}]
hostAliases: [{ip: 10.1.2.3, hostnames: [streams]}]
dnsPolicy: None
dnsConfig: {nameservers: [10.1.2.4]}
extraObjects:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: streams}}
  - |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: "{{ .Release.Name }}-two", namespace: "{{ .Release.Namespace }}"}
podLabels: {team: streams}
podAnnotations: {a: b}
priorityClassName: high
nodeSelector: {kubernetes.io/arch: arm64}
affinity: {nodeAffinity: {}}
tolerations: [{key: a, operator: Exists}]
`

// everythingKinds are what it adds. Two ConfigMaps are extraObjects, the third is the dashboard.
var everythingKinds = []string{
	"Ingress", "HTTPRoute", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor", "PrometheusRule",
	"ConfigMap", "ConfigMap", "ConfigMap",
}

// matrix are values that are right, and the kinds that come of them.
var matrix = []struct {
	name        string
	values      string
	kube        string
	plus, minus []string
	ours        []string // Secrets that values name
}{
	{name: "what must be given"},
	{name: "the oldest Kubernetes", kube: "1.30.0"},
	{name: "a Kubernetes with a vendor's version", kube: "1.33.4-gke.1200"},
	{name: "everything", values: everything, plus: everythingKinds},
	{name: "everything on the oldest Kubernetes", kube: "1.30.0", values: everything, plus: everythingKinds},
	{
		name: "Secrets of one's own", ours: []string{"my-redis", "my-key", "my-headers"},
		minus: []string{"Secret", "Secret"},
		values: `
redis: {url: "", existingSecret: my-redis, existingSecretKey: url}
tokenKey: {existingSecret: my-key, existingSecretKey: key}
upstream: {existingSecret: my-headers, existingSecretKey: headers}
networkPolicy: {enabled: true}`,
		plus: []string{"NetworkPolicy"},
	},
	{
		name:   "a Redis in the process",
		values: `{replicaCount: 1, redis: {url: embedded}, networkPolicy: {enabled: true}}`,
		plus:   []string{"NetworkPolicy"}, minus: []string{"Secret"},
	},
	{
		name:   "a Redis for trying out",
		values: `{redis: {url: ""}, tryOutRedis: {enabled: true}, networkPolicy: {enabled: true}}`,
		plus:   []string{"Deployment", "Service", "NetworkPolicy"}, minus: []string{"Secret"},
	},
	{
		name:   "a Redis Cluster",
		values: `{redis: {url: "redis+cluster://u:hunter2@a:7000,b:7001"}, networkPolicy: {enabled: true}}`,
		plus:   []string{"NetworkPolicy"},
	},
	{
		name:   "sentinels",
		values: `{redis: {url: "rediss+sentinel://u:hunter2@a:26379,b/main"}, networkPolicy: {enabled: true}}`,
		plus:   []string{"NetworkPolicy"},
	},
	{name: "autoscaling", values: `{autoscaling: {enabled: true}}`, plus: []string{"HorizontalPodAutoscaler"}},
	{
		name: "no disruption budget", values: `{podDisruptionBudget: {enabled: false}}`,
		minus: []string{"PodDisruptionBudget"},
	},
	{name: "a disruption budget in percent", values: `{podDisruptionBudget: {maxUnavailable: 25%}}`},
	{
		name: "a service account of one's own", values: `{serviceAccount: {create: false, name: mine}}`,
		minus: []string{"ServiceAccount"},
	},
	{
		name: "a disruption budget of those that stay", values: `{podDisruptionBudget: {minAvailable: 1}}`,
	},
	{
		name: "a Redis by its host alone", values: `{redis: {url: "", host: redis}}`, minus: []string{"Secret"},
	},
	{
		name: "a cluster with its password in a Secret",
		values: `redis: {url: "redis+cluster://reveille@a,b", existingPasswordSecret: redis-auth, ` +
			`existingPasswordSecretKey: password}`,
	},
	{
		name: "OpenShift", values: `{openshift: true, networkPolicy: {enabled: true}}`,
		plus: []string{"NetworkPolicy"},
	},
	{
		name: "another registry for all charts",
		values: `{global: {imageRegistry: mirror.example.com}, redis: {url: ""}, tryOutRedis: {enabled: true}, ` +
			`caBundle: {existingSecret: authorities}}`,
		plus: []string{"Deployment", "Service"}, minus: []string{"Secret"},
	},
	{name: "an Ingress for callbacks", values: `{ingress: {enabled: true}}`, plus: []string{"Ingress"}},
	{
		name: "an Ingress for subscriptions too",
		values: `{ingress: {enabled: true, requests: subscriptions, hosts: [a.example.com, b.example.com]}, ` +
			`settings: {gateway: false}}`,
		plus: []string{"Ingress"},
	},
	{
		name: "a route for callbacks", values: `{httpRoute: {enabled: true, parentRefs: [{name: public}]}}`,
		plus: []string{"HTTPRoute"},
	},
	{
		name: "a route for subscriptions too",
		values: `{httpRoute: {enabled: true, requests: subscriptions, parentRefs: [{name: public}], ` +
			`hostnames: [a.example.com]}}`,
		plus: []string{"HTTPRoute"},
	},
	{
		name: "a route for subscriptions of Open Job Spec",
		values: `{httpRoute: {enabled: true, requests: subscriptions, parentRefs: [{name: public}]}, ` +
			`settings: {ojs: true, ojsStreams: /jobs/**}}`,
		plus: []string{"HTTPRoute"},
	},
	{name: "a network policy", values: `{networkPolicy: {enabled: true}}`, plus: []string{"NetworkPolicy"}},
	{name: "metrics", values: `{serviceMonitor: {enabled: true}}`, plus: []string{"ServiceMonitor"}},
	{
		name: "alerts", values: `{prometheusRule: {enabled: true, selector: 'job="mine"', disabled: [ReveilleDown]}}`,
		plus: []string{"PrometheusRule"},
	},
	{name: "a dashboard", values: `{dashboard: {enabled: true}}`, plus: []string{"ConfigMap"}},
	{
		name: "other ports and an image by its digest",
		values: `{ports: {api: 18080, operator: 19090}, ` +
			`image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}`,
	},
	{
		name: "long names",
		values: `{fullnameOverride: a-name-that-is-longer-than-a-name-may-be-in-kubernetes-by-some-letters, ` +
			`tryOutRedis: {enabled: true}, redis: {url: ""}}`,
		plus: []string{"Deployment", "Service"}, minus: []string{"Secret"},
	},
	{
		name: "the parts around a sidecar", values: `{mode: sidecar}`,
		minus: []string{"Deployment", "PodDisruptionBudget", "ServiceAccount"},
	},
	{
		name: "the parts around a sidecar, with everything",
		plus: []string{
			"Ingress", "HTTPRoute", "ServiceMonitor", "PrometheusRule", "ConfigMap", "ConfigMap", "ConfigMap",
		},
		values: everything + "mode: sidecar\n",
		minus:  []string{"Deployment", "PodDisruptionBudget", "ServiceAccount"},
	},
	{
		name:   "the parts around a sidecar, with a Redis for trying out",
		values: `{mode: sidecar, tryOutRedis: {enabled: true}, redis: {url: ""}}`, plus: []string{"Service"},
		minus: []string{"Secret", "PodDisruptionBudget", "ServiceAccount"},
	},
}

// sidecarOff takes back what is not for mode sidecar.
const sidecarOff = `{autoscaling: {enabled: false}, networkPolicy: {enabled: false}, initContainers: [], ` +
	`extraContainers: [], hostAliases: [], dnsPolicy: "", dnsConfig: null}`

func TestRightValuesRenderWhatFitsTogether(t *testing.T) {
	for _, c := range matrix {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kube, values := c.kube, []string{required, c.values}
			if kube == "" {
				kube = newest
			}
			if strings.Contains(c.name, "sidecar") {
				values = append(values, sidecarOff)
			}
			lint(t, chartDir, kube, values...)
			m := render(t, chartDir, kube, values...)
			want := slices.Concat(gatewayKinds, c.plus)
			for _, kind := range c.minus {
				want = slices.Delete(want, slices.Index(want, kind), slices.Index(want, kind)+1)
			}
			slices.Sort(want)
			if !slices.Equal(m.kinds, want) {
				t.Errorf("kinds %q, want %q", m.kinds, want)
			}
			for _, o := range m.objects {
				want := namespace
				if kind := kindOf(o); strings.Contains(c.values, "monitoring") &&
					(kind == "ServiceMonitor" || kind == "PrometheusRule") {
					want = "monitoring"
				}
				if o.GetNamespace() != want {
					t.Errorf("%T %s is in namespace %q, want %q", o, o.GetName(), o.GetNamespace(), want)
				}
			}
			m.openShift = c.name == "OpenShift"
			checkWhole(t, m, append(c.ours, "redis-ca", "streams-secret", "redis-auth", "operators")...)
		})
	}
}

func TestOnlyPodsThatServeAreSelected(t *testing.T) {
	m := render(t, chartDir, newest, required, `{tryOutRedis: {enabled: true}, redis: {url: ""}}`)
	for service, want := range map[string]string{
		"wake-reveille": "Deployment wake-reveille", "wake-reveille-operator": "Deployment wake-reveille",
		"wake-reveille-try-out-redis": "Deployment wake-reveille-try-out-redis",
	} {
		pods := m.selected(named[*core.Service](t, m, service).Spec.Selector)
		if len(pods) != 1 || pods[0].owner != want {
			t.Errorf("Service %s selects %v, want %s", service, pods, want)
		}
	}
}
