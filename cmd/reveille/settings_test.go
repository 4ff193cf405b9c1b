package main

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/redisstore"
	"reveille/test/harness"
)

const testKey = "a key for tests of at least thirty-two bytes"

// environ replaces the settings of the environment, for the time of the test.
func environ(t *testing.T, settings map[string]string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, prefix+"_") {
			t.Setenv(name, value) // so that it is put back
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range settings {
		t.Setenv(prefix+"_"+name, value)
	}
}

// enough are the settings that have no default, with others on top.
func enough(more ...string) map[string]string {
	s := map[string]string{
		"UPSTREAM_URL": "http://streams:4437", "REDIS_URL": "redis://localhost:6379",
		"TOKEN_KEY": testKey,
	}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i]] = more[i+1]
	}
	return s
}

func TestSettingsHaveTheDocumentedDefaults(t *testing.T) {
	environ(t, enough())
	s, warnings, err := load()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"PUBLIC_URL", s.PublicURL, "http://localhost:8080"},
		{"LISTEN_ADDR", s.ListenAddr, ":8080"},
		{"OPERATOR_ADDR", s.OperatorAddr, ":9090"},
		{"ADMIN_TOKEN", s.AdminToken, ""},
		{"READ_TOKEN", s.ReadToken, ""},
		{"GATEWAY", s.Gateway, true},
		{"OJS", s.OJS, false},
		{"OJS_STREAMS", s.OJSStreams, "/ojs/**"},
		{"OUTBOX", s.Outbox, ""},
		{"OUTBOX_ROLL", s.OutboxRoll, 168 * time.Hour},
		{"EVENTS_STREAM", s.EventsStream, ""},
		{"NOTICE_WEBHOOK", s.NoticeWebhook, ""},
		{"NOTICE_AFTER", s.NoticeAfter, 5 * time.Minute},
		{"NOTICE_LETTERS", s.NoticeLetters, 1000},
		{"PARTITIONS", s.Partitions, 64},
		{"TAIL_MODE", s.TailMode, "auto"},
		{"TAIL_CHECK", s.TailCheck, 5 * time.Second},
		{"CLOSED_CHECK", s.ClosedCheck, time.Hour},
		{"TAIL_MAX_LIVE", s.TailMaxLive, 10_000},
		{"STREAM_GONE_GRACE", s.StreamGoneGrace, 30 * time.Second},
		{"ALLOW_INSECURE_WEBHOOKS", s.AllowInsecureWebhooks, false},
		{"WEBHOOK_ALLOW_CIDRS", len(s.WebhookAllowCIDRs), 0},
		{"WEBHOOK_PROXY_FROM_ENV", s.WebhookProxyFromEnv, false},
		{"WEBHOOK_CONNECTION_AGE", s.WebhookConnectionAge, time.Minute},
		{"WEBHOOK_TIMEOUT", s.WebhookTimeout, 30 * time.Second},
		{"WAKING_TIMEOUT", s.WakingTimeout, 10 * time.Second},
		{"LIVENESS_TIMEOUT", s.LivenessTimeout, 45 * time.Second},
		{"GC_AFTER", s.GCAfter, 72 * time.Hour},
		{"DEAD_LETTER_RETENTION", s.DeadLetterRetention, 720 * time.Hour},
		{"DELIVERY_LOG", s.DeliveryLog, fsm.LogAll},
		{"LOG_LEVEL", s.LogLevel, zapcore.InfoLevel},
		{"LOG_SUMMARY", s.LogSummary, time.Minute},
		{"PPROF", s.Pprof, false},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v by default, want %v", c.name, c.got, c.want)
		}
	}
}

