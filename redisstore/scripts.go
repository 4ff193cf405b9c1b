package redisstore

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

//go:embed lua/*.lua
var sources embed.FS

func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // embedded at build time
	}
	return string(b)
}

// script is a Lua script and the name of its file.
type script struct {
	*redis.Script
	name string
	// partitioned is true for one that works within a partition.
	partitioned bool
}

// scripts are all of them.
var scripts []*script

func newScript(name, text string) *script {
	s := &script{Script: redis.NewScript(WithConstants(text)), name: name}
	scripts = append(scripts, s)
	return s
}

// ScriptNames returns the names of the scripts by their hashes, which is how Redis tells of them
// in MONITOR and SLOWLOG.
func ScriptNames() map[string]string {
	names := map[string]string{}
	for _, s := range scripts {
		names[s.Hash()] = s.name
	}
	return names
}

// partitionScript is a script that works within a partition. They all begin with what they use of lib.lua, and return
// the partition's watermark beside what they return themselves.
func partitionScript(name string) *script {
	s := newScript(name, ownLibrary.with(source(name)))
	s.partitioned = true
	return s
}

// globalScript is one that works on what belongs to no partition.
func globalScript(name string) *script { return newScript(name, source(name)) }

// listScript is a global one that reads or changes the list of subscriptions, or that of endpoints.
func listScript(name string) *script { return newScript(name, source("changed")+source(name)) }

// endpointScript is a global one that is about one endpoint.
func endpointScript(name string) *script {
	return newScript(name, source("changed")+source("endpoint")+source(name))
}

var (
	scriptStream        = partitionScript("stream")
	scriptNoteStream    = partitionScript("note_stream")
	scriptLinkStream    = partitionScript("link_stream")
	scriptForgetStream  = partitionScript("forget_stream")
	scriptScanStreams   = partitionScript("scan_streams")
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
	scriptListLetters   = partitionScript("list_letters")
	scriptDropLetters   = partitionScript("drop_letters")
	scriptReplayLetters = partitionScript("replay_letters")
	scriptCountLetters  = partitionScript("count_letters")
	scriptLettersUpto   = partitionScript("letters_upto")
	scriptReplaySpan    = partitionScript("replay_span")
	scriptReplayQueues  = partitionScript("replay_queues")
	scriptCancelReplays = partitionScript("cancel_replays")
	scriptTally         = partitionScript("tally")
	scriptRetry         = partitionScript("retry")
	scriptRetryWake     = partitionScript("retry_wake")
	scriptProbeWake     = partitionScript("probe_wake")
	scriptLongest       = partitionScript("longest_waiting")
	scriptScanConsumers = partitionScript("scan_consumers")
	scriptLease         = partitionScript("lease")
	scriptCensus        = partitionScript("census")

	scriptCreateSubscription = listScript("create_subscription")
	scriptChangeSubscription = listScript("change_subscription")
	scriptDeleteSubscription = listScript("delete_subscription")
	scriptListSubscriptions  = listScript("list_subscriptions")
	scriptListEndpoints      = listScript("list_endpoints")
	scriptFailEndpoint       = endpointScript("fail_endpoint")
	scriptRecoverEndpoint    = endpointScript("recover_endpoint")
	scriptProbeEndpoint      = endpointScript("probe_endpoint")
	scriptReturnProbe        = endpointScript("return_probe")
	scriptRetryEndpoint      = endpointScript("retry_endpoint")
	scriptSetBackfill        = globalScript("set_backfill")
	scriptNextDue            = globalScript("next_due")
	scriptReplicaSet         = globalScript("replica_set")
	scriptTokenKeys          = globalScript("token_keys")
	scriptMoveRegistry       = globalScript("move_registry")
)

