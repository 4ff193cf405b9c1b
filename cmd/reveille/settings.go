package main

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kelseyhightower/envconfig"
	"go.uber.org/zap/zapcore"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/redisstore"
	"reveille/tailer/upstream"
)

const prefix = "REVEILLE"

// defaultPublicURL is the default of PublicURL. It serves clients on the same machine only.
const defaultPublicURL = "http://localhost:8080"

// settings are read from the environment, by the names in their envconfig tags. The tags have whole names. With a
// prefix, envconfig would also read a variable of the name in the tag, and REDIS_URL or STREAMS may belong to another
// program. Table meanings (usage.go) has the text of --help.
type settings struct {
	UpstreamURL     string  `envconfig:"REVEILLE_UPSTREAM_URL"`
	UpstreamH2C     bool    `envconfig:"REVEILLE_UPSTREAM_H2C" default:"false"`
	UpstreamHeaders headers `envconfig:"REVEILLE_UPSTREAM_HEADERS" secret:"true"`

	UpstreamDialect    string `envconfig:"REVEILLE_UPSTREAM_DIALECT" default:"auto"`
	UpstreamSigningKey string `envconfig:"REVEILLE_UPSTREAM_SIGNING_KEY" secret:"true"`

	UpstreamName    string        `envconfig:"REVEILLE_UPSTREAM_NAME"`
	RedisURL        string        `envconfig:"REVEILLE_REDIS_URL" secret:"true"`
	RedisPassword   string        `envconfig:"REVEILLE_REDIS_PASSWORD" secret:"true"`
	RedisCAFile     string        `envconfig:"REVEILLE_REDIS_CA_FILE"`
	Partitions      int           `envconfig:"REVEILLE_PARTITIONS" default:"64"`
	PublicURL       string        `envconfig:"REVEILLE_PUBLIC_URL" default:"http://localhost:8080"`
	TokenKey        list          `envconfig:"REVEILLE_TOKEN_KEY" secret:"true"`
	ListenAddr      string        `envconfig:"REVEILLE_LISTEN_ADDR" default:":8080"`
	OperatorAddr    string        `envconfig:"REVEILLE_OPERATOR_ADDR" default:":9090"`
	AdminToken      string        `envconfig:"REVEILLE_ADMIN_TOKEN" secret:"true"`
	ReadToken       string        `envconfig:"REVEILLE_READ_TOKEN" secret:"true"`
	Gateway         bool          `envconfig:"REVEILLE_GATEWAY" default:"true"`
	Origins         list          `envconfig:"REVEILLE_CORS_ORIGINS"`
	OJS             bool          `envconfig:"REVEILLE_OJS" default:"false"`
	OJSStreams      string        `envconfig:"REVEILLE_OJS_STREAMS" default:"/ojs/**"`
	Outbox          string        `envconfig:"REVEILLE_OUTBOX"`
	OutboxRoll      time.Duration `envconfig:"REVEILLE_OUTBOX_ROLL" default:"168h"`
	EventsStream    string        `envconfig:"REVEILLE_EVENTS_STREAM"`
	NoticeWebhook   string        `envconfig:"REVEILLE_NOTICE_WEBHOOK" secret:"true"`
	NoticeAfter     time.Duration `envconfig:"REVEILLE_NOTICE_AFTER" default:"5m"`
	NoticeLetters   int           `envconfig:"REVEILLE_NOTICE_LETTERS" default:"1000"`
	Streams         list          `envconfig:"REVEILLE_STREAMS"`
	RegistryStream  string        `envconfig:"REVEILLE_REGISTRY_STREAM"`
	TailMode        string        `envconfig:"REVEILLE_TAIL_MODE" default:"auto"`
	TailCheck       time.Duration `envconfig:"REVEILLE_TAIL_CHECK" default:"5s"`
	ClosedCheck     time.Duration `envconfig:"REVEILLE_CLOSED_CHECK" default:"1h"`
	TailMaxLive     int           `envconfig:"REVEILLE_TAIL_MAX_LIVE" default:"10000"`
	TailSweepRate   int           `envconfig:"REVEILLE_TAIL_SWEEP_RATE" default:"500"`
	StreamGoneGrace time.Duration `envconfig:"REVEILLE_STREAM_GONE_GRACE" default:"30s"`

	AllowInsecureWebhooks bool          `envconfig:"REVEILLE_ALLOW_INSECURE_WEBHOOKS" default:"false"`
	WebhookAllowCIDRs     prefixes      `envconfig:"REVEILLE_WEBHOOK_ALLOW_CIDRS"`
	WebhookProxyFromEnv   bool          `envconfig:"REVEILLE_WEBHOOK_PROXY_FROM_ENV" default:"false"`
	WebhookConnectionAge  time.Duration `envconfig:"REVEILLE_WEBHOOK_CONNECTION_AGE" default:"1m"`
	WebhookTimeout        time.Duration `envconfig:"REVEILLE_WEBHOOK_TIMEOUT" default:"30s"`
	WakingTimeout         time.Duration `envconfig:"REVEILLE_WAKING_TIMEOUT" default:"10s"`
	LivenessTimeout       time.Duration `envconfig:"REVEILLE_LIVENESS_TIMEOUT" default:"45s"`
	GCAfter               time.Duration `envconfig:"REVEILLE_GC_AFTER" default:"72h"`
	DeadLetterRetention   time.Duration `envconfig:"REVEILLE_DEAD_LETTER_RETENTION" default:"720h"`

	Consent fsm.ConsentMode `envconfig:"REVEILLE_CONSENT" default:"off"`
	Origin  string          `envconfig:"REVEILLE_ORIGIN"`

	DeliveryLog       fsm.DeliveryLog `envconfig:"REVEILLE_DELIVERY_LOG" default:"all"`
	DeliveryLogBodies fsm.DeliveryLog `envconfig:"REVEILLE_DELIVERY_LOG_BODIES" default:"failures"`
	LogSummary        time.Duration   `envconfig:"REVEILLE_LOG_SUMMARY" default:"1m"`

	MaxInFlight                int `envconfig:"REVEILLE_MAX_IN_FLIGHT" default:"1024"`
	MaxInFlightPerSubscription int `envconfig:"REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION" default:"64"`
	MaxQueuedWakes             int `envconfig:"REVEILLE_MAX_QUEUED_WAKES" default:"100000"`
	MaxRate                    int `envconfig:"REVEILLE_MAX_RATE" default:"0"`
	UnconsentedRate            int `envconfig:"REVEILLE_UNCONSENTED_RATE" default:"60"`
	MaxStreamsPerConsumer      int `envconfig:"REVEILLE_MAX_STREAMS_PER_CONSUMER" default:"1000"`
	MaxDeadLetters             int `envconfig:"REVEILLE_MAX_DEAD_LETTERS" default:"100000"`
	MaxConnections             int `envconfig:"REVEILLE_MAX_CONNECTIONS" default:"10000"`

	LogLevel zapcore.Level `envconfig:"REVEILLE_LOG_LEVEL" default:"info"`
	Pprof    bool          `envconfig:"REVEILLE_PPROF" default:"false"`

	upstream *url.URL
	public   *url.URL // nil unless PublicURL was set
	redisCA  *x509.CertPool
	tokens   *token.Tokens
	otel     otelSettings
}

