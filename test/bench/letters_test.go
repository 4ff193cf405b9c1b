package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/redisstore"
)

const (
	// longestScript is the aim of what a script on dead letters takes at most.
	longestScript = 5 * time.Millisecond
	// loggedScript is how long what Redis logs takes at least, loggedAtMost how many it keeps.
	loggedScript, loggedAtMost = 500 * time.Microsecond, 20_000
	// redisPriority is that of Redis's process, the first of all: what a script takes is to be its own.
	redisPriority = -20
	// deadAnswer is the body of the answer that letters have.
	deadAnswer = `{"error":"unknown customer","detail":"no customer 4711 in this region","see":"/e/4711"}`
	// tooMany is a setting by which there are never too many letters.
	tooMany = "REVEILLE_MAX_DEAD_LETTERS"
)

// letters measures what many dead letters cost, and what is done with them.
func letters(b *bench) {
	t := b.table("Dead letters",
		fmt.Sprintf("%d dead letters of %d streams of one subscription, each of one event, with an answer of %d "+
			"bytes. They were written in pipelines, as a script writes them (keep_letters), while no "+
			"replica ran. The replica then lists them by pages of 1000, replays %d of them one by one, is asked to "+
			"replay all (for %s, to the end of a request), drops the oldest half, because half as many are allowed "+
			"then, and discards all. Scripts are those of Redis's slow log, from %s on, which goes by the clock. So "+
			"Redis has the priority %d where the bench may give it that, and does not write its file anew: the fork "+
			"for that takes 10 ms here. The busiest of those on dead letters, and deliver, took most time in all. "+
			"Peaks are of the step.",
			b.letters, b.letterStreams, len(deadAnswer), b.sample, b.span, loggedScript, redisPriority),
		"step", "letters", "took", "letters/s", "busiest script", "calls", "p50", "p99", "longest of any", "over 5 ms",
		"RSS", "peak", "Redis", "Redis bytes a letter")
	b.in(tailed, 1, func(w *world) {
		k := &deadOnes{world: w, bench: b, table: t, id: prefix()[1:]}
		k.begin()
		k.step("write", k.write)
		k.step("start with them", func() int {
			w.startReveille(map[string]string{tooMany: strconv.Itoa(2 * b.letters)})
			return b.letters
		})
		var list []string
		k.step("list", func() int { list = k.list(); return len(list) })
		k.step("count", k.count)
		w.control(k.id, "resume")
		k.step("replay some", func() int { return k.replaySome(list) })
		k.step("ask for all", k.replayAll)
		w.control(k.id, "pause")
		left, half := k.count(), b.letters/2
		w.restartReveille(map[string]string{tooMany: strconv.Itoa(half)})
		k.step("drop the oldest", func() int { return left - k.dropTo(half) })
		k.step("discard", k.discard)
		b.aim("longest script on dead letters", k.longest.Seconds()*1000, "≤", longestScript.Seconds()*1000, " ms")
	})
}

// deadOnes is a world of dead letters.
type deadOnes struct {
	*world
	bench *bench
	table *table
	// id is that of the subscription, and the folder of its streams. paths are these, ends where they end.
	id       string
	paths    []string
	ends     []fsm.Offset
	receiver *receiver
	store    *redisstore.Store
	rdb      *redis.Client
	// empty is what Redis took without letters, longest what any script has taken.
	empty   int
	longest time.Duration
}

// control does what an operator can do to a subscription.
func (w *world) control(id, what string) {
	w.t.Helper()
	_, err := w.ask(http.MethodPost, w.revs[0].Operator+"/api/v1/subscriptions/"+id+"/"+what, "", "")
	w.check(err)
}

