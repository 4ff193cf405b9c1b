package redisstore

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// passing are the error codes that come from the state of a Redis, not from the request.
var passing = map[string]bool{
	// it starts; a script runs on; no memory; it cannot save; too few replicas
	"LOADING": true, "BUSY": true, "OOM": true, "MISCONF": true, "NOREPLICAS": true,
	"READONLY": true, "MASTERDOWN": true, // a failover
	// a failover or a migration that outlasted the redirections
	"CLUSTERDOWN": true, "TRYAGAIN": true, "MOVED": true, "ASK": true,
	"NOAUTH": true, "WRONGPASS": true, "NOPERM": true, // the operator changes users
	"EXECABORT": true, // any of these, of a transaction
}

// passingTexts are such answers without a code.
var passingTexts = []string{
	"max number of clients reached",
	// A node lost its slots while a script was running. Only a script that runs for seconds gets this.
	"Script attempted to access a non local key", "while the cluster is down",
}

// inScript finds the error code of a command that failed inside a script. Redis before 7 answers, for example,
// "ERR Error running script (call to f_…): @user_script:12: -READONLY You can't write against a read only replica."
var inScript = regexp.MustCompile(`^ERR Error running script .*user_script: ?\d+: -([A-Z]+) `)

// wrap makes errors of a Redis that cannot answer now wrap fsm.ErrUnavailable. All other errors mean a broken
// invariant.
func wrap(err error) error {
	// Sentinels that do not know the master return a wrapped redis.Nil.
	if err == nil || errors.Is(err, redis.Nil) && errors.Unwrap(err) == nil {
		return nil
	}
	var network net.Error
	var reply redis.Error
	switch {
	case errors.As(err, &network), !errors.As(err, &reply), errors.Is(err, redis.Nil), passes(reply.Error()):
		return fmt.Errorf("%w: %w", fsm.ErrUnavailable, err)
	}
	return fmt.Errorf("redis: %w", err)
}

func passes(answer string) bool {
	// If a script raises an error again, Redis puts ERR before it.
	code, _, _ := strings.Cut(strings.TrimPrefix(answer, "ERR "), " ")
	if m := inScript.FindStringSubmatch(answer); m != nil {
		code = m[1]
	}
	if passing[code] {
		return true
	}
	for _, text := range passingTexts {
		if strings.Contains(answer, text) {
			return true
		}
	}
	return false
}