// operatorAddr returns where the operator's commands look for a running Reveille.
func operatorAddr() string {
	return cmp.Or(os.Getenv(prefix+"_OPERATOR_ADDR"), "http://localhost:9090")
}

// operatorToken returns what commands send to the operator port: the token of the replica, which they get by the same
// name.
func operatorToken() string {
	return cmp.Or(os.Getenv(prefix+"_ADMIN_TOKEN"), os.Getenv(prefix+"_READ_TOKEN"))
}

// The variables of commands. They are no settings of the program that runs.
const (
	webhookSecretName = prefix + "_WEBHOOK_SECRET"
	listenSecretName  = prefix + "_LISTEN_SECRET"
	apiAddrName       = prefix + "_API_ADDR"
)

// webhookSecret returns the secret that reveille verify checks with.
func webhookSecret() string { return os.Getenv(webhookSecretName) }

// listenSecrets returns those that reveille listen verifies with.
func listenSecrets() []string {
	return strings.FieldsFunc(os.Getenv(listenSecretName), func(r rune) bool { return r == ',' || r == ' ' })
}

// apiAddr returns where commands look for the API port of a running Reveille.
func apiAddr() string { return cmp.Or(os.Getenv(apiAddrName), defaultPublicURL) }

// collectorIsSet says whether GOGC says how much a heap may grow until it is collected. It is the Go runtime's setting.
func collectorIsSet() bool { return os.Getenv("GOGC") != "" }

// noColour says whether the user wants none (https://no-color.org).
func noColour() bool { return os.Getenv("NO_COLOR") != "" }

