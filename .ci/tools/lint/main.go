// Command lint is a tool for go vet, which runs it for one package at a time and caches what it says. It has analyzers
// that vet itself lacks, for the kinds of mistakes that this project could make.
package main

import (
	"path/filepath"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/nishanths/exhaustive"
	"github.com/sonatard/noctx"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	// The bodies of answers: everything that counts was read before.
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, "(io.Closer).Close")
	lintErrors := errorlint.NewAnalyzer()
	set(lintErrors, "errorf", "true")
	// A default covers the cases that are not named.
	set(exhaustive.Analyzer, "d", "true")
	// A switch over codes picks out a few of many.
	set(exhaustive.Analyzer, "typeignore", `^reveille/fsm\.Code$`)
	unitchecker.Main(
		errcheck.Analyzer,                // errors that the code ignores
		lintErrors,                       // errors compared in ways that wrapping breaks
		exhaustive.Analyzer,              // a switch over states that forgets one
		inProduction(bodyclose.Analyzer), // answers whose body is not closed
		inProduction(noctx.Analyzer),     // requests and processes that nothing can cancel
		nilness.Analyzer,                 // values that are always nil
		unusedwrite.Analyzer,             // fields that are set and never read
	)
}

func set(a *analysis.Analyzer, flag, value string) {
	if err := a.Flags.Set(flag, value); err != nil {
		panic(err)
	}
}

// inProduction leaves out the tests: they may start anything, and what they leak ends with them.
func inProduction(a *analysis.Analyzer) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			file := filepath.ToSlash(pass.Fset.Position(d.Pos).Filename)
			if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(pass.Pkg.Path(), "reveille/test/") {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}
