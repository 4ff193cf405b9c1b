package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// valueRows are the rows of the README's table: every value with its default and the comment above it in values.yaml.
func valueRows(t testing.TB) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			name := path + key.Value
			comment := comment(key)
			if comment == "" && value.Kind == yaml.MappingNode && len(value.Content) > 0 {
				walk(name+".", value)
				continue
			}
			if comment == "" {
				t.Errorf("values.yaml says nothing about %s", name)
			}
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 && describedInside(value) {
				rows = append(rows, fmt.Sprintf("| `%s` | | %s |", name, comment))
				walk(name+".", value)
				continue
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, shown(t, value), comment))
		}
	}
	walk("", doc.Content[0])
	return rows
}

// describedInside says whether the values in a map have comments of their own.
func describedInside(n *yaml.Node) bool { return comment(n.Content[0]) != "" }

// comment is the last paragraph above a key, on one line.
func comment(key *yaml.Node) string {
	paragraphs := strings.Split(strings.TrimSpace(key.HeadComment), "\n\n")
	text := regexp.MustCompile(`(?m)^#\s?`).ReplaceAllString(paragraphs[len(paragraphs)-1], "")
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// shown is a default as the table shows it.
func shown(t testing.TB, n *yaml.Node) string {
	t.Helper()
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v == nil || v == "" {
		return ""
	}
	if s, ok := v.(string); ok {
		return "`" + s + "`"
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return "`" + string(text) + "`"
}

// settingRows are the rows of the README's other table: the settings that the map settings may hold.
func settingRows(t testing.TB) (rows []string) {
	t.Helper()
	for _, s := range settings(t) {
		if own[s.name] != "" {
			continue
		}
		value := s.value
		if value != "" {
			value = "`" + value + "`"
		}
		rows = append(rows,
			fmt.Sprintf("| `%s` | %s | %s |", inValues(s.name), value, strings.ReplaceAll(s.about, "|", `\|`)))
	}
	return rows
}

func TestTheReadmeListsEveryValueAndSetting(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range [][]string{valueRows(t), settingRows(t)} {
		if rows := strings.Join(table, "\n"); !strings.Contains(string(text), "|---|---|---|\n"+rows+"\n") {
			t.Errorf("the chart's README has other rows than\n%s", rows)
		}
	}
}

// TestTheSchemaKnowsEveryValue holds values.yaml against the schema, both ways; the schema knows besides what Helm and
// the charts that this one is a part of add.
func TestTheSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var compare func(path string, v map[string]any, s *schema, except ...string)
	compare = func(path string, v map[string]any, s *schema, except ...string) {
		if s.Closed != false {
			t.Errorf("the schema takes anything in %s", path)
		}
		have, want := slices.Sorted(maps.Keys(v)), slices.Sorted(maps.Keys(s.Properties))
		want = slices.DeleteFunc(want, func(name string) bool { return slices.Contains(except, name) })
		if !slices.Equal(have, want) {
			t.Errorf("%s: values.yaml has %q, the schema %q", path, have, want)
		}
		for name, x := range v {
			if inner, ok := x.(map[string]any); ok && s.Properties[name] != nil &&
				len(s.Properties[name].Properties) > 0 && name != "settings" && parts[strings.TrimPrefix(
				path+"."+name, "values.")] == nil {
				unset := []string{}
				if strings.HasSuffix(name, "Probe") || name == "resources" {
					unset = []string{"initialDelaySeconds", "successThreshold", "claims"}
				}
				if name == "startupProbe" { // none by default
					unset = append(unset, "failureThreshold", "periodSeconds", "timeoutSeconds")
				}
				compare(path+"."+name, inner, s.Properties[name], unset...)
			}
		}
	}
	compare("values", values, readSchema(t), "global", "enabled")
}
