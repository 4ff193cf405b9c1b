package redisstore

import (
	"cmp"
	"context"
	"fmt"
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
	var answer fsm.CallbackReply
	r := s.run(ctx, scriptCallback, s.PartitionOf(cb.Consumer.Home), args...)
	r.list(func(l *reply) {
		answer = fsm.CallbackReply{
			Code: word(l, callbackCodes), Path: l.text(), Streams: l.streams(cb.Primary),
			Outcome: l.outcome(), WakeID: l.text(),
		}
	})
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
	pipe := s.rdb.TxPipeline()
	record, acked := pipe.HGetAll(ctx, prefix+"c:"+r.ID), pipe.HGetAll(ctx, prefix+"l:"+r.ID)
	asides := pipe.SCard(ctx, prefix+"x:"+r.ID)
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return fsm.Consumer{}, wrap(err)
	}
	h := record.Val()
	if len(h) == 0 {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	// One transaction reads both: the note of a deleted subscription disappears together with its last consumer.
	pipe = s.rdb.TxPipeline()
	dead, still := pipe.HExists(ctx, s.keys.droppingIn(p), h["gen"]), pipe.HGet(ctx, prefix+"c:"+r.ID, "gen")
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return fsm.Consumer{}, wrap(err)
	}
	if dead.Val() || still.Val() != h["gen"] {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	c, bad := decodeConsumer(r.ID, h)
	c.Asides = int(asides.Val())
	tails := make(map[string]*redis.StringCmd, len(acked.Val()))
	pipe = s.rdb.Pipeline()
	for path := range acked.Val() {
		tails[path] = pipe.HGet(ctx, prefix+"s:"+path, "t")
	}
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return fsm.Consumer{}, wrap(err)
	}
	c.Links = make(map[string]fsm.Link, len(tails))
	for path, offset := range acked.Val() {
		if err := wrap(tails[path].Err()); err != nil {
			return fsm.Consumer{}, err
		}
		since, err := strconv.ParseInt(cmp.Or(h["since:"+path], "0"), 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has since:%s=%q", r.ID, path, h["since:"+path])
		}
		c.Links[path] = fsm.Link{
			Acked: fsm.Offset(offset), Tail: fsm.Offset(cmp.Or(h["ends"], tails[path].Val())),
			Past: fsm.Offset(h["past:"+path]), Since: since,
		}
	}
	return c, bad
}

// decodeConsumer reads a consumer's record. The record does not contain the links.
func decodeConsumer(id string, h map[string]string) (c fsm.Consumer, bad error) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(h[name], 10, 64)
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has %s=%q", id, name, h[name])
		}
		return n
	}
	at := func(name string) time.Time { return moment(number(name)) }
	c = fsm.Consumer{
		ID: id, Subscription: h["sub"], Generation: h["gen"], Primary: h["primary"],
		State: fsm.State(h["state"]), Epoch: number("epoch"), WakeID: h["wake"], Links: map[string]fsm.Link{},
		Attempt: int(number("attempt")), Handed: int(number("handed")), Sent: number("sent") == 1,
		FirstFailure: at("failing"), LastError: h["error"], Retired: number("retired") == 1,
		Stalled: int(number("stalled")), Moved: number("moved") == 1, HiddenAt: at("hidden"), Deadline: at("due"),
		WokeAt: at("woke"),
	}
	if h["profile"] != "" {
		profile, err := fsm.ParseProfile(h["profile"])
		if err != nil {
			bad = fmt.Errorf("redis: consumer %s has profile=%q", id, h["profile"])
		}
		c.Profile = profile
	}
	if h["born"] != "" {
		c.Born = number("born")
	}
	if h["replay"] != "" {
		c.Replay = number("replay")
	}
	if h["replaying"] != "" {
		c.Replaying = number("replaying")
	}
	if h["replayed"] != "" {
		c.Replayed = number("replayed")
	}
	if h["letter"] != "" {
		c.Letter = number("letter")
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
	c.Again = h["again"] != "" && h["again"] == h["epoch"]
	if h["uncounted"] != "" {
		c.Uncounted = time.Duration(number("uncounted")) * time.Millisecond
	}
	if h["parked"] != "" {
		c.ParkedAt = at("parked")
	}
	return c, bad
}
