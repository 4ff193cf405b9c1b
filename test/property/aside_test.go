package property

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/test/harness"
)

// brokenAsides are about deliveries that step aside. They are looked for in histories that have some.
var brokenAsides = []harness.BrokenScript{
	{
		Name: "the stream does not go on behind what steps aside", File: "redisstore/lua/library/transitions.lua",
		Old: "  ack(c, c.primary, behind(c, to, within))\n", New: "",
	},
	{
		Name: "an aside has all of the stream", File: "redisstore/lua/library/consumer.lua",
		Old: "tail = c.ends or tail_of(c.primary)", New: "tail = tail_of(c.primary)",
	},
	{
		Name: "an aside outlives its consumer", File: "redisstore/lua/library/consumer.lua",
		Old: "ids[#ids + 1], epoch = id, math.max(epoch, aside and aside.epoch or 0)", New: "",
	},
	{
		Name: "an aside is not counted out", File: "redisstore/lua/library/consumer.lua",
		Old: "redis.call('SREM', P .. 'x:' .. owner, c.id)", New: "",
	},
	{
		Name: "an aside that is done stays", File: "redisstore/lua/library/steps.lua",
		Old: "elseif c.owner and not pending(c) then", New: "elseif false then",
	},
	{
		Name: "an aside begins its schedule anew", File: "redisstore/lua/library/transitions.lua",
		Old: "aside.uncounted = c.attempt, c.due,", New: "aside.uncounted = 0, c.due,",
	},
	{
		Name: "a nudged attempt that steps aside counts", File: "redisstore/lua/library/transitions.lua",
		Old: "  if nudged > 0 then set_nudged(aside, nudged, probed) end\n", New: "",
	},
	{
		Name: "an aside gives its events other ids", File: "redisstore/lua/library/consumer.lua",
		Old: "aside and aside.born or profile and epoch", New: "profile and epoch",
	},
	{
		Name: "what was answered by 410 steps aside", File: "redisstore/lua/fail.lua",
		Old: "not retired and steps_aside", New: "steps_aside",
	},
	{
		Name: "an aside is retried while its stream is gone", File: "redisstore/lua/due.lua",
		Old: "c.retired == 0 and is_away(c) then", New: "false then",
	},
	{
		Name: "an aside does not count for its subscription", File: "redisstore/lua/library/consumer.lua",
		Old: "count_asides(gen, c.replay > 0 and 0 or 1, c.replay > 0 and 1 or 0)", New: "",
	},
	{
		Name: "a callback is taken for an aside", File: "redisstore/lua/callback.lua",
		Old: "or c.owner ", New: "",
	},
}

// push has an attempt that is out fail or arrive, of a subscription whose deliveries step aside, or of an aside.
func (h *history) push() {
	for _, wake := range slices.Backward(h.refs) {
		c, there := h.db.Consumer(wake.Consumer)
		if !there || !spec.Out(c, wake.Ref()) || !c.Profile.Aside {
			continue
		}
		end := rapid.IntRange(0, 7).Draw(h.t, "how it ends")
		if c.IsAside() && end > 3 {
			end = 0 // what has stepped aside fails seldom enough to leave something behind
		}
		switch end {
		case 0:
			h.deliver(wake)
		case 1:
			cb := h.callbackOf(wake) // of which it knows nothing
			cb.WakeID, cb.Done = wake.WakeID, true
			h.call(cb)
		default:
			f := fsm.Failure{Reason: "status 500", Profile: c.Profile, Span: int64(h.calls % 3), Retired: end == 2}
			f.To, f.Within, f.Tail = h.brought(wake)
			h.failed(wake, f)
		}
		return
	}
}

// asideWaits has the stream of an aside gone, and goes on to the aside's deadline.
func (h *history) asideWaits() {
	for _, c := range h.db.Consumers() {
		if !c.IsAside() || c.Deadline.IsZero() {
			continue
		}
		got, err := h.store.Hide(h.ctx, c.Primary, fsm.Missing)
		h.must(err)
		want, err := h.spec.Hide(h.ctx, c.Primary, fsm.Missing)
		h.must(err)
		h.outcome("hide", got, want)
		if c.Deadline.After(h.draw.Now) {
			h.draw.Now = c.Deadline
		}
		h.newNonce()
		h.dueAt(false)
		return
	}
}

// nudgedPush has an attempt that is out fail and wait, and the one that is nudged then step aside.
func (h *history) nudgedPush() {
	for _, wake := range slices.Backward(h.refs) {
		c, there := h.db.Consumer(wake.Consumer)
		i := slices.IndexFunc(h.subs, func(s fsm.Subscription) bool { return s.Generation == wake.Generation })
		if !there || i < 0 || !spec.Out(c, wake.Ref()) || !c.Profile.Aside || c.IsAside() {
			continue
		}
		h.failed(wake, fsm.Failure{Reason: "status 503", Profile: c.Profile, RetryAfter: 2 * time.Minute})
		h.newNonce()
		h.releaseHeld(h.subs[i])
		from := len(h.refs)
		h.newNonce()
		h.dueAt(false)
		for _, wake := range h.refs[from:] {
			f := fsm.Failure{Reason: "status 500", Profile: c.Profile, Span: 1}
			f.To, f.Within, f.Tail = h.brought(wake)
			h.newNonce()
			h.failed(wake, f)
		}
		return
	}
}

// asidesAgree compares the asides. How many there are is part of the consumers that they are of.
func (h *history) asidesAgree(kind string) {
	of := map[string]int{}
	for _, want := range h.db.Consumers() {
		if !want.IsAside() {
			continue
		}
		of[want.Owner]++
		got, err := h.store.Consumer(h.ctx, want.Ref())
		h.must(err)
		h.same("after "+kind+": aside "+want.ID, got, want)
		h.sound(got)
		for path, l := range got.Links {
			if path != got.Primary || !l.Pending() {
				h.fail("after %s: an aside is to bring what it has not: %+v", kind, got)
			}
		}
	}
	bySub := map[string]string{}
	for _, c := range h.db.Consumers() {
		if !c.IsAside() {
			continue
		}
		field := c.Generation
		if c.Replay != 0 {
			field += ":replays"
		}
		n, _ := strconv.Atoi(bySub[field])
		bySub[field] = strconv.Itoa(n + 1)
	}
	if kept, err := h.rdb.HGetAll(h.ctx, "rv:{0}:asides").Result(); err != nil || !maps.Equal(kept, bySub) {
		h.fail("after %s: the asides of subscriptions are %v, they count as %v, %v", kind, bySub, kept, err)
	}
	for id, n := range of {
		c, there := h.db.Consumer(id)
		if !there || c.Asides != n {
			h.fail("after %s: %s has %d asides, its record says %d", kind, id, n, c.Asides)
		}
		h.cameUpon.asides++
	}
	if kept, err := h.rdb.Keys(h.ctx, "rv:{0}:x:*").Result(); err != nil || len(kept) != len(of) {
		h.fail("after %s: the asides of %d consumers are kept in %q, %v", kind, len(of), kept, err)
	}
}
