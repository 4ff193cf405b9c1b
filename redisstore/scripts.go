package redisstore

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

//go:embed lua/*.lua lua/library/*.lua
var sources embed.FS

// source returns a file without its comments, which Redis need not get. Its lines stay where they are.
func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // embedded at build time
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(strings.TrimSpace(line), "--") {
			line = "\n"
		}
		text.WriteString(line)
	}
	return text.String()
}

// script is a Lua script with the name of its file.
type script struct {
	name string
	// partitioned is true for a script that works within a partition. Such a script returns the partition's watermark
	// before its own items.
	partitioned bool
	// flag is the flag of its function, or "". Only a partitioned script has a function.
	flag string
	// text is what EVAL gets. hash is what EVALSHA calls it, and function what FCALL calls it.
	text, hash, function func() string
}

// scripts has every script.
var scripts []*script

func newScript(name string, text func() string) *script {
	text = sync.OnceValue(text)
	s := &script{
		name: name, text: text, hash: sync.OnceValue(func() string { return hashOf(text()) }),
		function: sync.OnceValue(func() string { return ownFunctions().name + "_" + name }),
	}
	scripts = append(scripts, s)
	return s
}

// The flags of functions. They spare a call that would be refused (isRefusal).
const (
	// noWrites is for a script that changes nothing. Redis refuses its writes.
	noWrites = "'no-writes'"
	// allowOOM is for a script that a server carries out though it is full.
	allowOOM = "'allow-oom'"
)

// partitionScript makes a script that works within a partition, with the library.
func partitionScript(name string) *script { return flaggedScript(name, "") }

// readingScript is partitionScript for a script that changes nothing.
func readingScript(name string) *script { return flaggedScript(name, noWrites) }

// flaggedScript is partitionScript for a function with a flag.
func flaggedScript(name, flag string) *script {
	s := newScript(name, func() string { return WithLibrary(Library(), source(name)) })
	s.partitioned, s.flag = true, flag
	return s
}

// globalScript makes a script for data that belongs to no partition.
func globalScript(name string) *script { return bareScript(name, source(name)) }

// listScript makes a global script that reads or changes the list of subscriptions or the list of endpoints.
func listScript(name string) *script { return bareScript(name, source("changed")+source(name)) }

// endpointScript makes a global script about one endpoint.
func endpointScript(name string) *script {
	return bareScript(name, source("changed")+source("endpoint")+source(name))
}

// bareScript makes a script without the library.
func bareScript(name, text string) *script {
	return newScript(name, func() string { return withConstants(text) })
}

