package property

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"reveille/fsm/token"
	"reveille/redisstore"
	"reveille/test/harness"
)

// huntedHistories bounds how many histories it may take to find a broken script, and soundHistories is how many are
// played with scripts that are right. The short form plays hastyHistories with the latter; of the former it sees that
// they can still be broken, and compile. Histories are always the same.
const huntedHistories, hastyHistories, soundHistories = 4000, 1, 40

// brokenPushes are about what a subscription's profile and deliveries of ModePush change.
var brokenPushes = []harness.BrokenScript{
	{
		Name: "the delays of a profile are not varied", File: "redisstore/lua/library/schedule.lua",
		Old: "return math.floor(least + span * JITTER / FSM.JITTER_SPAN)", New: "return d",
	},
	{
		Name: "failures give up a consumer that lasts", File: "redisstore/lua/library/transitions.lua",
		Old: "elseif last and not lasting then", New: "elseif last then",
	},
	{
		Name: "an attempt that nobody has reported counts", File: "redisstore/lua/library/wake.lua",
		Old: "c.attempt, c.sent = c.attempt - 1, 0", New: "c.sent = 0",
	},
	{
		Name: "what is reported of an attempt that was taken back counts", File: "redisstore/lua/fail.lua",
		Old: "attempt_out(c, handed)", New: "attempt_out(c, c.handed)",
	},
	{
		Name: "what the first attempt has brought is forgotten", File: "redisstore/lua/library/wake.lua",
		Old: "if tonumber(epoch) == c.epoch then span = tonumber(n) end", New: "",
	},
	{
		Name: "a changed profile does not count", File: "redisstore/lua/library/transitions.lua",
		Old: "  if profile == (c.profile or '') then return end\n", New: "  if true then return end\n",
	},
	{
		Name: "what a former attempt has not sent counts", File: "redisstore/lua/deliver.lua",
		Old: "attempt_out(c, handed)", New: "attempt_out(c, c.handed)",
	},
	{
		Name: "a delivery acks all of the stream", File: "redisstore/lua/deliver.lua",
		Old: "ack(c, path, to)", New: "ack(c, path, l.tail)",
	},
	{
		Name: "a delivery goes on from another offset than one that was sent again", File: "redisstore/lua/deliver.lua",
		Old: "behind(c, to, within)", New: "to",
	},
	{
		Name: "a consumer that is made anew passes for the old one", File: "redisstore/lua/library/consumer.lua",
		Old: "profile and epoch or 0,", New: "0,",
	},
	{
		Name: "what has failed is released as if it had not", File: "redisstore/lua/release_held.lua",
		Old: "      set_nudged(c, c.due)\n", New: "",
	},
	{
		Name: "what was nudged is nudged again", File: "redisstore/lua/release_held.lua",
		Old: "      return\n", New: "      set_nudged(c, c.due)\n",
	},
	{
		Name: "a nudge that was not used is the last", File: "redisstore/lua/release_held.lua",
		Old: "elseif nudged <= now() then", New: "else",
	},
	{
		Name: "a nudged attempt counts", File: "redisstore/lua/library/transitions.lua",
		Old: "elseif began_at < nudged then", New: "elseif false then",
	},
	{
		Name: "a nudge puts off the next attempt", File: "redisstore/lua/library/transitions.lua",
		Old: "now() + math.max(nudged - now(), wait)", New: "now() + nudged - began_at + wait",
	},
	{
		Name: "an endpoint that was nudged asks for a pause in vain", File: "redisstore/lua/library/transitions.lua",
		Old: "now() + math.max(nudged - now(), wait)", New: "nudged",
	},
	{
		Name: "no attempt counts once there was a nudge", File: "redisstore/lua/library/transitions.lua",
		Old: "if not probed then set_nudged(c, now()) end", New: "set_nudged(c, nudged)",
	},
	{
		Name: "what was nudged once is never nudged again", File: "redisstore/lua/library/transitions.lua",
		Old: "  if nudged > 0 then set_nudged(c, 0) end\n", New: "",
	},
	{
		Name: "a nudge is of the wakes that follow, too", File: "redisstore/lua/library/wake.lua",
		Old: "if tonumber(epoch) ~= c.epoch then return", New: "if not epoch then return",
	},
	{
		Name: "a nudged attempt passes for the last one", File: "redisstore/lua/library/wake.lua",
		Old: "c.attempt > 1 and now() < (nudged_of(c)) and 1 or 0", New: "0",
	},
	{
		Name: "a probe counts", File: "redisstore/lua/probe_delivery.lua",
		Old: "set_nudged(c, c.due, true)", New: "",
	},
	{
		Name: "a probe of what is overdue does not count", File: "redisstore/lua/probe_delivery.lua",
		Old: "elseif c.parked == 0 then", New: "else",
	},
	{
		Name: "a probe that fails passes for a nudge", File: "redisstore/lua/library/transitions.lua",
		Old: "if not probed then set_nudged(c, now()) end", New: "set_nudged(c, now())",
	},
	{
		Name: "an attempt that is out is probed", File: "redisstore/lua/longest_waiting.lua",
		Old: "c.gen == gen and waits(c)", New: "c.gen == gen",
	},
	{
		Name: "an attempt that an operator asks for does not count", File: "redisstore/lua/retry.lua",
		Old: "  set_nudged(c, 0)\n", New: "",
	},
	{
		Name: "an operator asks in vain", File: "redisstore/lua/retry.lua",
		Old: "  c.due = now()\n", New: "",
	},
	{
		Name: "a wake is retried that is over", File: "redisstore/lua/retry_delivery.lua",
		Old: "current(record, consumer, epoch, wake)", New: "record(consumer)",
	},
	{
		Name: "a wake is retried in vain", File: "redisstore/lua/retry_delivery.lua",
		Old: "c.due = now()\n", New: "",
	},
	{
		Name: "a pause goes on though an operator asks", File: "redisstore/lua/retry_endpoint.lua",
		Old: "e.pause = 0\n", New: "",
	},
	{
		Name: "a pause is kept by subscription only", File: "redisstore/lua/fail_endpoint.lua",
		Old: "  redis.call('ZADD', pauses_key, string.format('%.0f', till), origin)\n", New: "",
	},
	{
		Name: "a pause becomes shorter", File: "redisstore/lua/fail_endpoint.lua",
		Old: "till > paused()", New: "till > 0",
	},
	{
		Name: "a pause holds for the subscription that was asked only", File: "redisstore/lua/probe_endpoint.lua",
		Old: "math.max(e.pause, paused())", New: "e.pause",
	},
	{
		Name: "the pause of an origin goes on though an operator asks", File: "redisstore/lua/retry_endpoint.lua",
		Old: "redis.call('ZREM', pauses_key, origin) == 1", New: "false",
	},
	{
		Name: "an operator has a probe sent beside the one that is out", File: "redisstore/lua/retry_endpoint.lua",
		Old: " and e.probing == 0 then e.next = now", New: " then e.next, e.probing = now, 0",
	},
	{
		Name: "an operator has no probe sent", File: "redisstore/lua/retry_endpoint.lua",
		Old: "e.next = now", New: "",
	},
	{
		Name: "a probe that fails does not lengthen the pause", File: "redisstore/lua/fail_endpoint.lua",
		Old: "e.probes = e.probes + 1", New: "",
	},
	{
		Name: "a 2xx ends a pause", File: "redisstore/lua/recover_endpoint.lua",
		Old: "e.pause > now and e.pause or 0", New: "0",
	},
	{
		Name: "an endpoint that is up ends the wait for its rate", File: "redisstore/lua/release_held.lua",
		Old: "elseif stays(held) then", New: "elseif held == 'consent' then",
	},
	{
		Name: "a resumption ends the wait for a rate", File: "redisstore/lua/resume.lua",
		Old: "and not stays(held_of(c))", New: "and held_of(c) ~= 'consent'",
	},
	{
		Name: "an endpoint that is up ends the wait for its consent", File: "redisstore/lua/release_held.lua",
		Old: "elseif stays(held) then", New: "elseif held == 'rate' then",
	},
	{
		Name: "a resumption ends the wait for a consent", File: "redisstore/lua/resume.lua",
		Old: "and not stays(held_of(c))", New: "and held_of(c) ~= 'rate'",
	},
	{
		Name: "a consent ends any wait", File: "redisstore/lua/release_held.lua",
		Old: "if held ~= 'consent' then return end", New: "",
	},
	{
		Name: "two probes are out at a time", File: "redisstore/lua/probe_endpoint.lua",
		Old: "e.next > now", New: "e.probing == 0 and e.next > now",
	},
	{
		Name: "an attempt is begun by a caller that does not have it", File: "redisstore/lua/begin.lua",
		Old: "c.handed == tonumber(handed)", New: "true",
	},
	{
		Name: "an attempt that was not begun is lost to the caller that has it", File: "redisstore/lua/begin.lua",
		Old: "(out or c.attempt", New: "(not out and c.attempt",
	},
	{
		Name: "an attempt is begun twice where a reply was lost", File: "redisstore/lua/begin.lua",
		Old: "redis.call('HSET', P .. 'f:' .. c.id, 'holder', held_by())", New: "",
	},
	{
		Name: "time in which an attempt is parked counts as failure", File: "redisstore/lua/park.lua",
		Old: "c.parked = now()", New: "c.parked = 0",
	},
	{
		Name: "a retry that was held back is not released", File: "redisstore/lua/resume.lua",
		Old: "(c.attempt == 0 or c.parked > 0)", New: "c.attempt == 0",
	},
	{
		Name: "a resumption takes retries for held back", File: "redisstore/lua/resume.lua",
		Old: "(c.attempt == 0 or c.parked > 0) and", New: "",
	},
}

