package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/semver/v3"
	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// The short form renders the chart here, in this process: for Helm's own engine, Kubernetes' whole client would be
// compiled. This engine knows what the project's two charts use. The long form renders with Helm, and compares each
// document with what comes from here.

// renderHere renders a chart and the charts that it depends on. It returns the text of each file, NOTES.txt included.
// Later values go over earlier ones.
func renderHere(c *helmchart.Chart, kubeVersion string, values ...map[string]any) (map[string]string, error) {
	given := map[string]any{}
	for _, v := range values {
		merge(given, v)
	}
	coalesce(c, given)
	for _, part := range append([]*helmchart.Chart{c}, c.Dependencies()...) {
		if err := takesKubernetes(part, kubeVersion); err != nil {
			return nil, err
		}
	}
	if err := holdAgainstSchemas(c, given); err != nil {
		return nil, fmt.Errorf("values do not fit the schema:\n%w", err)
	}
	return execute(c, given)
}

// coalesce gives values the defaults of a chart and of the charts that it depends on, which get the globals, too.
func coalesce(c *helmchart.Chart, given map[string]any) {
	parts := map[string]bool{}
	for _, part := range c.Dependencies() {
		parts[part.Name()] = true
	}
	defaults := clone(c.Values)
	withDefaults(given, defaults, func(name string) bool { return parts[name] })
	for _, part := range c.Dependencies() {
		inner, _ := given[part.Name()].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
		}
		globals := map[string]any{}
		for _, from := range []map[string]any{inner, given} {
			if g, ok := from["global"].(map[string]any); ok {
				merge(globals, g)
			}
		}
		inner["global"] = globals
		given[part.Name()] = inner
		coalesce(part, inner)
	}
}

// withDefaults adds the defaults that values do not name. A null takes a default away. In values for another chart, it
// stays: that chart has defaults, too.
func withDefaults(given, defaults map[string]any, keepsNull func(name string) bool) {
	for name, d := range defaults {
		g, there := given[name]
		inner, isMap := g.(map[string]any)
		innerDefaults, both := d.(map[string]any)
		switch {
		case !there:
			given[name] = d
		case g == nil && d != nil && !keepsNull(name):
			delete(given, name)
		case isMap && both:
			keep := keepsNull(name)
			withDefaults(inner, innerDefaults, func(string) bool { return keep })
		}
	}
}

func clone(values map[string]any) map[string]any {
	copied := maps.Clone(values)
	for name, v := range copied {
		if inner, ok := v.(map[string]any); ok {
			copied[name] = clone(inner)
		}
	}
	return copied
}

func takesKubernetes(c *helmchart.Chart, version string) error {
	if c.Metadata.KubeVersion == "" {
		return nil
	}
	wanted, err := semver.NewConstraint(c.Metadata.KubeVersion)
	if err != nil {
		return err
	}
	there, err := semver.NewVersion(version)
	if err == nil && !wanted.Check(there) {
		err = fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes v%s",
			c.Metadata.KubeVersion, version)
	}
	return err
}

func holdAgainstSchemas(c *helmchart.Chart, values map[string]any) error {
	var failed []error
	if c.Schema != nil {
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Schema))
		if err != nil {
			return err
		}
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("file:///values.schema.json", schema); err != nil {
			return err
		}
		compiled, err := compiler.Compile("file:///values.schema.json")
		if err != nil {
			return err
		}
		failed = append(failed, compiled.Validate(values))
	}
	for _, part := range c.Dependencies() {
		failed = append(failed, holdAgainstSchemas(part, values[part.Name()].(map[string]any)))
	}
	return errors.Join(failed...)
}

// execute runs the templates of a chart with its values.
func execute(c *helmchart.Chart, values map[string]any) (map[string]string, error) {
	all := template.New("chart").Option("missingkey=zero").Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"toYaml": func(v any) string {
			text, _ := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n")
		},
		"toJson": func(v any) string {
			text, _ := json.Marshal(v)
			return string(text)
		},
		"fromJson": func(text string) map[string]any {
			m := map[string]any{}
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				m["Error"] = err.Error()
			}
			return m
		},
		"fromJsonArray": func(text string) []any {
			var list []any
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				return []any{err.Error()}
			}
			return list
		},
		"fail":   func(message string) (string, error) { return "", errors.New(message) },
		"lookup": func(_, _, _, _ string) map[string]any { return map[string]any{} }, // no cluster to ask
	})
	addNesting(all)
	contexts := map[string]any{} // of each file
	if _, err := parseAll(all, contexts, c, values, ""); err != nil {
		return nil, err
	}
	rendered := map[string]string{}
	for _, file := range slices.Sorted(maps.Keys(contexts)) {
		if strings.HasPrefix(path.Base(file), "_") {
			continue
		}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, file, contexts[file]); err != nil {
			return nil, err
		}
		rendered[file] = withoutNoValue(out.String())
	}
	return rendered, nil
}