var (
	scriptStream        = partitionScript("stream")
	scriptNoteStream    = partitionScript("note_stream")
	scriptLinkStream    = partitionScript("link_stream")
	scriptForgetStream  = partitionScript("forget_stream")
	scriptScanStreams   = readingScript("scan_streams")
	scriptTakeDeletion  = partitionScript("take_deletion")
	scriptObserve       = partitionScript("observe")
	scriptHide          = partitionScript("hide")
	scriptRestart       = partitionScript("restart")
	scriptDeleted       = partitionScript("deleted")
	scriptDue           = partitionScript("due")
	scriptFail          = partitionScript("fail")
	scriptPark          = partitionScript("park")
	scriptBegin         = partitionScript("begin")
	scriptAccept        = partitionScript("accept")
	scriptFinish        = partitionScript("finish")
	scriptDeliver       = partitionScript("deliver")
	scriptCallback      = partitionScript("callback")
	scriptMarkDeleted   = partitionScript("mark_deleted")
	scriptDrop          = partitionScript("drop")
	scriptResume        = partitionScript("resume")
	scriptReleaseHeld   = partitionScript("release_held")
	scriptListLetters   = readingScript("list_letters")
	scriptDropLetters   = partitionScript("drop_letters")
	scriptReplayLetters = partitionScript("replay_letters")
	scriptCountLetters  = readingScript("count_letters")
	scriptLettersUpto   = readingScript("letters_upto")
	scriptReplaySpan    = partitionScript("replay_span")
	scriptReplayQueues  = readingScript("replay_queues")
	scriptCancelReplays = partitionScript("cancel_replays")
	scriptTally         = readingScript("tally")
	scriptTallyEach     = readingScript("tally_each")
	scriptRewind        = partitionScript("rewind")
	scriptRetry         = partitionScript("retry")
	scriptRetryDelivery = partitionScript("retry_delivery")
	scriptProbeDelivery = partitionScript("probe_delivery")
	scriptLongest       = partitionScript("longest_waiting")
	scriptScanConsumers = readingScript("scan_consumers")
	scriptReserveKey    = partitionScript("reserve_key")
	scriptKeepKey       = partitionScript("keep_key")
	scriptKeyOf         = readingScript("key_of")
	scriptDropKey       = partitionScript("drop_key")
	scriptExpiredEvents = readingScript("expired_events")
	scriptDropEvent     = partitionScript("drop_event")
	scriptEndLoss       = partitionScript("end_loss")
	scriptDueEvents     = partitionScript("due_events")
	scriptReleaseEvent  = partitionScript("release_event")
	scriptBeginRemoval  = partitionScript("begin_removal")
	scriptEndRemoval    = partitionScript("end_removal")
	scriptAcceptEvent   = partitionScript("accept_event")
	scriptTakeEvent     = partitionScript("take_event")
	scriptReadEvents    = partitionScript("read_events")
	scriptListEvents    = readingScript("list_events")
	scriptCancelEvent   = partitionScript("cancel_event")
	scriptCountEvents   = partitionScript("count_events")
	scriptCountHours    = readingScript("count_hours")
	scriptLease         = flaggedScript("lease", allowOOM) // a lease needs next to no memory
	scriptCensus        = readingScript("census")

	scriptCreateSubscription = listScript("create_subscription")
	scriptChangeSubscription = listScript("change_subscription")
	scriptDeleteSubscription = listScript("delete_subscription")
	scriptListSubscriptions  = listScript("list_subscriptions")
	scriptChangeOutbox       = listScript("change_outbox")
	scriptListEndpoints      = listScript("list_endpoints")
	scriptFailEndpoint       = endpointScript("fail_endpoint")
	scriptRecoverEndpoint    = endpointScript("recover_endpoint")
	scriptProbeEndpoint      = endpointScript("probe_endpoint")
	scriptReturnProbe        = endpointScript("return_probe")
	scriptRetryEndpoint      = endpointScript("retry_endpoint")
	scriptTakeTurns          = globalScript("take_turns")
	scriptSetBackfill        = globalScript("set_backfill")
	scriptNextDue            = globalScript("next_due")
	scriptReplicaSet         = globalScript("replica_set")
	scriptTokenKeys          = globalScript("token_keys")
	scriptMoveRegistry       = globalScript("move_registry")
	scriptCountAttempts      = globalScript("count_attempts")
)

// Draw is the chance and the time that a script gets from its caller.
type Draw struct {
	// Now is the time to act at; zero for Redis's own clock.
	Now time.Time
	// Nonce is what wake IDs are made from. It also identifies the call, if that is sent again.
	Nonce string
	// Jitter of retry delays.
	Jitter fsm.Jitter
	// Incarnation of the server; if it is empty, the script asks the server.
	Incarnation string
}

func randomDraw() Draw {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return Draw{
		Nonce:  hex.EncodeToString(b[:]),
		Jitter: fsm.Jitter(mrand.Uint32N(fsm.JitterSpan)),
	}
}

// run calls a script of a partition. Before args come the common arguments (lua/library/call.lua). What it returns has
// the script's own items: the watermark before them is taken off. If the call is not answered, Run may send it again.
func (s *Store) run(ctx context.Context, sc *script, partition int, args ...any) *reply {
	all := s.arguments(partition, args...)
	r := s.remember(partition, s.call(ctx, sc, s.keys.guard(partition), all...))
	if r.bad != nil {
		s.unanswered.keep(sentCall{script: sc, partition: partition, args: all, asked: r.asked}, r.bad)
	}
	return r
}

// runOutcome calls a script of a partition that replies nothing but the outcome.
func (s *Store) runOutcome(ctx context.Context, sc *script, partition int, args ...any) (fsm.Outcome, error) {
	r := s.run(ctx, sc, partition, args...)
	return r.outcome(), r.err()
}

// call calls a script with these keys and arguments, and no others. What it returns is the script's whole reply.
func (s *Store) call(ctx context.Context, sc *script, keys []string, args ...any) *reply {
	c := scriptCall{script: sc, keys: keys, args: args, began: time.Now()}
	var v any
	var err error
	if s.sharing != nil {
		v, err = s.sharing.run(ctx, c)
	} else {
		v, err = s.scripts.call(ctx, c)
	}
	err = wrap(err)
	s.metrics.called(sc, c.began, err)
	return &reply{script: sc, items: []any{v}, bad: err, asked: c.began}
}