// begin makes streams, and a subscription that begins behind their events, and ends the replica.
func (k *deadOnes) begin() {
	k.t.Helper()
	for i := range k.bench.letterStreams {
		k.paths = append(k.paths, fmt.Sprintf("/%s/%d", k.id, i))
	}
	k.ends = make([]fsm.Offset, len(k.paths))
	k.receiver = newReceiver(k.t, nil)
	// Much is written at a time: no answer comes soon.
	k.rdb = redis.NewClient(&redis.Options{Addr: k.redis.Addr, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	k.t.Cleanup(func() { _ = k.rdb.Close() })
	k.store = redisstore.New(k.rdb, redisstore.Options{})
	k.check(k.each(len(k.paths), func(i int) error {
		// The replica gets to know of a stream with all its events in it: the subscription begins behind those.
		if _, err := k.ask(http.MethodPut, k.ref.StreamRoot+k.paths[i], "", ""); err != nil {
			return err
		}
		events := strings.TrimSuffix(strings.Repeat(eventStart+"0},", k.perStream()), ",")
		end, err := k.append(i, k.paths[i], "["+events+"]")
		k.ends[i] = fsm.Offset(end)
		if err != nil {
			return err
		}
		return k.operate(http.MethodPost, "streams", fmt.Sprintf(`{"streams":[%q]}`, k.paths[i]), nil)
	}))
	_, err := k.ask(http.MethodPut, k.api[0]+"/"+k.id+"/*?subscription="+k.id,
		fmt.Sprintf(`{"mode":"push","webhook":%q}`, k.receiver.url), "")
	k.check(err)
	if !k.bench.once(watchTime, func() bool { return k.backfilled(k.id) }) {
		k.check(fmt.Errorf("the consumers of %d streams were not made within %s", len(k.paths), watchTime))
	}
	k.check(k.rdb.ConfigSet(k.ctx, "slowlog-log-slower-than", strconv.Itoa(int(loggedScript.Microseconds()))).Err())
	k.check(k.rdb.ConfigSet(k.ctx, "slowlog-max-len", strconv.Itoa(loggedAtMost)).Err())
	// What Redis waits for a processor, or for a fork, is no script's time. Where the first is not allowed, the figures
	// are the worse for it.
	k.check(k.rdb.ConfigSet(k.ctx, "auto-aof-rewrite-percentage", "0").Err())
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, k.redis.Pid(), redisPriority)
	k.empty = k.redisMemory()
	k.step("none", func() int { return 0 })
	k.check(k.revs[0].Stop())
	k.revs, k.api = nil, nil
}

// write writes a letter of every event, by turns of the streams, as if they had died in the last day.
func (k *deadOnes) write() int {
	began := time.Now().Add(-24 * time.Hour).UnixMicro()
	k.check(k.each(len(k.paths), func(i int) error {
		path, n := k.paths[i], k.perStream()
		c, err := k.store.Consumer(k.ctx, fsm.RefOf(k.id, path))
		if err != nil {
			return err
		}
		prefix := fmt.Sprintf("rv:{%d}:", k.store.PartitionOf(path))
		var kept []any
		var numbers []redis.Z
		from, tail := fsm.Start, k.ends[i]
		if at := c.Links[path].Acked; at != tail {
			return fmt.Errorf("the consumer of %s is at %s, and the stream ends at %s", path, at, tail)
		}
		for e := range n {
			to := fsm.Start.At(int64(e+1), tail)
			if e+1 == n {
				to = tail
			}
			text, err := json.Marshal(map[string]any{ // redisstore.letter
				"g": c.Generation, "c": c.ID, "s": path, "o": c.Born, "d": fmt.Sprintf("evt_%020d_%d", i, e), "f": from,
				"t": to, "w": to, "n": 1, "a": 1, "k": "client_error", "r": "status 422", "h": 422, "b": deadAnswer,
			})
			if err != nil {
				return err
			}
			number := began + int64(e*len(k.paths)+i)
			kept = append(kept, number, "0 "+k.id+" "+string(text))
			numbers = append(numbers, redis.Z{Score: float64(number), Member: number})
			from = to
		}
		_, err = k.rdb.Pipelined(k.ctx, func(p redis.Pipeliner) error {
			p.HSet(k.ctx, prefix+"letters", kept...)
			p.ZAdd(k.ctx, prefix+"dead", numbers...)
			p.ZAdd(k.ctx, prefix+"dead:"+k.id, numbers...)
			p.HIncrBy(k.ctx, prefix+"dead_counts", k.id, int64(n))
			return nil
		})
		return err
	}))
	n := k.count()
	if n != k.bench.letters {
		k.t.Errorf("%d letters are kept, want %d", n, k.bench.letters)
	}
	return n
}

func (k *deadOnes) perStream() int { return k.bench.letters / k.bench.letterStreams }

func (k *deadOnes) count() (n int) {
	counts, err := k.store.CountDeadLetters(k.ctx)
	k.check(err)
	for _, c := range counts {
		n += c.Of[k.id]
	}
	return n
}

// operate asks the operator port, and decodes the answer.
func (k *deadOnes) operate(method, path, body string, into any) error {
	a, err := k.ask(method, k.revs[0].Operator+"/api/v1/"+path, body, "")
	if err == nil && into != nil {
		err = json.Unmarshal(a.body, into)
	}
	return err
}

func (k *deadOnes) list() (ids []string) {
	for next := ""; ; {
		var page struct {
			Letters []struct {
				ID string `json:"id"`
			} `json:"dead_letters"`
			Next string `json:"next"`
		}
		k.check(k.operate(http.MethodGet,
			"dead-letters?limit=1000&subscription="+k.id+"&cursor="+url.QueryEscape(next), "", &page))
		for _, l := range page.Letters {
			ids = append(ids, l.ID)
		}
		if next = page.Next; next == "" {
			if len(ids) != k.bench.letters {
				k.t.Errorf("%d letters are listed, want %d", len(ids), k.bench.letters)
			}
			return ids
		}
	}
}

// replaySome has some letters replayed, of all streams alike.
func (k *deadOnes) replaySome(list []string) int {
	came := k.receiver.came.Load()
	k.check(k.each(k.bench.sample, func(i int) error {
		id := list[i*len(list)/k.bench.sample]
		return k.operate(http.MethodPost, "dead-letters/"+id+"/replay", "", nil)
	}))
	if !k.bench.once(watchTime, func() bool { return int(k.receiver.came.Load()-came) >= k.bench.sample }) {
		k.t.Errorf("%d of %d replays have come", k.receiver.came.Load()-came, k.bench.sample)
	}
	return k.bench.sample
}

// replayAll begins to have all letters replayed, and returns how many are to be.
func (k *deadOnes) replayAll() (queued int) {
	came, began := k.receiver.came.Load(), time.Now()
	for next := ""; ; {
		var body struct {
			Queued, Refused int
			Next            string
		}
		request := fmt.Sprintf(`{"subscription":%q,"cursor":%q}`, k.id, next)
		k.check(k.operate(http.MethodPost, "dead-letters/replay", request, &body))
		if body.Refused > 0 {
			k.t.Errorf("%d letters cannot be replayed", body.Refused)
		}
		queued += body.Queued
		if next = body.Next; next == "" || time.Since(began) > k.bench.span {
			break
		}
	}
	progress("  %d came meanwhile", k.receiver.came.Load()-came)
	return queued
}

// dropTo waits until there are no more than so many, and returns how many there are.
func (k *deadOnes) dropTo(most int) (left int) {
	if !k.bench.once(watchTime, func() bool { left = k.count(); return left <= most }) {
		k.t.Errorf("%d letters are left, %d are allowed", left, most)
	}
	return left
}

func (k *deadOnes) discard() (n int) {
	for next := ""; ; {
		var body struct {
			Discarded int
			Next      string
		}
		request := fmt.Sprintf(`{"subscription":%q,"cursor":%q}`, k.id, next)
		k.check(k.operate(http.MethodPost, "dead-letters/discard", request, &body))
		if n, next = n+body.Discarded, body.Next; next == "" {
			break
		}
	}
	if left := k.count(); left > 0 {
		k.t.Errorf("%d letters are left", left)
	}
	return n
}

// step measures something that is done with dead letters, and returns how many those are.
func (k *deadOnes) step(name string, do func() int) {
	k.t.Helper()
	k.check(k.rdb.SlowLogReset(k.ctx).Err())
	k.resetPeak()
	began := time.Now()
	n := do()
	took := time.Since(began)
	busiest, calls, longest, over := k.slow()
	k.longest = max(k.longest, longest)
	left, memory := k.count(), k.redisMemory()
	each := "-"
	if left > 0 {
		each = decimal(float64(memory-k.empty) / float64(left))
	}
	k.table.row(name, n, took, float64(n)/took.Seconds(), busiest, len(calls), calls.percentile(50),
		calls.percentile(99), longest, over, k.resident("VmRSS"), k.resident("VmHWM"), mib(memory), each)
}

// slow returns, of the scripts that Redis has logged, the one that took most time in all and its calls, the longest
// call of any, and how many calls took longer than they should.
func (k *deadOnes) slow() (busiest string, calls samples, longest time.Duration, over int) {
	logged, err := k.rdb.SlowLogGet(k.ctx, -1).Result()
	k.check(err)
	k.check(k.rdb.SlowLogReset(k.ctx).Err()) // it takes memory
	all := map[string]samples{}
	for _, l := range logged {
		if len(l.Args) < 2 || strings.EqualFold(l.Args[0], "EVAL") {
			continue // a script's first call compiles it
		}
		name := redisstore.ScriptCalled(l.Args[1])
		if !strings.Contains(name, "letter") && name != "deliver" {
			continue
		}
		all[name] = append(all[name], l.Duration)
		longest = max(longest, l.Duration)
		if l.Duration > longestScript {
			over++
		}
	}
	var most time.Duration
	for name, s := range all {
		var sum time.Duration
		for _, d := range s {
			sum += d
		}
		if sum > most {
			busiest, calls, most = name, s, sum
		}
	}
	return cmp.Or(busiest, "-"), calls, longest, over
}

// redisMemory is what Redis has allocated, in bytes.
func (w *world) redisMemory() int {
	w.t.Helper()
	info, err := w.redis.Client().Info(w.ctx, "memory").Result()
	w.check(err)
	for line := range strings.Lines(info) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); found {
			n, err := strconv.Atoi(v)
			w.check(err)
			return n
		}
	}
	w.t.Fatal("INFO has no used_memory")
	return 0
}

// resident is the replica's resident memory by a name of /proc/PID/status: what it is now, or the peak since
// resetPeak.
func (k *deadOnes) resident(name string) string {
	if len(k.revs) == 0 {
		return "-"
	}
	kib, _, _ := strings.Cut(kernelSays(fmt.Sprintf("/proc/%d/status", k.revs[0].Pid()), name), " ")
	n, err := strconv.Atoi(kib)
	k.check(err)
	return mib(n << 10)
}

func (k *deadOnes) resetPeak() {
	if len(k.revs) > 0 {
		k.check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", k.revs[0].Pid()), []byte("5"), 0))
	}
}
