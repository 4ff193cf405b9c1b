package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const rulesPage = "fsm/RULES.md"

func TestEveryRulePathAndNumberOfThePagesIsRight(t *testing.T) {
	pages := markdown(t, project())
	unknown := unknownRules(t, project())
	for _, problem := range slices.Concat(unknown, wrongPaths(project(), pages), bareNumbers(pages)) {
		t.Error(problem)
	}
}

func TestARuleThatIsNotDefinedIsFound(t *testing.T) {
	tree := fstest.MapFS{
		rulesPage:   {Data: []byte("| S1 | a rule |\n- **L1**: a rule\n### D1: a rule\n\nD2 is named only. `D9`\n")},
		"a/a.go":    {Data: []byte("package a\n// By S1, L1, D1, not\n// L2.\nconst D3 = \"// D4\" // XD5 D6x D7\n")},
		"a/b.lua":   {Data: []byte("local D3 = 1 -- S1 and S2\n")},
		"README.md": {Data: []byte("D1 and D8.\n\n```\nD9\n```\n")},
	}
	want := []string{
		"README.md names the rule D8, which fsm/RULES.md does not define",
		"a/a.go names the rule D7, which fsm/RULES.md does not define",
		"a/a.go names the rule L2, which fsm/RULES.md does not define",
		"a/b.lua names the rule S2, which fsm/RULES.md does not define",
		"fsm/RULES.md names the rule D2, which fsm/RULES.md does not define",
	}
	if got := unknownRules(t, tree); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAPathThatDoesNotExistIsFound(t *testing.T) {
	tree := fstest.MapFS{"a/b/c.go": {}, "a/b/lua/d.lua": {}, "x/y.go": {}, "Makefile": {}}
	pages := map[string]string{
		"ARCHITECTURE.md": "`a/b/c.go`, `lua/d.lua`, `go test ./a/b -run X`, `a/b/lua/NAME.lua`\n" +
			"`.tools/x`, `b`, `/x/z`\n## Next\n`c.go` `x/y.go` `x/z.go` `a/c`\n\n```\n`n/one.go`\n```\n" +
			"## Last\n`b/c.go` `a/b/lua`",
		"a/B.md": "`x/z.go`",
	}
	want := []string{
		"ARCHITECTURE.md: a/c does not exist", "ARCHITECTURE.md: c.go does not exist",
		"ARCHITECTURE.md: x/z.go does not exist",
	}
	if got := wrongPaths(tree, pages); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestANumberThatNoPageBacksIsFound(t *testing.T) {
	pages := map[string]string{
		"README.md": "Ready [within 7 s](a/B.md#c), in\n[8 ms](a/B.md).\n\n1.6 to 2.8 times, by `make bench`.\n\n" +
			"- 9 s for 3 streams in November 2026\n| 5 % | [b](a/B.md) |\n| 40 wakes a second |\n    10 s\n",
		"a/B.md": "Within 7 s. And 50 %. Not 18 ms",
	}
	want := []string{
		"README.md: 8 ms: neither the command that measured it nor a page that has it",
		"README.md: 9 s: neither the command that measured it nor a page that has it",
		"README.md: 5 %: neither the command that measured it nor a page that has it",
		"README.md: 40 wakes a second: neither the command that measured it nor a page that has it",
	}
	if got := bareNumbers(pages); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var (
	ruleName    = regexp.MustCompile(`\b[SLD]\d{1,2}\b`)
	ruleDefined = regexp.MustCompile(`(?m)^(?:\| |- \*\*|### )([SLD]\d{1,2})(?: \||\*\*:|: )`)
	luaComment  = regexp.MustCompile(`--.*`)
)

// unknownRules says which rules the pages, and the comments of the code, name without a definition.
func unknownRules(t *testing.T, tree fs.FS) (problems []string) {
	t.Helper()
	texts := map[string]string{} // by the file
	pages := markdown(t, tree)
	for page, text := range pages {
		texts[page] = inlineCode.ReplaceAllString(strings.Join(prose(text), "\n"), "")
	}
	for _, f := range goFiles(t, tree) {
		for _, comment := range f.Comments {
			texts[f.name] += comment.Text() + "\n"
		}
	}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped.MatchString(name):
			return fs.SkipDir
		case path.Ext(name) != ".lua":
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		texts[name] = strings.Join(luaComment.FindAllString(string(text), -1), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, m := range ruleDefined.FindAllStringSubmatch(pages[rulesPage], -1) {
		defined[m[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		rules := ruleName.FindAllString(texts[name], -1)
		slices.Sort(rules)
		for _, rule := range slices.Compact(rules) {
			if !defined[rule] {
				problems = append(problems,
					fmt.Sprintf("%s names the rule %s, which %s does not define", name, rule, rulesPage))
			}
		}
	}
	return problems
}

// aPath is a word of code that names a file or a folder of the project.
var aPath = regexp.MustCompile(`^[\w.][\w.-]*(/[\w.-]+)+$|^\w[\w-]*\.(css|go|html|json|lua|md|sh|ts|yaml)$`)

// wrongPaths says which files and folders that the pages for developers name are none. A path begins at the root, or
// at a folder that another path of the section names or lies in.
func wrongPaths(tree fs.FS, pages map[string]string) (problems []string) {
	exists := func(name string) bool { _, err := fs.Stat(tree, name); return err == nil }
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "RECIPES.md"} {
		for section := range strings.SplitSeq("\n"+strings.Join(prose(pages[page]), "\n"), "\n## ") {
			var named []string
			for _, code := range inlineCode.FindAllString(section, -1) {
				for _, word := range strings.Fields(strings.Trim(code, "`")) {
					word = strings.TrimPrefix(word, "./")
					if strings.HasPrefix(path.Base(word), "NAME.") { // stands for any file
						word = path.Dir(word)
					}
					if aPath.MatchString(word) && !strings.HasPrefix(word, ".tools/") {
						named = append(named, word)
					}
				}
			}
			folders := map[string]bool{".": true}
			for _, name := range named {
				for ; exists(name) && name != "."; name = path.Dir(name) {
					folders[name] = true
				}
			}
			for _, name := range named {
				found := false
				for folder := range folders {
					found = found || exists(path.Join(folder, name))
				}
				if !found {
					problems = append(problems, fmt.Sprintf("%s: %s does not exist", page, name))
				}
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

var (
	aNumber = regexp.MustCompile(`\b\d[\d.,]*(?: to \d[\d.,]*)?` +
		`(?: ?%| (?:ms|s|seconds?|min|minutes?|h|hours?|days?|times)\b|(?: [a-z]+)? (?:a|per) (?:second|minute)\b)`)
	aTarget = regexp.MustCompile("`make [a-z-]+`")
)

// bareNumbers says which times, rates and ratios of the front page stand in a paragraph, item or row that names
// neither the command that measured them nor a page that has them.
func bareNumbers(pages map[string]string) (problems []string) {
	const page = "README.md"
	var parts []string
	fresh := true
	for _, line := range prose(pages[page]) {
		row := strings.HasPrefix(line, "|")
		if blank := strings.TrimSpace(line) == ""; blank || strings.HasPrefix(line, "    ") {
			fresh = true
			continue
		}
		if fresh || row || listItem.MatchString(line) {
			parts = append(parts, "")
		}
		parts[len(parts)-1] += line + "\n"
		fresh = row
	}
	for _, part := range parts {
		linked := ""
		for _, m := range link.FindAllStringSubmatch(part, -1) {
			file, _, _ := strings.Cut(m[1]+m[2], "#")
			linked += strings.Join(strings.Fields(pages[file]), " ") + "\n"
		}
		for _, number := range aNumber.FindAllString(strings.Join(strings.Fields(part), " "), -1) {
			backed := regexp.MustCompile(`(?:^|[^\d.,])` + regexp.QuoteMeta(number)).MatchString(linked)
			if !backed && !aTarget.MatchString(part) {
				problems = append(problems, fmt.Sprintf(
					"%s: %s: neither the command that measured it nor a page that has it", page, number))
			}
		}
	}
	return problems
}
