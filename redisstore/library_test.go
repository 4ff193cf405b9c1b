package redisstore

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// TestOffsetsAreComparedByteByByte holds the script's comparison against that of fsm, about where
// its steps begin and end.
func TestOffsetsAreComparedByteByByte(t *testing.T) {
	t.Parallel()
	client, closeClient, err := connectWithin(patient, EmptyRedis(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	after := redis.NewScript(Link(source("lib"), "return after(ARGV[A], ARGV[A + 1]) and 1 or 0"))
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

func TestAScriptBeginsWithTheConstants(t *testing.T) {
	if got := withConstants("return 1"); got != "return 1" {
		t.Errorf("a script without constants is %q", got)
	}
	text := withConstants("return FSM.VERSIONS")
	if !strings.HasPrefix(text, "local FSM = { VERSIONS = 2048, ") || strings.Contains(text, "\n") {
		t.Errorf("it is %q", text)
	}
	var all strings.Builder
	files, err := sources.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all.WriteString(source(strings.TrimSuffix(f.Name(), ".lua")))
	}
	for _, c := range constants {
		if !strings.Contains(all.String(), "FSM."+c.name) {
			t.Errorf("no script uses %s", c.name)
		}
	}
}
