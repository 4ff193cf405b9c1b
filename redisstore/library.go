package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm/bell"
)

// The scripts of partitions have one library (lua/library). A server with functions, such as Redis 7, keeps it together
// with the scripts. On any other server, each script has the library in front, and each call makes its functions anew.
//
// Redis judges a function before it runs. It refuses one that may write while it is full, cannot save, or has too few
// replicas. It does not judge a text: that runs until it asks for what Redis refuses. So a refused function goes by its
// text, which can still read, and free memory.

// subjects are the files of the library, except keys.lua, which has only comments. Lua wants a function to stand before
// its use.
var subjects = []string{
	"call", "offset", "schedule", "fence", "tails", "streams", "restarts", "quarantine", "visit", "consumer",
	"wake", "steps", "letters", "replay", "outbox", "transitions", "anew", "reply",
}

// Library returns the text of the library.
var Library = sync.OnceValue(func() string {
	var text strings.Builder
	for _, subject := range subjects {
		text.WriteString(source("library/" + subject))
	}
	return text.String()
})

// WithLibrary returns a script of a partition as EVAL gets it. The library is Library or a variant of it.
func WithLibrary(library, script string) string {
	return withConstants(library) + "local function call(KEYS, ARGV) begin_call(KEYS, ARGV)\n" + script +
		"\nend\nreturn call(KEYS, ARGV)\n"
}

// functions is the library as a server with functions gets it.
type functions struct {
	// name begins with libraryPrefix. It has a hash of the text, so two versions do not meet.
	name, text string
}

const (
	libraryPrefix = "reveille_"
	// libraryHash is how many hexadecimal digits follow it.
	libraryHash = 16
)

// ownFunctions is the library of this version.
var ownFunctions = sync.OnceValue(func() functions {
	var text strings.Builder
	text.WriteString(withConstants(Library()))
	for _, s := range scripts {
		if s.partitioned {
			fmt.Fprintf(&text, "register('%s', { %s }, function(KEYS, ARGV) begin_call(KEYS, ARGV)\n%s\nend)\n",
				s.name, s.flag, source(s.name))
		}
	}
	name := libraryPrefix + hashOf(text.String())[:libraryHash]
	return functions{name, "#!lua name=" + name + "\n" + strings.Replace(registers, "NAME", name, 1) + text.String()}
})

// registers begins the library. The names of functions are the server's, so each begins with the library's.
const registers = "local function register(name, flags, f) redis.register_function{ function_name = 'NAME_' .. name, " +
	"callback = f, flags = flags } end "

// ScriptCalled returns the name of the script that a command calls, by the command's first argument. It is empty if the
// command calls no script of this version. Tests use it.
func ScriptCalled(argument string) string { return scriptNames()[argument] }

// hashOf is what EVALSHA calls a text.
func hashOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// scriptNames are the names of the scripts by what commands call them (way).
var scriptNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, s := range scripts {
		for _, w := range functionWays {
			names[w.script(s)] = s.name
		}
	}
	return names
})

// scriptClient calls scripts.
type scriptClient struct {
	rdb    redis.UniversalClient
	log    *zap.Logger
	limits limits
	// refused is true once a server has refused functions. Then all scripts go by EVAL.
	refused atomic.Bool
}

// scriptCall is a call of a script.
type scriptCall struct {
	script *script
	keys   []string
	args   []any
	began  time.Time
}

// way is a way to call a script.
type way struct {
	command string
	// script is what the command calls a script.
	script func(*script) string
	// loads is true if a server that lacks the function gets the library first.
	loads bool
}

const fcall = "fcall"

func asFunction(s *script) string { return s.function() }

// The ways to call a script, in the order in which they are tried.
var (
	functionWays = slices.Concat([]way{
		{command: fcall, script: asFunction},
		{command: fcall, script: asFunction, loads: true},
	}, textWays)
	textWays = []way{
		{command: "evalsha", script: func(s *script) string { return s.hash() }},
		{command: "eval", script: func(s *script) string { return s.text() }},
	}
)

func (c *scriptClient) waysTo(s *script) []way {
	if s.partitioned && !c.refused.Load() {
		return functionWays
	}
	return textWays
}

