package crowd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

// copyScript makes consumers as copies of others, in a partition. Nobody watches their streams, and nothing is due.
// KEYS[1] prefix of the partition.
// ARGV consumer to copy, consumer, subscription, generation, stream, 1 for a dead letter or 2 for a replay, …
const copyScript = `
local P, lists = KEYS[1], { 'waiting', 'aside', 'retired', 'live', 'given_up', 'hidden', 'failing' }
for i = 1, #ARGV, 6 do
  local of, id, sub, gen, path = unpack(ARGV, i, i + 4)
  local record = redis.call('GET', P .. 'c:' .. of)
  local head, kept, links = string.match(record, '^([^\n]*\n[^\n]*\n)%S+ %S+ ([^\n]+)\n[^\n]+(\n.*)$')
  redis.call('SET', P .. 'c:' .. id, head .. sub .. ' ' .. gen .. ' ' .. kept .. '\n' .. path .. links)
  local rare = redis.call('HGETALL', P .. 'f:' .. of)
  if #rare > 0 then redis.call('HSET', P .. 'f:' .. id, unpack(rare)) end
  redis.call('SADD', P .. 'b:' .. sub .. ':' .. gen, id)
  for _, list in ipairs(lists) do
    local since = redis.call('ZSCORE', P .. list, of)
    if since then redis.call('ZADD', P .. list, since, id) end
  end
  if ARGV[i + 5] == '1' then
    local t = redis.call('TIME')
    local n = string.format('%.0f', t[1] * 1000000 + redis.call('ZCARD', P .. 'dead')) -- no retention ends
    redis.call('ZADD', P .. 'dead', n, n)
    redis.call('ZADD', P .. 'dead:' .. sub, n, n)
    redis.call('HINCRBY', P .. 'dead_counts', sub, 1)
    local letter = cjson.encode({ g = gen, c = id, s = path, r = 'status 400' })
    redis.call('HSET', P .. 'letters', n, '0 ' .. sub .. ' ' .. letter)
  elseif ARGV[i + 5] == '2' then
    redis.call('ZADD', P .. 'replays', 0, id)
    redis.call('ZADD', P .. 'r:' .. id, 1, 1)
  end
end`

// The states of the consumers that are copied.
const (
	idle = iota
	waking
	live
	failing
	retired
	hidden
	states
)

// crowd is a database with many subscriptions and consumers.
type crowd struct {
	redis *harness.Redis
	rdb   *redis.Client
	subs  []fsm.Subscription
	// consumers of each subscription. The first subscription has most of them.
	consumers []int
}

