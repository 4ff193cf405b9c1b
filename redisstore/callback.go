package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// Callback implements native.Store.
func (s *Store) Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error) {
	args := []any{
		cb.Consumer.ID, cb.Generation, cb.Epoch, cb.TokenEpoch, flag(cb.TokenExpired), cb.WakeID, flag(cb.Done),
		cb.MaxStreams, len(cb.Tails),
	}
	for path, tail := range cb.Tails {
		args = append(args, path, string(tail))
	}
	args = append(args, len(cb.Acks))
	for _, a := range cb.Acks {
		args = append(args, a.Path, string(a.Offset))
	}
	args = append(args, len(cb.Subscribe))
	for _, sub := range cb.Subscribe {
		args = append(args, sub.Path, string(sub.From))
	}
	args = append(args, len(cb.Unsubscribe))
	for _, path := range cb.Unsubscribe {
		args = append(args, path)
	}
	r := s.run(ctx, scriptCallback, s.PartitionOf(cb.Consumer.Home), args...)
	answer := fsm.CallbackReply{
		Code: word(r, callbackCodes), Path: r.text(), WakeID: r.text(), Outcome: r.outcome(),
	}
	r.list(func(l *reply) { answer.Streams = l.streams(cb.Primary) })
	if answer.Code == fsm.CodeInternal && r.bad == nil {
		return answer, fmt.Errorf("redis: consumer %s is in quarantine: its record cannot be read", cb.Consumer.ID)
	}
	return answer, r.bad
}

// callbackCodes are the codes that callback.lua may return.
var callbackCodes = []fsm.Code{
	"", fsm.CodeConsumerGone, fsm.CodeTokenExpired, fsm.CodeStaleEpoch, fsm.CodeAlreadyClaimed, fsm.CodeInvalidOffset,
	fsm.CodeInvalidRequest, fsm.CodeInternal,
}

// Consumer implements control.Store. It does not find a consumer whose subscription was deleted, even while the
// consumer's removal is pending.
func (s *Store) Consumer(ctx context.Context, r fsm.ConsumerRef) (fsm.Consumer, error) {
	p := s.PartitionOf(r.Home)
	prefix := s.keys.partition(p)
	key := prefix + "c:" + r.ID
	pipe := s.rdb.TxPipeline()
	text, rare := pipe.Get(ctx, key), pipe.HGetAll(ctx, prefix+"f:"+r.ID)
	acked, asides := pipe.HGetAll(ctx, prefix+"l:"+r.ID), pipe.SCard(ctx, prefix+"x:"+r.ID)
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return fsm.Consumer{}, wrap(err)
	}
	if text.Val() == "" {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	c, bad := decodeConsumer(r.ID, text.Val(), rare.Val())
	// One transaction reads both: the note of a deleted subscription disappears together with its last consumer.
	pipe = s.rdb.TxPipeline()
	dead, still := pipe.HExists(ctx, s.keys.droppingIn(p), c.Generation), pipe.Get(ctx, key)
	for path, offset := range acked.Val() {
		c.Links[path] = fsm.Link{Acked: fsm.Offset(offset)}
	}
	tails := make(map[string]*redis.StringCmd, len(c.Links))
	for path := range c.Links {
		tails[path] = pipe.HGet(ctx, prefix+"s:"+path, "t")
	}
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return fsm.Consumer{}, wrap(err)
	}
	if again, _ := decodeConsumer(r.ID, still.Val(), nil); dead.Val() || again.Generation != c.Generation {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	for path, l := range c.Links {
		if err := wrap(tails[path].Err()); err != nil {
			return fsm.Consumer{}, err
		}
		since, err := strconv.ParseInt(cmp.Or(rare.Val()["since:"+path], "0"), 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has since:%s=%q", r.ID, path, rare.Val()["since:"+path])
		}
		l.Tail = cmp.Or(l.Tail, fsm.Offset(tails[path].Val()))
		l.Past, l.Since = fsm.Offset(rare.Val()["past:"+path]), since
		c.Links[path] = l
	}
	c.Asides = int(asides.Val())
	return c, bad
}

