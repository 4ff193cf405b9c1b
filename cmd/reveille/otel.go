package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/net/http/httpguts"
)

// otelSettings are the standard variables of OpenTelemetry for traces. The SDK reads most of them by itself, and
// ignores what it does not understand. Reveille reads them, too, so that a wrong one stops the start. Each OTLP
// variable also exists for traces only. That one wins.
type otelSettings struct {
	Disabled     string `envconfig:"OTEL_SDK_DISABLED"`
	Exporter     string `envconfig:"OTEL_TRACES_EXPORTER"`
	Sampler      string `envconfig:"OTEL_TRACES_SAMPLER"`
	SamplerArg   string `envconfig:"OTEL_TRACES_SAMPLER_ARG"`
	Resource     string `envconfig:"OTEL_RESOURCE_ATTRIBUTES"`
	ScheduleWait string `envconfig:"OTEL_BSP_SCHEDULE_DELAY"`
	ExportTime   string `envconfig:"OTEL_BSP_EXPORT_TIMEOUT"`
	MaxQueue     string `envconfig:"OTEL_BSP_MAX_QUEUE_SIZE"`
	MaxBatch     string `envconfig:"OTEL_BSP_MAX_EXPORT_BATCH_SIZE"`

	All    otlpSettings `envconfig:"OTEL_EXPORTER_OTLP"`
	Traces otlpSettings `envconfig:"OTEL_EXPORTER_OTLP_TRACES"`

	// on is true if traces are exported. The fields after it say how.
	on      bool
	grpc    bool
	sampler sdktrace.Sampler
	// secrets must never be logged. They are the values of headers.
	secrets []string
}

// otlpSettings have no envconfig tags. With tags, a variable of that name without the prefix would count, too.
type otlpSettings struct {
	Endpoint          string
	Protocol          string
	Headers           string
	Timeout           string
	Compression       string
	Insecure          string
	Certificate       string
	ClientCertificate string `split_words:"true"`
	ClientKey         string `split_words:"true"`
}

// loadOTel reads and checks the variables. Without an endpoint, or if the variables say so, nothing is traced. Then the
// other variables do not matter.
func loadOTel() (o otelSettings, err error) {
	if err := envconfig.Process("", &o); err != nil {
		return o, err
	}
	wrong := func(name, value, expected string) error {
		return &settingError{name: name, value: value, expected: expected}
	}
	switch strings.ToLower(o.Disabled) {
	case "true":
		return o, nil
	case "", "false":
	default:
		return o, wrong("OTEL_SDK_DISABLED", o.Disabled, "true or false")
	}
	switch o.Exporter {
	case "none":
		return o, nil
	case "", "otlp":
	default:
		return o, wrong("OTEL_TRACES_EXPORTER", o.Exporter, "otlp or none")
	}
	if o.All.Endpoint == "" && o.Traces.Endpoint == "" {
		return o, nil
	}
	o.on = true
	for prefix, s := range map[string]otlpSettings{
		"OTEL_EXPORTER_OTLP_":        o.All,
		"OTEL_EXPORTER_OTLP_TRACES_": o.Traces,
	} {
		name, value, expected := s.wrong()
		if expected != "" {
			e := &settingError{name: prefix + name, value: value, expected: expected}
			e.secret = name == "HEADERS"
			return o, e
		}
		o.secrets = append(o.secrets, s.secrets()...)
	}
	o.grpc = o.protocol() == "grpc"
	if o.sampler, err = o.parseSampler(); err != nil {
		return o, err
	}
	for pair := range strings.SplitSeq(o.Resource, ",") {
		if k, v, ok := strings.Cut(pair, "="); strings.TrimSpace(pair) != "" &&
			(!ok || strings.TrimSpace(k) == "" || !escaped(v)) {
			return o, wrong("OTEL_RESOURCE_ATTRIBUTES", o.Resource,
				"name=value pairs, separated by commas, percent-encoded where need be")
		}
	}
	// The SDK allocates the whole queue at once.
	for _, n := range []struct {
		name, value string
		most        int
	}{
		{"OTEL_BSP_SCHEDULE_DELAY", o.ScheduleWait, maxSpanWait},
		{"OTEL_BSP_EXPORT_TIMEOUT", o.ExportTime, maxSpanWait},
		{"OTEL_BSP_MAX_QUEUE_SIZE", o.MaxQueue, maxSpanQueue},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", o.MaxBatch, maxSpanQueue},
	} {
		if n.value != "" && !upTo(n.value, n.most) {
			return o, wrong(n.name, n.value, fmt.Sprintf("a whole number from 1 to %d", n.most))
		}
	}
	return o, nil
}

func (o otelSettings) protocol() string {
	return cmp.Or(o.Traces.Protocol, o.All.Protocol)
}

