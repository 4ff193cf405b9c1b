package chart

import (
	"regexp"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheNotesNameWhatIsThere(t *testing.T) {
	longForm(t)
	t.Parallel()
	for _, c := range []struct {
		name, values string
		want         []string
	}{
		{
			"gateway", "",
			[]string{
				"rollout status deployment/wake-reveille", "helm -n streams test wake",
				"port-forward service/wake-reveille 8080:80", "https://reveille.example.com/callback/",
				"wake-reveille-token-key",
			},
		},
		{
			"gateway with a Redis for trying out",
			`{redis: {url: ""}, tryOutRedis: {enabled: true}, tokenKey: {existingSecret: mine}, service: {port: 8000}}`,
			[]string{"8080:8000", "gone when its pod is"},
		},
		{"sidecar", `{mode: sidecar}`, []string{
			"get pods -l reveille-sidecar=wake-reveille", "reveille.sidecarLabels",
			"port-forward service/wake-reveille 8080:80",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, err := againstCluster(t, cluster(t, nil), []string{
				"install", release, chartDir, "--dry-run=server",
				"--disable-openapi-validation",
			}, required, c.values)
			if err != nil {
				t.Fatal(err)
			}
			manifest, notes, found := strings.Cut(out, "\nNOTES:\n")
			if !found {
				t.Fatalf("no notes in\n%s", out)
			}
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("the notes do not say %q:\n%s", want, notes)
				}
			}
			_, manifest, _ = strings.Cut(manifest, "\nMANIFEST:\n")
			m := decode(t, manifest)
			objects := regexp.MustCompile(`(deployment|service)/(\S+)|Secret (\S+?)\.`)
			for _, named := range objects.FindAllStringSubmatch(notes, -1) {
				kind, name := named[1], named[2]+named[3]
				if kind == "" {
					kind = "secret"
				}
				if !has(m.objects, kind, name) {
					t.Errorf("the notes name the %s %s, which is not there", kind, name)
				}
			}
			if strings.Contains(notes, "hunter2") {
				t.Error("the notes show a password")
			}
		})
	}
}

// has says whether there is an object of a kind, in lower case, and a name.
func has(objects []meta.Object, kind, name string) bool {
	for _, o := range objects {
		if o.GetName() == name && strings.ToLower(kindOf(o)) == kind {
			return true
		}
	}
	return false
}
