package spec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var twin = regexp.MustCompile(`(?m)^//\t(\w+) +([\w/]+\.lua)(?: (\w+)$)?`)

// TestEachFunctionNamesItsTwin holds the tables in doc.go against the functions and the scripts.
func TestEachFunctionNamesItsTwin(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range twin.FindAllStringSubmatch(string(doc), -1) {
		name, file, function := row[1], row[2], row[3]
		listed = append(listed, name)
		script, err := os.ReadFile(filepath.Join("../../redisstore/lua", file))
		if err != nil || function != "" && !strings.Contains(string(script), "local function "+function+"(") {
			t.Errorf("%s has no twin %s in %s: %v", name, function, file, err)
		}
	}
	want := []string{"Fence"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
				want = append(want, f.Name.Name)
			}
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the tables list %v, want %v", listed, want)
	}
}
