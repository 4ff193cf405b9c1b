package fault

import (
	"slices"
	"testing"
	"time"
)

// brokenSettle is how long a broken build is waited for to come to rest: longer than any of its deadlines.
const brokenSettle = 2 * livenessTimeout

// TestTheCheckerCatchesBrokenBuilds has the world run on builds of Reveille in each of which one thing is wrong.
func TestTheCheckerCatchesBrokenBuilds(t *testing.T) {
	for _, b := range []struct {
		name   string
		patch  patch
		faults func(*world, time.Duration)
		want   string
	}{
		{
			name: "a synchronous done acks the tail at the time of the answer",
			patch: patch{
				"redisstore/lua/finish.lua",
				"if l and not after(seen, l.tail) then ack(c, ARGV[A + 4 + 2 * i], seen) end",
				"if l then ack(c, ARGV[A + 4 + 2 * i], l.tail) end",
			},
			// On a busy machine few requests have an event come in the middle, and few workers come back too late.
			faults: func(w *world, span time.Duration) { misbehave(behaviour{linger: 2 * time.Second})(w, 4*span) },
			want:   ruleLost,
		},
		{
			name: "each attempt has a wake id of its own",
			patch: patch{
				"redisstore/lua/lib.lua", "local function hand_out(c)\n",
				"local function hand_out(c)\n  c.wake = 'w_' .. string.sub(redis.sha1hex(NONCE .. c.id), 1, 20)\n",
			},
			faults: misbehave(behaviour{status: 500}), want: ruleWakeID,
		},
		{
			name: "the epoch does not rise",
			patch: patch{
				"redisstore/lua/lib.lua", "  c.epoch = math.max(c.epoch, base) + 1\n",
				"  c.epoch = math.max(c.epoch, 1)\n",
			},
			faults: nothing, want: ruleRepeated,
		},
		{
			name: "epochs do not jump over what Redis has lost",
			patch: patch{
				"redisstore/lua/lib.lua", "local function fence()\n",
				"local function fence()\n  if true then return 0 end\n",
			},
			faults: restoreBackup, want: ruleRepeated,
		},
		{
			name:   "a consumer has one wake id for ever",
			patch:  patch{"redisstore/lua/lib.lua", "redis.sha1hex(NONCE .. c.id)", "redis.sha1hex(c.id)"},
			faults: nothing, want: ruleReused,
		},
		{
			name: "callbacks of older epochs are accepted",
			patch: patch{
				"redisstore/lua/callback.lua",
				"if epoch ~= c.epoch or token_epoch ~= c.epoch then return reply(refuse('STALE_EPOCH')) end",
				"",
			},
			faults: func(w *world, span time.Duration) { misbehave(behaviour{stall: 0.5})(w, 4*span) },
			want:   ruleZombie,
		},
		{
			name: "a wake takes back what was acknowledged",
			patch: patch{
				"redisstore/lua/lib.lua", "  c.moved, c.attempt, c.sent = 0, 0, 0\n",
				"  c.moved, c.attempt, c.sent = 0, 0, 0\n  if links(c)[c.primary] then links(c)[c.primary].acked = " +
					"'-1' end\n",
			},
			faults: nothing, want: ruleBack,
		},
		{
			name:   "a consumer that is awake has no deadline",
			patch:  patch{"redisstore/lua/lib.lua", "if c.hidden == 0 then c.due = now + LIVENESS end", "c.due = 0"},
			faults: misbehave(behaviour{crash: 0.5}), want: ruleFinal,
		},
		{
			name: "a stream that answers 404 once is gone",
			patch: patch{
				"redisstore/lua/hide.lua", "    c.hidden, c.due = now, now + GRACE\n    save(c)\n",
				"    remove(c, 'stream_gone')\n",
			},
			faults: loseUpstream, want: ruleGone,
		},
		{
			name: "an offset within the stream is refused",
			patch: patch{
				"redisstore/lua/callback.lua", "moves(l, a[2]) and after(a[2], l.tail)", "moves(l, a[2])",
			},
			faults: nothing, want: ruleRefused,
		},
		{
			name: "wakes are signed with something else",
			patch: patch{
				"dispatcher/format/sign.go", "hex.EncodeToString(signature([]byte(secret), unix, body))",
				`hex.EncodeToString(signature([]byte(secret+"x"), unix, body))`,
			},
			faults: nothing, want: ruleForged,
		},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chosenSeed(t), options{binary: buildPatched(t, b.name, b.patch)})
			stop := w.load()
			b.faults(w, shortSpan)
			w.revive()
			stop()
			v := w.settle(brokenSettle)
			if !slices.ContainsFunc(v.Violations, func(x violation) bool { return x.Rule == b.want }) {
				t.Errorf("the checker found %v in %d events and %d wakes, want also %q", v.Violations, v.Events,
					v.Wakes, b.want)
			}
		})
	}
}
