package chart

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// parts are values that are a part of an object, with the Go type of that part: the schema knows the names of its
// fields, so that a wrong one is refused before it gets to a cluster.
var parts = map[string]reflect.Type{
	"strategy":                   reflect.TypeFor[apps.DeploymentStrategy](),
	"lifecycle":                  reflect.TypeFor[core.Lifecycle](),
	"podSecurityContext":         reflect.TypeFor[core.PodSecurityContext](),
	"securityContext":            reflect.TypeFor[core.SecurityContext](),
	"dnsConfig":                  reflect.TypeFor[core.PodDNSConfig](),
	"hostAliases":                reflect.TypeFor[core.HostAlias](),
	"autoscaling.behavior":       reflect.TypeFor[autoscaling.HorizontalPodAutoscalerBehavior](),
	"networkPolicy.extraIngress": reflect.TypeFor[networking.NetworkPolicyIngressRule](),
	"prometheusRule.extraRules":  reflect.TypeFor[monitoring.Rule](),
}

func TestTheSchemaKnowsTheFieldsOfTheParts(t *testing.T) {
	t.Parallel()
	for name, part := range parts {
		s := readSchema(t)
		for step := range strings.SplitSeq(name, ".") {
			s = s.Properties[step]
		}
		if s.Items != nil {
			s = s.Items
		}
		var want []string
		for i := range part.NumField() {
			field, _, _ := strings.Cut(part.Field(i).Tag.Get("json"), ",")
			want = append(want, field)
		}
		slices.Sort(want)
		if have := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(have, want) || s.Closed != false {
			t.Errorf("%s: the schema has the fields %q, %v has %q", name, have, part, want)
		}
	}
}