// of returns the command that makes a call.
func (w way) of(ctx context.Context, call scriptCall) *redis.Cmd {
	words := make([]any, 0, 3+len(call.keys)+len(call.args))
	words = append(words, w.command, w.script(call.script), len(call.keys))
	for _, k := range call.keys {
		words = append(words, k)
	}
	cmd := redis.NewCmd(ctx, append(words, call.args...)...)
	if len(call.keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// call makes a call in the first way that does. The client bounds the first command (bounded). Later ones are for a
// server that lacks or refuses the script. All of them have the time of one call, counted from when the call began.
func (c *scriptClient) call(ctx context.Context, call scriptCall) (v any, err error) {
	for i, w := range c.waysTo(call.script) {
		if w.loads && !(c.lacks(err) && c.load(ctx, call.keys[0])) {
			continue
		}
		cmd := w.of(ctx, call)
		_ = c.rdb.Process(ctx, cmd)
		if v, err = cmd.Result(); !c.undone(w, err) {
			break
		}
		if i == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, call.began.Add(c.limits.call))
			defer cancel()
		}
	}
	return v, err
}

// undone says whether an answer means that the server has done nothing, and that the next way may do.
func (c *scriptClient) undone(w way, err error) bool {
	return err != nil && (c.lacks(err) || w.command == fcall && isRefusal(err))
}

// lacks says whether an answer means that the server does not have a script, and has done nothing. If it refuses FCALL,
// that is noted.
func (c *scriptClient) lacks(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	if strings.Contains(text, "fcall") {
		c.refuse(err)
		return true
	}
	return strings.HasPrefix(text, "noscript") || strings.HasPrefix(text, "err function not found")
}

// isRefusal says whether a server has refused a function before its first line, because it is full, cannot save, or
// has too few replicas. An error from within a function ends with " script: ", the function's name and the line. Redis
// gives no such error after a script's first write.
func isRefusal(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	code, text, _ := strings.Cut(reply.Error(), " ")
	return (code == "OOM" || code == "MISCONF" || code == "NOREPLICAS") && !strings.Contains(text, " script: ")
}

func (c *scriptClient) refuse(err error) {
	if !c.refused.Swap(true) {
		c.log.Info("redis takes no functions; the scripts go by EVAL, which costs it more", zap.Error(err))
	}
}

// load gives the library to the servers that have some keys, and says whether one has taken it.
func (c *scriptClient) load(ctx context.Context, keys ...string) bool {
	ctx, cancel := context.WithTimeout(ctx, c.limits.all)
	defer cancel()
	servers := map[redis.Cmdable]struct{}{}
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		for _, key := range keys {
			if node, err := cluster.MasterForKey(ctx, key); err == nil {
				servers[node] = struct{}{}
			}
		}
	} else if len(keys) > 0 {
		servers[c.rdb] = struct{}{}
	}
	var loads sync.WaitGroup
	var loaded atomic.Bool
	for server := range servers {
		loads.Go(func() {
			if c.loadTo(ctx, server) {
				loaded.Store(true)
			}
		})
	}
	loads.Wait()
	return loaded.Load()
}

func (c *scriptClient) loadTo(ctx context.Context, server redis.Cmdable) bool {
	err := server.FunctionLoad(ctx, ownFunctions().text).Err()
	var reply redis.Error
	switch {
	case err == nil:
		return true
	case !errors.As(err, &reply):
	case strings.Contains(reply.Error(), "already exists"):
		return true
	case !passes(reply.Error()), redis.IsPermissionError(err):
		c.refuse(err)
	}
	return false
}

// dropOthersEvery is how often the functions of other versions are dropped. A version that still runs loads its
// functions again.
const dropOthersEvery = 10 * time.Minute

// dropOthers drops the functions of other versions at an interval, until ctx is done.
func (s *Store) dropOthers(ctx context.Context, every time.Duration) {
	for bell.Sleep(ctx, every) {
		s.dropOthersOnce(ctx)
	}
}

// dropOthersOnce drops them if this replica owns partition 0: one replica does so.
func (s *Store) dropOthersOnce(ctx context.Context) {
	if !s.ownership.Owns(0) || s.scripts.refused.Load() {
		return
	}
	if err := wrap(s.scripts.dropOthers(ctx)); err != nil {
		s.opts.Logger.Warn("redis did not drop the functions of other versions", zap.Error(err))
	}
}

// isLibrary says whether a library is one of ours, of any version.
func isLibrary(name string) bool {
	hash, ours := strings.CutPrefix(name, libraryPrefix)
	_, err := hex.DecodeString(hash)
	return ours && err == nil && len(hash) == libraryHash
}

func (c *scriptClient) dropOthers(ctx context.Context) error {
	drop := func(ctx context.Context, server redis.Cmdable) error {
		all, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
		for _, l := range all {
			if isLibrary(l.Name) && l.Name != ownFunctions().name {
				err = errors.Join(err, server.FunctionDelete(ctx, l.Name).Err())
			}
		}
		return err
	}
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return drop(ctx, node)
		})
	}
	return drop(ctx, c.rdb)
}
