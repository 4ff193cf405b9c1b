package chart

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	core "k8s.io/api/core/v1"
)

// metric is one of the program's, as its list says.
type metric struct {
	kind   string
	labels []string
	help   string
}

// metrics reads the program's list, which the program's own tests hold against what it exports.
func metrics(t testing.TB) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(root + "/cmd/reveille/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]metric{}
	row := regexp.MustCompile("(?m)^\\| `(reveille_[a-z_]+)` \\| ([^|]*) \\| ([^|]*) \\| (.*) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = metric{m[2], strings.Split(m[3], ", "), m[4]}
	}
	if len(list) < 10 {
		t.Fatalf("METRICS.md lists %d metrics", len(list))
	}
	return list
}

// everywhere are labels that come with the scrape, and series that are not the program's own.
var (
	everywhere = []string{"job", "namespace", "pod", "le"}
	others     = []string{
		"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
		"go_goroutines",
	}
)

// checkQuery parses an expression and looks up every series and label in it.
func checkQuery(t *testing.T, known map[string]metric, where, query string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			m, ok := series(known, n.Name)
			if !ok && !slices.Contains(others, n.Name) {
				t.Errorf("%s: there is no metric %s", where, n.Name)
			}
			for _, match := range n.LabelMatchers {
				if match.Name != "__name__" && !slices.Contains(everywhere, match.Name) &&
					!slices.Contains(m.labels, match.Name) {
					t.Errorf("%s: %s has no label %s", where, n.Name, match.Name)
				}
				for value := range strings.SplitSeq(match.Value, "|") {
					if slices.Contains(m.labels, match.Name) && !said(known, match.Name, value) {
						t.Errorf("%s: %s of %s is never %q", where, match.Name, n.Name, value)
					}
				}
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(everywhere, label) && !within(known, n, label) {
					t.Errorf("%s: nothing in %s has a label %s", where, n, label)
				}
			}
		}
		return nil
	})
}

// series returns the metric that a name belongs to; a histogram has three series.
func series(known map[string]metric, name string) (metric, bool) {
	if m, ok := known[name]; ok {
		return m, m.kind != "histogram"
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			m, there := known[base]
			return m, there && m.kind == "histogram"
		}
	}
	return metric{}, false
}