// recordLines are the words in the first three lines of a consumer's record (lua/library/keys.lua).
var recordLines = [][]string{
	{"state", "epoch", "wake", "woke", "attempt", "handed", "sent", "moved", "due", "by"},
	{"failing", "uncounted", "parked", "retired", "stalled", "hidden", "since", "again", "more"},
	{"sub", "gen", "born", "replay", "profile"},
}

// decodeConsumer reads a consumer's record, and the fields that few consumers have. Of its links, it has that to its
// primary. The tail of that link is known only for an aside.
func decodeConsumer(id, text string, rare map[string]string) (c fsm.Consumer, bad error) {
	c = fsm.Consumer{ID: id, Links: map[string]fsm.Link{}}
	lines := strings.Split(text, "\n")
	if len(lines) != len(recordLines)+3 {
		return c, fmt.Errorf("redis: the record of consumer %s has %d lines", id, len(lines))
	}
	primary, acked := lines[3], lines[4]
	owner, ends, _ := strings.Cut(lines[5], " ")
	h := map[string]string{}
	maps.Copy(h, rare)
	for i, names := range recordLines {
		words := strings.Fields(lines[i])
		if i == 1 && len(words) == 0 {
			continue
		}
		if len(words) != len(names) {
			return c, fmt.Errorf("redis: the record of consumer %s has %d words in line %d", id, len(words), i+1)
		}
		for n, name := range names {
			h[name] = words[n]
		}
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(cmp.Or(h[name], "0"), 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has %s=%q", id, name, h[name])
		}
		return n
	}
	at := func(name string) time.Time { return moment(number(name)) }
	c = fsm.Consumer{
		ID: id, Subscription: h["sub"], Generation: h["gen"], Primary: primary, Owner: owner, Links: c.Links,
		Born: number("born"), Replay: number("replay"), Replaying: number("replaying"),
		Replayed: number("replayed"), Letter: number("letter"),
		Lease: fsm.Lease{
			State: fsm.State(h["state"]), Epoch: number("epoch"), WakeID: strings.TrimPrefix(h["wake"], "-"),
			Stalled: int(number("stalled")), Moved: number("moved") == 1, HiddenAt: at("hidden"),
			Deadline: at("due"), WokeAt: at("woke"),
		},
		Attempts: fsm.Attempts{
			Attempt: int(number("attempt")), Handed: int(number("handed")), Sent: number("sent") == 1,
			FirstFailure: at("failing"), LastError: h["error"], Retired: number("retired") == 1,
			Again: number("again") > 0 && h["again"] == h["epoch"], ParkedAt: at("parked"),
			Uncounted: time.Duration(number("uncounted")) * time.Millisecond,
		},
	}
	if acked, linked := strings.CutPrefix(acked, "="); linked {
		c.Links[c.Primary] = fsm.Link{Acked: fsm.Offset(acked), Tail: fsm.Offset(ends)}
	}
	if h["profile"] != "-" {
		profile, err := fsm.ParseProfile(h["profile"])
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has profile=%q", id, h["profile"])
		}
		c.Profile = profile
	}
	if epoch, span, _ := strings.Cut(h["span"], " "); epoch == h["epoch"] {
		n, err := strconv.ParseInt(span, 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has span=%q", id, h["span"])
		}
		c.Span = n
	}
	if epoch, at, _ := strings.Cut(h["nudged"], " "); epoch == h["epoch"] {
		at, c.Probed = strings.CutSuffix(at, " probed")
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has nudged=%q", id, h["nudged"])
		}
		c.Nudged = moment(n)
	}
	if f := strings.SplitN(h["holder"], " ", 3); len(f) == 3 && f[0] == h["epoch"] {
		n, err := strconv.Atoi(f[1])
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has holder=%q", id, h["holder"])
		}
		c.Holder = fsm.Holder{Handed: n, By: f[2]}
	}
	if f := strings.SplitN(h["held"], " ", 3); len(f) == 3 && f[0] == h["epoch"] && f[1] == h["handed"] {
		c.Held = fsm.BlockReason(f[2])
	}
	return c, bad
}
