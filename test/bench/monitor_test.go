package bench

import (
	"bufio"
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"reveille/redisstore"
)

// roundTrips counts what clients ask of Redis for a cycle. Redis's own statistics do not tell a client's command from
// one of a script's, so it is MONITOR that counts; it slows Redis down, and no time is taken here.
func roundTrips(b *bench) {
	t := b.table("What a cycle asks of Redis",
		"Commands that clients send, not those that scripts run, and without those of an idle system. \"reads\" "+
			"counts how often Redis read from a client: commands that are sent together are one read.",
		"cycle", "system", "commands", "reads", "which", "without a load, commands/s")
	for _, k := range []struct {
		name      string
		s         system
		callbacks bool
	}{
		{"synchronous done", tailed, false},
		{"synchronous done", gateway, false},
		{"full", tailed, true},
		{"full", gateway, true},
	} {
		b.in(k.s, 1, func(w *world) {
			var idle, busy tally
			var end func() tally
			began := time.Now()
			m := w.measure(load{
				streams: b.many, gap: gap, span: b.span, settle: b.settle, patience: b.patience,
				callbacks: k.callbacks, before: func() {
					stop := w.count()
					began = time.Now()
					if !pause(w.ctx, b.span) {
						w.t.SkipNow()
					}
					idle = stop().per(time.Since(began).Seconds())
					end, began = w.count(), time.Now()
				},
			})
			busy, took := end(), time.Since(began)
			b.lose(k.s, m.lost, k.name)
			each := busy.less(idle, took.Seconds()).per(float64(len(m.turns)))
			t.row(k.name, k.s, each.sum(), each.reads, each.which(), idle.sum())
			if !k.callbacks {
				b.aim("Redis commands per synchronous-done cycle, "+string(k.s), each.sum(), "≤", 3, "")
			}
		})
	}
}

// tally is how often clients used a command, or a script.
type tally struct {
	commands map[string]float64
	reads    float64
}

func (t tally) per(n float64) tally {
	p := tally{commands: map[string]float64{}, reads: t.reads / max(n, 1)}
	for c, times := range t.commands {
		p.commands[c] = times / max(n, 1)
	}
	return p
}

func (t tally) less(idle tally, seconds float64) tally {
	l := tally{commands: map[string]float64{}, reads: max(0, t.reads-idle.reads*seconds)}
	for c, times := range t.commands {
		l.commands[c] = max(0, times-idle.commands[c]*seconds)
	}
	return l
}

func (t tally) sum() (sum float64) {
	for _, times := range t.commands {
		sum += times
	}
	return sum
}

// which lists what counts, the most frequent first.
func (t tally) which() string {
	type use struct {
		name  string
		times float64
	}
	var list []use
	for name, times := range t.commands {
		if times >= 0.02 {
			list = append(list, use{name, times})
		}
	}
	slices.SortFunc(list,
		func(a, b use) int { return cmp.Or(cmp.Compare(b.times, a.times), strings.Compare(a.name, b.name)) })
	text := make([]string, len(list))
	for i, u := range list {
		text[i] = u.name + " " + decimal(u.times)
	}
	return strings.Join(text, ", ")
}

// monitor calls f with each line of MONITOR, until the function that it returns is called.
func (w *world) monitor(f func(line string)) (stop func()) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.redis.Addr)
	w.check(err)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	w.check(err)
	lines := bufio.NewReaderSize(conn, 1<<16)
	_, err = lines.ReadString('\n') // +OK
	w.check(err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			f(line)
		}
	})
	return func() {
		_ = conn.Close()
		wg.Wait()
	}
}

// count counts until the function that it returns is called.
func (w *world) count() (stop func() tally) {
	w.t.Helper()
	commands := map[string]float64{}
	end := w.monitor(func(line string) {
		if c := clientsCommand(line); c != "" {
			commands[c]++
		}
	})
	before := w.reads()
	return func() tally {
		reads := w.reads() - before
		end()
		return tally{commands: commands, reads: reads}
	}
}

// clientsCommand is what a line of MONITOR says that a client did: a command, or a script; empty if it was
// a script's doing or our own.
func clientsCommand(line string) string {
	_, rest, found := strings.Cut(line, "[")
	from, rest, closed := strings.Cut(rest, "] ")
	if !found || !closed || strings.HasSuffix(from, " lua") {
		return ""
	}
	words := strings.SplitN(strings.TrimSpace(rest), " ", 3)
	command := strings.ToUpper(strings.Trim(words[0], `"`))
	if len(words) > 1 {
		if script := redisstore.ScriptCalled(strings.Trim(words[1], `"`)); script != "" {
			return script
		}
	}
	switch {
	case command == "INFO", command == "MONITOR", command == "HELLO", command == "CLIENT":
		return ""
	}
	return command
}

func (w *world) reads() float64 {
	w.t.Helper()
	c := w.redis.Client()
	info, err := c.Info(w.ctx, "stats").Result()
	w.check(err)
	for line := range strings.Lines(info) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), "total_reads_processed:"); found {
			n, err := strconv.ParseFloat(v, 64)
			w.check(err)
			return n
		}
	}
	w.t.Fatal("INFO has no total_reads_processed")
	return 0
}
