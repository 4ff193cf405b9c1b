package chart

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
)

// foreign are containers that values or the example add: their security is not the chart's.
var foreign = []string{"streams", "before", "beside"}

// checkSecurity holds a pod, without foreign containers, to what a cluster may ask for at the strictest.
func checkSecurity(t *testing.T, m *manifest, p pod) {
	t.Helper()
	p.spec.Containers, p.spec.InitContainers = ours(p.spec.Containers), ours(p.spec.InitContainers)
	checkRestricted(t, p)
	if m.openShift {
		checkRestrictedV2(t, p)
		return
	}
	for _, c := range slices.Concat(p.spec.Containers, p.spec.InitContainers) {
		user := c.SecurityContext.RunAsUser
		if user == nil && p.spec.SecurityContext != nil {
			user = p.spec.SecurityContext.RunAsUser
		}
		if user == nil || *user == 0 {
			t.Errorf("%s: container %s has no user by its number, so a cluster cannot see that it is not root",
				p.owner, c.Name)
		}
	}
}

func ours(containers []core.Container) []core.Container {
	return slices.DeleteFunc(slices.Clone(containers),
		func(c core.Container) bool { return slices.Contains(foreign, c.Name) })
}

// checkRestricted asks Kubernetes' own admission about the profile "restricted", and about a root that cannot be
// written to, which it does not ask for.
func checkRestricted(t *testing.T, p pod) {
	t.Helper()
	admission, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := podsecurity.AggregateCheckResults(
		admission.EvaluatePod(level, &meta.ObjectMeta{Labels: p.labels}, &p.spec))
	if !result.Allowed {
		t.Errorf("%s: the profile restricted refuses it: %s", p.owner, result.ForbiddenDetail())
	}
	for _, c := range slices.Concat(p.spec.Containers, p.spec.InitContainers) {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: container %s may write into its root", p.owner, c.Name)
		}
	}
}

// restrictedVolumes are the kinds of volumes that OpenShift's restricted-v2 allows, as fields of a volume.
var restrictedVolumes = []string{
	"ConfigMap", "CSI", "DownwardAPI", "EmptyDir", "Ephemeral", "PersistentVolumeClaim", "Projected", "Secret",
}

func volumeKind(v core.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			return source.Type().Field(i).Name
		}
	}
	return "EmptyDir"
}

// checkRestrictedV2 holds a pod to OpenShift's security context constraints restricted-v2, which are stricter than the
// profile restricted: OpenShift itself sets user, group and SELinux labels, from ranges of the namespace that a chart
// cannot know.
func checkRestrictedV2(t *testing.T, p pod) {
	t.Helper()
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf(p.owner+": restricted-v2 refuses it: "+format, args...)
	}
	if p.spec.HostNetwork || p.spec.HostPID || p.spec.HostIPC {
		wrong("it shares something with its node")
	}
	if s := p.spec.SecurityContext; s != nil && (s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil ||
		s.SELinuxOptions != nil || len(s.Sysctls) > 0) {
		wrong("the pod has a user, a group, SELinux options or sysctls of its own: %+v", s)
	}
	for _, v := range p.spec.Volumes {
		if !slices.Contains(restrictedVolumes, volumeKind(v)) {
			wrong("volume %s is of the kind %s", v.Name, volumeKind(v))
		}
	}
	for _, c := range slices.Concat(p.spec.Containers, p.spec.InitContainers) {
		switch s := c.SecurityContext; {
		case s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot:
			wrong("container %s may run as root", c.Name)
		case s.RunAsUser != nil || s.RunAsGroup != nil || s.SELinuxOptions != nil:
			wrong("container %s has a user, a group or SELinux options of its own: %+v", c.Name, s)
		case s.Privileged != nil && *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
			wrong("container %s may gain privileges", c.Name)
		case s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0:
			wrong("container %s keeps capabilities", c.Name)
		case s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
			wrong("container %s has the seccomp profile %v", c.Name, s.SeccompProfile)
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 || port.HostIP != "" || port.ContainerPort < 1024 {
				wrong("container %s has port %d, of the node or for root alone", c.Name, port.ContainerPort)
			}
		}
	}
}

// TestOpenShiftTakesEveryPod holds every workload that the chart renders for OpenShift to restricted-v2.
func TestOpenShiftTakesEveryPod(t *testing.T) {
	t.Parallel()
	const on = `{openshift: true}`
	tryOut := `{tryOutRedis: {enabled: true}, redis: {url: ""}}`
	for name, m := range map[string]*manifest{
		"by default":      render(t, chartDir, newest, required, on),
		"with everything": render(t, chartDir, newest, required, everything, on),
		"to try out":      render(t, chartDir, newest, required, tryOut, on),
		"as a sidecar":    renderExample(t, "reveille: "+on),
	} {
		m.openShift = true
		checkWhole(t, m, "redis-ca", "streams-secret", "redis-auth", "operators", "reveille-redis")
		want := []string{"Pod wake-reveille-test"}
		switch name {
		case "to try out":
			want = append(want, "Deployment wake-reveille", "Deployment wake-reveille-try-out-redis")
		case "as a sidecar":
			want = append(want, "StatefulSet wake-streams")
		default:
			want = append(want, "Deployment wake-reveille")
		}
		var pods []string
		for _, p := range m.pods() {
			pods = append(pods, p.owner)
		}
		slices.Sort(pods)
		slices.Sort(want)
		if !slices.Equal(pods, want) {
			t.Errorf("%s: the pods are %q, want %q", name, pods, want)
		}
	}
}

// TestSecurityContextsCanBeChanged holds that values go over the chart's own, in all pods.
func TestSecurityContextsCanBeChanged(t *testing.T) {
	t.Parallel()
	m := render(t, chartDir, newest, required, `
redis: {url: ""}
tryOutRedis: {enabled: true}
podSecurityContext: {fsGroup: 1000680000, runAsUser: 1000680000}
securityContext: {runAsUser: 1000680000, runAsGroup: null, readOnlyRootFilesystem: false}`)
	for _, p := range m.pods() {
		s := p.spec.SecurityContext
		if s.FSGroup == nil || *s.FSGroup != 1000680000 || *s.RunAsUser != 1000680000 || *s.RunAsGroup == 0 ||
			!*s.RunAsNonRoot {
			t.Errorf("%s has %+v", p.owner, s)
		}
		for _, c := range p.spec.Containers {
			if s := c.SecurityContext; *s.RunAsUser != 1000680000 || s.RunAsGroup != nil || *s.ReadOnlyRootFilesystem ||
				*s.AllowPrivilegeEscalation || !strings.Contains(string(s.SeccompProfile.Type), "Runtime") {
				t.Errorf("%s: container %s has %+v", p.owner, c.Name, s)
			}
		}
	}
}