func TestSettingsAreRead(t *testing.T) {
	environ(t, enough(
		"UPSTREAM_URL", "https://streams.example.com/v1/stream", "UPSTREAM_HEADERS",
		"Authorization=Bearer a=b, X-One = 1, X-One=2",
		"PUBLIC_URL", "https://wake.example.com/", "TOKEN_KEY", testKey+" , "+testKey+" older ", "GATEWAY", "false",
		"STREAMS", "/a, /b%2Fc", "REGISTRY_STREAM", "/__registry__", "TAIL_MODE", "sse", "TAIL_CHECK", "1500ms",
		"WEBHOOK_ALLOW_CIDRS", " 10.1.0.0/16, fd00:1::/64", "CORS_ORIGINS",
		"HTTPS://App.example:443, http://localhost:3000", "LOG_LEVEL", "debug", "PPROF", "true",
	))
	s, warnings, err := load()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	if s.upstream.String() != "https://streams.example.com/v1/stream" || s.PublicURL != "https://wake.example.com" {
		t.Errorf("upstream %s, public %s", s.upstream, s.PublicURL)
	}
	if got := s.UpstreamHeaders; !slices.Equal(got["Authorization"], []string{"Bearer a=b"}) ||
		!slices.Equal(got["X-One"], []string{"1", "2"}) {
		t.Errorf("headers %v", got)
	}
	if !slices.Equal(s.Streams, []string{"/a", "/b%2Fc"}) || s.RegistryStream != "/__registry__" {
		t.Errorf("streams %v, registry %s", s.Streams, s.RegistryStream)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	if !slices.Equal(s.WebhookAllowCIDRs, want) {
		t.Errorf("ranges %v", s.WebhookAllowCIDRs)
	}
	if !slices.Equal(s.Origins, []string{"https://app.example", "http://localhost:3000"}) {
		t.Errorf("origins %v", s.Origins)
	}
	if s.Gateway || s.TailMode != "sse" || s.TailCheck != 1500*time.Millisecond || s.LogLevel != zapcore.DebugLevel ||
		!s.Pprof {
		t.Errorf("settings %+v", s)
	}
	t.Run("a token of the older key is still accepted", func(t *testing.T) {
		older, err := token.New(testKey + " older")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.tokens.Parse(older.Mint("c", "g", 1, time.Now())); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAuthorityForRedisIsReadAndNeedsAnEncryptedConnection(t *testing.T) {
	ca := harness.NewCA(t)
	for _, url := range []string{"rediss://h:6379", "rediss+cluster://h:6379", "rediss+sentinel://h:26379/main"} {
		environ(t, enough("REDIS_URL", url, "REDIS_CA_FILE", ca.File))
		if s, _, err := load(); err != nil || !s.redisCA.Equal(ca.Pool) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"redis://h:6379", "redis+cluster://h:6379", "embedded"} {
		environ(t, enough("REDIS_URL", url, "REDIS_CA_FILE", ca.File))
		if line := problem(t); !strings.Contains(line, "REVEILLE_REDIS_CA_FILE") || !strings.Contains(line, "rediss") {
			t.Errorf("%s: %q", url, line)
		}
	}
}

func TestADatabaseKnowsItsUpstreamByWhatNamesIt(t *testing.T) {
	for text, want := range map[string]string{
		"http://Streams:4437": "http://streams:4437", "http://streams:4437/": "http://streams:4437",
		"https://streams.example.com/v1/Stream/": "https://streams.example.com/v1/Stream",
	} {
		environ(t, enough("UPSTREAM_URL", text))
		s, _, err := load()
		if err != nil || s.UpstreamName != want {
			t.Errorf("%s: %s, %v, want %s", text, s.UpstreamName, err, want)
		}
	}
	environ(t, enough("UPSTREAM_NAME", "main"))
	if s, _, err := load(); err != nil || s.UpstreamName != "main" {
		t.Errorf("%s, %v, want the name it was given", s.UpstreamName, err)
	}
}

func TestTheTokenKeyIsDrawnForAnEmbeddedRedisAlone(t *testing.T) {
	environ(t, map[string]string{"UPSTREAM_URL": "http://streams:4437", "REDIS_URL": "embedded"})
	one, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := load()
	if err != nil || one.TokenKey[0] == two.TokenKey[0] || len(one.TokenKey[0]) < token.MinKey {
		t.Errorf("%v: the keys drawn are not fit", err)
	}
}

func TestAWrongSettingIsOneLineThatNamesItItsValueAndWhatWasExpected(t *testing.T) {
	for _, c := range []struct {
		setting, value, expected string
	}{
		{"UPSTREAM_URL", "", "http://streams:4437"},
		{"UPSTREAM_URL", "streams:4437", "http://"},
		{"UPSTREAM_URL", "/v1/stream", "http://"},
		{"UPSTREAM_URL", "ftp://streams", "http://"},
		{"UPSTREAM_URL", "http://", "http://"},
		{"UPSTREAM_URL", "http://streams:4437?…", "without a query"},
		{"UPSTREAM_URL", "http://streams:4437#a", "without a query or fragment"},
		{"UPSTREAM_NAME", "two words", "without spaces"},
		{"UPSTREAM_NAME", "o'clock", "without spaces and quotes"},
		{"REDIS_URL", "", "redis://"},
		{"REDIS_CA_FILE", "/nonexistent/ca.pem", "a PEM file that can be read"},
		{"REDIS_CA_FILE", "settings_test.go", "a PEM file with a certificate"},
		{"PUBLIC_URL", "wake.example.com", "http"},
		{"PUBLIC_URL", "https://wake.example.com/?…", "without a query"},
		{"TOKEN_KEY", "", "at least 32 bytes"},
		{"LISTEN_ADDR", "8080", "host:port"},
		{"OPERATOR_ADDR", "localhost", "host:port"},
		{"GATEWAY", "maybe", "true or false"},
		{"ALLOW_INSECURE_WEBHOOKS", "si", "true or false"},
		{"WEBHOOK_PROXY_FROM_ENV", "2", "true or false"},
		{"WEBHOOK_ALLOW_CIDRS", "10.0.0.0/33", "10.1.0.0/16"},
		{"WEBHOOK_ALLOW_CIDRS", "10.0.0.1", "10.1.0.0/16"},
		{"WEBHOOK_ALLOW_CIDRS", "10.1.0.0/16,", "10.1.0.0/16"},
		{"CORS_ORIGINS", "app.example.com", "https://app.example.com"},
		{"CORS_ORIGINS", "https://app.example.com/", "without a path"},
		{"CORS_ORIGINS", "https://a.example,,*", "none of them empty"},
		{"STREAMS", "/a,", "none of them empty"},
		{"STREAMS", "a", "begin with \"/\""},
		{"STREAMS", "/b/../..", "stream root"},
		{"STREAMS", "/agents/*", "wildcard"},
		{"STREAMS", "//a", "empty segment"},
		{"STREAMS", "/__ds/a", "reserved"},
		{"REGISTRY_STREAM", "__registry__", "begins with \"/\""},
		{"OJS", "yes please", "true or false"},
		{"OJS_STREAMS", "jobs/**", "a pattern such as /ojs/**"},
		{"OJS_STREAMS", "/jobs/a*", "a pattern such as /ojs/**"},
		{"OUTBOX", "outbox", "begins with \"/\""},
		{"OUTBOX", "/", "that nothing else uses"},
		{"OUTBOX", "/outbox/", "without % and a / at its end"},
		{"OUTBOX", "/out%2Fbox", "without % and a / at its end"},
		{"OUTBOX", "/webhooks", "that nothing else uses"},
		{"OUTBOX", "/callback/outbox", "that nothing else uses"},
		{"EVENTS_STREAM", "ojs/webhooks", "begins with \"/\""},
		{"EVENTS_STREAM", "/ojs/*", "wildcard"},
		{"NOTICE_AFTER", "-1s", "at least"},
		{"NOTICE_LETTERS", "-1", "from 0"},
		{"TAIL_MODE", "websocket", "auto, long-poll or sse"},
		{"DELIVERY_LOG", "errors", "all, failures or off"},
		{"DELIVERY_LOG_BODIES", "errors", "all, failures or off"},
		{"UPSTREAM_H2C", "h2c", "true or false"},
		{"UPSTREAM_DIALECT", "caddy", "auto, standard or anycable"},
		{"TAIL_CHECK", "5", "a duration such as 30s"},
		{"TAIL_CHECK", "0s", "at least"},
		{"TAIL_CHECK", "-5s", "at least"},
		{"STREAM_GONE_GRACE", "soon", "a duration such as 30s"},
		{"STREAM_GONE_GRACE", "1ms", "at least"},
		{"WEBHOOK_CONNECTION_AGE", "0s", "at least"},
		{"WEBHOOK_TIMEOUT", "thirty", "a duration"},
		{"WAKING_TIMEOUT", "0s", "at least"},
		{"LIVENESS_TIMEOUT", "45", "a duration"},
		{"GC_AFTER", "3d", "a duration such as 30s, 5m or 72h"},
		{"GC_AFTER", "0s", "at least"},
		{"OUTBOX_ROLL", "999ms", "a duration from 1s to 8760h"},
		{"OUTBOX_ROLL", "8761h", "a duration from 1s to 8760h"},
		{"PARTITIONS", "many", "a whole number"},
		{"PARTITIONS", "0", "from 1 to 4096"},
		{"PARTITIONS", "4097", "from 1 to 4096"},
		{"TAIL_MAX_LIVE", "0", "from 1"},
		{"TAIL_SWEEP_RATE", "1.5", "a whole number"},
		{"MAX_IN_FLIGHT", "1", "from 2"},
		{"MAX_IN_FLIGHT_PER_SUBSCRIPTION", "1024", "from 1 to 1023"},
		{"MAX_QUEUED_WAKES", "-1", "from 1"},
		{"MAX_RATE", "1000001", "from 0 to 1000000"},
		{"CONSENT", "yes", "off, ask or require"},
		{"ORIGIN", "https://reveille.example.com", "a DNS name"},
		{"UNCONSENTED_RATE", "0", "from 1 to 1000000"},
		{"MAX_STREAMS_PER_CONSUMER", "0", "from 1"},
		{"MAX_CONNECTIONS", "0", "from 1"},
		{"LOG_LEVEL", "loud", "debug, info, warn or error"},
		{"LOG_SUMMARY", "-1s", "at least"},
		{"PPROF", "on", "true or false"},
	} {
		t.Run(c.setting+"="+c.value, func(t *testing.T) {
			environ(t, enough(c.setting, c.value))
			line := problem(t)
			value := c.value
			if value == "" {
				value = "is not set"
			}
			for _, want := range []string{prefix + "_" + c.setting, value, c.expected} {
				if !strings.Contains(line, want) {
					t.Errorf("%q does not hold %q", line, want)
				}
			}
		})
	}
}

// TestATokenForThoseWhoLookNeedsAnother holds that the operator port asks for both, or for the admin token alone.
func TestATokenForThoseWhoLookNeedsAnother(t *testing.T) {
	admin, read := strings.Repeat("a", minOperatorToken), strings.Repeat("r", minOperatorToken)
	for _, c := range []struct{ admin, read, says string }{
		{"", read, "REVEILLE_READ_TOKEN=(hidden): expected none without REVEILLE_ADMIN_TOKEN"},
		{admin, admin, "REVEILLE_READ_TOKEN=(hidden): expected another token than REVEILLE_ADMIN_TOKEN"},
		{admin[1:], "", "REVEILLE_ADMIN_TOKEN=(hidden): expected a random text of at least 20"},
		{admin, read[1:], "REVEILLE_READ_TOKEN=(hidden): expected a random text of at least 20"},
		{admin, "", ""},
		{admin, read, ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			environ(t, enough("ADMIN_TOKEN", c.admin, "READ_TOKEN", c.read))
			_, _, err := load()
			if (err == nil) != (c.says == "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// TestTheWebhookForNoticesIsCheckedAndNotShown holds that a wrong one is refused without its secret.
func TestTheWebhookForNoticesIsCheckedAndNotShown(t *testing.T) {
	const events = "/reveille/events"
	for _, c := range []struct{ webhook, events, says string }{
		{"https://alerts.example.com/T0/s3cret?k=s3cret", events, ""},
		{"http://10.0.0.7/s3cret", events, ""},
		{"https://alerts.example.com/s3cret", "", "expected none without REVEILLE_EVENTS_STREAM"},
		{"alerts.example.com/s3cret", events, "expected a URL such as"},
		{"ftp://alerts.example.com/s3cret", events, "expected a URL such as"},
		{"https://me:s3cret@alerts.example.com/", events, "expected a URL such as"},
		{"https://alerts.example.com/#s3cret", events, "expected a URL such as"},
		{"https://alerts.example.com/s3cret#", events, "expected a URL such as"},
		{"https://alerts.example.com/" + strings.Repeat("s3cret", 400), events, "expected a URL such as"},
	} {
		environ(t, enough("NOTICE_WEBHOOK", c.webhook, "EVENTS_STREAM", c.events))
		_, _, err := load()
		if (err == nil) != (c.says == "") {
			t.Errorf("%s: %v", c.webhook, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "REVEILLE_NOTICE_WEBHOOK=(hidden): "+c.says) ||
			strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", c.webhook, err, c.says)
		}
	}
}

// TestEventsAreNotAppendedToTheRegistry holds that the stream server's own list of its streams gets none of ours.
func TestEventsAreNotAppendedToTheRegistry(t *testing.T) {
	environ(t, enough("REGISTRY_STREAM", "/__registry__", "EVENTS_STREAM", "/./__registry__"))
	if line := problem(t); !strings.Contains(line, `REVEILLE_EVENTS_STREAM="/__registry__"`) {
		t.Errorf("%q does not name the setting", line)
	}
}

// problem is the line that load complains with.
func problem(t *testing.T) string {
	t.Helper()
	_, _, err := load()
	if err == nil {
		t.Fatal("it is accepted")
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("%q is more than one line", err)
	}
	return err.Error()
}

func TestTheValueOfASecretSettingIsNotShown(t *testing.T) {
	for _, c := range []struct{ setting, value string }{
		{"TOKEN_KEY", "hunter2"},
		{"TOKEN_KEY", testKey + ",hunter2"},
		{"TOKEN_KEY", testKey + ", ,hunter2"},
		{"ADMIN_TOKEN", "hunter2"},
		{"ADMIN_TOKEN", "hunter2 with spaces in it"},
		{"ADMIN_TOKEN", "hunter2-with-a-line-break\n"},
		{"READ_TOKEN", "hunter2-is-no-read-token"},
		{"UPSTREAM_HEADERS", "Authorization=hunter2,"},
		{"UPSTREAM_HEADERS", "Authorization: hunter2"},
		{"UPSTREAM_SIGNING_KEY", "hunter2 with spaces"},
		{"UPSTREAM_HEADERS", "X=hunter2\r\nY: 1"},
		{"UPSTREAM_HEADERS", "X=hunter2\x7f"},
		{"UPSTREAM_HEADERS", "Schl\u00fcssel=hunter2"},
		{"UPSTREAM_URL", "http://user:hunter2@streams:4437"},
		{"UPSTREAM_URL", "user:hunter2@streams"},
		{"UPSTREAM_URL", "http://user:hunter2@[streams"},
		{"UPSTREAM_URL", "http://streams:4437?key=hunter2"},
		{"UPSTREAM_URL", "http://user:hunter2?@streams:4437"},
		{"PUBLIC_URL", "https://user:hunter2@wake.example.com"},
	} {
		t.Run(c.setting+"="+c.value, func(t *testing.T) {
			environ(t, enough(c.setting, c.value))
			line := problem(t)
			if strings.Contains(line, "hunter2") {
				t.Errorf("%q shows a secret", line)
			}
			if !strings.Contains(line, prefix+"_"+c.setting) || !strings.Contains(line, "expected") {
				t.Errorf("%q does not name the setting and what was expected", line)
			}
		})
	}
}

// TestThePasswordOfRedisHasASettingOfItsOwn holds that the URL and the setting never both have one.
func TestThePasswordOfRedisHasASettingOfItsOwn(t *testing.T) {
	for _, c := range []struct{ url, password, want, refused string }{
		{url: "redis://redis", password: "p@ss w:rd", want: "redis://:p%40ss%20w%3Ard@redis"},
		{url: "rediss://me@redis:6380/2", password: "hunter2", want: "rediss://me:hunter2@redis:6380/2"},
		{url: "redis+cluster://me@a,b:1", password: "hunter2", want: "redis+cluster://me:hunter2@a,b:1"},
		{url: "redis+sentinel://a,b/main", password: "hunter2", want: "redis+sentinel://:hunter2@a,b/main"},
		{url: "redis://me:hunter3@redis", want: "redis://me:hunter3@redis"},
		{url: "redis://me:hunter3@redis", password: "hunter2", refused: "REVEILLE_REDIS_URL has a password too"},
		{url: "redis+cluster://me:hun/ter3@a", password: "hunter2", refused: "REVEILLE_REDIS_URL has a password too"},
		{url: "embedded", password: "hunter2", refused: "REVEILLE_REDIS_URL takes no password"},
		{url: "redis://redis", password: "hunter2\n", refused: "a text without line breaks"},
	} {
		t.Run(c.url+" "+c.refused, func(t *testing.T) {
			environ(t, enough("REDIS_URL", c.url, "REDIS_PASSWORD", c.password))
			if c.refused == "" {
				if s, _, err := load(); err != nil || s.RedisURL != c.want {
					t.Errorf("got %s, %v", s.RedisURL, err)
				}
				return
			}
			line := problem(t)
			if !strings.HasPrefix(line, "REVEILLE_REDIS_PASSWORD=(hidden): expected ") ||
				!strings.Contains(line, c.refused) || strings.Contains(line, "hun") {
				t.Errorf("the error is %q", line)
			}
		})
	}
}

// TestAnErrorAboutRedisNamesTheSettingAtFault holds which one, and that no secret is shown.
func TestAnErrorAboutRedisNamesTheSettingAtFault(t *testing.T) {
	at := func(setting string) error { return &redisstore.SettingError{Setting: setting, Reason: "a reason"} }
	for _, c := range []struct {
		err  error
		more []string
		want string
	}{
		{errors.New("a reason"), nil, "REVEILLE_REDIS_URL=(hidden): a reason"},
		{at("REVEILLE_TOKEN_KEY"), nil, "REVEILLE_TOKEN_KEY=(hidden): a reason"},
		{at("REVEILLE_PARTITIONS"), []string{"PARTITIONS", "32"}, `REVEILLE_PARTITIONS="32": a reason`},
		{at("REVEILLE_REDIS_CA_FILE"), nil, `REVEILLE_REDIS_CA_FILE="": a reason`},
		{at("REVEILLE_REDIS_PASSWORD"), nil, "REVEILLE_REDIS_URL=(hidden): a reason"},
		{
			at("REVEILLE_REDIS_PASSWORD"),
			[]string{"REDIS_PASSWORD", "hunter2"},
			"REVEILLE_REDIS_PASSWORD=(hidden): a reason",
		},
		{at("REVEILLE_UPSTREAM_NAME"), nil, `REVEILLE_UPSTREAM_URL="http://streams:4437": a reason`},
		{at("REVEILLE_UPSTREAM_NAME"), []string{"UPSTREAM_NAME", "s"}, `REVEILLE_UPSTREAM_NAME="s": a reason`},
	} {
		t.Run(c.want, func(t *testing.T) {
			environ(t, enough(c.more...))
			s, _, err := load()
			if err != nil {
				t.Fatal(err)
			}
			if got := s.blame(c.err); got.Error() != c.want || !errors.Is(got, c.err) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestVariablesThatLookLikeSettingsAreWarnedAbout(t *testing.T) {
	environ(t, enough(
		"UPSTREAM_ULR", "http://typo", "TAILMODE", "sse",
		// What commands read.
		"WEBHOOK_SECRET", "whsec_x", "LISTEN_SECRET", "whsec_x", "API_ADDR", ":8080",
		// What Kubernetes sets in every pod beside a Service that is called reveille.
		"SERVICE_HOST", "10.0.0.1", "SERVICE_PORT", "8080", "SERVICE_PORT_HTTP", "8080", "PORT", "tcp://10.0.0.1:8080",
		"PORT_8080_TCP", "tcp://10.0.0.1:8080", "PORT_8080_TCP_ADDR", "10.0.0.1", "PORT_8080_TCP_PORT", "8080",
		"PORT_8080_TCP_PROTO", "tcp",
	))
	_, warnings, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "REVEILLE_TAILMODE") ||
		!strings.Contains(warnings[1], "REVEILLE_UPSTREAM_ULR") {
		t.Errorf("warnings %q, want one for each of the two", warnings)
	}
	if strings.Contains(strings.Join(warnings, ""), "typo") {
		t.Errorf("a warning shows a value, which may be a secret: %q", warnings)
	}
}

func TestHelpListsEverySetting(t *testing.T) {
	var out strings.Builder
	if status := run([]string{"--help"}, nil, &out, os.Stderr); status != 0 {
		t.Errorf("exit status %d", status)
	}
	for _, f := range fields() {
		if !strings.Contains(out.String(), fullName(f)+" ") || meanings[shortName(f)] == "" {
			t.Errorf("%s is not listed with what it is for", fullName(f))
		}
	}
	if len(meanings) != len(fields()) {
		t.Errorf("%d meanings are told of %d settings", len(meanings), len(fields()))
	}
}

func TestVariablesWithoutThePrefixAreSomebodyElses(t *testing.T) {
	environ(t, enough("PARTITIONS", "16"))
	for _, f := range fields() {
		t.Setenv(shortName(f), "no such value")
	}
	if s, _, err := load(); err != nil || s.Partitions != 16 || s.LogLevel.String() != "info" {
		t.Errorf("%v: %d partitions, level %s", err, s.Partitions, s.LogLevel)
	}
}
