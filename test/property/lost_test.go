package property

import (
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/test/harness"
)

// brokenLost are about the dead letters that no attempt leaves. They are looked for in histories that have asides.
var brokenLost = []harness.BrokenScript{
	{
		Name: "a stream that is deleted leaves nothing", File: "redisstore/lua/library/anew.lua",
		Old: "    leave_letters(c, cause, was or", New: "    local _ = (was or",
	},
	{
		Name: "a stream that is missing for good leaves nothing", File: "redisstore/lua/hide.lua",
		Old: "    leave_letters(c, 'stream_gone', tail_of(path))\n", New: "",
	},
	{
		Name: "what was delivered of a stream that is deleted leaves a letter",
		File: "redisstore/lua/library/letters.lua",
		Old:  " or not ahead(ends, of.acked) then return end", New: " then return end",
	},
	{
		Name: "what is aside leaves nothing as its stream is deleted", File: "redisstore/lua/library/letters.lua",
		Old: "  for _, id in ipairs(ids) do lost(id) end\n", New: "",
	},
	{
		Name: "a letter leaves another as its stream is deleted", File: "redisstore/lua/library/letters.lua",
		Old: "or of.replay > 0 or", New: "or",
	},
	{
		Name: "a wake whose stream is deleted leaves a letter", File: "redisstore/lua/library/letters.lua",
		Old: " and c.profile and string.find(c.profile, '^%d+,[12]') then\n", New: " then\n",
	},
	{
		Name: "a consumer that is given up leaves nothing", File: "redisstore/lua/library/letters.lua",
		Old: "  leave_letter(c)\n", New: "",
	},
	{
		Name: "a consumer that is given up tells of nothing that is pending",
		File: "redisstore/lua/library/letters.lua",
		Old:  "if ahead(l.tail, l.acked) and comes_first", New: "if comes_first",
	},
	{
		Name: "a consumer that goes on leaves its letter", File: "redisstore/lua/library/transitions.lua",
		Old: "    drop_letter(letter)\n", New: "",
	},
	{
		Name: "a consumer that was given up does not go on by its letter", File: "redisstore/lua/replay_letters.lua",
		Old: "    revive(c)\n", New: "",
	},
	{
		Name: "the letter of a consumer that is no more is replayed by another",
		File: "redisstore/lua/library/replay.lua",
		Old:  "class == 'given_up' or ", New: "",
	},
	{
		Name: "a consumer whose letter is replayed waits", File: "redisstore/lua/replay_letters.lua",
		Old: "    wake_if_pending(c)\n", New: "",
	},
}

// goes has a stream go of which a push has yet to be delivered.
func (h *history) goes() {
	for _, c := range h.db.Consumers() {
		if !c.Profile.Lasting || !c.Pending() {
			continue
		}
		switch h.pick("how it goes", []string{"deleted", "made anew", "missing"}) {
		case "deleted":
			h.deletedAt(c.Primary, time.Time{})
		case "made anew":
			h.restartAt(c.Primary, h.tail(c.Primary), h.offset("tail"))
		default:
			for _, a := range []fsm.Absence{fsm.MissingAnew, fsm.MissingStill} {
				h.newNonce()
				got, err := h.store.Hide(h.ctx, c.Primary, a)
				h.must(err)
				want, err := h.spec.Hide(h.ctx, c.Primary, a)
				h.must(err)
				h.outcome("hide", got, want)
				h.draw.Now = h.draw.Now.Add(timing.GoneGrace)
			}
		}
		return
	}
}

// goesOn has a letter replayed that a consumer has left which was given up, be it that consumer or a later one of its
// name that is there, or has some given up.
func (h *history) goesOn() {
	for _, l := range h.letters(allLetters) {
		c, there := h.db.Consumer(l.Consumer)
		if there && (c.Letter == l.ID.Number || l.Class == string(fsm.RemovedGivenUp)) {
			h.replays(l.ID.Only(), rapid.IntRange(1, 2).Draw(h.t, "most"))
			return
		}
	}
	h.fails()
}
