package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// otelEnviron replaces the variables of OpenTelemetry, for the time of the test.
func otelEnviron(t *testing.T, variables ...string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, value) // so that it is put back
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := 0; i+1 < len(variables); i += 2 {
		t.Setenv("OTEL_"+variables[i], variables[i+1])
	}
}

func TestTracingIsOnWithAnEndpointOnly(t *testing.T) {
	const url = "http://collector:4318"
	for _, c := range []struct {
		name      string
		variables []string
		on, grpc  bool
	}{
		{name: "nothing is set"},
		{name: "an exporter without an endpoint", variables: []string{"TRACES_EXPORTER", "otlp", "SERVICE_NAME", "x"}},
		{name: "an endpoint", variables: []string{"EXPORTER_OTLP_ENDPOINT", url}, on: true},
		{
			name: "an endpoint of traces", variables: []string{"EXPORTER_OTLP_TRACES_ENDPOINT", url + "/v1/traces"},
			on: true,
		},
		{
			name:      "an endpoint and no exporter",
			variables: []string{"EXPORTER_OTLP_ENDPOINT", url, "TRACES_EXPORTER", "none"},
		},
		{
			name:      "a disabled SDK, whatever else is set",
			variables: []string{"EXPORTER_OTLP_ENDPOINT", "!", "SDK_DISABLED", "TRUE"},
		},
		{
			name:      "an SDK that is not disabled",
			variables: []string{"EXPORTER_OTLP_ENDPOINT", url, "SDK_DISABLED", "false"}, on: true,
		},
		{
			name:      "http/protobuf",
			variables: []string{"EXPORTER_OTLP_ENDPOINT", url, "EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, on: true,
		},
		{
			name:      "http/json",
			variables: []string{"EXPORTER_OTLP_ENDPOINT", url, "EXPORTER_OTLP_PROTOCOL", "http/json"},
			on:        true,
		},
		{
			name: "grpc", variables: []string{"EXPORTER_OTLP_ENDPOINT", url, "EXPORTER_OTLP_PROTOCOL", "grpc"},
			on: true, grpc: true,
		},
		{
			name: "a protocol of traces wins",
			variables: []string{
				"EXPORTER_OTLP_ENDPOINT", url, "EXPORTER_OTLP_PROTOCOL", "http/protobuf",
				"EXPORTER_OTLP_TRACES_PROTOCOL", "grpc",
			}, on: true, grpc: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			otelEnviron(t, c.variables...)
			t.Setenv("ENDPOINT", "!")
			t.Setenv("PROTOCOL", "!")
			o, err := loadOTel()
			if err != nil || o.on != c.on || o.grpc != c.grpc {
				t.Errorf("on %v, grpc %v, %v; want %v and %v", o.on, o.grpc, err, c.on, c.grpc)
			}
		})
	}
}