// remember keeps the watermark of a script's reply, and tells the outcome from the script's own items.
func (s *Store) remember(partition int, r *reply) *reply {
	own := &reply{script: r.script, asked: r.asked}
	r.list(func(l *reply) {
		raise(&s.seen[partition], l.int())
		own.told, own.items = l.next(), l.items
	})
	own.bad = r.bad
	return own
}

// raise sets a number to at least this.
func raise(n *atomic.Int64, to int64) {
	for was := n.Load(); to > was && !n.CompareAndSwap(was, to); {
		was = n.Load()
	}
}

// arguments returns all arguments of a partition's script: the common ones (lua/library/call.lua), then its own.
func (s *Store) arguments(partition int, own ...any) []any {
	d := s.draw()
	if d.Incarnation == "" {
		d.Incarnation = s.incarnation()
	}
	return slices.Concat([]any{s.settings(d), d.Nonce, uint32(d.Jitter), s.seen[partition].Load()}, own)
}

// incarnation is what a script gets in place of the server's incarnation, which the server itself tells.
func (s *Store) incarnation() string {
	switch {
	case s.opts.Embedded:
		return Embedded // it has no run_id, and loses either nothing or everything
	case s.isLasting():
		return "?"
	}
	return ""
}

// settings are the first argument of each script.
func (s *Store) settings(d Draw) string {
	return strconv.FormatInt(d.millis(), 10) + " " + s.fixed + d.Incarnation
}

// millis returns the time to act at, as scripts take it.
func (d Draw) millis() int64 {
	if d.Now.IsZero() {
		return -1
	}
	return d.Now.UnixMilli()
}

// fixedSettings are what does not change of the settings, with a space behind it.
func fixedSettings(opts Options) string {
	t := opts.Timing
	return fmt.Sprintf("%d %d %d %d %d ", t.Waking.Milliseconds(), t.Liveness.Milliseconds(),
		t.GoneGrace.Milliseconds(), t.GCAfter.Milliseconds(), flag(opts.Untraced))
}

// pipeline sends n calls of a script in one round trip. Its parameter call returns the keys and arguments of each. A
// call that was not answered in time fails. The reply of a failed call has the error.
func (s *Store) pipeline(
	ctx context.Context, sc *script, n int, call func(i int) (keys []string, args []any),
) []*reply {
	if n == 0 {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(s.opts.limits.call))
	defer cancel()
	replies, calls, missing := make([]*reply, n), make([]scriptCall, n), make([]int, n)
	for i := range calls {
		keys, args := call(i)
		calls[i], missing[i] = scriptCall{script: sc, keys: keys, args: args, began: began}, i
	}
	for _, w := range s.scripts.waysTo(sc) {
		if w.loads {
			var at []string
			for _, i := range missing {
				if s.scripts.lacks(replies[i].bad) {
					at = append(at, calls[i].keys[0])
				}
			}
			if !s.scripts.load(ctx, at...) {
				continue
			}
		}
		if len(missing) > 0 {
			missing = s.together(ctx, w, calls, missing, replies)
		}
	}
	var failure error
	for i, r := range replies {
		if sc.partitioned && r.bad == nil {
			replies[i] = s.remember(s.keys.partitionIn(calls[i].keys[0]), r)
		}
		if bad := replies[i].bad; bad != nil {
			failure = bad
		}
	}
	s.metrics.called(sc, began, failure)
	return replies
}

// together makes some of the calls in one way. It returns those of them that are for the next way.
func (s *Store) together(
	ctx context.Context, w way, calls []scriptCall, some []int, replies []*reply,
) (missing []int) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.limits.all)
	defer cancel()
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(some))
	for at, i := range some {
		cmds[at] = w.of(ctx, calls[i])
		_ = pipe.Process(ctx, cmds[at])
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
	for at, i := range some {
		v, err := cmds[at].Result()
		if v != nil {
			err = nil // if one node of a cluster fails, the client sets its error on the others' answers, too
		}
		if s.scripts.undone(w, err) {
			missing = append(missing, i)
		}
		replies[i] = &reply{script: calls[i].script, items: []any{v}, bad: wrap(err)}
	}
	return missing
}