// said says whether a label may have a value: the help of its metric, or of another with that label, lists them.
func said(known map[string]metric, label, value string) bool {
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`)
	for _, m := range known {
		if slices.Contains(m.labels, label) && word.MatchString(m.help) {
			return true
		}
	}
	return false
}

// within says whether a series below a node has a label.
func within(known map[string]metric, node parser.Node, label string) (found bool) {
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			m, _ := series(known, v.Name)
			found = found || slices.Contains(m.labels, label)
		}
		return nil
	})
	return found
}

func TestAlertsAskForMetricsThatTheProgramHas(t *testing.T) {
	t.Parallel()
	known := metrics(t)
	rules := func(values string) (found []monitoring.Rule) {
		m := render(t, chartDir, newest, required, values)
		for _, g := range named[*monitoring.PrometheusRule](t, m, "wake-reveille").Spec.Groups {
			found = append(found, g.Rules...)
		}
		return found
	}
	list := rules(`prometheusRule: {enabled: true}`)
	if len(list) < 8 {
		t.Fatalf("%d alerts", len(list))
	}
	values, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		checkQuery(t, known, r.Alert, r.Expr.String())
		if r.For == nil {
			t.Errorf("%s does not say for how long", r.Alert)
		} else if _, err := time.ParseDuration(string(*r.For)); err != nil {
			t.Errorf("%s: for: %v", r.Alert, err)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) ||
			r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
		}
		if runbook, there := r.Annotations["runbook_url"]; there {
			t.Errorf("%s leads to %q, and nobody has said where the runbook is", r.Alert, runbook)
		}
		if !strings.Contains(r.Expr.String(), `job="wake-reveille-operator"`) ||
			!strings.Contains(r.Expr.String(), `namespace="streams"`) {
			t.Errorf("%s looks at the series of other releases too: %s", r.Alert, r.Expr.String())
		}
		// What a text tells the operator to change must be there to change.
		description := r.Annotations["description"]
		for _, m := range regexp.MustCompile(`settings\.([a-zA-Z]+)`).FindAllStringSubmatch(description, -1) {
			if readSchema(t).Properties["settings"].Properties[m[1]] == nil {
				t.Errorf("%s names settings.%s, which does not exist", r.Alert, m[1])
			}
		}
		alert := regexp.MustCompile(`Reveille[A-Z][A-Za-z]+`)
		for _, name := range alert.FindAllString(description+string(values), -1) {
			if !slices.ContainsFunc(list, func(r monitoring.Rule) bool { return r.Alert == name }) {
				t.Errorf("%s or values.yaml names the alert %s, which does not exist", r.Alert, name)
			}
		}
	}
	for _, r := range rules(`prometheusRule: {enabled: true, runbookUrl: "https://example.com/guide#"}`) {
		if want := "https://example.com/guide#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("the runbook_url of %s is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	fewer := rules(`prometheusRule: {enabled: true, disabled: [ReveilleDown, ReveilleStreamsSwept]}`)
	if n := len(fewer); n != len(list)-2 {
		t.Errorf("%d alerts are left of %d without two", n, len(list))
	}
	const others = `prometheusRule: {enabled: true, selector: 'cluster="a"', oldestPendingWakeSeconds: 1000000}`
	for _, r := range rules(others) {
		if strings.Contains(r.Expr.String(), "job=") || !strings.Contains(r.Expr.String(), `cluster="a"`) {
			t.Errorf("%s ignores prometheusRule.selector: %s", r.Alert, r.Expr.String())
		}
		if r.Alert == "ReveilleWakesWaiting" && !strings.HasSuffix(r.Expr.String(), "> 1000000") {
			t.Errorf("prometheusRule.oldestPendingWakeSeconds came out as %s", r.Expr.String())
		}
	}
}

// dashboard is what is looked at of a Grafana dashboard.
type dashboard struct {
	UID        string
	Title      string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func TestTheDashboardAsksForMetricsThatTheProgramHas(t *testing.T) {
	t.Parallel()
	known := metrics(t)
	m := render(t, chartDir, newest, required, `dashboard: {enabled: true}`)
	var d dashboard
	if err := json.Unmarshal([]byte(named[*core.ConfigMap](t, m, "wake-reveille-dashboard").Data["reveille.json"]),
		&d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "streams", "$job", "reveille")
	shown, ids := map[string]bool{}, map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the number %d", p.ID)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q lies over %q", p.Title, q.Title)
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			query := variables.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%q has an unknown variable: %s", p.Title, query)
			}
			checkQuery(t, known, p.Title, query)
			for _, name := range regexp.MustCompile(`reveille_[a-z_]+`).FindAllString(query, -1) {
				if m, ok := known[name]; ok && m.kind != "histogram" {
					shown[name] = true
				}
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					shown[strings.TrimSuffix(name, suffix)] = true
				}
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	for _, v := range d.Templating.List {
		for _, name := range regexp.MustCompile(`reveille_[a-z_]+`).FindAllString(v.Definition, -1) {
			if _, ok := known[name]; !ok {
				t.Errorf("variable %s asks for %s, which does not exist", v.Name, name)
			}
		}
	}
}

func TestThePageOfAlertsExplainsEveryAlert(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/cmd/reveille/WATCH.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Reveille[A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		explained[m[1]] = true
	}
	for _, g := range named[*monitoring.PrometheusRule](t,
		render(t, chartDir, newest, required, `prometheusRule: {enabled: true}`), "wake-reveille").Spec.Groups {
		for _, r := range g.Rules {
			if !explained[r.Alert] {
				t.Errorf("WATCH.md does not explain %s", r.Alert)
			}
			delete(explained, r.Alert)
		}
	}
	for name := range explained {
		t.Errorf("WATCH.md explains %s, which does not exist", name)
	}
}
