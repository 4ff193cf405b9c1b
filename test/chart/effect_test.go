package chart

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// refusedWithout are values without which the chart is not rendered, in any case that has them: what they do is held by
// the tests of what comes of them.
var refusedWithout = []string{
	"upstream.url", "publicUrl", "redis.url", "redis.existingSecret", "redis.host", "tryOutRedis.enabled",
	"httpRoute.parentRefs", "dnsConfig",
}

// alone are values that no case of the matrix has.
var alone = []string{
	`
nameOverride: wakes
image: {repository: other, tag: "1", pullPolicy: Always}
resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 3Gi}}
livenessProbe: {periodSeconds: 11, timeoutSeconds: 6, failureThreshold: 4}
readinessProbe: {periodSeconds: 6, timeoutSeconds: 4, failureThreshold: 7}
autoscaling:
  enabled: true
  minReplicas: 3
  maxReplicas: 11
  targetCPUUtilizationPercentage: 50
  behavior: {scaleDown: {stabilizationWindowSeconds: 60, policies: []}}
dashboard: {enabled: true, labels: {grafana_dashboard: "2"}}
httpRoute: {enabled: true, parentRefs: [{name: public}], timeouts: {request: 1m}}
networkPolicy: {enabled: true, dnsTo: [{podSelector: {}}], redisPorts: [1234], upstreamPort: 1235}
prometheusRule: {enabled: true, oldestPendingWakeSeconds: 60}
serviceMonitor: {enabled: true, interval: 10s}
service: {type: NodePort, port: 8000}
strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 1}}
upstream: {signingKey: {existingSecret: mine, existingSecretKey: key}}
operatorTokens: {existingSecret: mine, adminKey: a, readKey: r}
noticeWebhook: {existingSecret: mine, existingSecretKey: key}
settings: {eventsStream: /events}
topologySpread: []
preStopSeconds: 5
terminationGracePeriodSeconds: 60
redis: {url: "", host: redis, tls: true}`,
	`{replicaCount: 5, operatorTokens: {existingSecret: mine}, ` +
		`redis: {url: "", existingSecret: mine, ca: {existingSecret: mine, key: ca.pem}}}`,
	`{mode: sidecar, sidecar: {native: true}}`,
	`{redis: {url: ""}, tryOutRedis: {enabled: true, image: valkey, ` +
		`resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 3Gi}}}}`,
}

// TestEveryValueHasAnEffect takes every value that a case of the matrix gives away again, one at a time. Something else
// must be rendered then, at least once for each value that the chart has: none is accepted and ignored.
func TestEveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	// The container of a sidecar is rendered by the chart of the pod.
	c.Templates = append(c.Templates, &helmchart.File{
		Name: "templates/sidecar.yaml",
		Data: []byte(`{{ if eq .Values.mode "sidecar" }}{{ include "reveille.sidecar" . }}` +
			`{{ include "reveille.sidecarVolumes" . }}{{ include "reveille.sidecarGracePeriod" . }}{{ end }}`),
	})
	left := map[string]bool{"global.imageRegistry": true}
	for _, name := range leaves("", c.Values) {
		if !slices.Contains(refusedWithout, name) && name != "settings" { // TestEverySettingOfTheProgram…
			left[name] = true
		}
	}
	cases := slices.Clone(alone)
	for _, m := range matrix {
		values := m.values
		if strings.Contains(m.name, "sidecar") {
			cases = append(cases, values+"\n---\n"+sidecarOff)
			continue
		}
		cases = append(cases, values)
	}
	for _, text := range cases {
		whole := ""
		for _, name := range slices.Sorted(maps.Keys(left)) {
			values := parse(t, text)
			if !remove(values, strings.Split(name, ".")) {
				continue
			}
			if whole == "" {
				if whole, err = rendered(c, parse(t, text)); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
			}
			if without, err := rendered(c, values); err == nil && without != whole {
				delete(left, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("no case of the matrix shows that %s has an effect", name)
	}
}

// leaves are the names of the values of a map; one that is empty by default is a whole.
func leaves(prefix string, values map[string]any) (names []string) {
	for name, v := range values {
		if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
			names = append(names, leaves(prefix+name+".", inner)...)
		} else {
			names = append(names, prefix+name)
		}
	}
	return names
}

// parse reads the documents of a case, over what is required.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, doc := range append([]string{required}, strings.Split(text, "\n---\n")...) {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(doc), &values); err != nil {
			t.Fatal(err)
		}
		merge(all, values)
	}
	return all
}

func merge(into, values map[string]any) {
	for name, v := range values {
		inner, ok := v.(map[string]any)
		if there, both := into[name].(map[string]any); ok && both {
			merge(there, inner)
			continue
		}
		into[name] = v
	}
}

// remove takes a value away and says whether it was there.
func remove(values map[string]any, steps []string) bool {
	inner, ok := values[steps[0]].(map[string]any)
	if len(steps) > 1 {
		return ok && remove(inner, steps[1:])
	}
	_, there := values[steps[0]]
	delete(values, steps[0])
	return there
}

// drawn is a key that is made anew each time.
var drawn = regexp.MustCompile(`[A-Za-z0-9+/=]{80,}`)

// rendered is the text of all objects, whatever the schema says of the values.
func rendered(c *helmchart.Chart, values map[string]any) (string, error) {
	coalesce(c, values)
	files, err := execute(c, values)
	text := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch path.Base(name) {
		case "NOTES.txt":
		case "token-key.yaml":
			text += drawn.ReplaceAllString(files[name], "drawn")
		default:
			text += files[name]
		}
	}
	return text, err
}
