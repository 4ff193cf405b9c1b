// Package attack holds Reveille against those who would fill its memory, its files or its time: the built program,
// without the race detector, beside a real redis-server and the real reference server. While an attack goes on, a
// subscription that has nothing to do with it must get every wake, and the process must stay below stated bounds.
//
// Other attacks want more of it than it gives: requests beyond a rate, or headers that are not theirs. Names that lead
// elsewhere once they have been checked need a resolver, which the built program takes from the machine: package
// dispatcher has that one.
//
// Without ATTACK=full the numbers are smaller, and memory, files and that no wake is lost are what is asserted. In the
// short form (go test -short) they are tiny, and most attacks are on the same process. ATTACK=full (make attack) takes
// the full numbers and asserts times as well.
package attack

import (
	"fmt"
	"os"
	"testing"
)

// full is whether the full numbers are asked for.
var full = os.Getenv("ATTACK") == "full"

// size returns one of two numbers, by whether the full ones are asked for.
func size(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// inShort returns the first of two numbers in the short form, and otherwise the second.
func inShort(tiny, other int) int {
	if testing.Short() {
		return tiny
	}
	return other
}

func TestMain(m *testing.M) {
	if text := os.Getenv(attackerEnv); text != "" {
		if err := runAttacker(text); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	printResults()
	os.Exit(code)
}
