package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// A goFile is one file of the project, parsed. Its name is its path.
type goFile struct {
	name string
	text []byte
	*ast.File
	fset *token.FileSet
}

func (f goFile) at(pos token.Pos, text string) string {
	return fmt.Sprintf("%s:%d: %s", f.name, f.fset.Position(pos).Line, text)
}

// production reports whether the file belongs to the program.
func (f goFile) production() bool {
	return !strings.HasSuffix(f.name, "_test.go") && !strings.HasPrefix(f.name, "test/") && f.name[0] != '.'
}

var skipped = regexp.MustCompile(`^\.git$|^\.tools$|(^|/)(node_modules|testdata)$`)

// eachFile calls f for each file of the project whose name ends so.
func eachFile(t *testing.T, tree fs.FS, ext string, f func(name string, text []byte) error) {
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped.MatchString(name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ext:
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return f(name, text)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func goFiles(t *testing.T, tree fs.FS) (all []goFile) {
	fset := token.NewFileSet()
	eachFile(t, tree, ".go", func(name string, text []byte) error {
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		all = append(all, goFile{name, text, file, fset})
		return err
	})
	return all
}

// scriptProblems says what breaks the rules for Lua. luacheck looks for mistakes (redisstore/library_test.go).
func scriptProblems(t *testing.T, tree fs.FS) (found []string) {
	eachFile(t, tree, ".lua", func(name string, text []byte) error {
		found = append(found, longLines(name, text)...)
		return nil
	})
	return found
}

func TestEveryFileKeepsTheRulesOfTheLayout(t *testing.T) {
	files := goFiles(t, project())
	if len(files) < 100 {
		t.Fatalf("only %d files", len(files))
	}
	for _, problem := range slices.Concat(layoutProblems(files), scriptProblems(t, project())) {
		t.Error(problem)
	}
}

func TestWhatBreaksARuleOfTheLayoutIsFound(t *testing.T) {
	long := "//" + strings.Repeat("x", 118)
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"fsm/a.go":           "// Package fsm is.\npackage fsm\n" + `import _ "reveille/fsm/spec/memstore"`,
		"fsm/spec/a.go":      "// Package spec is.\npackage spec\n" + `import _ "reveille/redisstore"`,
		"tailer/a.go":        "// Package tailer is.\npackage tailer\n" + `import _ "reveille/fsm"`,
		"tailer/c/c.go":      "// Package c is.\npackage c\n" + `import _ "reveille/fsm/spec"`,
		"tailer/b/a_test.go": "package b\n" + `import _ "reveille/dispatcher/format"`,
		"dispatcher/format/a.go": `// Package format is.
package format
import _ "reveille/fsm"
import _ "reveille/dispatcher"
`,
		"cmd/reveille/settings.go": "package main\nimport \"os\"\nvar a = os.Getenv",
		"cmd/reveille/main.go":     "// Command reveille is.\npackage main\nimport env \"os\"\nvar a = env.Getenv",
		"cmd/reveille/a.go": `package main
import ("fmt"; "time")
func a() {
	fmt.Println()
	time.Sleep(1)
	print()
	fmt.Fprintln(nil)
}
`,
		"test/a/a.go":     "// Package a is.\npackage a\nimport \"time\"\nvar a = time.Sleep",
		"httpapi/none.go": "package httpapi",
		"httpapi/paging/a.go": `// Package paging is.
package paging
import _ "net/http"
import _ "reveille/httpapi/web"
`,
		"httpapi/web/a.go": "// Package web is.\npackage web\n" + `import _ "reveille/httpapi"` + "\n" +
			`import _ "reveille/httpapi/refusal"` + "\n" + `import _ "net/http"`,
		"httpapi/web/a_test.go": "package web_test\n" + `import _ "reveille/httpapi"`,
		"httpapi/a_test.go": "// Package httpapi is.\npackage httpapi\n\nfunc A() {}\n" +
			long + "y\n\t" + long + "\n" + long,
		"redisstore/lua/a.lua": "--" + strings.Repeat("…", 118) + "\n--" + strings.Repeat("x", 119) + "\n",
		"tailer/full.go":       "package tailer" + strings.Repeat("\n", 450),
		"tailer/long.go":       "package tailer\n" + strings.Repeat("\n", 449) + "// B is.\n",
		"tailer/long_test.go":  "package tailer" + strings.Repeat("\n", 500),
		"redisstore/a.go": `// Package redisstore is.
package redisstore
func A() {}
type B int
const (
	// C is.
	C = 1
	D = 2
)
// These are.
var (
	E = 1
)
func (B) F() {}
func (B) String() string {}
func (b) G() {}
type b int
// H is.
type H struct { I int }
`,
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for i := range 40 { // beside a.go
		tree[fmt.Sprintf("redisstore/b%d.go", i)] = &fstest.MapFile{Data: []byte("package redisstore")}
		tree[fmt.Sprintf("redisstore/b%d_test.go", i)] = &fstest.MapFile{Data: []byte("package redisstore")}
		tree[fmt.Sprintf("tailer/c/b%d_test.go", i)] = &fstest.MapFile{Data: []byte("package c")}
	}
	files := goFiles(t, tree)
	got := append(layoutProblems(files), scriptProblems(t, tree)...)
	want := []string{
		"cmd/reveille/a.go:4: fmt.Println: log with zap",
		"cmd/reveille/a.go:5: time.Sleep: wait for a signal, a timer or the context",
		"cmd/reveille/a.go:6: print: log with zap",
		"cmd/reveille/main.go:4: os.Getenv: settings are read in one place, cmd/reveille/settings.go",
		"dispatcher/format/a.go:4: imports reveille/dispatcher: a format imports nothing of ours but the domain",
		"fsm/a.go:3: imports reveille/fsm/spec/memstore: the domain imports nothing of ours",
		"fsm/spec/a.go:3: imports reveille/redisstore: what stands below the domain imports nothing else of ours",
		"httpapi/a_test.go:5: 121 columns, more than 120", "httpapi/a_test.go:6: 124 columns, more than 120",
		"httpapi/none.go:1: package httpapi has no comment",
		"httpapi/paging/a.go:3: imports net/http: this package knows no HTTP",
		"httpapi/paging/a.go:4: imports reveille/httpapi/web: " + notOfPorts,
		"httpapi/web/a.go:3: imports reveille/httpapi: " + notOfPorts,
		"redisstore/a.go:3: A has no comment", "redisstore/a.go:4: B has no comment",
		"redisstore/a.go:8: D has no comment", "redisstore/a.go:14: F has no comment",
		"redisstore: more than 40 files: split it by subject",
		"tailer/b/a_test.go:2: imports reveille/dispatcher/format: the packages of the ring meet in fsm",
		"tailer/c/c.go:3: imports reveille/fsm/spec: production never runs the specification",
		"tailer/long.go: 451 lines, more than 450: split it by subject",
		"redisstore/lua/a.lua:2: 121 columns, more than 120",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func layoutProblems(files []goFile) (found []string) {
	commented, in := map[string]bool{}, map[string]int{} // by folder
	for _, f := range files {
		if f.Doc != nil && !strings.HasSuffix(f.name, "_test.go") {
			commented[path.Dir(f.name)] = true
		}
	}
	for _, f := range files {
		if dir := path.Dir(f.name); f.production() {
			if in[dir]++; in[dir] == 41 {
				found = append(found, dir+": more than 40 files: split it by subject")
			}
		}
		found = append(found, badImports(f)...)
		if f.production() {
			found = append(found, badCalls(f)...)
		}
		found = append(found, longLines(f.name, f.text)...)
		if last := f.fset.File(f.Package).LineCount(); f.production() && last > 450 {
			found = append(found, fmt.Sprintf("%s: %d lines, more than 450: split it by subject", f.name, last))
		}
		if !strings.HasSuffix(f.name, "_test.go") {
			if dir := path.Dir(f.name); !commented[dir] {
				commented[dir] = true
				found = append(found, f.at(f.Package, "package "+f.Name.Name+" has no comment"))
			}
			found = append(found, uncommented(f)...)
		}
	}
	return found
}

// The four meet in the types of fsm and never import each other; only cmd ties them together.
var ring = []string{"reveille/dispatcher", "reveille/httpapi", "reveille/redisstore", "reveille/tailer"}

func within(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

// part is the part of the ring that a package is in.
func part(pkg string) string {
	i := slices.IndexFunc(ring, func(root string) bool { return within(pkg, root) })
	if i < 0 {
		return ""
	}
	return ring[i]
}

// ports is httpapi, and below has what each package below it may import of httpapi. Two faces never import each other,
// but the console shows what the operator port answers. A face's own tests ask it through the ports.
const ports = "reveille/httpapi"

var below = map[string][]string{
	"refusal":  nil,
	"paging":   {"refusal"},
	"control":  {"paging", "refusal"},
	"web":      {"paging", "refusal"},
	"fields":   {"control", "refusal", "web"},
	"console":  {"control", "operator", "paging", "refusal", "web"},
	"operator": {"control", "fields", "paging", "refusal", "web"},
	"native":   {"control", "fields", "refusal", "web"},
	"ojs":      {"control", "fields", "paging", "refusal", "web"},
	"outbox":   {"control", "fields", "paging", "refusal", "web"},
}

// The packages of httpapi that know no HTTP, and what they do not import.
var (
	withoutHTTP = []string{"control", "paging", "refusal"}
	ofHTTP      = []string{"net/http", "github.com/labstack/echo/v4"}
)

const notOfPorts = "below has what this package may import of httpapi"

// badInPorts says what is wrong with an import of a package below httpapi.
func badInPorts(pkg, imported string) string {
	of, isBelow := strings.CutPrefix(pkg, ports+"/")
	to, toBelow := strings.CutPrefix(imported, ports+"/")
	switch {
	case !isBelow:
	case slices.Contains(withoutHTTP, of) && slices.Contains(ofHTTP, imported):
		return "this package knows no HTTP"
	case imported == ports, toBelow && !slices.Contains(below[of], to):
		return notOfPorts
	}
	return ""
}

func badImports(f goFile) (found []string) {
	pkg := "reveille/" + path.Dir(f.name)
	for _, spec := range f.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		why := ""
		if !strings.HasSuffix(f.Name.Name, "_test") {
			why = badInPorts(pkg, imported)
		}
		switch {
		case !within(imported, "reveille"):
		case pkg == "reveille/fsm":
			why = "the domain imports nothing of ours"
		case f.production() && within(imported, "reveille/fsm/spec") && !within(pkg, "reveille/fsm/spec"):
			why = "production never runs the specification"
		case within(pkg, "reveille/fsm"):
			if !within(imported, "reveille/fsm") {
				why = "what stands below the domain imports nothing else of ours"
			}
		case within(pkg, "reveille/dispatcher/format"):
			if imported != "reveille/fsm" && !within(imported, "reveille/dispatcher/format") {
				why = "a format imports nothing of ours but the domain"
			}
		default:
			if from, to := part(pkg), part(imported); from != "" && to != "" && from != to {
				why = "the packages of the ring meet in fsm"
			}
		}
		if why != "" {
			found = append(found, f.at(spec.Pos(), "imports "+imported+": "+why))
		}
	}
	return found
}

var forbidden = []struct {
	name   *regexp.Regexp
	except string
	why    string
}{
	{
		regexp.MustCompile(`^os\.(Getenv|LookupEnv|Environ)$`),
		"cmd/reveille/settings.go", "settings are read in one place, cmd/reveille/settings.go",
	},
	{regexp.MustCompile(`^time\.Sleep$`), "", "wait for a signal, a timer or the context"},
	{regexp.MustCompile(`^(fmt\.Print(|f|ln)|print|println)$`), "", "log with zap"},
}

func badCalls(f goFile) (found []string) {
	packages := map[string]string{} // by the name that the file gives them
	for _, spec := range f.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		packages[name] = imported
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		name, pos := "", token.NoPos
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && packages[x.Name] != "" {
				name, pos = packages[x.Name]+"."+n.Sel.Name, n.Pos()
			}
		case *ast.CallExpr:
			if fun, ok := n.Fun.(*ast.Ident); ok && fun.Obj == nil {
				name, pos = fun.Name, n.Pos()
			}
		}
		for _, rule := range forbidden {
			if rule.name.MatchString(name) && f.name != rule.except {
				found = append(found, f.at(pos, name+": "+rule.why))
			}
		}
		return true
	})
	return found
}

func longLines(name string, text []byte) (found []string) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimRight(line, "\r\n")
		columns := utf8.RuneCount(line) + 3*bytes.Count(line, []byte("\t"))
		if columns > 120 && !bytes.HasPrefix(line, []byte("//go:")) {
			found = append(found, fmt.Sprintf("%s:%d: %d columns, more than 120", name, n, columns))
		}
	}
	return found
}

// Methods that everyone knows.
var known = []string{
	"Error", "Is", "Len", "Less", "MarshalJSON", "Read", "ServeHTTP", "String", "Swap", "UnmarshalJSON", "Unwrap",
	"Write",
}

func uncommented(f goFile) (found []string) {
	if f.Name.Name == "main" {
		return nil
	}
	present := func(doc *ast.CommentGroup) bool { return doc != nil }
	say := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(docs, present) {
			found = append(found, f.at(name.Pos(), name.Name+" has no comment"))
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) && !slices.Contains(known, d.Name.Name) {
				say(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					say(s.Name, d.Doc, s.Doc)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						say(name, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	return found
}

// receiver is the name of the type whose method it is.
func receiver(f *ast.FuncDecl) string {
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok && name == "" {
			name = ident.Name
		}
		return true
	})
	return name
}
