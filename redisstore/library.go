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
		if s.function {
			fmt.Fprintf(&text, "register('%s', { %s }, function(KEYS, ARGV) begin_call(KEYS, ARGV)\n%s\nend)\n",
				s.name, s.flag, source(s.name))
		}
	}
	sum := sha1.Sum([]byte(text.String()))
	name := libraryPrefix + hex.EncodeToString(sum[:])[:libraryHash]
	return functions{name, "#!lua name=" + name + "\n" + strings.Replace(registers, "NAME", name, 1) + text.String()}
})

// registers begins the library. The names of functions are the server's, so each begins with the library's.
const registers = "local function register(name, flags, f) redis.register_function{ function_name = 'NAME_' .. name, " +
	"callback = f, flags = flags } end "

// of is the function of a script.
func (f functions) of(s *script) string { return f.name + "_" + s.name }

// ScriptCalled returns the name of the script that a command calls, by the command's name and first argument. It is
// empty if the command calls no script of this version. Tests use it: it takes the hashes of all scripts.
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
	rdb    redis.UniversalClient
	log    *zap.Logger
	limits limits
	// refused is true once a server has refused functions. Then all scripts go by EVAL.
	refused atomic.Bool
}

// isFunction says whether a script is called as a function.
func (c *scriptClient) isFunction(s *script) bool { return s.function && !c.refused.Load() }

// command returns the command that calls a script that the server has.
func (c *scriptClient) command(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	if c.isFunction(s) {
		return c.asFunction(ctx, s, keys, args)
	}
	return c.byHash(ctx, s, keys, args)
}

func (*scriptClient) asFunction(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	return scriptCommand(ctx, "fcall", ownFunctions().of(s), keys, args)
}

func (*scriptClient) byHash(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	return scriptCommand(ctx, "evalsha", s.eval().Hash(), keys, args)
}

func (*scriptClient) byText(ctx context.Context, s *script, keys []string, args []any) *redis.Cmd {
	return scriptCommand(ctx, "eval", s.text(), keys, args)
}

func scriptCommand(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// call calls a script. A server that does not have the function gets the library. If it takes none now, for example
// because it is full, it gets the script. All of that takes no longer than a call may take.
func (c *scriptClient) call(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limits.call)
	defer cancel()
	has := func(cmd *redis.Cmd) bool {
		_ = c.rdb.Process(ctx, cmd)
		return !c.lacks(cmd.Err())
	}
	if c.isFunction(s) {
		cmd := c.asFunction(ctx, s, keys, args)
		if has(cmd) {
			return cmd.Result()
		}
		if c.load(ctx, keys[0]) {
			if cmd = c.asFunction(ctx, s, keys, args); has(cmd) {
				return cmd.Result()
			}
		}
	}
	cmd := c.byHash(ctx, s, keys, args)
	if !has(cmd) {
		cmd = c.byText(ctx, s, keys, args)
		_ = c.rdb.Process(ctx, cmd)
	}
	return cmd.Result()
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
	} else {
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

// dropOthers drops the functions of other versions, until ctx is done. One replica does so.
func (s *Store) dropOthers(ctx context.Context) {
	for {
		pause(ctx, dropOthersEvery)
		if ctx.Err() != nil {
			return
		}
		if s.ownership.Owns(0) && !s.scripts.refused.Load() {
			if err := wrap(s.scripts.dropOthers(ctx)); err != nil {
				s.opts.Logger.Warn("redis did not drop the functions of other versions", zap.Error(err))
			}
		}
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
