package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// programBinary builds the program.
var programBinary = sync.OnceValues(func() (string, error) {
	bin, err := filepath.Abs(root + "/.tools/test/reveille-chart")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", bin, "./cmd/reveille")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return bin, cmd.Run()
})

func program(t testing.TB) string {
	t.Helper()
	bin, err := programBinary()
	if err != nil {
		t.Fatalf("build the program: %v", err)
	}
	return bin
}

// setting is one of the program's, as its --help lists it.
type setting struct{ name, value, about string }

func settings(t testing.TB) (list []setting) {
	t.Helper()
	help, err := exec.Command(program(t), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*(REVEILLE_[A-Z0-9_]+)\s+(\S+)\s+(.*)$`)
	for _, m := range line.FindAllStringSubmatch(string(help), -1) {
		list = append(list, setting{m[1], strings.TrimPrefix(m[2], "-"), m[3]})
	}
	if len(list) < 10 {
		t.Fatalf("--help lists %d settings:\n%s", len(list), help)
	}
	return list
}

// own are the settings that have a value of their own, outside of the map settings.
var own = map[string]string{
	"REVEILLE_UPSTREAM_URL":         "upstream.url",
	"REVEILLE_UPSTREAM_HEADERS":     "upstream.headers",
	"REVEILLE_UPSTREAM_NAME":        "upstream.name",
	"REVEILLE_UPSTREAM_SIGNING_KEY": "upstream.signingKey.existingSecret",
	"REVEILLE_REDIS_URL":            "redis.url",
	"REVEILLE_REDIS_PASSWORD":       "redis.existingPasswordSecret",
	"REVEILLE_REDIS_CA_FILE":        "redis.ca.existingSecret",
	"REVEILLE_PUBLIC_URL":           "publicUrl",
	"REVEILLE_TOKEN_KEY":            "tokenKey.existingSecret",
	"REVEILLE_ADMIN_TOKEN":          "operatorTokens.existingSecret",
	"REVEILLE_READ_TOKEN":           "operatorTokens.readKey",
	"REVEILLE_NOTICE_WEBHOOK":       "noticeWebhook.existingSecret",
	"REVEILLE_LISTEN_ADDR":          "ports.api",
	"REVEILLE_OPERATOR_ADDR":        "ports.operator",
}

// inValues returns the name of a setting in the map settings: REVEILLE_TAIL_MODE is tailMode.
func inValues(name string) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(name, "REVEILLE_")), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// schema of the values, as far as it is looked at here.
type schema struct {
	Type       any                `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Enum       []any              `json:"enum"`
	Minimum    *int               `json:"minimum"`
	Maximum    *int               `json:"maximum"`
	Pattern    string             `json:"pattern"`
	Closed     any                `json:"additionalProperties"`
}

func readSchema(t testing.TB) *schema {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &schema{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// sample returns a value that the schema takes, as large as may be: large numbers are those that templates get wrong.
func (s *schema) sample() any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[len(s.Enum)-1]
	case s.Type == "boolean":
		return true
	case s.Type == "integer":
		return *s.Maximum
	case s.Type == "array" && strings.Contains(s.Items.Pattern, "0-9"):
		return []string{"10.1.0.0/16", "fd00:1::/64"}
	case s.Type == "array" && strings.Contains(s.Items.Pattern, "http"):
		return []string{"https://app.example.com", "*"}
	case s.Type == "array":
		return []string{"/a", "/b"}
	case strings.HasPrefix(s.Pattern, "^/"):
		return "/__registry__"
	}
	return "72h"
}

// TestEverySettingOfTheProgramHasAValueAndTheOtherWayRound gives a value for each setting and compares the variables of
// the container with what the program says it reads.
func TestEverySettingOfTheProgramHasAValueAndTheOtherWayRound(t *testing.T) {
	t.Parallel()
	given := map[string]any{}
	for name, s := range readSchema(t).Properties["settings"].Properties {
		given[name] = s.sample()
	}
	text, err := json.Marshal(map[string]any{"settings": given})
	if err != nil {
		t.Fatal(err)
	}
	m := render(t, chartDir, newest, required, everything, string(text))
	container, _ := m.program(t)
	env := m.environment(t, container)
	var want, have []string
	for _, s := range settings(t) {
		want = append(want, s.name)
		if value, special := own[s.name]; special {
			if _, also := given[inValues(s.name)]; also {
				t.Errorf("%s is set by %s and by settings.%s", s.name, value, inValues(s.name))
			}
		} else if _, ok := given[inValues(s.name)]; !ok {
			t.Errorf("%s cannot be set: values.schema.json has no settings.%s", s.name, inValues(s.name))
		}
	}
	for name := range env {
		if strings.HasPrefix(name, "REVEILLE_") {
			have = append(have, name)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("the container is given\n%s\nbut the program reads\n%s", strings.Join(have, "\n"),
			strings.Join(want, "\n"))
	}
	for name, value := range given {
		said, _ := json.Marshal(value)
		plain := strings.NewReplacer(`"`, "", "[", "", "]", "").Replace(string(said))
		if got := env["REVEILLE_"+strings.ToUpper(regexp.MustCompile(`[A-Z]`).ReplaceAllString(name,
			"_$0"))]; got != plain {
			t.Errorf("settings.%s = %s came out as %q", name, said, got)
		}
	}
}

// TestTheProgramTakesTheLeastAndTheMostThatTheSchemaTakes starts the program with both: it must not stop because of a
// setting.
func TestTheProgramTakesTheLeastAndTheMostThatTheSchemaTakes(t *testing.T) {
	t.Parallel()
	least, most := map[string]any{}, map[string]any{}
	for name, s := range readSchema(t).Properties["settings"].Properties {
		most[name], least[name] = s.sample(), s.sample()
		switch {
		case len(s.Enum) > 0:
			least[name] = s.Enum[0]
		case s.Type == "boolean":
			least[name] = false
		case s.Type == "integer":
			least[name] = *s.Minimum
		case s.Type == "array":
			least[name] = []string{}
		case strings.HasPrefix(s.Pattern, "^/"):
			delete(least, name)
		default:
			least[name] = "1.5s"
		}
	}
	most["outbox"] = "/outbox"     // it cannot be the path of another stream
	delete(most, "registryStream") // with it the program is not ready before the stream server has answered
	for _, given := range []map[string]any{least, most} {
		text, err := json.Marshal(map[string]any{"settings": given})
		if err != nil {
			t.Fatal(err)
		}
		m := render(t, chartDir, newest, required, `{replicaCount: 1, redis: {url: embedded}}`, onFreePorts(t),
			string(text))
		p := startAsRendered(t, m)
		p.await(t, "/readyz")
		p.stop(t)
	}
}
