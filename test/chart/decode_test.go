package chart

import (
	"errors"
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
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// types are all the kinds that the chart may make, with the Go type that its fields must fit to the letter.
var types = map[string]func() meta.Object{
	"v1 ConfigMap":                            func() meta.Object { return &core.ConfigMap{} },
	"v1 Pod":                                  func() meta.Object { return &core.Pod{} },
	"v1 Secret":                               func() meta.Object { return &core.Secret{} },
	"v1 Service":                              func() meta.Object { return &core.Service{} },
	"v1 ServiceAccount":                       func() meta.Object { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() meta.Object { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                     func() meta.Object { return &apps.StatefulSet{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 Ingress":            func() meta.Object { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() meta.Object { return &policy.PodDisruptionBudget{} },
	"gateway.networking.k8s.io/v1 HTTPRoute":  func() meta.Object { return &gateway.HTTPRoute{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() meta.Object { return &monitoring.PrometheusRule{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() meta.Object { return &monitoring.ServiceMonitor{} },
}

// manifest is what was rendered.
type manifest struct {
	text    string
	kinds   []string // of every object, sorted
	objects []meta.Object
	// openShift is true if it was rendered for OpenShift, which then chooses the users.
	openShift bool
}

// decode reads every document into the type of its kind. A field that the type does not have, or that is given twice,
// fails.
func decode(t testing.TB, text string) *manifest {
	t.Helper()
	m := &manifest{text: text}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		var head meta.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if head.Kind == "" {
			if rest := strings.TrimSpace(withoutComments(doc)); rest != "" {
				t.Errorf("a document without a kind:\n%s", rest)
			}
			continue
		}
		id := head.APIVersion + " " + head.Kind
		made, ok := types[id]
		if !ok {
			t.Errorf("%s is not among the kinds that the chart may make", id)
			continue
		}
		object := made()
		// Kubernetes' own decoder: unlike encoding/json's, it tells upper case from lower case in the names of fields.
		text, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err == nil {
			var strict []error
			strict, err = json.UnmarshalStrict(text, object)
			err = errors.Join(append(strict, err)...)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", id, err, doc)
			continue
		}
		m.kinds = append(m.kinds, head.Kind)
		m.objects = append(m.objects, object)
	}
	slices.Sort(m.kinds)
	return m
}

func withoutComments(doc string) string {
	var kept []string
	for line := range strings.Lines(doc) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") && trimmed != "---" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// all returns the objects of one type.
func all[T meta.Object](m *manifest) (found []T) {
	for _, o := range m.objects {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	return found
}

// named returns the object of a type and a name.
func named[T meta.Object](t testing.TB, m *manifest, name string) T {
	t.Helper()
	var names []string
	for _, o := range all[T](m) {
		if o.GetName() == name {
			return o
		}
		names = append(names, o.GetName())
	}
	var none T
	t.Fatalf("no %T of the name %q among %q", none, name, names)
	return none
}

// pod is what a pod will be made from, and where it stands.
type pod struct {
	owner  string
	labels map[string]string
	spec   core.PodSpec
}

func (m *manifest) pods() (pods []pod) {
	for _, d := range all[*apps.Deployment](m) {
		pods = append(pods, pod{"Deployment " + d.Name, d.Spec.Template.Labels, d.Spec.Template.Spec})
	}
	for _, s := range all[*apps.StatefulSet](m) {
		pods = append(pods, pod{"StatefulSet " + s.Name, s.Spec.Template.Labels, s.Spec.Template.Spec})
	}
	for _, p := range all[*core.Pod](m) {
		pods = append(pods, pod{"Pod " + p.Name, p.Labels, p.Spec})
	}
	return pods
}

// program returns the container of Reveille, and its pod.
func (m *manifest) program(t testing.TB) (core.Container, pod) {
	t.Helper()
	for _, p := range m.pods() {
		for _, c := range slices.Concat(p.spec.Containers, p.spec.InitContainers) {
			if c.Name == "reveille" {
				return c, p
			}
		}
	}
	t.Fatal("no container of the name reveille")
	return core.Container{}, pod{}
}

// environment returns the variables of a container with their values; one that comes from a Secret has the Secret's
// value.
func (m *manifest) environment(t testing.TB, c core.Container) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s is set twice", e.Name)
		}
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			ref := e.ValueFrom.SecretKeyRef
			env[e.Name] = fmt.Sprintf("secret %s/%s", ref.Name, ref.Key)
			for _, s := range all[*core.Secret](m) {
				if value, ok := s.Data[ref.Key]; ok && s.Name == ref.Name {
					env[e.Name] = string(value)
				}
			}
		}
	}
	return env
}

// kindOf is the name of an object's Go type, which is that of its kind.
func kindOf(o meta.Object) string { return reflect.TypeOf(o).Elem().Name() }