// brokenLink is about a link that was decided before a subscription was deleted, and comes after that.
var brokenLink = harness.BrokenScript{
	Name: "a deleted subscription gets a consumer", File: "redisstore/lua/link_stream.lua",
	Old: "if not sure then", New: "if false then",
}

// brokenRewinds are about a consumer that is led back.
var brokenRewinds = []harness.BrokenScript{
	{
		Name: "a rewind leads forward", File: "redisstore/lua/rewind.lua",
		Old: "after(l.acked, to)", New: "l.acked ~= to",
	},
	{
		Name: "a rewind fences nobody off", File: "redisstore/lua/rewind.lua",
		Old: "begin_again(c, 'rewound')", New: "wake_if_pending(c)",
	},
	{
		Name: "a rewound consumer is still stalled", File: "redisstore/lua/rewind.lua",
		Old: "c.stalled = 0\n", New: "",
	},
}

// brokenFailures are about when an attempt has failed whose request may be open.
var brokenFailures = []harness.BrokenScript{
	{
		Name: "an attempt has failed while its request may be open", File: "redisstore/lua/due.lua",
		Old: "math.max(now(), request_ends(c))", New: "now()",
	},
	{
		Name: "a reported failure waits for the request of another attempt",
		File: "redisstore/lua/library/transitions.lua",
		Old:  "if c.failing == 0 or c.failing > from then", New: "if c.failing == 0 then",
	},
	{
		Name: "the retired are pending if they are looked at one by one", File: "redisstore/lua/tally_each.lua",
		Old: "c.state == 'waking' and c.retired == 0", New: "c.state == 'waking'",
	},
	{
		Name: "what is yet to fail is counted", File: "redisstore/lua/tally.lua",
		Old: "if has_failed then t.failing", New: "if true then t.failing",
	},
	{
		Name: "the time before the first failure is taken from the clock", File: "redisstore/lua/library/wake.lua",
		Old: "math.max(since, c.failing)", New: "since",
	},
}

