package property

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// brokenOutbox are about events that were handed over.
var brokenOutbox = []harness.BrokenScript{
	{
		Name: "an event that is over is sent again", File: "redisstore/lua/take_event.lua",
		Old: "elseif is_over and not replay or status", New: "elseif status",
	},
	{
		Name: "an event that lies in its stream twice is sent twice", File: "redisstore/lua/take_event.lua",
		Old: "'cancelled' or elsewhere then", New: "'cancelled' then",
	},
	{
		Name: "an event that has stepped aside is still its consumer's", File: "redisstore/lua/fail.lua",
		Old: "by = step_aside(", New: "step_aside(",
	},
	{
		Name: "what was not acked is delivered", File: "redisstore/lua/deliver.lua",
		Old: "if l and not after(to, l.tail) and ack(c, path, to) then", New: "if l then ack(c, path, to)",
	},
	{
		Name: "an event is of any stream of its name", File: "redisstore/lua/library/outbox.lua",
		Old: "int(c.born) .. ' '", New: "'0 '",
	},
	{
		Name: "what has expired is sent again", File: "redisstore/lua/take_event.lua",
		Old: "<= now() - since and not replay", New: "< 0 and not replay",
	},
	{
		Name: "what has expired early is new", File: "redisstore/lua/take_event.lua",
		Old: "if placed <= was_placed and (not replay or delivered_at == '0') then return reply('0') end",
		New: "",
	},
	{
		Name: "all events are kept alike", File: "redisstore/lua/library/outbox.lua",
		Old: "redis.call('HGET', P .. 'event:' .. id, 'keep')", New: "FSM.OUTBOX_RETENTION",
	},
	{
		Name: "what is cancelled is sent", File: "redisstore/lua/take_event.lua",
		Old: "replay or status == 'cancelled' or", New: "replay or",
	},
	{
		Name: "what is under way is cancelled", File: "redisstore/lua/cancel_event.lua",
		Old: "not status or under_way or", New: "not status or",
	},
	{
		Name: "an event is on two lists", File: "redisstore/lua/library/outbox.lua",
		Old: "  redis.call('ZREM', from, placed)\n", New: "",
	},
	{
		Name: "what is delivered again counts again", File: "redisstore/lua/library/outbox.lua",
		Old: "status == 'delivering' or status == 'delivered' and delivered_at ~= '0'", New: "status == 'delivering'",
	},
	{
		Name: "what has lost its stream waits", File: "redisstore/lua/library/outbox.lua",
		Old: "string.match(at, '^%S*') ~= string.match(place, '^%S*')", New: "false",
	},
	{
		Name: "an event is sent before its time", File: "redisstore/lua/take_event.lua",
		Old: "and tonumber(begins or '0') > now()", New: "and false",
	},
	{
		Name: "an event that was released is delayed again", File: "redisstore/lua/take_event.lua",
		Old: "and not released and", New: "and",
	},
	{
		Name: "a replay sends a delayed event at each of its places", File: "redisstore/lua/take_event.lua",
		Old: "(early or is_over and from ~= place)", New: "early",
	},
	{
		Name: "a replay sends a delayed event before its time", File: "redisstore/lua/take_event.lua",
		Old: "(early or is_over and from ~= place)", New: "(is_over and from ~= place)",
	},
	{
		Name: "an event whose time has come waits on", File: "redisstore/lua/take_event.lua",
		Old: "if begins then redis.call('ZREM', P .. 'delayed', event) end\n", New: "",
	},
	{
		Name: "what is cancelled is released", File: "redisstore/lua/cancel_event.lua",
		Old: "redis.call('ZREM', P .. 'delayed', event)\n", New: "",
	},
	{
		Name: "what is lost is pending", File: "redisstore/lua/release_event.lua",
		Old: "  event_is(event, 'pending', 'dead_letter')\n", New: "",
	},
	{
		Name: "a stream with events that are kept is removed", File: "redisstore/lua/begin_removal.lua",
		Old: "if kept > 0 then", New: "if false then",
	},
	{
		Name: "a stream is removed that was not read to its end", File: "redisstore/lua/begin_removal.lua",
		Old: "acked_of(c, path) == tail", New: "true",
	},
	{
		Name: "an event is new in a stream that is being removed", File: "redisstore/lua/take_event.lua",
		Old: "  if is_removing(path) then return reply('0') end\n", New: "",
	},
	{
		Name: "what has expired keeps its stream", File: "redisstore/lua/library/outbox.lua",
		Old: "redis.call('ZINCRBY', P .. 'event_streams', -1, path)", New: "",
	},
	{
		Name: "a removal is over at once", File: "redisstore/lua/end_removal.lua",
		Old: "or now() < since + FSM.OUTBOX_REMOVAL", New: "",
	},
	{
		Name: "a stream is removed that has events to replay", File: "redisstore/lua/begin_removal.lua",
		Old: " and\n  not redis.call('ZSCORE', P .. 'replays', c.id)", New: "",
	},
	{
		Name: "what is dead counts as delivered", File: "redisstore/lua/deliver.lua",
		Old: "attempts, letter ~= '',", New: "attempts, false,",
	},
}