// settingError says what is wrong with one setting, on one line.
type settingError struct {
	name, value, expected string
	secret                bool
}

func (e *settingError) Error() string {
	value := fmt.Sprintf("%q", e.value)
	switch {
	case e.value == "":
		return fmt.Sprintf("%s is not set: expected %s", e.name, e.expected)
	case e.secret:
		value = "(hidden)"
	}
	return fmt.Sprintf("%s=%s: expected %s", e.name, value, e.expected)
}

// blame names the setting that an error about Redis concerns: the URL, unless the error names another.
func (s settings) blame(err error) error {
	name := prefix + "_REDIS_URL"
	if e := new(redisstore.SettingError); errors.As(err, &e) {
		name = e.Setting
	}
	switch { // the URLs stand in for these
	case name == prefix+"_REDIS_PASSWORD" && s.RedisPassword == "":
		name = prefix + "_REDIS_URL"
	case name == prefix+"_UPSTREAM_NAME" && s.UpstreamName == identity(s.upstream):
		name = prefix + "_UPSTREAM_URL"
	}
	value := "(hidden)"
	for _, f := range fields() {
		if fullName(f) == name && !secret(name) {
			value = fmt.Sprintf("%q", fmt.Sprint(reflect.ValueOf(s).FieldByIndex(f.Index)))
		}
	}
	return fmt.Errorf("%s=%s: %w", name, value, err)
}

// load reads and checks the settings. warnings name variables that look like settings but are none.
func load() (s settings, warnings []string, err error) {
	if err := envconfig.Process("", &s); err != nil {
		var parse *envconfig.ParseError
		if errors.As(err, &parse) {
			return s, nil, &settingError{
				name: parse.KeyName, value: parse.Value, expected: expected(parse.TypeName),
				secret: secret(parse.KeyName),
			}
		}
		return s, nil, err
	}
	if s.otel, err = loadOTel(); err != nil {
		return s, nil, err
	}
	return s, unknown(), s.check()
}

// expected describes the type of a setting in words.
func expected(typeName string) string {
	switch {
	case strings.HasSuffix(typeName, "Duration"):
		return "a duration such as 30s, 5m or 72h"
	case strings.HasPrefix(typeName, "int"):
		return "a whole number"
	case typeName == "bool":
		return "true or false"
	case strings.HasSuffix(typeName, "list"):
		return "values separated by commas, none of them empty"
	case strings.HasSuffix(typeName, "prefixes"):
		return "address ranges such as 10.1.0.0/16, separated by commas"
	case strings.HasSuffix(typeName, "Level"):
		return "debug, info, warn or error"
	case strings.HasSuffix(typeName, "headers"):
		return "Name=value pairs, separated by commas"
	}
	return "a " + typeName
}

func fields() []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[settings]()),
		func(f reflect.StructField) bool { return !f.IsExported() })
}

func fullName(f reflect.StructField) string { return f.Tag.Get("envconfig") }

// shortName returns the name of a setting without REVEILLE_.
func shortName(f reflect.StructField) string { return strings.TrimPrefix(fullName(f), prefix+"_") }

func secret(name string) bool {
	return slices.ContainsFunc(fields(),
		func(f reflect.StructField) bool { return fullName(f) == name && f.Tag.Get("secret") == "true" })
}

// unknown lists variables that begin like settings but are none. Kubernetes sets REVEILLE_SERVICE_… and REVEILLE_PORT…
// for a Service of that name.
func unknown() (warnings []string) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		known := slices.ContainsFunc(fields(), func(f reflect.StructField) bool { return fullName(f) == name })
		known = known || slices.Contains([]string{webhookSecretName, listenSecretName, apiAddrName}, name)
		if rest, ok := strings.CutPrefix(name, prefix+"_"); ok && !known &&
			!strings.HasPrefix(rest, "SERVICE_") && rest != "PORT" && !strings.HasPrefix(rest, "PORT_") {
			warnings = append(warnings, name+" is not a setting; it has no effect (reveille --help lists them)")
		}
	}
	slices.Sort(warnings)
	return warnings
}

