package main

import (
	"os"
	"regexp"
	"testing"
)

// needsNewer are modules of which a library of the chart's tests needs a newer version than the program has.
var needsNewer = map[string]bool{"github.com/modern-go/reflect2": true}

// TestTheChartsTestsCompileWhatTheProgramHas holds that both modules have one version of each library. Otherwise, the
// library is compiled and checked twice on a bare machine.
func TestTheChartsTestsCompileWhatTheProgramHas(t *testing.T) {
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
		if len(required) < 20 {
			t.Fatalf("%s: %d modules", file, len(required))
		}
		return required
	}
	theirs := versions("../../test/chart/go.mod")
	for module, ours := range versions("../../go.mod") {
		if other, shared := theirs[module]; shared && (other != ours) != needsNewer[module] {
			t.Errorf("the program has %s %s, the chart's tests have %s: go -C test/chart get %[1]s@%[2]s",
				module, ours, other)
		}
	}
}
