package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

// benchConsumers is how many consumers the scripts are called for in turn, benchCallers how many calls are under way at
// once where they are sent ahead.
const (
	benchConsumers = 512
	benchCallers   = 256
)

// ahead sends commands of many callers together, so that Redis always has the next one before it.
type ahead struct {
	rdb   *redis.Client
	queue chan queued
}

type queued struct {
	cmd  redis.Cmder
	done chan<- struct{}
}

func newAhead(b *testing.B, addr string) *ahead {
	a := &ahead{
		rdb:   redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
		queue: make(chan queued, benchCallers),
	}
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(a.send)
	}
	b.Cleanup(func() {
		close(a.queue)
		senders.Wait()
		_ = a.rdb.Close()
	})
	return a
}

func (a *ahead) send() {
	for first := range a.queue {
		batch := []queued{first}
		for more := true; more && len(batch) < benchCallers/2; {
			select {
			case q, open := <-a.queue:
				if more = open; open {
					batch = append(batch, q)
				}
			default:
				more = false
			}
		}
		pipe := a.rdb.Pipeline()
		for _, q := range batch {
			_ = pipe.Process(context.Background(), q.cmd)
		}
		_, _ = pipe.Exec(context.Background()) // each command has its own error
		for _, q := range batch {
			close(q.done)
		}
	}
}

// DialHook implements redis.Hook.
func (*ahead) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (a *ahead) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		done := make(chan struct{})
		a.queue <- queued{cmd, done}
		<-done
		return cmd.Err()
	}
}

// ProcessPipelineHook implements redis.Hook.
func (*ahead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// benchRig is a store on a real redis-server, and consumers.
type benchRig struct {
	*redisstore.Store
	stats     *redis.Client
	callers   int
	consumers []*benchConsumer
}

type benchConsumer struct {
	rig  *benchRig
	path string
	end  int
	wake fsm.Delivery
}

func newBenchRig(b *testing.B, sentAhead bool) *benchRig {
	server := harness.StartRedis(b, "--appendonly", "yes", "--appendfsync", "everysec")
	rdb, closeRedis, err := redisstore.Connect(server.URL, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = closeRedis() })
	r := &benchRig{stats: redis.NewClient(&redis.Options{Addr: server.Addr}), callers: 1}
	b.Cleanup(func() { _ = r.stats.Close() })
	if sentAhead {
		rdb.AddHook(newAhead(b, server.Addr))
		r.callers = benchCallers
	}
	r.Store = redisstore.New(rdb, redisstore.Options{Timing: timing})
	for i := range benchConsumers {
		r.consumers = append(r.consumers, &benchConsumer{rig: r, path: fmt.Sprintf("/agents/task-%d", i)})
	}
	r.all(b, benchConsumers, (*benchConsumer).link)
	return r
}