// What ends a history in which something is looked for: what was looked for, or a call that failed.
type (
	disagreement string
	failure      struct{ error }
)

// TestHistoriesFindABrokenScript holds that the comparison is worth something: of each of these scripts, in which one
// thing is wrong, some history shows it. Of the scripts as they are, put together in the same way, none shows anything.
func TestHistoriesFindABrokenScript(t *testing.T) {
	server := harness.StartRedis(t)
	tokens, err := token.New(strings.Repeat("k", token.MinKey))
	if err != nil {
		t.Fatal(err)
	}
	usual := slices.Concat([]harness.BrokenScript{{Name: "none"}, brokenLink}, brokenPushes, brokenFailures,
		brokenRewinds, harness.BrokenScripts)
	beside := []harness.BrokenScript{{Name: "none beside asides"}}
	besides := slices.Concat(usual, beside, brokenAsides, brokenLetters, brokenOutbox)
	for i, b := range slices.Concat(besides, []harness.BrokenScript{{Name: "none as much is lost"}}, brokenLost) {
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			if !testing.Short() {
				t.Parallel()
			}
			breaker := newBreaker(t, b)
			broken, histories := b.Old != "", huntedHistories
			switch {
			case broken && testing.Short():
				breaker.compile(server.Client())
				return
			case testing.Short():
				histories = hastyHistories
			case !broken:
				histories = soundHistories
			}
			rdb := harness.StartRedis(t).Client()
			rdb.AddHook(breaker)
			number, found := hunt(t, rdb, tokens, histories, i >= len(usual), i >= len(besides))
			switch {
			case broken && found == "":
				t.Errorf("none of %d histories shows it", histories)
			case !broken && found != "":
				t.Errorf("history %d shows something in scripts that are right: %s", number, found)
			case broken:
				t.Logf("history %d shows it: %s", number, found)
			}
		})
	}
}

