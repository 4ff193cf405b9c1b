package main

import (
	"os"
	"regexp"
	"testing"
)

// needsNewer are modules of which a library of the chart's tests needs a newer version than the program has.
var needsNewer = map[string]bool{"github.com/modern-go/reflect2": true}

// TestModulesOfTestsCompileWhatTheProgramHas holds that all modules have one version of each library. Otherwise, the
// library is compiled and checked twice on a bare machine.
func TestModulesOfTestsCompileWhatTheProgramHas(t *testing.T) {
	t.Parallel()
	versions := func(file string) map[string]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		required := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^\s+(\S+/\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
			required[m[1]] = m[2]
		}
		if len(required) < 5 {
			t.Fatalf("%s: %d modules", file, len(required))
		}
		return required
	}
	program := versions("../../go.mod")
	for _, tests := range []string{"test/browser", "test/chart"} {
		theirs := versions("../../" + tests + "/go.mod")
		for module, ours := range program {
			newer := tests == "test/chart" && needsNewer[module]
			if other, shared := theirs[module]; shared && (other != ours) != newer {
				t.Errorf("the program has %s %s, %s has %s: go -C %[3]s get %[1]s@%[2]s", module, ours, tests, other)
			}
		}
	}
}