// takes takes up the event that an attempt brings, for every other attempt of a push, and returns its ID. The event at
// a place is always the same. Some lie in their stream many times.
func (h *history) takes(wake fsm.Delivery) string {
	c, there := h.db.Consumer(wake.Consumer)
	if !there || !c.Profile.Lasting || h.calls%2 == 0 {
		return ""
	}
	place := fnv.New64a()
	_, _ = fmt.Fprint(place, wake.Primary, wake.At(wake.Primary), wake.Born)
	e := fsm.OutboxEvent{ID: fsm.NewOutboxID(0, fmt.Sprintf("%x", place.Sum64())), Key: "k"}
	e.CreatedAt = h.draw.Now.Add(-time.Duration(h.calls%9) * 24 * time.Hour).UnixMilli()
	if h.calls%3 != 0 {
		e.Provider, e.RetentionMs = "p", time.Minute.Milliseconds()
	}
	if h.calls%3 == 1 || wake.Replay {
		e.ID = fsm.NewOutboxID(0, "ff")
	}
	if h.calls%7 < 3 || h.calls%3 == 1 && h.calls%4 == 3 {
		e.DeliverAt = h.draw.Now.Add(time.Duration(h.calls%4) * time.Minute).UnixMilli()
		e.Released = h.calls%4 == 1
	}
	got, err := h.store.TakeEvent(h.ctx, wake.Ref(), e, wake.Replay)
	h.must(err)
	want, err := h.spec.TakeEvent(h.ctx, wake.Ref(), e, wake.Replay)
	h.must(err)
	h.same("whether an event is to be sent", got, want)
	return e.ID
}

// cancels cancels an event after some of the steps.
func (h *history) cancels() {
	ids := slices.Sorted(maps.Keys(h.db.AllEvents()))
	if h.calls%4 != 3 || len(ids) == 0 {
		return
	}
	id := ids[h.calls%len(ids)]
	got, err := h.store.CancelEvent(h.ctx, id)
	h.must(err)
	want, err := h.spec.CancelEvent(h.ctx, id)
	h.must(err)
	h.same("whether "+id+" is cancelled", got, want)
}

// releases has an event whose time has come lie in its stream again, or be lost, after some of the steps.
func (h *history) releases() {
	got, err := h.store.DueEvents(h.ctx, 0, 1+h.calls%2)
	h.must(err)
	want, err := h.spec.DueEvents(h.ctx, 0, 1+h.calls%2)
	h.must(err)
	h.same("the events whose time has come", got, want)
	if h.calls%3 == 0 || len(want) == 0 {
		return
	}
	lost := ""
	if h.calls%3 == 1 {
		lost = "lost"
	}
	h.must(h.store.ReleaseEvent(h.ctx, want[0], lost))
	h.must(h.spec.ReleaseEvent(h.ctx, want[0], lost))
}

