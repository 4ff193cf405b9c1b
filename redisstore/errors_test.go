package redisstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// answer is an error as Redis sends it.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// TestWhatPassesIsUnavailable has the answers of Redis 7 and, within scripts, those of 6.2.
func TestWhatPassesIsUnavailable(t *testing.T) {
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"READONLY You can't write against a read only replica. script: 1f, on @user_script:12.",
		"ERR Error running script (call to f_1f): @user_script:12: -READONLY You can't write against a read only " +
			"replica. ",
		"ERR Error running script (call to f_1f): @user_script: 12: -READONLY You can't write against a read only " +
			"replica. ",
		"OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:12.",
		"ERR OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:12.",
		"ERR Error running script (call to f_1f): @user_script:12: -OOM command not allowed when used memory > " +
			"'maxmemory'. ",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"ERR Error running script (call to f_1f): @user_script:3: -MISCONF Errors writing to the AOF file: No space " +
			"left on device ",
		"NOREPLICAS Not enough good replicas to write.",
		"ERR Error running script (call to f_1f): @user_script:3: -NOREPLICAS Not enough good replicas to write. ",
		"CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served",
		"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 3999 127.0.0.1:6381",
		"ASK 3999 127.0.0.1:6381",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"EXECABORT Transaction discarded because of previous errors.", "ERR max number of clients reached",
		"ERR Script attempted to access a non local key in a cluster node script: 1f, on @user_script:3.",
		"ERR Error running script (call to f_1f): @user_script:3: @user_script: 3: Script attempted to access a non " +
			"local key in a cluster node",
	} {
		if err := wrap(answer(text)); !errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, err := range []error{
		io.EOF, &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		errors.New("redis: connection pool timeout"),
		fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", redis.Nil),
	} {
		if got := wrap(err); !errors.Is(got, fsm.ErrUnavailable) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestWhatWillNotPassIsABrokenInvariant(t *testing.T) {
	for _, text := range []string{
		"WRONGTYPE Operation against a key holding the wrong kind of value", "ERR unknown command 'FOO'",
		"CROSSSLOT Keys in request don't hash to the same slot",
		"ERR Error running script (call to f_1f): @user_script:12: user_script:12: attempt to index a nil value",
		"ERR Error running script (call to f_1f): @user_script:12: -WRONGTYPE Operation against a key holding the " +
			"wrong kind of value",
		"BUSYGROUP Consumer Group name already exists",
	} {
		if err := wrap(answer(text)); err == nil || errors.Is(err, fsm.ErrUnavailable) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := wrap(redis.Nil); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}

// TestARefusalIsToldFromAnErrorWithin has the answers of Redis 7 and, for later versions, those with other words.
func TestARefusalIsToldFromAnErrorWithin(t *testing.T) {
	const within = " script: reveille_1f_due, on @user_function:12."
	for _, text := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
		"MISCONF Errors writing to the AOF file: No space left on device",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Writable " +
			"scripts are blocked. Use 'no-writes' flag for read only scripts.",
		"NOREPLICAS Not enough good replicas to write.",
	} {
		if !isRefusal(answer(text)) || isRefusal(answer(text+within)) {
			t.Errorf("%q is a refusal: %v; within a function: %v", text, isRefusal(answer(text)),
				isRefusal(answer(text+within)))
		}
	}
	for _, err := range []error{
		nil, io.EOF, answer("READONLY You can't write against a read only replica."), answer("ERR Function not found"),
		answer("ERR OOM command not allowed when used memory > 'maxmemory'." + within),
	} {
		if isRefusal(err) {
			t.Errorf("%v is taken for a refusal", err)
		}
	}
}
