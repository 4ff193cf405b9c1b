package bench

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"reveille/test/harness"
)

// goBenchmarks runs those of the packages, among them the Redis scripts alone, and takes over what they print.
func goBenchmarks(b *bench) {
	top, err := harness.Root()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", b.benchtime,
		"-vet=off",
		"./fsm", "./dispatcher", "./redisstore")
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	hot := b.table("Benchmarks of the packages", "", "benchmark", "µs", "a second", "bytes", "allocations")
	scripts := b.table("The Redis scripts alone",
		"Each script has consumers of its own. One client waits for each reply, the other sends hundreds of calls "+
			"ahead. \"in Redis\" is the time that Redis itself reports for a call.",
		"script", "µs, one by one", "a second", "µs, sent ahead", "a second", "µs in Redis",
		"allocations of the client")
	alone := map[string]goBenchmark{}
	for _, g := range parseBenchmarks(string(out)) {
		name, script := strings.CutPrefix(g.name, "Scripts/")
		how, name, _ := strings.Cut(name, "/")
		switch {
		case !script:
			hot.row(g.name, g.figures["ns/op"]/1000, 1e9/g.figures["ns/op"], int(g.figures["B/op"]),
				int(g.figures["allocs/op"]))
		case how == "single":
			alone[name] = g
		default:
			one := alone[name].figures
			scripts.row(name, one["ns/op"]/1000, 1e9/one["ns/op"], g.figures["ns/op"]/1000, 1e9/g.figures["ns/op"],
				g.figures["redis-µs/op"], int(one["allocs/op"]))
		}
	}
	if len(scripts.rows) == 0 {
		b.Errorf("no benchmark of a script was found in\n%s", out)
	}
}

// goBenchmark is a line that a Go benchmark printed.
type goBenchmark struct {
	name    string
	figures map[string]float64
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func parseBenchmarks(out string) (list []goBenchmark) {
	for _, m := range benchmarkLine.FindAllStringSubmatch(out, -1) {
		g := goBenchmark{name: m[1], figures: map[string]float64{}}
		words := strings.Fields(m[2])
		for i := 0; i+1 < len(words); i += 2 {
			if v, err := strconv.ParseFloat(words[i], 64); err == nil {
				g.figures[words[i+1]] = v
			}
		}
		list = append(list, g)
	}
	return list
}

func TestGoBenchmarksAreRead(t *testing.T) {
	list := parseBenchmarks("goos: linux\nBenchmarkScripts/single/observe-2 \t 120\t 45000.5 ns/op\t 12 B/op\t 3 " +
		"allocs/op\nBenchmarkSign \t 1\t 9 ns/op\nok \treveille/fsm\t1s\n")
	if len(list) != 2 || list[0].name != "Scripts/single/observe" || list[0].figures["ns/op"] != 45000.5 ||
		list[0].figures["allocs/op"] != 3 ||
		list[1].name != "Sign" {
		t.Errorf("%+v", list)
	}
}
