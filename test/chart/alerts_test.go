package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// failing is an endpoint that fails in one way, and the alert about its subscription; empty if there is none. If it has
// a reason, that is what is shown of it.
type failing struct {
	webhook string
	alert   string
	dead    bool
	reason  string
}

// TestAlertsFireForTheirCauseAndForNothingElse starts the program with endpoints that fail in the ways in which
// endpoints do, each with one stream and with several. What it shows is taken to stay as it is, and each alert is
// evaluated over the next twenty minutes.
func TestAlertsFireForTheirCauseAndForNothingElse(t *testing.T) {
	t.Parallel()
	m := render(t, chartDir, newest, required, onFreePorts(t), `
replicaCount: 1
redis: {url: embedded}
prometheusRule: {enabled: true}
upstream: {url: "`+streamServer(t)+`"}
caBundle: {existingConfigMap: authorities}
settings: {allowInsecureWebhooks: true}`)
	trusted := newAuthority(t)
	m.mountAuthorities(t, trusted.cert)
	r := startAsRendered(t, m)
	r.await(t, "/readyz")
	endpoints := failures(t)
	maps.Copy(endpoints, tlsFailures(t, trusted))
	at := map[string]int{} // streams by subscription
	for name := range endpoints {
		at[name], at[name+"-many"] = 1, 7
	}
	for sub, streams := range at {
		e := endpoints[strings.TrimSuffix(sub, "-many")]
		r.do(t, http.MethodPut, "/"+sub+"/*?subscription="+sub, fmt.Sprintf(
			`{"mode":"push","webhook":%q,"timeout":"5s","retry":{"schedule":["1s","1s","10h"]}}`, e.webhook))
		for n := range streams {
			r.do(t, http.MethodPut, fmt.Sprintf("/%s/%d", sub, n), "")
		}
	}
	before := r.scrape(t)
	for sub, streams := range at {
		for n := range streams {
			r.do(t, http.MethodPost, fmt.Sprintf("/%s/%d", sub, n), `{"n":1}`)
		}
	}
	wanted := map[string][]string{
		"ReveilleEndpointFailing": nil, "ReveilleEndpointRefusing": nil, "ReveilleEventsDead": nil,
		"ReveilleEndpointRetired": {""}, "ReveilleWakesWaiting": {""},
	}
	for sub := range at {
		e := endpoints[strings.TrimSuffix(sub, "-many")]
		if e.alert != "" {
			wanted[e.alert] = append(wanted[e.alert], sub)
		}
		if e.dead {
			wanted["ReveilleEventsDead"] = append(wanted["ReveilleEventsDead"], sub)
		}
	}
	after := r.settled(t, at, endpoints)
	r.showsReasons(t, endpoints)

	const minutes = 20
	set := history(before, after, minutes)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: patience})
	for _, g := range named[*monitoring.PrometheusRule](t, m, "wake-reveille").Spec.Groups {
		for _, rule := range g.Rules {
			want := slices.Sorted(slices.Values(wanted[rule.Alert]))
			fired := fires(t, engine, set, rule, minutes)
			if got := slices.Sorted(maps.Keys(fired)); !slices.Equal(got, want) {
				t.Errorf("%s fires for %q, want %q\n%s", rule.Alert, got, want, rule.Expr.String())
			}
			for sub, after := range fired {
				slow := strings.HasPrefix(rule.Alert, "ReveilleEndpoint") && rule.Alert != "ReveilleEndpointRetired"
				if slow && (after < 14*time.Minute || after > 18*time.Minute) {
					t.Errorf("%s fires for %q after %s", rule.Alert, sub, after)
				}
			}
		}
	}
}