// withoutNoValue takes away what text/template writes for a value that is not there.
func withoutNoValue(text string) string { return strings.ReplaceAll(text, "<no value>", "") }

// addNesting adds the functions that run other templates.
func addNesting(t *template.Template) {
	t.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := t.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"tpl": func(text string, data any) (string, error) {
			inner, err := t.Clone()
			if err != nil {
				return "", err
			}
			inner.Option("missingkey=zero")
			addNesting(inner)
			if inner, err = inner.New("tpl").Parse(text); err != nil {
				return "", err
			}
			var out bytes.Buffer
			err = inner.Execute(&out, data)
			return withoutNoValue(out.String()), err
		},
	})
}

// parseAll parses the templates of a chart and of its parts, and notes the context of each. It returns that of the
// chart.
func parseAll(
	all *template.Template, contexts map[string]any, c *helmchart.Chart, values map[string]any, folder string,
) (map[string]any, error) {
	folder = path.Join(folder, c.Name())
	parts := map[string]any{}
	context := map[string]any{
		"Chart": *c.Metadata, "Values": values, "Files": files(c.Files), "Subcharts": parts,
		"Release": map[string]any{
			"Name": release, "Namespace": namespace, "Service": "Helm", "Revision": 1, "IsInstall": true,
			"IsUpgrade": false,
		},
	}
	for _, part := range c.Dependencies() {
		inner, err := parseAll(all, contexts, part, values[part.Name()].(map[string]any), path.Join(folder, "charts"))
		if err != nil {
			return nil, err
		}
		parts[part.Name()] = inner
	}
	for _, t := range c.Templates {
		name := path.Join(folder, t.Name)
		if _, err := all.New(name).Parse(string(t.Data)); err != nil {
			return nil, err
		}
		own := maps.Clone(context)
		own["Template"] = map[string]any{"Name": name, "BasePath": path.Join(folder, "templates")}
		contexts[name] = own
	}
	return context, nil
}

// files are the files of a chart that are not templates.
type files []*helmchart.File

// Get returns the text of a file; empty if there is none.
func (f files) Get(name string) string {
	for _, file := range f {
		if file.Name == name {
			return string(file.Data)
		}
	}
	return ""
}

// templateHere renders a chart as template does.
func templateHere(dir, kubeVersion string, documents ...string) (string, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return "", err
	}
	var values []map[string]any
	for _, text := range documents {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return "", err
		}
		values = append(values, v)
	}
	rendered, err := renderHere(c, kubeVersion, values...)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		for document := range strings.SplitSeq("\n"+rendered[file], "\n---") {
			if path.Base(file) != "NOTES.txt" && strings.TrimSpace(withoutComments(document)) != "" {
				fmt.Fprintf(&all, "---\n# Source: %s\n%s\n", file, strings.TrimSpace(document))
			}
		}
	}
	return all.String(), nil
}

// documents are those of a rendered text, sorted, without the key that is made anew each time.
func documents(text string) []string {
	var list []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		document = strings.TrimSpace(document)
		if strings.Contains(document, "/token-key.yaml\n") {
			document = drawn.ReplaceAllString(document, "drawn")
		}
		if document != "" {
			list = append(list, document)
		}
	}
	slices.Sort(list)
	return list
}

// sameAsHelm fails the test unless both engines rendered the same documents.
func sameAsHelm(t testing.TB, here, helm string) {
	t.Helper()
	ours, theirs := documents(here), documents(helm)
	if slices.Equal(ours, theirs) {
		return
	}
	for _, d := range ours {
		if !slices.Contains(theirs, d) {
			t.Errorf("Helm does not render this document, the engine of the short form does:\n%s", d)
		}
	}
	for _, d := range theirs {
		if !slices.Contains(ours, d) {
			t.Errorf("Helm renders this document, the engine of the short form does not:\n%s", d)
		}
	}
}
