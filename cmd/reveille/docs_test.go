package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// project is the folder above this package's.
func project() fs.FS { return os.DirFS("../..") }

func TestEveryLinkSettingAndMetricInTheDocumentsExists(t *testing.T) {
	pages := markdown(t, project())
	for _, want := range []string{
		"README.md", "CHANGELOG.md", "cmd/reveille/OPERATING.md", "cmd/reveille/SETTINGS.md",
		"test/workers/GUIDE.md",
	} {
		if _, ok := pages[want]; !ok {
			t.Errorf("%s is missing", want)
		}
	}
	for _, problem := range slices.Concat(badLinks(project(), pages), badSettings(pages), badMetrics(pages)) {
		t.Error(problem)
	}
}

func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	var sources strings.Builder
	err := fs.WalkDir(project(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(project(), name)
		sources.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range markdown(t, project()) {
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(sources.String(), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: there is no %s", page, m[1])
			}
		}
	}
}

func TestABadLinkSettingOrMetricInADocumentIsFound(t *testing.T) {
	tree := fstest.MapFS{
		"README.md": {Data: []byte(`# A title

[good](a/B.md) [good](a/B.md#how-it-works-in-0-s) [good](#a-title) [good](a) [elsewhere](https://example.com/x.md)
` + "`[code](nowhere.md)`" + `

[bad](a/C.md) [bad](a/B.md#nothing) [bad](#b-title)
![bad](picture.png)
<source srcset="dark.png"><img src="a/B.md"><img alt="bad" src="light.png">

` + "```\n# not a title\n[code](nowhere.md)\n```\n[bad](#not-a-title)\n" + `
REVEILLE_REDIS_URL REVEILLE_REDIS_* REVEILLE_NONSENSE REVEILLE_NON_*
reveille_wakes_total reveille_wait_seconds_bucket reveille_nonsense_total
`)},
		metricsPage: {Data: []byte("| `reveille_wakes_total` | counter |\n| `reveille_wait_seconds` | histogram |\n")},
		"a/B.md": {Data: []byte("## How `it` works, in 0 s?\n[good](../README.md) [bad](README.md)\n" +
			"### Twice\n### Twice\n[good](#twice-1) [bad](#twice-2)\n[bad]: D.md\n")},
	}
	pages := markdown(t, tree)
	want := []string{
		"README.md: a/C.md does not exist", "README.md: a/B.md has no heading #nothing",
		"README.md: README.md has no heading #b-title",
		"README.md: picture.png does not exist", "README.md: dark.png does not exist",
		"README.md: light.png does not exist", "README.md: README.md has no heading #not-a-title",
		"a/B.md: a/README.md does not exist", "a/B.md: a/B.md has no heading #twice-2", "a/B.md: a/D.md does not exist",
		"README.md: REVEILLE_NONSENSE is not a setting", "README.md: REVEILLE_NON_* is not a setting",
		"README.md: reveille_nonsense_total is not a metric",
	}
	got := slices.Concat(badLinks(tree, pages), badSettings(pages), badMetrics(pages))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// markdown returns the Markdown files below a folder, by their paths, without what was downloaded or built.
func markdown(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		pages[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

var (
	link       = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s*(\S+)|\bsrc(?:set)?="([^"]+)"`)
	inlineCode = regexp.MustCompile("`[^`]*`")
	settingRef = regexp.MustCompile(`REVEILLE_[A-Z0-9_]+\*?`)
	metricRef  = regexp.MustCompile(`\breveille_[a-z0-9_]+`)
)

// metricsPage lists the metrics; it is made from the program.
const metricsPage = "cmd/reveille/METRICS.md"

// badLinks says which relative links lead nowhere.
func badLinks(tree fs.FS, pages map[string]string) (problems []string) {
	for page, text := range pages {
		for _, line := range prose(text) {
			for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				target := m[1] + m[2] + m[3]
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				file, anchor, hasAnchor := strings.Cut(target, "#")
				name := page
				if file != "" {
					name = path.Join(path.Dir(page), file)
				}
				if _, err := fs.Stat(tree, name); err != nil {
					problems = append(problems, fmt.Sprintf("%s: %s does not exist", page, name))
				} else if hasAnchor && !slices.Contains(anchors(pages[name]), anchor) {
					problems = append(problems, fmt.Sprintf("%s: %s has no heading #%s", page, name, anchor))
				}
			}
		}
	}
	return problems
}

// prose is the lines of a page that are not in a block of code.
func prose(text string) (lines []string) {
	code := false
	for line := range strings.Lines(text) {
		if fence := strings.HasPrefix(strings.TrimLeft(line, " "), "```"); fence || code {
			code = code != fence
			continue
		}
		lines = append(lines, strings.TrimRight(line, "\n"))
	}
	return lines
}

// anchors are what a page's headings can be linked to by, as GitHub makes them.
func anchors(text string) (list []string) {
	seen := map[string]int{}
	for _, line := range prose(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		a := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		if seen[a]++; seen[a] > 1 {
			a = fmt.Sprintf("%s-%d", a, seen[a]-1)
		}
		list = append(list, a)
	}
	return list
}

// noSettings are variables for tests and for commands.
var noSettings = []string{
	"REVEILLE_TEST_REDIS", "REVEILLE_TEST_REGISTRY", webhookSecretName, listenSecretName, apiAddrName,
}

// badSettings says which names of settings are none. One that ends in "*" stands for all that begin so.
func badSettings(pages map[string]string) (problems []string) {
	for page, text := range pages {
		for _, name := range settingRef.FindAllString(text, -1) {
			begins, all := strings.CutSuffix(name, "*")
			known := slices.ContainsFunc(fields(), func(f reflect.StructField) bool {
				return all && strings.HasPrefix(fullName(f), begins) || fullName(f) == name
			})
			if !known && !slices.Contains(noSettings, name) {
				problems = append(problems, fmt.Sprintf("%s: %s is not a setting", page, name))
			}
		}
	}
	return problems
}

// badMetrics says which names of metrics are none.
func badMetrics(pages map[string]string) (problems []string) {
	list, ok := pages[metricsPage]
	if !ok {
		return nil
	}
	for page, text := range pages {
		for _, name := range metricRef.FindAllString(text, -1) {
			base := name
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, part)
			}
			if !strings.Contains(list, "`"+name+"`") && !strings.Contains(list, "`"+base+"`") {
				problems = append(problems, fmt.Sprintf("%s: %s is not a metric", page, name))
			}
		}
	}
	return problems
}
