package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// The scripts of partitions have one library (lua/library). A server with functions, such as Redis 7, keeps it together
// with the scripts. On any other server, each script has the library in front, and each call makes its functions anew.

// subjects are the files of the library. Lua wants a function to stand before its use.
var subjects = []string{
	"call", "keys", "offset", "schedule", "fence", "tails", "streams", "restarts", "quarantine", "visit", "consumer",
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

// Link returns a script as a server without functions gets it. The library is Library or a variant of it.
func Link(library, script string) string {
	return withConstants(library) + "local function call(KEYS, ARGV) begin_call(KEYS, ARGV)\n" + script +
		"\nend\nreturn call(KEYS, ARGV)\n"
}

// functions is the library as a server with functions gets it.
type functions struct {
	// name begins with libraryPrefix. It has a hash of the text, so two versions do not meet.
	name, text string
}

const libraryPrefix = "reveille_"

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
	sum := sha1.Sum([]byte(text.String()))
	name := libraryPrefix + hex.EncodeToString(sum[:])[:16]
	return functions{name, "#!lua name=" + name + "\n" + strings.Replace(registers, "NAME", name, 1) + text.String()}
})

// registers begins the library. The names of functions are the server's, so each begins with the library's.
const registers = "local function register(name, flags, f) redis.register_function{ function_name = 'NAME_' .. name, " +
	"callback = f, flags = flags } end "

// functionFlag is a flag of Redis. Without one, a server that is full, cannot save, or has too few replicas does not
// carry out a function, even if that changes nothing.
type functionFlag string

const (
	// noWrites is for a script that changes nothing. Redis refuses its writes.
	noWrites functionFlag = "'no-writes'"
	// allowOOM has a server that is full carry out a script.
	allowOOM functionFlag = "'allow-oom'"
)

// of is the function of a script.
func (f functions) of(s *script) string { return f.name + "_" + s.name }

// ScriptCalled returns the name of the script that a command calls, by the command's name and first argument. It is
// empty if the command calls no script of this version.
func ScriptCalled(command, argument string) string {
	switch strings.ToLower(command) {
	case "fcall":
		name, own := strings.CutPrefix(argument, ownFunctions().name+"_")
		if own {
			return name
		}
	case "eval":
		sum := sha1.Sum([]byte(argument))
		return scriptNames()[hex.EncodeToString(sum[:])]
	case "evalsha":
		return scriptNames()[argument]
	}
	return ""
}

// scriptNames are the names of the scripts by the hashes of what EVAL gets.
var scriptNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, s := range scripts {
		names[s.eval().Hash()] = s.name
	}
	return names
})

// scriptClient calls scripts.
type scriptClient struct {
	rdb redis.UniversalClient
	log *zap.Logger
	// refused is true once a server has taken no functions. Then all scripts go by EVAL.
	refused atomic.Bool
}

func (c *scriptClient) calls(s *script) (function bool) { return s.partitioned && !c.refused.Load() }

// command returns the command that calls a script, and does not send it.
func (c *scriptClient) command(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	if c.calls(s) {
		words = append(words, "fcall", ownFunctions().of(s), len(keys))
	} else {
		words = append(words, "evalsha", s.eval().Hash(), len(keys))
	}
	for _, k := range keys {
		words = append(words, k)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// call calls a script. It gives the server what that lacks.
func (c *scriptClient) call(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	cmd := c.command(ctx, s, keys, args)
	_ = c.rdb.Process(ctx, cmd)
	if !c.lacks(cmd.Err()) {
		return cmd.Result()
	}
	if c.calls(s) {
		if err := c.load(ctx, keys[0]); err != nil {
			return nil, err
		}
	}
	cmd = c.again(ctx, s, keys, args)
	_ = c.rdb.Process(ctx, cmd)
	return cmd.Result()
}

// again is command once the server lacked the script. It has the text, unless the server has got the functions.
func (c *scriptClient) again(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	cmd := c.command(ctx, s, keys, args)
	if words := cmd.Args(); words[0] == "evalsha" {
		words[0], words[1] = "eval", s.text()
	}
	return cmd
}

// lacks says whether an answer to a call says that the server does not have the script. It notes if that is because it
// takes no functions.
func (c *scriptClient) lacks(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	if refusesFunctions(text) {
		c.refuse(err)
		return true
	}
	return strings.HasPrefix(text, "noscript") || strings.HasPrefix(text, "err function not found")
}

// refusesFunctions says whether a server or its users refuse FCALL or FUNCTION for good.
func refusesFunctions(answer string) bool {
	return (strings.HasPrefix(answer, "err unknown") || strings.HasPrefix(answer, "noperm")) &&
		(strings.Contains(answer, "fcall") || strings.Contains(answer, "function"))
}

func (c *scriptClient) refuse(err error) {
	if !c.refused.Swap(true) {
		c.log.Info("redis takes no functions; the scripts go by EVAL, which costs it more", zap.Error(err))
	}
}

// load gives the functions to the server that has a key, or to all servers if there is no key.
func (c *scriptClient) load(ctx context.Context, key string) error {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	switch {
	case !ok:
		return c.loadTo(ctx, c.rdb)
	case key == "":
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return c.loadTo(ctx, node)
		})
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return err
	}
	return c.loadTo(ctx, node)
}

func (c *scriptClient) loadTo(ctx context.Context, server redis.Cmdable) error {
	err := server.FunctionLoad(ctx, ownFunctions().text).Err()
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	switch text := strings.ToLower(reply.Error()); {
	case strings.Contains(text, "already exists"):
		return nil
	case refusesFunctions(text):
		c.refuse(err)
		return nil
	}
	return err
}

// dropOthersEvery is how often the functions of other versions are dropped. A version that still runs loads its
// functions again.
const dropOthersEvery = 10 * time.Minute

// dropOthers drops the functions of other versions, until ctx is done. One replica does so.
func (s *Store) dropOthers(ctx context.Context) {
	for {
		pause(ctx, dropOthersEvery)
		if ctx.Err() != nil {
			return
		}
		if s.ownership.Owns(0) && !s.calls.refused.Load() {
			_ = s.calls.dropOthers(ctx) // the next time
		}
	}
}

func (c *scriptClient) dropOthers(ctx context.Context) error {
	drop := func(ctx context.Context, server redis.Cmdable) error {
		all, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
		for _, l := range all {
			if l.Name != ownFunctions().name {
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