func (s *settings) check() (err error) {
	wrong := func(name, value, expected string) error {
		return &settingError{
			name: prefix + "_" + name, value: value, expected: expected,
			secret: secret(prefix + "_" + name),
		}
	}
	if s.upstream, err = origin(s.UpstreamURL); err != nil {
		return wrong("UPSTREAM_URL", redact(s.UpstreamURL), err.Error())
	}
	if s.UpstreamH2C && s.upstream.Scheme != "http" {
		return wrong("UPSTREAM_H2C", "true",
			"false: REVEILLE_UPSTREAM_URL is an https: URL, "+
				"by which the stream server says itself whether it speaks HTTP/2")
	}
	dialects := []string{upstream.DialectAuto, upstream.DialectStandard, upstream.DialectAnyCable}
	if !slices.Contains(dialects, s.UpstreamDialect) {
		return wrong("UPSTREAM_DIALECT", s.UpstreamDialect, "auto, standard or anycable")
	}
	switch {
	case strings.ContainsFunc(s.UpstreamSigningKey, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return wrong("UPSTREAM_SIGNING_KEY", s.UpstreamSigningKey, "a text without spaces")
	case s.UpstreamSigningKey != "" && s.UpstreamDialect == upstream.DialectStandard:
		return wrong("UPSTREAM_SIGNING_KEY", s.UpstreamSigningKey,
			"none: standard servers, of REVEILLE_UPSTREAM_DIALECT, have no signed streams")
	}
	s.UpstreamName = cmp.Or(s.UpstreamName, identity(s.upstream))
	if strings.ContainsFunc(s.UpstreamName, func(r rune) bool { return r <= ' ' || r == '\'' || r == 0x7f }) {
		return wrong("UPSTREAM_NAME", s.UpstreamName, "a name without spaces and quotes")
	}
	if s.RedisURL == "" {
		return wrong("REDIS_URL", "",
			"redis://[user:password@]host:port[/database], redis+cluster://…, redis+sentinel://…/name, "+
				"rediss for TLS, or \"embedded\" to try it out")
	}
	if s.RedisPassword != "" {
		if strings.ContainsFunc(s.RedisPassword, unicode.IsControl) { // probably a file's last line break
			return wrong("REDIS_PASSWORD", s.RedisPassword,
				"a text without line breaks, and no password in REVEILLE_REDIS_URL")
		}
		if s.RedisURL, err = redisstore.WithPassword(s.RedisURL, s.RedisPassword); err != nil {
			return wrong("REDIS_PASSWORD", s.RedisPassword, err.Error())
		}
	}
	if s.RedisCAFile != "" {
		var expected error
		if s.redisCA, expected = authorities(s.RedisCAFile); expected == nil && !redisstore.Encrypted(s.RedisURL) {
			expected = errors.New("no value, unless REVEILLE_REDIS_URL begins with rediss")
		}
		if expected != nil {
			return wrong("REDIS_CA_FILE", s.RedisCAFile, expected.Error())
		}
	}
	public, err := origin(s.PublicURL)
	if err != nil {
		return wrong("PUBLIC_URL", redact(s.PublicURL), err.Error())
	}
	if s.PublicURL != defaultPublicURL {
		s.public = public
	}
	s.PublicURL = strings.TrimRight(s.PublicURL, "/")
	if len(s.TokenKey) == 0 && s.RedisURL == redisstore.Embedded {
		var key [token.MinKey]byte
		_, _ = rand.Read(key[:])
		s.TokenKey = list{hex.EncodeToString(key[:])}
	}
	if s.tokens, err = token.New(s.TokenKey...); err != nil {
		return wrong("TOKEN_KEY", strings.Join(s.TokenKey, ","),
			"a random text of at least 32 bytes, the same for all replicas; an older key may follow a comma")
	}
	for name, addr := range map[string]string{"LISTEN_ADDR": s.ListenAddr, "OPERATOR_ADDR": s.OperatorAddr} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return wrong(name, addr, "host:port or :port")
		}
	}
	if err := s.checkOperatorTokens(); err != nil {
		return err
	}
	for i, p := range s.Streams {
		if s.Streams[i], err = fsm.CanonicalPath(p); err != nil {
			return wrong("STREAMS", p, fmt.Sprintf("paths that begin with \"/\", separated by commas (%v)", err))
		}
	}
	pattern, err := fsm.ParsePattern(s.OJSStreams)
	if err != nil {
		return wrong("OJS_STREAMS", s.OJSStreams, fmt.Sprintf("a pattern such as /ojs/** (%v)", err))
	}
	s.OJSStreams = pattern.String()
	for i, o := range s.Origins {
		if s.Origins[i], err = webOrigin(o); err != nil {
			return wrong("CORS_ORIGINS", o, err.Error())
		}
	}
	for _, stream := range []struct {
		name string
		path *string
	}{{"EVENTS_STREAM", &s.EventsStream}, {"REGISTRY_STREAM", &s.RegistryStream}, {"OUTBOX", &s.Outbox}} {
		if *stream.path == "" {
			continue
		}
		canonical, err := fsm.CanonicalPath(*stream.path)
		if err != nil {
			return wrong(stream.name, *stream.path, fmt.Sprintf("a path that begins with \"/\" (%v)", err))
		}
		*stream.path = canonical
	}
	if s.EventsStream != "" && s.EventsStream == s.RegistryStream {
		return wrong("EVENTS_STREAM", s.EventsStream,
			"another stream than REVEILLE_REGISTRY_STREAM, which the stream server itself writes")
	}
	if err := s.checkNotices(); err != nil {
		return err
	}
	if !s.outboxFits() {
		return wrong("OUTBOX", s.Outbox, "a path such as /outbox that nothing else uses, without % and a / at its end")
	}
	if !slices.Contains([]string{upstream.TailAuto, upstream.TailLongPoll, upstream.TailSSE}, s.TailMode) {
		return wrong("TAIL_MODE", s.TailMode, "auto, long-poll or sse")
	}
	for _, log := range []struct {
		name  string
		value fsm.DeliveryLog
	}{{"DELIVERY_LOG", s.DeliveryLog}, {"DELIVERY_LOG_BODIES", s.DeliveryLogBodies}} {
		if !slices.Contains([]fsm.DeliveryLog{fsm.LogAll, fsm.LogFailures, fsm.LogOff}, log.value) {
			return wrong(log.name, string(log.value), "all, failures or off")
		}
	}
	if err := s.checkConsent(public.Hostname()); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"TAIL_CHECK", s.TailCheck, 10 * time.Millisecond},
		{"CLOSED_CHECK", s.ClosedCheck, 10 * time.Millisecond},
		{"STREAM_GONE_GRACE", s.StreamGoneGrace, 100 * time.Millisecond},
		{"WEBHOOK_CONNECTION_AGE", s.WebhookConnectionAge, 10 * time.Millisecond},
		{"WEBHOOK_TIMEOUT", s.WebhookTimeout, 10 * time.Millisecond},
		{"WAKING_TIMEOUT", s.WakingTimeout, 10 * time.Millisecond},
		{"LIVENESS_TIMEOUT", s.LivenessTimeout, 10 * time.Millisecond},
		{"GC_AFTER", s.GCAfter, time.Second},
		{"DEAD_LETTER_RETENTION", s.DeadLetterRetention, time.Second},
		{"LOG_SUMMARY", s.LogSummary, 0},
		{"NOTICE_AFTER", s.NoticeAfter, 0},
	} {
		if d.value < d.least {
			return wrong(d.name, d.value.String(), "a duration of at least "+d.least.String())
		}
	}
	if s.OutboxRoll < time.Second || s.OutboxRoll > 365*24*time.Hour {
		return wrong("OUTBOX_ROLL", s.OutboxRoll.String(), "a duration from 1s to 8760h")
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{
		{"PARTITIONS", s.Partitions, 1, 4096},
		{"TAIL_MAX_LIVE", s.TailMaxLive, 1, 1_000_000},
		{"TAIL_SWEEP_RATE", s.TailSweepRate, 1, 100_000},
		{"MAX_IN_FLIGHT", s.MaxInFlight, 2, 100_000},
		{"MAX_IN_FLIGHT_PER_SUBSCRIPTION", s.MaxInFlightPerSubscription, 1, s.MaxInFlight - 1},
		{"MAX_QUEUED_WAKES", s.MaxQueuedWakes, 1, 10_000_000},
		{"MAX_RATE", s.MaxRate, 0, fsm.MaxRate},
		{"UNCONSENTED_RATE", s.UnconsentedRate, 1, fsm.MaxRate},
		{"MAX_STREAMS_PER_CONSUMER", s.MaxStreamsPerConsumer, 1, 100_000},
		{"MAX_DEAD_LETTERS", s.MaxDeadLetters, 1, 10_000_000},
		{"MAX_CONNECTIONS", s.MaxConnections, 1, 1_000_000},
		{"NOTICE_LETTERS", s.NoticeLetters, 0, 10_000_000},
	} {
		if n.value < n.least || n.value > n.most {
			return wrong(n.name, fmt.Sprint(n.value), fmt.Sprintf("a whole number from %d to %d", n.least, n.most))
		}
	}
	return nil
}

// authorities reads certificates. The error says what the file should contain.
func authorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("a PEM file that can be read (%w)", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("a PEM file with a certificate")
	}
	return pool, nil
}