// hunt plays histories, with or without asides, and with or without what is lost, until one finds something, and
// returns which and what.
func hunt(
	t *testing.T, rdb *redis.Client, tokens *token.Tokens, histories int, aside, lost bool,
) (number int, found string) {
	t.Helper()
	var failed error
	one := rapid.Custom(func(rt *rapid.T) (found string) {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case disagreement:
				found = string(p)
			case failure:
				// A broken one may break down, but it has to be a script.
				if failed = p; strings.Contains(p.Error(), "user_script") && !strings.Contains(p.Error(), "compiling") {
					failed, found = nil, p.Error()
				}
			default:
				panic(p)
			}
		}()
		h := newHistory(t.Context(), rt, rdb, tokens, aside)
		h.hunting, h.lost = true, lost
		h.play()
		return ""
	})
	for number = 1; number <= histories; number++ {
		found = one.Example(number)
		if failed != nil {
			t.Fatalf("history %d: %v", number, failed)
		}
		if found != "" {
			break
		}
	}
	return number, found
}

const libraryFolder = "redisstore/lua/library/"

// breaker stands between the store and Redis and puts other scripts in the place of those that are sent. It refuses
// functions, so that each script is sent.
type breaker struct {
	t     *testing.T
	patch harness.BrokenScript
	// library is redisstore.Library, with the patch if that is about the library.
	library string
	// hashes of what was put in the place of others, by the others'.
	hashes map[string]string
}

// newBreaker fails if what a script is broken by is not there: the code has moved on, and the patch has to follow.
func newBreaker(t *testing.T, b harness.BrokenScript) *breaker {
	t.Helper()
	br := &breaker{t: t, patch: b, library: redisstore.Library(), hashes: map[string]string{}}
	if b.Old == "" {
		return br
	}
	text := luaFile(t, b.File)
	if strings.HasPrefix(b.File, libraryFolder) {
		text = br.library
		br.library = br.patched(b.File, text)
	}
	if n := strings.Count(text, b.Old); n != 1 {
		t.Fatalf("%s has %q %d times, want once", b.File, b.Old, n)
	}
	return br
}

// compile fails if the broken script is none.
func (b *breaker) compile(rdb *redis.Client) {
	b.t.Helper()
	script := ""
	if !strings.HasPrefix(b.patch.File, libraryFolder) {
		script = b.patched(b.patch.File, luaFile(b.t, b.patch.File))
	}
	if err := rdb.ScriptLoad(b.t.Context(), redisstore.WithLibrary(b.library, script)).Err(); err != nil {
		b.t.Error(err)
	}
}

// luaFile reads a file of the repository.
func luaFile(t *testing.T, name string) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// broken returns what takes the place of a script.
func (b *breaker) broken(text string) string {
	name := redisstore.ScriptCalled(text)
	if name == "" {
		b.t.Errorf("no script of the store: %.100s", text)
	}
	file := "redisstore/lua/" + name + ".lua"
	if strings.Contains(text, redisstore.Library()) {
		return redisstore.WithLibrary(b.library, b.patched(file, luaFile(b.t, file)))
	}
	return b.patched(file, text)
}

func (b *breaker) patched(file, text string) string {
	if file != b.patch.File {
		return text
	}
	return strings.Replace(text, b.patch.Old, b.patch.New, 1)
}

func (b *breaker) change(cmd redis.Cmder) error {
	args := cmd.Args()
	switch cmd.Name() {
	case "fcall":
		cmd.SetErr(noFunctions)
		return noFunctions
	case "eval":
		text := fmt.Sprint(args[1])
		instead := b.broken(text)
		b.hashes[hashOf(text)] = hashOf(instead)
		args[1] = instead
	case "evalsha":
		if hash, known := b.hashes[fmt.Sprint(args[1])]; known {
			args[1] = hash
		}
	}
	return nil
}

// refusal is an answer of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}

const noFunctions = refusal("ERR unknown command 'fcall'")

// hashOf is what Redis calls a script.
func hashOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (*breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := b.change(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (b *breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var sent []redis.Cmder
		for _, cmd := range cmds {
			if b.change(cmd) == nil {
				sent = append(sent, cmd)
			}
		}
		if len(sent) == 0 {
			return noFunctions
		}
		return next(ctx, sent)
	}
}
