package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
)

// exampleDir copies the chart and builds what its example depends on there: the project is left as it is. The short
// form puts the chart where Helm would put it.
func exampleDir(t testing.TB) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "reveille")
	if err := os.CopyFS(copied, os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(copied, "examples", "sidecar")
	if testing.Short() {
		if err := os.CopyFS(filepath.Join(dir, "charts", "reveille"), os.DirFS(chartDir)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if out, diag, err := helm(t, nil, "dependency", "build", dir); err != nil {
		t.Fatalf("helm dependency build: %v\n%s%s", err, out, diag)
	}
	return dir
}

func renderExample(t testing.TB, values ...string) *manifest {
	t.Helper()
	return render(t, exampleDir(t), newest, values...)
}

func TestTheExampleOfASidecarRendersWhatFitsTogether(t *testing.T) {
	t.Parallel()
	dir := exampleDir(t)
	for _, c := range []struct {
		name, values, more string
		ours, plus         []string
	}{
		{name: "as it is", ours: []string{"reveille-redis"}},
		{name: "on the oldest Kubernetes", ours: []string{"reveille-redis"}},
		{
			name: "with everything", ours: []string{"redis-ca", "streams-secret", "redis-auth", "operators"},
			plus: []string{
				"ConfigMap", "ConfigMap", "ConfigMap", "HTTPRoute", "Ingress", "PrometheusRule", "Secret",
				"ServiceMonitor",
			},
			values: "reveille:\n" + indent(everything), more: `reveille: {redis: {existingSecret: ""}}`,
		},
		{
			name:   "with a Redis for trying out",
			values: `reveille: {redis: {existingSecret: ""}, tryOutRedis: {enabled: true}}`,
			plus:   []string{"Deployment", "Service"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kube := newest
			if strings.Contains(c.name, "oldest") {
				kube = "1.30.0"
			}
			values := []string{c.values, c.more, "reveille: " + sidecarOff}
			lint(t, dir, kube, values...)
			m := render(t, dir, kube, values...)
			want := append([]string{"Pod", "Secret", "Service", "Service", "StatefulSet"}, c.plus...)
			slices.Sort(want)
			if !slices.Equal(m.kinds, want) {
				t.Errorf("kinds %q, want %q", m.kinds, want)
			}
			checkWhole(t, m, c.ours...)
		})
	}
}

func TestASidecarMayBeANativeOne(t *testing.T) {
	t.Parallel()
	for _, native := range []string{"false", "true"} {
		m := renderExample(t, "reveille: {sidecar: {native: "+native+"}}")
		s := named[*apps.StatefulSet](t, m, "wake-streams")
		containers, inits := len(s.Spec.Template.Spec.Containers), len(s.Spec.Template.Spec.InitContainers)
		c, _ := m.program(t)
		if always := c.RestartPolicy != nil && *c.RestartPolicy == "Always"; always != (native == "true") ||
			always != (inits == 1) || containers+inits != 2 {
			t.Errorf("native %s: %d containers, %d before them, restart policy %v", native, containers, inits,
				c.RestartPolicy)
		}
	}
}

func TestASidecarInModeGatewayIsRefused(t *testing.T) {
	t.Parallel()
	_, err := rendering(t, exampleDir(t), newest, `reveille: {mode: gateway}`)
	if err == nil || !strings.Contains(err.Error(), "reveille.sidecar was included, but mode is gateway") {
		t.Errorf("mode gateway: %v", err)
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}
