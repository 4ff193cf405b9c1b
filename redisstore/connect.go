package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// Embedded is the URL of a Redis that runs inside this process, forgets everything when it ends and serves no replica but
// this one. It is for trying out.
const Embedded = "embedded"

// Connect returns a client for a Redis URL (redis://, rediss:// or Embedded) and a function that closes it. It does not
// wait for Redis to answer. Errors never hold the URL: it may have a password.
func Connect(rawURL string) (redis.UniversalClient, func() error, error) {
	if rawURL == Embedded {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			return nil, nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		client := redis.NewClient(options(&redis.Options{Addr: server.Addr()}))
		return client, func() error { err := client.Close(); server.Close(); return err }, nil
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "redis" && u.Scheme != "rediss") {
		return nil, nil, errors.New("expected redis://[user:password@]host:port[/database], rediss://… for TLS, or \"embedded\"")
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, errors.New("expected redis://[user:password@]host:port[/database]: the database is not a number or an option after \"?\" is unknown")
	}
	client := redis.NewClient(options(opts))
	return client, client.Close, nil
}

func options(o *redis.Options) *redis.Options {
	o.ContextTimeoutEnabled = true
	o.ClientName = "reveille"
	o.DisableIdentity = true
	// A Redis that is away is said so at once: whoever calls waits and tries again by rules of its own. The one retry is
	// for a connection that broke while it was idle.
	o.DialerRetries, o.MaxRetries = 1, 1
	return o
}

// LogTo has the client's own remarks, which are about single connections, written to a log at debug level.
func LogTo(log *zap.Logger) { redis.SetLogger(clientLog{log}) }

type clientLog struct{ log *zap.Logger }

// Printf implements the client's logging interface.
func (l clientLog) Printf(_ context.Context, format string, v ...any) {
	if e := l.log.Check(zap.DebugLevel, "redis client"); e != nil {
		e.Write(zap.String("remark", fmt.Sprintf(format, v...)))
	}
}
