package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write new SETTINGS.md and METRICS.md")

const reference = "SETTINGS.md"

// themes are the parts of the reference and which settings belong to each: those of a name, or of
// a name that begins so.
var themes = []struct {
	title    string
	settings []string
	prefixes []string
}{
	{"The stream server", nil, []string{"UPSTREAM_"}},
	{"Redis", []string{"PARTITIONS"}, []string{"REDIS_"}},
	{
		"Addresses and the token key",
		[]string{
			"PUBLIC_URL", "TOKEN_KEY", "LISTEN_ADDR", "OPERATOR_ADDR", "ADMIN_TOKEN", "READ_TOKEN", "GATEWAY",
			"CORS_ORIGINS",
		},
		nil,
	},
	{"Open Job Spec", []string{"OJS"}, []string{"OJS_"}},
	{"Events and notices", []string{"EVENTS_STREAM"}, []string{"NOTICE_"}},
	{"Direct deliveries", []string{"OUTBOX", "OUTBOX_ROLL"}, nil},
	{
		"Finding and watching streams",
		[]string{"STREAMS", "REGISTRY_STREAM", "STREAM_GONE_GRACE", "CLOSED_CHECK"},
		[]string{"TAIL_"},
	},
	{
		"Where webhooks may go",
		[]string{
			"ALLOW_INSECURE_WEBHOOKS", "WEBHOOK_ALLOW_CIDRS", "WEBHOOK_PROXY_FROM_ENV", "CONSENT", "ORIGIN",
			"UNCONSENTED_RATE",
		},
		nil,
	},
	{
		"Times",
		[]string{
			"WEBHOOK_TIMEOUT", "WEBHOOK_CONNECTION_AGE", "WAKING_TIMEOUT", "LIVENESS_TIMEOUT", "GC_AFTER",
			"DEAD_LETTER_RETENTION",
		},
		nil,
	},
	{"Limits", nil, []string{"MAX_"}},
	{
		"Logs, metrics, traces and profiles",
		[]string{"PPROF", "DELIVERY_LOG", "DELIVERY_LOG_BODIES"},
		[]string{"LOG_", "METRICS_", "TRACES_"},
	},
}

// TestTheReferenceOfTheSettingsIsUpToDate makes SETTINGS.md from the struct that the program reads, and from what the
// program says of a wrong value.
func TestTheReferenceOfTheSettingsIsUpToDate(t *testing.T) {
	want := makeReference(t)
	if *update {
		if err := os.WriteFile(reference, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: go test ./cmd/reveille -run Reference -update", reference)
	}
}

func makeReference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Settings

Reveille is configured only by environment variables. ` + "`reveille --help`" + ` prints them too. If a setting is
wrong or missing, Reveille does not start, and prints one line with the setting, its value (unless that is a secret) and
what it expected. It warns about a variable that begins with ` + "`REVEILLE_`" + ` and is not in this list; such a
variable has no effect.

Replicas that share a database need the same settings, except for the addresses that they listen on.

The column "values" says what the program accepts. A bound that depends on another setting is given for that setting's
default.

This file is generated from the program. To change a description, change it there and run
` + "`go test ./cmd/reveille -run Reference -update`" + `.
`)
	left := fields()
	for _, theme := range themes {
		fmt.Fprintf(&b, "\n## %s\n\n| setting | default | values | |\n| --- | --- | --- | --- |\n", theme.title)
		rest := left[:0:0]
		for _, f := range left {
			name := shortName(f)
			if slices.Contains(theme.settings, name) ||
				slices.ContainsFunc(theme.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				b.WriteString(row(t, f))
			} else {
				rest = append(rest, f)
			}
		}
		if len(rest) == len(left) {
			t.Errorf("no setting belongs to %q", theme.title)
		}
		left = rest
	}
	b.WriteString("\nTraces are configured by the [standard variables of OpenTelemetry](TRACES.md).\n")
	for _, f := range left {
		t.Errorf("%s belongs to none of the themes: name one in reference_test.go", fullName(f))
	}
	return b.String()
}

func row(t *testing.T, f reflect.StructField) string {
	t.Helper()
	def := f.Tag.Get("default")
	if def != "" {
		def = "`" + def + "`"
	}
	meaning := meanings[shortName(f)]
	if f.Tag.Get("secret") == "true" {
		meaning += " (a secret: never shown)"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", fullName(f), def, cell(values(t, f)), cell(meaning))
}

// cell escapes what Markdown would take for something else.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "_", `\_`, "*", `\*`).Replace(text)
}

// values is what the program says that it expects when a setting has a value that no setting of its kind can have.
func values(t *testing.T, f reflect.StructField) string {
	t.Helper()
	wrong := "no such value"
	switch {
	case f.Type == reflect.TypeFor[time.Duration]():
		wrong = "-1s"
	case f.Type.Kind() == reflect.Int:
		wrong = "-1"
	case shortName(f) == "REDIS_URL": // judged by whoever connects
		wrong = ""
	case shortName(f) == "REDIS_PASSWORD":
		wrong = "two\nlines"
	}
	var expected string
	t.Run(fullName(f), func(t *testing.T) { // so that the environment is put back
		environ(t, enough(shortName(f), wrong))
		_, _, err := load()
		var e *settingError
		if !errors.As(err, &e) || e.name != fullName(f) {
			t.Fatalf("with the value %q: %v, want an error about the setting", wrong, err)
		}
		expected, _, _ = strings.Cut(e.expected, " (") // what follows is about this value
	})
	return expected
}
