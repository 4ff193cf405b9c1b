package redisstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

func TestAScriptHasWhatItUsesOfTheLibraryOnItsOwnLines(t *testing.T) {
	whole := source("lib")
	text := ownLibrary.with("local c = current(record, ARGV[A])\nreturn outcome()\n")
	if got, want := strings.Count(text, "\n"), strings.Count(whole, "\n")+4; got != want {
		t.Errorf("it has %d lines, want %d", got, want)
	}
	for name, used := range map[string]bool{
		"current": true, "record": true, "load": false, "place_of": true, "is_dead": true, "outcome": true,
		"save": false, "fence": false,
		"after": false,
	} {
		if strings.Contains(text, "local function "+name+"(") != used {
			t.Errorf("%s is there: %v", name, !used)
		}
	}
	lines := strings.Split(whole, "\n")
	for i, line := range strings.Split(text, "\n")[:len(lines)-1] {
		if line = strings.TrimPrefix(line, "return (function() "); line != "" && line != lines[i] {
			t.Errorf("line %d is %q, not %q", i+1, line, lines[i])
		}
	}
}

// TestWhatOnlyTheRareFunctionUsesIsMadeInIt holds that the calls that do not need it do not pay for it.
func TestWhatOnlyTheRareFunctionUsesIsMadeInIt(t *testing.T) {
	text := ownLibrary.with("load(ARGV[A])\nwake_if_pending(c)\n")
	for name, within := range map[string]bool{
		"create": true, "remove": true, "unwatch": true, "wake_if_pending": false, "links": false, rare: false,
	} {
		head := "local function " + name + "("
		if alone := strings.Contains(text, "\n"+head); alone == within || !strings.Contains(text, head) {
			t.Errorf("%s stands by itself: %v, is there: %v", name, alone, strings.Contains(text, head))
		}
	}
}

func TestTheLibraryIsTakenApartAtItsFunctions(t *testing.T) {
	var whole strings.Builder
	functions := 0
	for _, part := range readLibrary(source("lib")).parts {
		whole.WriteString(part.text)
		if n := strings.Count("\n"+part.text, "\nlocal function "); n > 1 || (n == 1) != (part.name != "") {
			t.Errorf("%s has %d functions", part.name, n)
		}
		if part.name != "" {
			functions++
		}
	}
	if whole.String() != source("lib") || functions != strings.Count("\n"+source("lib"), "\nlocal function ") {
		t.Errorf("%d functions", functions)
	}
}

// TestAScriptThatReturnsTheMarkUnchangedCannotHaveTouchedIt holds that whatever may have others act has the watermark
// rise: a loss of it would go unseen.
func TestAScriptThatReturnsTheMarkUnchangedCannotHaveTouchedIt(t *testing.T) {
	const touch = "touched = true"
	for _, s := range scripts {
		if !s.partitioned {
			continue
		}
		text := source(s.name)
		used := ownLibrary.usedOf(text, "")
		touches := strings.Contains(text, touch)
		for _, part := range ownLibrary.parts {
			touches = touches || used[part.name] && strings.Contains(part.text, touch)
		}
		if used["reply"] == used["unchanged"] || touches != used["reply"] {
			t.Errorf("%s may touch the watermark: %v; it returns by reply: %v, by unchanged: %v", s.name, touches,
				used["reply"], used["unchanged"])
		}
	}
}

// TestOffsetsAreComparedByteByByte holds the script's comparison against that of fsm, about where
// its steps begin and end.
func TestOffsetsAreComparedByteByByte(t *testing.T) {
	t.Parallel()
	client, closeClient, err := connectWithin(patient, EmptyRedis(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	after := redis.NewScript(ownLibrary.with("return after(ARGV[A], ARGV[A + 1]) and 1 or 0\n"))
	offsets := []string{"", "-1", "-", "-0", "\x00", "\xff", "a", "B", "_"}
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33} {
		for _, end := range []string{"", "0", "1", "\x00", "\x7f", "\xff", "_2", "2_"} {
			offsets = append(offsets, strings.Repeat("0", n)+end)
		}
	}
	for _, a := range offsets {
		for _, b := range offsets {
			got, err := after.Run(t.Context(), client, []string{"rv:{0}:", "rv:{0}:~"}, 1, 1, 1, 1, 1, "", "", 0, a, b,
				0, 0).Bool()
			if err != nil {
				t.Fatal(err)
			}
			if want := fsm.Offset(a).After(fsm.Offset(b)); got != want {
				t.Errorf("%q lies beyond %q: %v, want %v", a, b, got, want)
			}
		}
	}
}

func TestAScriptBeginsWithTheConstantsThatItUses(t *testing.T) {
	for script, want := range map[string]string{
		"return 1": "return 1",
		"-- CLOCK_SKEW\nreturn VERSIONS * RETRY_SLOW -- CLOCK_SKEW": "local VERSIONS, RETRY_SLOW = 2048, 60000 " +
			"-- CLOCK_SKEW\nreturn VERSIONS * RETRY_SLOW -- CLOCK_SKEW",
	} {
		if got := withConstants(script, library{}.usedOf(script, "")); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
	all := source("lib") + source("changed") + source("endpoint") + source("replica_set") + source("replay_span") +
		source("due_events") + source("end_removal")
	for _, c := range constants {
		if !slices.Contains(wordsOf(all), c.name) {
			t.Errorf("no script uses %s", c.name)
		}
	}
}