// fill makes the subscriptions, with their consumers and attempts.
func fill(t *testing.T, subscriptions, consumers int) *crowd {
	ctx := t.Context()
	c := &crowd{redis: harness.StartRedis(t)}
	c.rdb = c.redis.Client()
	rdb, end, err := redisstore.Connect(c.redis.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end() }()
	outcomes := router.New()
	s := redisstore.New(rdb, redisstore.Options{
		Partitions: partitions, DeliveryLog: fsm.LogAll, Outcomes: outcomes, Timing: memstore.DefaultTiming,
		ReplicaID: "filler",
	})
	for i := range subscriptions {
		id := fmt.Sprintf("s%05d", i)
		sub, _, err := s.CreateSubscription(ctx, fsm.Subscription{
			ID: id, Generation: "g" + id, Pattern: "/" + id + "/*", Webhook: "https://example.com/hook",
			Secret: "whsec_" + id,
		}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		c.subs = append(c.subs, sub)
	}
	c.copy(t, consumers, c.examples(t, s))
	c.log(t, s, outcomes)
	// The program is to do nothing but answer.
	gone := []string{"rv:{subs}:backfill"}
	for p := range partitions {
		gone = append(gone, fmt.Sprintf("rv:{%d}:watched", p), fmt.Sprintf("rv:{%d}:due", p),
			fmt.Sprintf("rv:{%d}:known", p))
	}
	if err := c.rdb.Del(ctx, gone...).Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

// examples makes a consumer in each state, in each partition, and returns their IDs.
func (c *crowd) examples(t *testing.T, s *redisstore.Store) (ids [partitions][states]string) {
	ctx, sub := t.Context(), c.subs[len(c.subs)-1]
	for state := range states {
		for p, n := 0, 0; p < partitions; n++ {
			path := fmt.Sprintf("/%s/example-%d-%d", sub.ID, state, n)
			if s.PartitionOf(path) != p {
				continue
			}
			tail := fsm.Offset("2")
			if state == idle {
				tail = "1"
			}
			o, err := memstore.Link(ctx, s, sub, path, "1", tail)
			if err != nil {
				t.Fatal(err)
			}
			for _, wake := range o.Deliveries {
				switch state {
				case live:
					_, err = s.Accept(ctx, wake.Ref())
				case failing, retired:
					_, err = s.Fail(ctx, wake.Ref(), fsm.Failure{Reason: "status 503", Retired: state == retired})
				case hidden:
					_, err = s.Hide(ctx, path, fsm.MissingAnew)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			ids[p][state] = fsm.ConsumerID(sub.ID, path)
			p++
		}
	}
	c.consumers = make([]int, len(c.subs))
	c.consumers[len(c.subs)-1] = partitions * states
	return ids
}

// copy makes consumers: more than one answer counts of the first subscription, and as many of each other.
func (c *crowd) copy(t *testing.T, consumers int, examples [partitions][states]string) {
	script, keys := redis.NewScript(copyScript), redisstore.New(nil, redisstore.Options{Partitions: partitions})
	var args [partitions][]any
	flush := func(p int) {
		err := script.Run(t.Context(), c.rdb, []string{fmt.Sprintf("rv:{%d}:", p)}, args[p]...).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		args[p] = nil
	}
	for i := range consumers {
		of := 0
		if i > max(consumers/4, 21_000) {
			of = i % len(c.subs)
		}
		sub := c.subs[of]
		path := fmt.Sprintf("/%s/%d", sub.ID, i)
		p, extra := keys.PartitionOf(path), 0
		if i%10 == 0 {
			extra = 1 + i/10%2
		}
		// Every second one is not idle.
		state, turn := idle, i+i/len(c.subs)
		if turn%2 == 0 {
			state = 1 + turn/2%(states-1)
		}
		args[p] = append(args[p], examples[p][state], fsm.ConsumerID(sub.ID, path), sub.ID, sub.Generation, path, extra)
		c.consumers[of]++
		if len(args[p]) >= 6*200 {
			flush(p)
		}
	}
	for p := range args {
		flush(p)
	}
}

// log keeps attempts of each subscription. Those of the first subscriptions are the oldest.
func (c *crowd) log(t *testing.T, s *redisstore.Store, outcomes *router.Router) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	for i, sub := range c.subs {
		for n := range 2 {
			path := fmt.Sprintf("/%s/%d", sub.ID, n)
			outcomes.Attempted(fsm.Attempt{
				Delivery: fsm.Delivery{
					Subscription: sub.ID, Generation: sub.Generation, Consumer: fsm.ConsumerID(sub.ID, path),
					Primary: path, WakeID: fmt.Sprintf("w_%d_%d", i, n), Attempt: 1,
				},
				Began: time.Now(), Result: fsm.AttemptDone, Sent: true, DeliveryID: fmt.Sprintf("evt_%d_%d", i, n),
			})
		}
		if i%1000 != 999 && i != len(c.subs)-1 {
			continue
		}
		harness.Eventually(t, harness.Wait, "the attempts are logged", func() error {
			ids, _, err := s.LatestLogs(ctx, time.Time{}, len(c.subs))
			if err == nil && len(ids) <= i {
				err = fmt.Errorf("there are %d logs", len(ids))
			}
			return err
		})
	}
	if err := s.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
}

// carriedOut is how many commands Redis has carried out, also those in scripts, and how many bytes it has answered.
func (c *crowd) carriedOut(t *testing.T) (commands, bytes int) {
	t.Helper()
	info, err := c.rdb.InfoMap(t.Context(), "commandstats", "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, stats := range info["Commandstats"] {
		var n int
		_, _ = fmt.Sscanf(stats, "calls=%d,", &n)
		commands += n
	}
	_, _ = fmt.Sscan(info["Stats"]["total_net_output_bytes"], &bytes)
	return commands, bytes
}
