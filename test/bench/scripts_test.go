package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"reveille/redisstore"
)

// scriptUse is what the calls of a script came to.
type scriptUse struct {
	calls, commands, bytes float64
	took                   samples
}

// scriptsWanted are the scripts that each wake and each push needs. commandsWanted and microsWanted are what a call of
// one of them is to cost at most.
var scriptsWanted = []string{"observe", "finish", "deliver", "accept", "callback"}

const commandsWanted, microsWanted = 6, 120

// scripts measures what each script costs Redis. MONITOR and SLOWLOG slow Redis down, each in a load of its own.
func scripts(b *bench) {
	t := b.table("Scripts",
		"\"calls\" is how often a script is called for an event, \"commands\" how many commands a call carries out. "+
			"\"bytes\" is how long the call is, about. The times are those of Redis's slow log.",
		"cycle", "streams", "script", "calls", "commands", "bytes", "p50", "p99")
	for _, c := range []cycle{synchronous, full, push} {
		for _, n := range []int{1, b.many} {
			b.in(tailed, 1, func(w *world) { b.scriptsOf(t, w, c, n) })
		}
	}
}

func (b *bench) scriptsOf(t *table, w *world, c cycle, streams int) {
	l, measure := b.loadOf(c, streams, b.span)
	var stop func() map[string]*scriptUse
	l.before = func() { stop = w.countScripts() }
	counted := measure(w, l)
	use := stop()
	l.before = w.logScripts
	timed := measure(w, l)
	b.lose(tailed, counted.lost+timed.lost, fmt.Sprintf("%d streams, %s", streams, c))
	logged, err := w.redis.Client().SlowLogGet(w.ctx, -1).Result()
	w.check(err)
	for _, entry := range logged {
		if len(entry.Args) < 2 {
			continue
		}
		if u := use[redisstore.ScriptCalled(entry.Args[1])]; u != nil {
			u.took = append(u.took, entry.Duration)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(use)) {
		u := use[name]
		each := u.calls / float64(max(len(counted.turns), 1))
		if each < 0.02 {
			continue
		}
		p50 := u.took.percentile(50)
		t.row(string(c), streams, name, each, u.commands/u.calls, u.bytes/u.calls, p50, u.took.percentile(99))
		if slices.Contains(scriptsWanted, name) && streams > 1 && len(u.took) > 0 {
			what := fmt.Sprintf("%s, %s, %d streams", name, c, streams)
			b.aim("commands of "+what, u.commands/u.calls, "≤", commandsWanted, "")
			b.aim("µs of "+what, float64(p50.Microseconds()), "≤", microsWanted, "")
		}
	}
}

// countScripts counts calls of scripts until the function that it returns is called.
func (w *world) countScripts() (stop func() map[string]*scriptUse) {
	use := map[string]*scriptUse{}
	var last *scriptUse // the commands that follow a script are its own
	end := w.monitor(func(line string) {
		from, command, found := strings.Cut(line, "] ")
		switch name := clientsCommand(line); {
		case strings.HasSuffix(from, " lua"):
			if last != nil {
				last.commands++
			}
		case !found || !isScript(name):
			last = nil
		default:
			if use[name] == nil {
				use[name] = &scriptUse{}
			}
			last = use[name]
			last.calls++
			last.bytes += float64(len(command))
		}
	})
	return func() map[string]*scriptUse {
		w.reads() // what Redis has carried out before has come
		end()
		return use
	}
}

// isScript says whether a name is that of a script: those of commands have capitals.
func isScript(name string) bool { return name != "" && name == strings.ToLower(name) }

// logScripts has Redis log how long scripts take. Most of the commands that they carry out are too quick to be logged.
func (w *world) logScripts() {
	c := w.redis.Client()
	w.check(c.ConfigSet(w.ctx, "slowlog-max-len", "100000").Err())
	w.check(c.ConfigSet(w.ctx, "slowlog-log-slower-than", "10").Err())
	w.check(c.SlowLogReset(w.ctx).Err())
}