// failures are the endpoints, each of its kind, by names.
func failures(t *testing.T) map[string]failing {
	t.Helper()
	const fails, refuses = "ReveilleEndpointFailing", "ReveilleEndpointRefusing"
	answers := func(status int) string {
		return serve(t, httptest.NewServer, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	nobody, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nobody.Close()
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	all := map[string]failing{
		"works":   {webhook: answers(http.StatusNoContent)},
		"refused": {webhook: "http://" + nobody.Addr().String(), alert: fails},
		"dns":     {webhook: "http://no-such-host.invalid/", alert: fails},
		"plain":   {webhook: strings.Replace(answers(200), "http:", "https:", 1), alert: fails},
		"reset": {webhook: serve(t, httptest.NewServer, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}), alert: fails},
		"hang": {webhook: serve(t, httptest.NewServer, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}), alert: fails},
		"s410": {webhook: answers(http.StatusGone), alert: refuses},
	}
	for _, status := range []int{429, 500, 503} {
		all[fmt.Sprint("s", status)] = failing{webhook: answers(status), alert: fails}
	}
	for _, status := range []int{302, 401, 404} {
		all[fmt.Sprint("s", status)] = failing{webhook: answers(status), alert: refuses, dead: true}
	}
	return all
}

func serve(t *testing.T, start func(http.Handler) *httptest.Server, h http.HandlerFunc) string {
	t.Helper()
	s := start(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// streamServer starts the reference server, and returns its URL.
func streamServer(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../refserver")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		install := exec.Command("npm", "ci", "--no-audit", "--no-fund")
		install.Dir = dir
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	}
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	_, port, _ := net.SplitHostPort(at)
	server := exec.Command("node", filepath.Join(dir, "server.mjs"), "--port", port, "--exit-with-stdin")
	stdin, err := server.StdinPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", at); err == nil {
			_ = conn.Close()
			return "http://" + at
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// do sends a request to the API port, which must be taken. A PUT is sent again while Redis, on a crowded machine, does
// not answer in time.
func (r *running) do(t *testing.T, method, path, body string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		status, text := r.send(t, method, path, body)
		switch {
		case status/100 == 2:
			return
		case status != http.StatusServiceUnavailable || method != http.MethodPut || time.Now().After(deadline):
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
	}
}

func (r *running) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", r.port(t, "api"), path),
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// point is a sample of a series.
type point struct {
	labels labels.Labels
	value  float64
}

// scrape returns the samples of the metrics.
func (r *running) scrape(t *testing.T) map[string]point {
	t.Helper()
	status, text, err := r.get(t, "operator", "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET /metrics: %d %v", status, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]point{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetType() == dto.MetricType_HISTOGRAM { // no alert asks for any
				continue
			}
			b := labels.NewBuilder(scraped(name))
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
			found[b.Labels().String()] = point{b.Labels(), value}
		}
	}
	found["up"] = point{scraped("up"), 1}
	return found
}

// scraped are the labels that each series of the release gets.
func scraped(name string) labels.Labels {
	return labels.FromStrings("__name__", name, "job", "wake-reveille-operator", "namespace", "streams")
}

// settled waits until the metrics say of each subscription that its endpoint is in trouble, or has taken all, and
// returns them.
func (r *running) settled(t *testing.T, streams map[string]int, endpoints map[string]failing) map[string]point {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		found, missing := r.scrape(t), ""
		for sub, n := range streams {
			e := endpoints[strings.TrimSuffix(sub, "-many")]
			of := func(name, outcome string) (sum float64) {
				for _, p := range found {
					if l := p.labels; l.Get("__name__") == name && l.Get("subscription") == sub &&
						l.Get("outcome") == outcome {
						sum += p.value
					}
				}
				return sum
			}
			done := of("reveille_delivery_attempts_total", "done")
			dead := of("reveille_delivery_attempts_total", "dead")
			trouble := of("reveille_endpoint_trouble_seconds", "")
			if e.alert == "" && done < float64(n) || e.alert != "" && trouble == 0 || e.dead && dead < float64(n) {
				missing = sub
			}
		}
		retired, waiting := false, false // which are counted every few seconds
		for _, p := range found {
			retired = retired || p.labels.Get("state") == "retired" && p.value > 0
			waiting = waiting || p.labels.Get("__name__") == "reveille_oldest_pending_wake_seconds" && p.value > 0
		}
		if missing == "" && retired && waiting {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not settle", missing)
		}
	}
}