// removes begins or ends the removal of a consumer's stream, as a stream of events, after some of the steps.
func (h *history) removes() {
	all := h.db.Consumers()
	if len(all) == 0 {
		return
	}
	c, tail := all[h.calls/16%len(all)], fsm.Offset("no tail")
	switch h.calls % 16 {
	case 0, 2, 4, 8, 10, 12:
		tail = c.Links[c.Primary].Acked
	case 5:
		got, err := h.store.EndRemoval(h.ctx, c.Primary)
		h.must(err)
		want, err := h.spec.EndRemoval(h.ctx, c.Primary)
		h.must(err)
		h.same("whether the removal of "+c.Primary+" is over", got, want)
		return
	case 6:
	case 7:
		tail = ""
	default:
		return
	}
	got, err := h.store.BeginRemoval(h.ctx, c.Primary, c.ID, tail)
	h.must(err)
	want, err := h.spec.BeginRemoval(h.ctx, c.Primary, c.ID, tail)
	h.must(err)
	h.same("whether "+c.Primary+" is removed", got, want)
}

// eventsAgree compares what both sides keep of the events, and what a client sees of them. Where there are none, it
// looks less often.
func (h *history) eventsAgree(kind string) {
	if len(h.db.AllEvents()) == 0 && h.calls%8 != 0 {
		return
	}
	h.cancels()
	h.releases()
	h.removes()
	for id := range h.db.AllEvents() {
		want, err := h.spec.OutboxEvent(h.ctx, id)
		got, failed := h.store.OutboxEvent(h.ctx, id)
		if errors.Is(err, fsm.ErrNotFound) && errors.Is(failed, fsm.ErrNotFound) { // it has expired
			continue
		}
		h.must(cmp.Or(err, failed))
		h.same("after "+kind+": event "+id, got, want)
	}
	_, room, err := h.store.Room(h.ctx, primaries[h.calls%2], "whe_0_0")
	h.must(err)
	_, left, err := h.spec.Room(h.ctx, primaries[h.calls%2], "whe_0_0")
	h.must(err)
	h.same("after "+kind+": what room there is", room, left)
	unused, err := h.store.UnusedStreams(h.ctx)
	h.must(err)
	empty, err := h.spec.UnusedStreams(h.ctx)
	h.must(err)
	slices.Sort(unused) // they have no order
	slices.Sort(empty)
	h.same("after "+kind+": the streams without events", unused, empty)
	status := fsm.OutboxStatuses[h.calls%len(fsm.OutboxStatuses)]
	span := fsm.OutboxSpan{Lists: fsm.OutboxListsOf(status)}
	got, err := h.store.ListEvents(h.ctx, span, 1000)
	h.must(err)
	want, err := h.spec.ListEvents(h.ctx, span, 1000)
	h.must(err)
	h.same("after "+kind+": the events that may be "+string(status), got, want)
	h.countsAgree(kind)
}

// countsAgree compares what both sides count of the events, by the hour after some of the steps.
func (h *history) countsAgree(kind string) {
	got, err := h.store.CountEvents(h.ctx, 0)
	h.must(err)
	want, err := h.spec.CountEvents(h.ctx, 0)
	h.must(err)
	h.same("after "+kind+": how many events there are", got, want)
	if h.calls%3 != 1 {
		return
	}
	last := fsm.OutboxHourOf(h.draw.Now)
	hours, err := h.store.OutboxHours(h.ctx, 0, last-fsm.MaxOutboxHours, last)
	h.must(err)
	counted, err := h.spec.OutboxHours(h.ctx, 0, last-fsm.MaxOutboxHours, last)
	h.must(err)
	h.same("after "+kind+": what became of the events by the hour", hours, counted)
}
