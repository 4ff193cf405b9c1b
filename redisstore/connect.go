package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// Embedded is the URL of a Redis that runs inside this process, forgets everything when it ends and serves no replica but
// this one. It is for trying out.
const Embedded = "embedded"

// forms is what a Redis URL may look like.
const forms = "expected redis://[user:password@]host:port[/database], redis+cluster://[user:password@]host:port,host:port,…, " +
	"redis+sentinel://[user:password@]host:port,…/mastername, each with rediss for TLS, or \"embedded\""

// Connect returns a client for a Redis URL (one server, a cluster, sentinels, or Embedded) and a function that closes it.
// It does not wait for Redis to answer. Errors never hold the URL: it may have a password.
func Connect(rawURL string) (redis.UniversalClient, func() error, error) {
	if rawURL == Embedded {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			return nil, nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		client := redis.NewClient(options(&redis.Options{Addr: server.Addr()}))
		return client, func() error { err := client.Close(); server.Close(); return err }, nil
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	transport, kind, _ := strings.Cut(scheme, "+")
	var encrypted *tls.Config
	switch transport {
	case "redis":
	case "rediss":
		encrypted = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, nil, errors.New(forms)
	}
	switch kind {
	case "":
		return connectServer(rawURL)
	case "cluster":
		m, err := parseMembers(rest)
		if err != nil || m.name != "" {
			return nil, nil, errors.New(forms + "; a cluster has no database number")
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: encrypted,
			ContextTimeoutEnabled: true, ClientName: clientName, DisableIdentity: true, DialerRetries: 1,
		})
		return client, client.Close, nil
	case "sentinel":
		m, err := parseMembers(rest)
		if err != nil || m.name == "" {
			return nil, nil, errors.New(forms + "; sentinels need the name of the master")
		}
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: m.name, SentinelAddrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: encrypted,
			ContextTimeoutEnabled: true, ClientName: clientName, DisableIdentity: true, DialerRetries: 1,
		})
		return client, client.Close, nil
	}
	return nil, nil, errors.New(forms)
}

func connectServer(rawURL string) (redis.UniversalClient, func() error, error) {
	if u, err := url.Parse(rawURL); err != nil || u.Host == "" {
		return nil, nil, errors.New(forms)
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, errors.New(forms + "; the database is not a number, or an option after \"?\" is unknown")
	}
	client := redis.NewClient(options(opts))
	return client, client.Close, nil
}

// members are the servers that a URL lists. net/url cannot read them: it knows one host.
type members struct {
	user, password string
	addrs          []string
	// name is what stands behind the slash.
	name string
}

func parseMembers(text string) (m members, err error) {
	if at := strings.LastIndex(text, "@"); at >= 0 {
		user, password, _ := strings.Cut(text[:at], ":")
		if m.user, err = url.PathUnescape(user); err != nil {
			return m, err
		}
		if m.password, err = url.PathUnescape(password); err != nil {
			return m, err
		}
		text = text[at+1:]
	}
	hosts, name, _ := strings.Cut(text, "/")
	m.name = name
	for addr := range strings.SplitSeq(hosts, ",") {
		if addr == "" || strings.ContainsAny(addr, "?# ") {
			return m, errors.New("not a host")
		}
		m.addrs = append(m.addrs, addr)
	}
	return m, nil
}

const clientName = "reveille"

func options(o *redis.Options) *redis.Options {
	o.ContextTimeoutEnabled = true
	o.ClientName = clientName
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