// showsReasons checks that each endpoint fails for its own reason, with one stream and with several.
func (r *running) showsReasons(t *testing.T, endpoints map[string]failing) {
	t.Helper()
	var body struct {
		Subscriptions []struct {
			ID     string `json:"subscription_id"`
			Reason string `json:"last_error"`
		}
	}
	status, text, err := r.get(t, "operator", "/api/v1/subscriptions?limit=100")
	if err == nil {
		err = json.Unmarshal([]byte(text), &body)
	}
	if err != nil || len(body.Subscriptions) != 2*len(endpoints) {
		t.Fatalf("GET subscriptions: %d %s %v", status, text, err)
	}
	for _, sub := range body.Subscriptions {
		e := endpoints[strings.TrimSuffix(sub.ID, "-many")]
		if e.reason != "" && sub.Reason != e.reason {
			t.Errorf("%s is shown to fail because %q, want %q", sub.ID, sub.Reason, e.reason)
		}
	}
}

// history has what was scraped before last for ten minutes and what was scraped after it for some more, one sample in
// fifteen seconds. The ages of what goes on grow.
func history(before, after map[string]point, minutes int) (all []storage.Series) {
	const step = 15
	for series, is := range after {
		was, there := before[series]
		var samples []chunks.Sample
		for at := -600; at <= 60*minutes; at += step {
			v := is.value
			switch name := is.labels.Get("__name__"); {
			case at < 0 && !there:
				continue
			case at < 0:
				v = was.value
			case name == "reveille_endpoint_trouble_seconds",
				name == "reveille_oldest_pending_wake_seconds" && v > 0:
				v += float64(at)
			}
			samples = append(samples, sample{epoch.Add(time.Duration(at) * time.Second).UnixMilli(), v})
		}
		all = append(all, storage.NewListSeries(is.labels, samples))
	}
	return all
}

var epoch = time.Unix(1_800_000_000, 0)

// fires returns after how long an alert fires, by the subscription that it names.
func fires(
	t *testing.T, engine *promql.Engine, set []storage.Series, rule monitoring.Rule, minutes int,
) map[string]time.Duration {
	t.Helper()
	hold, err := time.ParseDuration(string(*rule.For))
	if err != nil {
		t.Fatal(err)
	}
	fired, since := map[string]time.Duration{}, map[string]time.Time{}
	q := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, by ...*labels.Matcher) storage.SeriesSet {
			found := &seriesList{at: -1}
			for _, s := range set {
				other := func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }
				if !slices.ContainsFunc(by, other) {
					found.all = append(found.all, s)
				}
			}
			slices.SortFunc(found.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
			return found
		},
	}}
	for after := time.Duration(0); after <= time.Duration(minutes)*time.Minute; after += 30 * time.Second {
		now := epoch.Add(after)
		query, err := engine.NewInstantQuery(t.Context(), q, nil, rule.Expr.String(), now)
		if err != nil {
			t.Fatal(err)
		}
		result, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		holds := map[string]bool{}
		for _, s := range result {
			holds[s.Metric.Get("subscription")] = true
		}
		query.Close()
		for sub := range since {
			if !holds[sub] {
				delete(since, sub)
			}
		}
		for sub := range holds {
			if _, before := since[sub]; !before {
				since[sub] = now
			}
			if _, did := fired[sub]; !did && now.Sub(since[sub]) >= hold {
				fired[sub] = after
			}
		}
	}
	return fired
}

// sample is one of a number.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// seriesList is a storage.SeriesSet.
type seriesList struct {
	all []storage.Series
	at  int
}

func (l *seriesList) Next() bool                        { l.at++; return l.at < len(l.all) }
func (l *seriesList) At() storage.Series                { return l.all[l.at] }
func (l *seriesList) Err() error                        { return nil }
func (l *seriesList) Warnings() annotations.Annotations { return nil }