// Draw is what a script gets of chance and time from its caller.
type Draw struct {
	// Now is the time to act at; zero for Redis's own clock.
	Now time.Time
	// Nonce is what wake IDs are made from.
	Nonce string
	// Jitter of retry delays.
	Jitter fsm.Jitter
	// Incarnation of the server; empty to have the server asked.
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

// run calls a script of a partition. It is sent by its hash, and whole if Redis does not have it (any more). If it is
// not answered, Run may send it again.
func (s *Store) run(ctx context.Context, sc *script, partition int, args ...any) *reply {
	all := s.arguments(partition, args...)
	r := s.remember(partition, s.call(ctx, sc, s.keys.guard(partition), all...))
	if r.bad != nil {
		s.unanswered.keep(sentCall{script: sc, partition: partition, args: all, asked: r.asked}, r.bad)
	}
	return r
}

// runOutcome calls a script of a partition whose whole reply is an outcome.
func (s *Store) runOutcome(ctx context.Context, sc *script, partition int, args ...any) (fsm.Outcome, error) {
	r := s.run(ctx, sc, partition, args...)
	return r.outcome(), r.err()
}

// call calls a script with these keys and arguments.
func (s *Store) call(ctx context.Context, sc *script, keys []string, args ...any) *reply {
	began := time.Now()
	var v any
	var err error
	if s.sharing != nil {
		v, err = s.sharing.run(ctx, sc.Script, keys, args)
	} else {
		v, err = sc.Run(ctx, s.rdb, keys, args...).Result()
	}
	err = wrap(err)
	s.metrics.called(sc, began, err)
	return &reply{script: sc, items: []any{v}, bad: err, asked: began}
}

// commonArguments is how many arguments every script of a partition has beside its own.
const commonArguments = 10

// remember takes the watermark of a partition off a script's reply and keeps it.
func (s *Store) remember(partition int, r *reply) *reply {
	own := &reply{script: r.script, asked: r.asked}
	r.list(func(l *reply) {
		own.items = []any{l.next()}
		raise(&s.seen[partition], l.int())
	})
	own.bad = r.bad
	return own
}

// raise makes a number at least this.
func raise(n *atomic.Int64, to int64) {
	for was := n.Load(); to > was && !n.CompareAndSwap(was, to); {
		was = n.Load()
	}
}

// arguments are those that every script of a partition begins and ends with (lua/lib.lua), and its own.
func (s *Store) arguments(partition int, own ...any) []any {
	d, t := s.draw(), s.opts.Timing
	if s.opts.Embedded && d.Incarnation == "" {
		d.Incarnation = Embedded // it has no run_id, and loses either nothing or everything
	}
	if d.Incarnation == "" && s.isLasting() {
		d.Incarnation = "?"
	}
	args := make([]any, 0, commonArguments+len(own))
	args = append(args,
		d.millis(), t.Waking.Milliseconds(), t.Liveness.Milliseconds(), t.GoneGrace.Milliseconds(),
		t.GCAfter.Milliseconds(), d.Incarnation, d.Nonce, uint32(d.Jitter),
	)
	return append(append(args, own...), flag(s.opts.Untraced), s.seen[partition].Load())
}

// millis returns what scripts take for the time to act at.
func (d Draw) millis() int64 {
	if d.Now.IsZero() {
		return -1
	}
	return d.Now.UnixMilli()
}

// pipeline calls a script n times in one go, with the keys and arguments that each call is for, and gives up on those
// that were not answered in time. A call that failed has its error in its reply.
func (s *Store) pipeline(
	ctx context.Context, sc *script, n int, call func(i int) (keys []string, args []any),
) []*reply {
	if n == 0 {
		return nil
	}
	began := time.Now()
	replies := make([]*reply, n)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if missing := s.together(ctx, sc, sc.EvalSha, all, call, replies); len(missing) > 0 {
		s.together(ctx, sc, sc.Eval, missing, call, replies)
	}
	var failure error
	for i, r := range replies {
		if sc.partitioned && r.bad == nil {
			keys, _ := call(i)
			replies[i] = s.remember(s.keys.partitionIn(keys[0]), r)
		}
		if bad := replies[i].bad; bad != nil {
			failure = bad
		}
	}
	s.metrics.called(sc, began, failure)
	return replies
}

// together makes some of the calls of a pipeline and returns those for which Redis did not have the script.
func (s *Store) together(
	ctx context.Context, sc *script, eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd,
	calls []int, call func(i int) (keys []string, args []any), replies []*reply,
) (missing []int) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.limits.all)
	defer cancel()
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for at, i := range calls {
		keys, args := call(i)
		cmds[at] = eval(ctx, pipe, keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each call has its own error
	for at, i := range calls {
		v, err := cmds[at].Result()
		if v != nil {
			err = nil // while one node of a cluster fails, the client sets its error on the others' answers, too
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			missing = append(missing, i)
		}
		replies[i] = &reply{script: sc, items: []any{v}, bad: wrap(err)}
	}
	return missing
}