// all calls something for the first n consumers.
func (r *benchRig) all(b *testing.B, n int, call func(*benchConsumer, context.Context) error) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for from := range min(r.callers, n) {
		wg.Go(func() {
			for i := from; i < n; i += r.callers {
				if err := call(r.consumers[i], ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func benchOffset(n int) fsm.Offset { return fsm.Offset(fmt.Sprintf("%016d_%016d", 0, n)) }

func (c *benchConsumer) link(ctx context.Context) error {
	_, err := memstore.Link(ctx, c.rig.Store, subscription("bench"), c.path, benchOffset(0), benchOffset(0))
	return err
}

func (c *benchConsumer) observe(ctx context.Context) error {
	c.end++
	o, err := c.rig.Observe(ctx, c.rig.PartitionOf(c.path), c.path, benchOffset(c.end), false)
	return c.woken(o.Outcome, err)
}

func (c *benchConsumer) woken(o fsm.Outcome, err error) error {
	if err == nil && len(o.Deliveries) != 1 {
		err = fmt.Errorf("%s: %d wakes, want 1", c.path, len(o.Deliveries))
	}
	if err == nil {
		c.wake = o.Deliveries[0]
	}
	return err
}

func (c *benchConsumer) finish(ctx context.Context) error {
	o, err := c.rig.Finish(ctx, c.wake.Ref(), c.wake.Streams)
	if err == nil && len(o.Idle) != 1 {
		err = fmt.Errorf("%s did not come to rest", c.path)
	}
	return err
}

func (c *benchConsumer) accept(ctx context.Context) error {
	_, err := c.rig.Accept(ctx, c.wake.Ref())
	return err
}

func (c *benchConsumer) park(ctx context.Context) error {
	_, err := c.rig.Park(ctx, c.wake.Ref(), fsm.BlockedSlot, time.Minute)
	return err
}

func (c *benchConsumer) begin(ctx context.Context) error {
	return c.woken(c.rig.Begin(ctx, c.wake.Ref(), "a"))
}

// callback sends what a worker does, with the tail that the API brings along.
func (c *benchConsumer) callback(ctx context.Context, cb fsm.Callback) error {
	cb.Consumer, cb.Primary, cb.Generation = c.wake.Ref().Consumer, c.wake.Primary, c.wake.Generation
	cb.Epoch, cb.TokenEpoch, cb.MaxStreams = c.wake.Epoch, c.wake.Epoch, 1000
	cb.Tails = map[string]fsm.Offset{c.path: benchOffset(c.end)}
	reply, err := c.rig.Callback(ctx, cb)
	if err == nil && reply.Code != "" {
		err = fmt.Errorf("%s: the callback was refused: %s", c.path, reply.Code)
	}
	return err
}

func (c *benchConsumer) claim(ctx context.Context) error {
	return c.callback(ctx, fsm.Callback{WakeID: c.wake.WakeID})
}

func (c *benchConsumer) ack(ctx context.Context) error {
	return c.callback(ctx, fsm.Callback{Acks: []fsm.Ack{{Path: c.path, Offset: benchOffset(c.end)}}})
}

func (c *benchConsumer) done(ctx context.Context) error {
	return c.callback(ctx, fsm.Callback{Done: true})
}

// BenchmarkScripts calls the scripts that wakes are made of as the program does, on consumers in the state that each is
// for: "single" one after the other, which is what a caller waits for, and "ahead" as fast as Redis can.
func BenchmarkScripts(b *testing.B) {
	type step = func(*benchConsumer, context.Context) error
	observe, claim, ack, done := (*benchConsumer).observe, (*benchConsumer).claim, (*benchConsumer).ack,
		(*benchConsumer).done
	finish, accept := (*benchConsumer).finish, (*benchConsumer).accept
	park, begin := (*benchConsumer).park, (*benchConsumer).begin
	for _, how := range []string{"single", "ahead"} {
		b.Run(how, func(b *testing.B) {
			r := newBenchRig(b, how == "ahead")
			for _, s := range []struct {
				name   string
				before []step
				call   step
				after  []step
			}{
				{"observe", nil, observe, []step{finish}},
				{"finish", []step{observe}, finish, nil},
				{"accept", []step{observe}, accept, []step{ack, done}},
				{"callback_claim", []step{observe}, claim, []step{ack, done}},
				{"callback_ack", []step{observe, claim}, ack, []step{done}},
				{"callback_done", []step{observe, claim, ack}, done, nil},
				{"park", []step{observe}, park, []step{begin, finish}},
				{"begin", []step{observe, park}, begin, []step{finish}},
			} {
				b.Run(s.name, func(b *testing.B) { r.bench(b, s.before, s.call, s.after) })
			}
		})
	}
}

// bench measures one step for all consumers again and again, with what comes before and after each time.
func (r *benchRig) bench(b *testing.B, before []func(*benchConsumer, context.Context) error,
	call func(*benchConsumer, context.Context) error, after []func(*benchConsumer, context.Context) error,
) {
	b.ReportAllocs()
	b.StopTimer()
	var inRedis time.Duration
	for left := b.N; left > 0; left -= benchConsumers {
		n := min(left, benchConsumers)
		for _, f := range before {
			r.all(b, n, f)
		}
		was := r.inScripts(b)
		b.StartTimer()
		r.all(b, n, call)
		b.StopTimer()
		inRedis += r.inScripts(b) - was
		for _, f := range after {
			r.all(b, n, f)
		}
	}
	b.ReportMetric(float64(inRedis.Microseconds())/float64(b.N), "redis-µs/op")
}

var callStat = regexp.MustCompile(`cmdstat_(?:fcall|evalsha):calls=\d+,usec=(\d+)`)

// inScripts is the time that Redis has spent in scripts that it had.
func (r *benchRig) inScripts(b *testing.B) time.Duration {
	info, err := r.stats.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	var all time.Duration
	for _, m := range callStat.FindAllStringSubmatch(info, -1) {
		usec, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		all += time.Duration(usec) * time.Microsecond
	}
	return all
}

// BenchmarkConcurrentCalls is what a script call costs this program while so many others are under way: an observation
// that wakes a consumer, and the end of its wake, by turns.
func BenchmarkConcurrentCalls(b *testing.B) {
	r := newBenchRig(b, false)
	for _, callers := range []int{1, 2, 4, 16, 64, 256} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			b.ReportAllocs()
			r.callers = callers
			var left atomic.Int64
			left.Store(int64(b.N))
			times := make([][]time.Duration, callers)
			spent, inRedis := cpuTime(b), r.redisTime(b)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					c, ctx := r.consumers[i], context.Background()
					for left.Add(-2) >= -1 {
						for _, call := range []func(*benchConsumer, context.Context) error{
							(*benchConsumer).observe,
							(*benchConsumer).finish,
						} {
							began := time.Now()
							if err := call(c, ctx); err != nil {
								b.Error(err)
								return
							}
							times[i] = append(times[i], time.Since(began))
						}
					}
				})
			}
			wg.Wait()
			all := slices.Sorted(slices.Values(slices.Concat(times...)))
			b.ReportMetric(float64((cpuTime(b)-spent).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64((r.redisTime(b)-inRedis).Nanoseconds())/1e3/float64(b.N), "redis-cpu-µs/op")
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
		})
	}
}

