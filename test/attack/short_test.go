package attack

import (
	"maps"
	"strings"
	"testing"
)

// TestTenSmallAttacks has ten attacks of small size, which find what is grossly wrong: nine on one process, one after
// the other, and one on a process of few connections.
func TestTenSmallAttacks(t *testing.T) {
	if !testing.Short() {
		t.Skip("the long form has each of them in its own world")
	}
	attacks := []attack{silentAttack(100)}
	for _, name := range endless {
		attacks = append(attacks, endlessAttack("answers of "+name, 10, []string{name}))
	}
	// The process's memory is the highest that it was: the one that may take the most comes last.
	pattern := patternAttack(100)
	pattern.peak = 100
	attacks = append(attacks, slowAttack(70), pattern, callbackAttack())
	settings := map[string]string{}
	for _, a := range attacks {
		maps.Copy(settings, a.settings)
	}
	r := newRig(t, settings)
	r.shared = true
	b, p := newBystander(r), newProber(r)
	for _, a := range attacks {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			defer func(whole *testing.T) { r.t = whole }(r.t)
			r.t = t
			a.on(t, r, b, p)
		})
	}
	crowded := crowdedAttack(80)
	t.Run(strings.ReplaceAll(crowded.name, " ", "_"), func(t *testing.T) { crowded.run(t) })
	if n := len(attacks) + 1; n != 10 {
		t.Errorf("these were %d attacks", n)
	}
}