func TestAWrongVariableOfOpenTelemetryIsNamedAndItsSecretsAreNot(t *testing.T) {
	pem := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(pem, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, value, expected string }{
		{"SDK_DISABLED", "yes", "true or false"},
		{"TRACES_EXPORTER", "zipkin", "otlp or none"},
		{"EXPORTER_OTLP_ENDPOINT", "collector:4318", "a URL such as"},
		{"EXPORTER_OTLP_ENDPOINT", "ftp://collector", "a URL such as"},
		{"EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@collector:4318", "without user and password"},
		{"EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/v1/traces?key=hunter2", "without a query"},
		{"EXPORTER_OTLP_PROTOCOL", "udp", "http/protobuf, http/json or grpc"},
		{"EXPORTER_OTLP_TRACES_PROTOCOL", "http", "http/protobuf, http/json or grpc"},
		{"EXPORTER_OTLP_HEADERS", "hunter2", "name=value pairs"},
		{"EXPORTER_OTLP_HEADERS", "api-key=hunter2%zz", "name=value pairs"},
		{"EXPORTER_OTLP_TRACES_HEADERS", "a key=hunter2", "name=value pairs"},
		{"EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"},
		{"EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"},
		{"EXPORTER_OTLP_INSECURE", "1", "true or false"},
		{"EXPORTER_OTLP_CERTIFICATE", pem, "a PEM file with a certificate"},
		{"EXPORTER_OTLP_CLIENT_CERTIFICATE", "/nonexistent/c.pem", "a PEM file with a certificate"},
		{"TRACES_SAMPLER", "jaeger_remote", "always_on"},
		{"TRACES_SAMPLER", "parentbased_", "always_on"},
		{"TRACES_SAMPLER_ARG", "1.5", "a number from 0 to 1"},
		{"TRACES_SAMPLER_ARG", "NaN", "a number from 0 to 1"},
		{"RESOURCE_ATTRIBUTES", "team", "name=value pairs"},
		{"BSP_SCHEDULE_DELAY", "soon", "a whole number"},
		{"BSP_MAX_QUEUE_SIZE", "0", "a whole number"},
		{"BSP_MAX_QUEUE_SIZE", "9000000000000000000", "from 1 to 1000000"},
		{"BSP_MAX_EXPORT_BATCH_SIZE", "2000000", "from 1 to 1000000"},
		{"BSP_SCHEDULE_DELAY", "9000000000000000000", "from 1 to 86400000"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			otelEnviron(t, "EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
			if c.name == "TRACES_SAMPLER_ARG" {
				t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
			}
			t.Setenv("OTEL_"+c.name, c.value)
			environ(t, enough())
			_, _, err := load()
			if err == nil || !strings.HasPrefix(err.Error(), "OTEL_"+c.name+"=") ||
				!strings.Contains(err.Error(), c.expected) ||
				strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want one line that names it and %q", err, c.expected)
			}
		})
	}
}

func TestFailedExportsAreSummarisedWithoutCredentials(t *testing.T) {
	otelEnviron(t, "EXPORTER_OTLP_ENDPOINT", "http://collector:4318", "EXPORTER_OTLP_HEADERS",
		"Authorization=Bearer%20hunter2,api-key=hunter3")
	o, err := loadOTel()
	if err != nil {
		t.Fatal(err)
	}
	core, lines := observer.New(zapcore.DebugLevel)
	now := time.Unix(1_790_000_000, 0)
	e := &exportErrors{log: zap.New(core), hide: o.hide, now: func() time.Time { return now }}
	fail := errors.New("401 (body: no such key hunter3, Bearer hunter2\n" + strings.Repeat("x", 2000) + ")")
	for range 60 {
		e.Handle(fail)
		now = now.Add(time.Second)
	}
	e.Handle(fail)
	e.Handle(nil)
	got := lines.All()
	if len(got) != 2 || got[0].ContextMap()["failures"] != int64(1) || got[1].ContextMap()["failures"] != int64(30) {
		t.Fatalf("61 failures in a minute were logged as %v", got)
	}
	for _, l := range got {
		text, _ := l.ContextMap()["error"].(string)
		if strings.Contains(text, "hunter") || strings.Contains(text, "\n") || len(text) > maxExportError+len("…") ||
			!strings.HasPrefix(text, "401 (body: ") {
			t.Errorf("the line holds %q", text)
		}
	}
}

func TestThePageOfTracesListsTheVariablesOfOpenTelemetry(t *testing.T) {
	page := markdown(t, project())["cmd/reveille/TRACES.md"]
	for _, f := range reflect.VisibleFields(reflect.TypeFor[otelSettings]()) {
		if name := f.Tag.Get("envconfig"); f.IsExported() && f.Type.Kind() == reflect.String &&
			!strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s is missing", name)
		}
	}
	words := regexp.MustCompile("([a-z])([A-Z])")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[otlpSettings]()) {
		if name := strings.ToUpper(words.ReplaceAllString(f.Name, "${1}_$2")); !strings.Contains(page, "_"+name+"`") {
			t.Errorf("OTEL_EXPORTER_OTLP_%s is missing", name)
		}
	}
}