// wrong returns one of the variables that is wrong, with what was expected. If all are right, expected is empty.
func (s otlpSettings) wrong() (name, value, expected string) {
	if s.Endpoint != "" {
		if expected := wrongEndpoint(s.Endpoint); expected != "" {
			return "ENDPOINT", redact(s.Endpoint), expected
		}
	}
	switch s.Protocol {
	case "", "grpc", "http/protobuf", "http/json":
	default:
		return "PROTOCOL", s.Protocol, "http/protobuf, http/json or grpc"
	}
	for pair := range strings.SplitSeq(s.Headers, ",") {
		if k, v, ok := strings.Cut(pair, "="); strings.TrimSpace(pair) != "" &&
			(!ok || !httpguts.ValidHeaderFieldName(strings.TrimSpace(k)) || !escaped(v)) {
			return "HEADERS", s.Headers, "name=value pairs, separated by commas, percent-encoded where need be"
		}
	}
	if s.Timeout != "" && !positive(s.Timeout) {
		return "TIMEOUT", s.Timeout, "a whole number of milliseconds"
	}
	if c := s.Compression; c != "" && c != "gzip" && c != "none" {
		return "COMPRESSION", c, "gzip or none"
	}
	if i := strings.ToLower(s.Insecure); i != "" && i != "true" && i != "false" {
		return "INSECURE", s.Insecure, "true or false"
	}
	if s.Certificate != "" {
		if _, err := authorities(s.Certificate); err != nil {
			return "CERTIFICATE", s.Certificate, err.Error()
		}
	}
	if s.ClientCertificate != "" || s.ClientKey != "" {
		if _, err := tls.LoadX509KeyPair(s.ClientCertificate, s.ClientKey); err != nil {
			return "CLIENT_CERTIFICATE", s.ClientCertificate,
				"a PEM file with a certificate, and its key in the file that …_CLIENT_KEY names (" + err.Error() + ")"
		}
	}
	return "", "", ""
}

func wrongEndpoint(text string) (expected string) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return "a URL such as http://collector:4318"
	case u.User != nil:
		return "a URL without user and password (OTEL_EXPORTER_OTLP_HEADERS can carry an Authorization)"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "a URL without a query or fragment (OTEL_EXPORTER_OTLP_HEADERS can carry a key)"
	}
	return ""
}

// secrets returns the values of the headers. It also returns parts of them that may appear alone, such as a token after
// "Bearer".
func (s otlpSettings) secrets() (found []string) {
	for pair := range strings.SplitSeq(s.Headers, ",") {
		_, v, _ := strings.Cut(pair, "=")
		v = strings.TrimSpace(v)
		plain, _ := url.PathUnescape(v)
		for _, text := range append([]string{v, plain}, strings.Fields(plain)...) {
			if len(text) > 3 && !strings.EqualFold(text, "bearer") && !strings.EqualFold(text, "basic") {
				found = append(found, text)
			}
		}
	}
	return found
}

// parseSampler returns the sampler for a wake's trace. A wake has no parent, so a parent-based sampler is the sampler
// that it is based on.
func (o otelSettings) parseSampler() (sdktrace.Sampler, error) {
	switch strings.ToLower(o.Sampler) {
	case "", "always_on", "parentbased_always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off", "parentbased_always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio", "parentbased_traceidratio":
		if o.SamplerArg == "" {
			return sdktrace.AlwaysSample(), nil
		}
		ratio, err := strconv.ParseFloat(o.SamplerArg, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, &settingError{
				name: "OTEL_TRACES_SAMPLER_ARG", value: o.SamplerArg, expected: "a number from 0 to 1",
			}
		}
		return sdktrace.TraceIDRatioBased(ratio), nil
	}
	return nil, &settingError{
		name: "OTEL_TRACES_SAMPLER", value: o.Sampler,
		expected: "always_on, always_off, traceidratio, " +
			"parentbased_always_on, parentbased_always_off or parentbased_traceidratio",
	}
}

func escaped(v string) bool {
	_, err := url.PathUnescape(v)
	return err == nil
}

// The bounds of the settings for the queue of spans: a day in milliseconds, and a number of spans.
const maxSpanWait, maxSpanQueue = 86_400_000, 1_000_000

func positive(text string) bool { return upTo(text, math.MaxInt) }

func upTo(text string, most int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n <= most
}

// errExporter is the cause of an error if the settings make no exporter.
var errExporter = errors.New("the OTLP exporter cannot be set up from the OTEL_EXPORTER_OTLP_… variables")

// hide removes secrets from a text and shortens it. A collector's answer may be a whole page.
func (o otelSettings) hide(text string) string {
	for _, s := range o.secrets {
		text = strings.ReplaceAll(text, s, "(hidden)")
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxExportError {
		text = strings.ToValidUTF8(text[:maxExportError], "") + "…"
	}
	return text
}
