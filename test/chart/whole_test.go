package chart

import (
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// checkWhole fails the test unless what was rendered fits together and is safe, whatever the values were. ours are the
// Secrets that values named, which are not rendered.
func checkWhole(t *testing.T, m *manifest, ours ...string) {
	t.Helper()
	for _, o := range m.objects {
		if len(o.GetName()) > 63 {
			t.Errorf("%T has a name of more than 63 letters: %s", o, o.GetName())
		}
	}
	if strings.Contains(m.text, "hunter2") {
		t.Error("a password is written outside of a Secret")
	}
	for _, p := range m.pods() {
		checkPod(t, m, p, ours)
	}
	checkServices(t, m)
	checkPolicies(t, m)
	checkRoutes(t, m)
}

func checkPod(t *testing.T, m *manifest, p pod, ours []string) {
	t.Helper()
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf(p.owner+": "+format, args...)
	}
	if p.spec.AutomountServiceAccountToken == nil || *p.spec.AutomountServiceAccountToken {
		wrong("it has a token for the cluster")
	}
	checkSecurity(t, m, p)
	for _, c := range slices.Concat(p.spec.Containers, p.spec.InitContainers) {
		if slices.Contains(foreign, c.Name) {
			continue
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
			c.Resources.Limits.Memory().IsZero() {
			wrong("container %s has no requests, or no limit of memory", c.Name)
		}
		mounts := map[string]bool{}
		for _, v := range p.spec.Volumes {
			mounts[v.Name] = true
		}
		for _, v := range c.VolumeMounts {
			if !mounts[v.Name] {
				wrong("container %s mounts %s, which is no volume", c.Name, v.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
				continue
			}
			ref := e.ValueFrom.SecretKeyRef
			if !slices.Contains(ours, ref.Name) &&
				!slices.ContainsFunc(all[*core.Secret](m), func(s *core.Secret) bool {
					return s.Name == ref.Name && len(s.Data[ref.Key]) > 0
				}) {
				wrong("%s comes from key %s of Secret %s, which nobody makes", e.Name, ref.Key, ref.Name)
			}
		}
		if c.Name == "reveille" {
			checkStop(t, c, p)
		}
	}
}

// checkStop holds a pod to what a rolling update that loses nothing needs.
func checkStop(t *testing.T, c core.Container, p pod) {
	t.Helper()
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		t.Fatalf("%s: the program is told to stop while requests still come", p.owner)
	}
	const stop = 30 // seconds that the program may take
	sleep := c.Lifecycle.PreStop.Sleep.Seconds
	if grace := p.spec.TerminationGracePeriodSeconds; sleep < 1 || grace == nil || *grace < sleep+stop {
		t.Errorf("%s: it sleeps %d s and then needs %d s, but is killed after %v", p.owner, sleep, stop, grace)
	}
	for _, d := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if d == nil || d.HTTPGet == nil {
			t.Fatalf("%s: a probe is missing", p.owner)
		}
		if !hasPort(c, d.HTTPGet.Port.String()) {
			t.Errorf("%s: a probe asks port %s, which the container does not have", p.owner, d.HTTPGet.Port.String())
		}
	}
}

func hasPort(c core.Container, name string) bool {
	return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == name })
}

// selected returns the pods that labels select.
func (m *manifest) selected(selector map[string]string) (found []pod) {
	for _, p := range m.pods() {
		if len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(p.labels)) {
			found = append(found, p)
		}
	}
	return found
}

// serves says whether a Service's pods were rendered: in mode sidecar they are somebody else's.
func (m *manifest) serves(s *core.Service) bool {
	_, foreign := s.Spec.Selector["reveille-sidecar"]
	return !foreign || slices.ContainsFunc(m.pods(), func(p pod) bool { return p.labels["reveille-sidecar"] != "" })
}

func checkServices(t *testing.T, m *manifest) {
	t.Helper()
	for _, s := range all[*core.Service](m) {
		if !m.serves(s) {
			continue
		}
		pods := m.selected(s.Spec.Selector)
		if len(pods) != 1 {
			t.Errorf("Service %s selects %d kinds of pods, want 1", s.Name, len(pods))
			continue
		}
		for _, port := range s.Spec.Ports {
			if !slices.ContainsFunc(slices.Concat(pods[0].spec.Containers, pods[0].spec.InitContainers),
				func(c core.Container) bool { return hasPort(c, port.TargetPort.String()) }) {
				t.Errorf("Service %s leads to port %s, which the pod does not have", s.Name, port.TargetPort.String())
			}
		}
	}
	for _, monitor := range all[*monitoring.ServiceMonitor](m) {
		var found []string
		for _, s := range all[*core.Service](m) {
			if labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(s.Labels)) {
				found = append(found, s.Name)
				for _, e := range monitor.Spec.Endpoints {
					if e.Port != s.Spec.Ports[0].Name || e.Path != "/metrics" {
						t.Errorf("the ServiceMonitor scrapes %s%s, want the operator port's /metrics", e.Port, e.Path)
					}
				}
			}
		}
		if len(found) != 1 || !strings.HasSuffix(found[0], "-operator") {
			t.Errorf("the ServiceMonitor finds the Services %q, want that of the operator port", found)
		}
	}
}

func checkPolicies(t *testing.T, m *manifest) {
	t.Helper()
	deployments := all[*apps.Deployment](m)
	for _, h := range all[*autoscaling.HorizontalPodAutoscaler](m) {
		d := named[*apps.Deployment](t, m, h.Spec.ScaleTargetRef.Name)
		if d.Spec.Replicas != nil {
			t.Errorf("Deployment %s says how many replicas it has, and so does its HorizontalPodAutoscaler", d.Name)
		}
	}
	for _, b := range all[*policy.PodDisruptionBudget](m) {
		if n := len(m.selected(b.Spec.Selector.MatchLabels)); n != 1 {
			t.Errorf("the PodDisruptionBudget is for %d kinds of pods, want 1", n)
		}
	}
	for _, n := range all[*networking.NetworkPolicy](m) {
		if found := m.selected(n.Spec.PodSelector.MatchLabels); len(found) != 1 ||
			found[0].owner != "Deployment "+n.Name {
			t.Errorf("the NetworkPolicy is for %d kinds of pods, want that of the Deployment", len(found))
		}
	}
	for _, d := range deployments {
		if !labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("Deployment %s does not select its own pods", d.Name)
		}
	}
}

func checkRoutes(t *testing.T, m *manifest) {
	t.Helper()
	port := func(service string) core.ServicePort { return named[*core.Service](t, m, service).Spec.Ports[0] }
	for _, i := range all[*networking.Ingress](m) {
		for _, r := range i.Spec.Rules {
			for _, p := range r.HTTP.Paths {
				if s := p.Backend.Service; port(s.Name).Name != s.Port.Name {
					t.Errorf("the Ingress leads to port %q of Service %s, which it does not have", s.Port.Name, s.Name)
				}
			}
		}
	}
	for _, h := range all[*gateway.HTTPRoute](m) {
		for _, r := range h.Spec.Rules {
			for _, b := range r.BackendRefs {
				if b.Port == nil || *b.Port != port(string(b.Name)).Port {
					t.Errorf("the HTTPRoute leads to port %v of Service %s, which it does not have", b.Port, b.Name)
				}
			}
		}
	}
}
