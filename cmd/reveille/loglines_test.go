package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logPages explain the lines of the log, each beside the code that logs them.
var logPages = []string{
	"cmd/reveille/LOGS.md", "dispatcher/LOGS.md", "httpapi/ojs/LOGS.md", "redisstore/LOGS.md", "tailer/LOGS.md",
}

// TestThePagesOfTheLogExplainEveryWarningAndError holds the messages in the code against the tables of the pages, both
// ways.
func TestThePagesOfTheLogExplainEveryWarningAndError(t *testing.T) {
	var explained []string
	pages := markdown(t, project())
	for _, page := range logPages {
		for line := range strings.Lines(pages[page]) {
			if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(cells[1], " `") {
				explained = append(explained, strings.Trim(cells[1], " `"))
			}
		}
	}
	said, literals := messages(t)
	for _, m := range said {
		if !slices.Contains(explained, m) {
			t.Errorf("no page of the log explains %q", m)
		}
	}
	for _, m := range explained {
		for part := range strings.SplitSeq(m, "…") {
			if !slices.ContainsFunc(literals, func(l string) bool { return strings.Contains(l, part) }) {
				t.Errorf("a page of the log explains %q, which is never said", m)
			}
		}
	}
}

// messages returns what the program logs as a warning or an error, with "…" for what is not written out there, and all
// texts that its source holds.
func messages(t *testing.T) (list, literals []string) {
	t.Helper()
	files := token.NewFileSet()
	err := fs.WalkDir(project(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() &&
			(d.Name() == "node_modules" || name == "test" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(project(), name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, name, source, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				literals = append(literals, written(e))
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Warn" && method.Sel.Name != "Error" {
				return true
			}
			if m := written(call.Args[0]); m != "…" && !slices.Contains(list, m) {
				list = append(list, m)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("only %q: that cannot be all", list)
	}
	return list, literals
}

// written is the text of an expression as far as it is written out.
func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return written(e.X) + written(e.Y)
	}
	return "…"
}
