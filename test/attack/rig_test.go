package attack

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"reveille/test/harness"
)

// rig is a Reveille of an attack's own, with what it stands beside.
type rig struct {
	t       *testing.T
	redis   *harness.Redis
	ref     *harness.RefServer
	rev     *harness.Reveille
	streams *harness.Client
	gateway *harness.Client
	// shared is true if several attacks follow one another.
	shared bool
	// live is the consumer that is at work, once there is one.
	live *harness.Wake
}

func newRig(t *testing.T, settings map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, redis: harness.StartRedis(t), ref: harness.StartRefServer(t, harness.RefOptions{})}
	all := map[string]string{
		"REVEILLE_UPSTREAM_URL": r.ref.StreamRoot, "REVEILLE_REDIS_URL": r.redis.URL, "REVEILLE_LOG_LEVEL": "error",
	}
	maps.Copy(all, settings)
	r.rev = harness.NewPlainReveille(t, all)
	r.rev.Start()
	r.streams, r.gateway = harness.NewClient(t, r.ref.StreamRoot), harness.NewClient(t, r.rev.URL)
	return r
}

// attack is one way to do harm.
type attack struct {
	name     string
	settings map[string]string
	// peak is what the process's memory must stay below, in MiB, and files the open files above those it had before.
	// Both belong to the numbers of the form that runs.
	peak, files int
	// lull is how long after the attack its files may stay open: the longest time-out that they wait for.
	lull time.Duration
	// prepare is what the attack needs and what is not yet one.
	prepare func(r *rig)
	// begin starts the attack, which goes on until end is called.
	begin func(r *rig) (end func())
	// crowded is true if connections that wait are closed, which a client that keeps some may come upon in the middle
	// of a request.
	crowded bool
	// after looks at what the attack has left.
	after func(r *rig)
	// ratio is what the bystander's p99 may grow by, in the full form.
	ratio float64
}

// result is a line of the table.
type result struct {
	name string
	// before and after are undisturbed.
	before, during, after []time.Duration
	idle                  usage
	peak, files           int
	left                  usage
	verdict               string
}

var results struct {
	sync.Mutex
	list []result
}

// p99Floor is what an undisturbed p99 counts for at least: below it, the ratio of two times is noise of the machine.
const p99Floor = 10 * time.Millisecond

// ratio is by what the p99 grew, of the larger of those before and after: a machine does other things too.
func (r result) ratio() float64 {
	undisturbed := max(percentile(r.before, 99), p99Floor)
	if len(r.after) > 0 {
		undisturbed = max(undisturbed, percentile(r.after, 99))
	}
	return float64(percentile(r.during, 99)) / float64(undisturbed)
}

// run has the attack in a world of its own.
func (a attack) run(t *testing.T) {
	t.Helper()
	r := newRig(t, a.settings)
	b := newBystander(r)
	var p *prober
	if !a.crowded {
		p = newProber(r)
	}
	a.on(t, r, b, p)
}

// on has the attack beside a subscription and, if it is not crowded, another that uses the API port.
func (a attack) on(t *testing.T, r *rig, b *bystander, p *prober) {
	t.Helper()
	if a.prepare != nil {
		a.prepare(r)
	}
	samples := inShort(4, size(100, 500))
	b.latencies(inShort(2, size(20, 100))) // connections are made, caches are warm
	res := result{name: a.name, before: b.latencies(samples), idle: usageOf(t, r.rev.Process), verdict: "fails"}
	defer func() {
		results.Lock()
		defer results.Unlock()
		results.list = append(results.list, res)
	}()

	files := watchFiles(t, r.rev.Process)
	end := sync.OnceFunc(a.begin(r))
	defer end()
	res.during = b.latencies(samples)
	if p != nil {
		p.use()
	}
	if a.after != nil {
		a.after(r)
	}
	end()
	res.files = files.stop() - res.idle.files
	res.peak = usageOf(t, r.rev.Process).peak
	if res.peak > a.peak {
		t.Errorf("the process took %d MiB, want at most %d", res.peak, a.peak)
	}
	if res.files > a.files {
		t.Errorf("the process had %d more files open than before, want at most %d", res.files, a.files)
	}
	if full {
		harness.Eventually(t, a.lull, "the files are closed again", func() error {
			if u := usageOf(t, r.rev.Process); u.files > res.idle.files+filesKept {
				return fmt.Errorf("%d are open, %d were before", u.files, res.idle.files)
			}
			return nil
		})
	}
	res.after = b.latencies(inShort(2, size(10, samples)))
	if ratio := res.ratio(); full && ratio > a.ratio {
		t.Errorf("the p99 of another subscription grew %.1f times, want at most %.1f (of at least %s)", ratio, a.ratio,
			p99Floor)
	}
	res.left = usageOf(t, r.rev.Process)
	if !t.Failed() {
		res.verdict = "holds"
	}
}

// filesKept is how many files may stay open after an attack: connections to Redis and upstream that are kept for the
// next use.
const filesKept = 300

func printResults() {
	results.Lock()
	defer results.Unlock()
	if len(results.list) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w,
		"attack\twakes\tp50 before\tp99 before\tp50 during\tp99 during\tp99 after\tratio\tRSS "+
			"before\tpeak\tafter\tfiles more\tafter\tverdict")
	for _, r := range results.list {
		if len(r.during) == 0 || len(r.after) == 0 {
			_, _ = fmt.Fprintf(w, "%s\t\t\t\t\t\t\t\t\t\t\t\t\t%s\n", r.name, r.verdict)
			continue
		}
		ms := func(list []time.Duration, p int) string {
			return fmt.Sprintf("%.1f ms", float64(percentile(list, p).Microseconds())/1000)
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%d MiB\t%d MiB\t%d MiB\t%d\t%d\t%s\n", r.name,
			len(r.during),
			ms(r.before, 50), ms(r.before, 99), ms(r.during, 50), ms(r.during, 99), ms(r.after, 99), r.ratio(),
			r.idle.rss, r.peak, r.left.rss, r.files, r.left.files-r.idle.files, r.verdict)
	}
	_ = w.Flush()
}