// cpuTime is what this process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var redisCPUStat = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

// redisTime is what Redis has used of the processors.
func (r *benchRig) redisTime(b *testing.B) (spent time.Duration) {
	info, err := r.stats.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range redisCPUStat.FindAllStringSubmatch(info, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		spent += time.Duration(seconds * float64(time.Second))
	}
	return spent
}

// BenchmarkTally counts the consumers of a subscription that has 100,000, of which 10,000 are pending, 1000 of them
// after failures.
func BenchmarkTally(b *testing.B) {
	const consumers, pending, failing = 100_000, 10_000, 1000
	r := newBenchRig(b, true)
	for i := len(r.consumers); i < consumers; i++ {
		r.consumers = append(r.consumers, &benchConsumer{rig: r, path: fmt.Sprintf("/agents/task-%d", i)})
	}
	r.all(b, consumers, (*benchConsumer).link)
	r.all(b, pending, (*benchConsumer).observe)
	r.all(b, failing, func(c *benchConsumer, ctx context.Context) error {
		_, err := r.Fail(ctx, c.wake.Ref(), fsm.Failure{Reason: "status 503"})
		return err
	})
	ctx, subs := context.Background(), []fsm.Subscription{subscription("bench")}
	was := r.inScripts(b)
	for b.Loop() {
		tallies, err := r.TallyConsumers(ctx, subs)
		if err != nil {
			b.Fatal(err)
		}
		if t := tallies[0]; t.Consumers != consumers || t.Pending != pending || t.Failing != failing {
			b.Fatalf("it counts %+v", t)
		}
	}
	b.ReportMetric(float64((r.inScripts(b)-was).Microseconds())/float64(b.N), "redis-µs/op")
}
