package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/web"
)

// How many words a page may have, the code in it included.
const (
	frontPageWords = 1300
	pageWords      = 1500
	sentenceWords  = 25
	// repeatedWords is from how many words on a sentence may stand on one page only.
	repeatedWords = 8
)

// long are pages that are looked things up in rather than read: made from the code, or what a measurement printed.
var long = []string{
	"charts/reveille/README.md", metricsPage, "cmd/reveille/SETTINGS.md", "test/bench/RESULTS.md",
	"test/fault/RESULTS.md",
}

// quoting are pages of which parts are written elsewhere, in the code or by a measurement.
var quoting = append([]string{"test/conformance/OJS.md"}, long...)

func TestEveryPageIsShortAndTwoClicksFromTheFrontPage(t *testing.T) {
	pages := markdown(t, project())
	for _, problem := range slices.Concat(longPages(pages), longSentences(pages), farPages(pages)) {
		t.Error(problem)
	}
}

func TestAPageThatIsLongOrFarIsFound(t *testing.T) {
	words := func(n int) string { return strings.Repeat("word ", n) }
	pages := map[string]string{
		"README.md": "# Reveille\n\n[a](a/A.md)\n\n" + words(1300),
		"a/A.md":    "See [b](../b/B.md), `[code](../d/D.md)`.\n\n" + strings.Repeat("Word word. ", 748),
		"b/B.md":    "[c](C.md#c)\n\n```\n" + words(1500) + "\n```\n",
		"b/C.md": "A " + words(24) + "**here.** Short `" + words(30) + "` one. [" + words(3) + "](x)\n\n" +
			"    " + words(30),
		"d/D.md":       "| cell " + words(24) + "| cell " + words(25) + "|\n- An item " + words(23) + "\n- Item",
		"b/CHANGES.md": "",
	}
	want := []string{
		"README.md has 1303 words, more than 1300", "b/B.md has 1503 words, more than 1500",
		"b/C.md: a sentence of 26 words: A word word word word word word …",
		"README.md: a sentence of 1300 words: word word word word word word word …",
		"d/D.md: a sentence of 26 words: cell word word word word word word …",
		"b/C.md is more than two clicks away from README.md", "d/D.md is more than two clicks away from README.md",
		"b/CHANGES.md is more than two clicks away from README.md",
	}
	got := slices.Concat(longPages(pages), longSentences(pages), farPages(pages))
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoSentenceStandsOnTwoPages(t *testing.T) {
	for _, problem := range repeatedSentences(markdown(t, project())) {
		t.Error(problem)
	}
}

func TestASentenceThatStandsOnTwoPagesIsFound(t *testing.T) {
	pages := map[string]string{
		"A.md": "One two three. Every [stream](B.md) has `a tail`, and a consumer that follows it: Done.\n\n" +
			"- Every `code`  has a tail, and **one** consumer that follows it.\n\n" +
			"    Every word of a block of code may\n",
		"B.md": "| One two three. | every stream has `a tail`, and a\n" +
			"| Every `other` has a tail, and one consumer that follows it. |\n" +
			"Not yet. Every stream has\n`a tail`, and a consumer that follows it.\n\n" +
			"    Every word of a block of code may\n\nEvery `code` has a tail, and one consumer that\nfollows it.",
		metricsPage: "Every `code` has a tail, and one consumer that follows it.",
	}
	want := []string{
		"B.md repeats a sentence of A.md: Every stream has `a tail`, and a consumer that follows it.",
		"B.md repeats a sentence of A.md: Every `code` has a tail, and one consumer that follows it.",
	}
	if got := repeatedSentences(pages); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func longPages(pages map[string]string) (problems []string) {
	for page, text := range pages {
		most := pageWords
		if page == "README.md" {
			most = frontPageWords
		}
		if n := len(strings.Fields(text)); n > most && !slices.Contains(long, page) {
			problems = append(problems, fmt.Sprintf("%s has %d words, more than %d", page, n, most))
		}
	}
	return problems
}

var (
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^\s*([-*]|\d+\.)\s+`)
	sentenceEnd = regexp.MustCompile("[.!?;:]\\s+[A-Z\"`(]")
	tableBar    = regexp.MustCompile(`(?:^|[^\\])\|`)
)

// longSentences says which sentences have to be read twice. An item of a list and a cell of a table end one.
func longSentences(pages map[string]string) (problems []string) {
	for page, text := range pages {
		if slices.Contains(quoting, page) {
			continue
		}
		for _, block := range blocks(text) {
			for _, sentence := range sentences(inlineCode.ReplaceAllString(block, "Code")) {
				if words := strings.Fields(sentence); len(words) > sentenceWords {
					problems = append(problems, fmt.Sprintf("%s: a sentence of %d words: %s …", page, len(words),
						strings.Join(words[:7], " ")))
				}
			}
		}
	}
	return problems
}

// repeatedSentences says which sentences stand on two pages: one of the two should link the other.
func repeatedSentences(pages map[string]string) (problems []string) {
	first := map[string]string{} // the page by the sentence
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		if slices.Contains(quoting, page) {
			continue
		}
		for _, block := range blocks(pages[page]) {
			for _, sentence := range sentences(block) {
				words := strings.Fields(strings.ToLower(strings.TrimRight(sentence, ".:;")))
				if len(words) < repeatedWords {
					continue
				}
				key := strings.Join(words, " ")
				if other := cmp.Or(first[key], page); other != page {
					problems = append(problems, fmt.Sprintf("%s repeats a sentence of %s: %s", page, other, sentence))
				}
				first[key] = cmp.Or(first[key], page)
			}
		}
	}
	return problems
}

// sentences are those of a paragraph, an item or a cell, with the text of each link in its place.
func sentences(block string) (list []string) {
	for block = linkText.ReplaceAllString(block, "$1"); block != ""; {
		sentence := block
		if at := sentenceEnd.FindStringIndex(block); at != nil {
			sentence = block[:at[0]+1]
		}
		block = strings.TrimSpace(strings.TrimPrefix(block, sentence))
		list = append(list, strings.TrimSpace(sentence))
	}
	return list
}

// blocks are the paragraphs, items and cells of a page.
func blocks(text string) (list []string) {
	var block []string
	end := func() {
		if len(block) > 0 {
			list = append(list, strings.Join(block, " "))
		}
		block = nil
	}
	for _, line := range prose(strings.ReplaceAll(text, "**", "")) {
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "    "), strings.HasPrefix(line, "#"),
			strings.HasPrefix(line, "<"):
			end()
		case strings.HasPrefix(line, "|"):
			end()
			list = append(list, tableBar.Split(line, -1)...)
		case listItem.MatchString(line):
			end()
			block = append(block, listItem.ReplaceAllString(line, ""))
		default:
			block = append(block, line)
		}
	}
	end()
	return list
}

// farPages says which pages a reader of the front page does not find.
func farPages(pages map[string]string) (problems []string) {
	near := map[string]bool{"README.md": true}
	for range 2 {
		for _, page := range slices.Collect(maps.Keys(near)) {
			for _, line := range prose(pages[page]) {
				for _, m := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
					if file, _, _ := strings.Cut(m[1]+m[2], "#"); file != "" {
						near[path.Join(path.Dir(page), file)] = true
					}
				}
			}
		}
	}
	for page := range pages {
		if !near[page] && !strings.HasPrefix(page, ".github/") {
			problems = append(problems, page+" is more than two clicks away from README.md")
		}
	}
	return problems
}

const errorsPage = "httpapi/ERRORS.md"

var errorRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (\\d{3}) \\|")

// TestTheGuideOfTheNightAnswersSixteenQuestions holds that each question of an operator has a place on the page and a
// command that exists.
func TestTheGuideOfTheNightAnswersSixteenQuestions(t *testing.T) {
	page := markdown(t, project())["cmd/reveille/OPERATING.md"]
	if n := len(nightRows(page)); n != 16 {
		t.Errorf("the table has %d questions", n)
	}
	for _, problem := range badNights(page) {
		t.Error(problem)
	}
}

func TestAQuestionWithoutAnswerIsFound(t *testing.T) {
	page := nightHeading + "\n\n| question | page | command |\n| --- | --- | --- |\n" +
		"| Good? | Overview | `reveille status` |\n| Again? | Overview | the same |\n" +
		"| Empty? | | `reveille status` |\n| None? | Overview | - |\n" +
		"| Unknown? | Overview | `reveille stauts` |\n" +
		"| Flag? | Overview | `reveille consumers --sub ID` |\n" +
		"| Much? | Overview | `reveille status ID` |\n| Little? | Overview | `reveille pause` |\n" +
		"| Short? | Overview |\n\n## Other\n\n| Elsewhere? | | |\n"
	want := []string{
		"Empty?: a cell is empty", "None?: - is no command", "Unknown?: stauts is no command",
		"Flag?: flag provided but not defined: -sub", "Much?: status takes other arguments",
		"Little?: pause takes other arguments", "Short?: a cell is empty",
	}
	if got := badNights(page); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

const nightHeading = "## At three in the morning"

// nightRows are the rows of the table of questions.
func nightRows(page string) (rows [][]string) {
	_, section, _ := strings.Cut(page, nightHeading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if cells, isRow := strings.CutPrefix(line, "| "); isRow && !strings.HasPrefix(line, "| question |") &&
			!strings.HasPrefix(line, "| --- |") {
			row := strings.Split(strings.TrimSuffix(cells, "|"), "|")
			for i := range row {
				row[i] = strings.TrimSpace(row[i])
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// badNights says which questions have no answer.
func badNights(page string) (problems []string) {
	for _, row := range nightRows(page) {
		if len(row) != 3 || slices.Contains(row, "") {
			problems = append(problems, row[0]+": a cell is empty")
		} else if err := wrongCommand(row[2]); err != nil && row[2] != "the same" {
			problems = append(problems, fmt.Sprintf("%s: %v", row[0], err))
		}
	}
	return problems
}

// wrongCommand says what is wrong with a command that a page shows.
func wrongCommand(shown string) error {
	words := strings.Fields(strings.Trim(shown, "`"))
	if len(words) < 2 || words[0] != "reveille" {
		return fmt.Errorf("%s is no command", shown)
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == words[1] })
	if i < 0 {
		return fmt.Errorf("%s is no command", words[1])
	}
	f := flag.NewFlagSet(words[1], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	commands[i].flags(&cli{}, f)
	arguments := 0
	for words = words[2:]; len(words) > 0; {
		if err := f.Parse(words); err != nil {
			return err
		}
		if words = f.Args(); len(words) > 0 {
			arguments, words = arguments+1, words[1:]
		}
	}
	if arguments < commands[i].least || commands[i].most >= 0 && arguments > commands[i].most {
		return fmt.Errorf("%s takes other arguments", commands[i].name)
	}
	return nil
}

func TestEveryErrorCodeIsExplainedWithItsStatus(t *testing.T) {
	explained := map[fsm.Code]int{}
	for _, m := range errorRow.FindAllStringSubmatch(markdown(t, project())[errorsPage], -1) {
		if _, twice := explained[fsm.Code(m[1])]; twice {
			t.Errorf("%s explains %s twice", errorsPage, m[1])
		}
		explained[fsm.Code(m[1])], _ = strconv.Atoi(m[2])
	}
	codes := errorCodes(t)
	for _, c := range codes {
		if explained[c] != web.Status(c) {
			t.Errorf("%s says %d of %s, which is answered with %d", errorsPage, explained[c], c, web.Status(c))
		}
	}
	for c := range explained {
		if !slices.Contains(codes, c) {
			t.Errorf("%s explains %s, which no answer has", errorsPage, c)
		}
	}
}

// errorCodes are the constants of fsm.Code.
func errorCodes(t *testing.T) (codes []fsm.Code) {
	t.Helper()
	source, err := fs.ReadFile(project(), "fsm/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
				codes = append(codes, fsm.Code(written(spec.Values[0])))
			}
		}
		return true
	})
	if len(codes) < 20 {
		t.Fatalf("only %q: that cannot be all", codes)
	}
	return codes
}
