package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm/throttle"
)

// Embedded is the URL of a Redis that runs inside this process. It forgets everything when the process ends, and serves
// only this replica. Use it to try out Reveille.
const Embedded = "embedded"

// forms describes the valid forms of a Redis URL.
const forms = "expected redis://[user:password@]host:port[/database], " +
	"redis+cluster://[user:password@]host:port,host:port,…, " +
	"redis+sentinel://[user:password@]host:port,…/mastername, each with rediss for TLS, or \"embedded\""

// limits bound how long a Redis that does not answer keeps a caller waiting.
type limits struct {
	dial time.Duration
	// read also bounds how long one node that hangs delays a request to all nodes.
	read time.Duration
	// call bounds a whole call, including redirections and repetitions.
	call time.Duration
	// all bounds one call for all partitions. A node that does not answer must not delay the partitions of other nodes.
	all time.Duration
	// census bounds how long a scrape waits for Redis.
	census time.Duration
	// stop bounds the last writes of what is written later, when the program stops.
	stop time.Duration
}

// usual are the limits outside tests. Callers retry by rules of their own. So an early report that Redis is away is
// better than a long wait in here.
var usual = limits{
	dial: 2 * time.Second, read: 3 * time.Second, call: 5 * time.Second, all: 2 * time.Second, census: 2 * time.Second,
	stop: 2 * time.Second,
}

const (
	// topologyAge is the greatest age of the client's list of a cluster's nodes. Otherwise, the client would renew the
	// list only when a node that answers points to another node. It would not notice that a dead node was replaced.
	topologyAge = time.Second
	// redirects is how many redirections a call follows. With pauses that grow from firstPause to longestPause, they
	// outlast the migration of a small slot.
	redirects    = 6
	firstPause   = 10 * time.Millisecond
	longestPause = 200 * time.Millisecond
)

// Encrypted says whether a Redis URL asks for TLS.
func Encrypted(rawURL string) bool {
	scheme, _, _ := strings.Cut(rawURL, "://")
	transport, _, _ := strings.Cut(scheme, "+")
	return transport == "rediss"
}

// WithPassword returns a Redis URL with a password in it, for the user that the URL names. If the URL has a password
// already, or takes none, the error says what value was expected. The error never contains the URL.
func WithPassword(rawURL, password string) (string, error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found {
		return "", errors.New("no value, because the Redis of REVEILLE_REDIS_URL takes no password")
	}
	_, kind, _ := strings.Cut(scheme, "+")
	who, servers := splitUser(rest, kind == "")
	user, given, _ := strings.Cut(who, ":")
	if given != "" {
		return "", errors.New("no value, because REVEILLE_REDIS_URL has a password too")
	}
	return scheme + "://" + user + ":" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20") + "@" + servers, nil
}

// splitUser splits a Redis URL, from behind its "://", at the "@" that ends user and password. If single is true, the
// URL names one server and net/url parses it, so its "@" comes before the first slash.
func splitUser(rest string, single bool) (user, servers string) {
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && single {
		authority = rest[:end]
	}
	at := strings.LastIndexByte(authority, '@')
	return rest[:max(at, 0)], rest[at+1:]
}

// Connect returns a client for a Redis URL, and a function that closes the client. The URL names one server, a cluster,
// sentinels, or Embedded. Connect checks the certificates of encrypted connections against ca. If ca is nil, it checks
// them against the system's authorities. It does not wait for Redis to answer. Errors never contain the URL, because it
// may have a password.
func Connect(rawURL string, ca *x509.CertPool) (redis.UniversalClient, func() error, error) {
	return connectWithin(usual, rawURL, ca)
}

func connectWithin(l limits, rawURL string, ca *x509.CertPool) (redis.UniversalClient, func() error, error) {
	client, closeClient, err := connect(l, rawURL, ca)
	if err == nil {
		client.AddHook(bounded{l.call})
	}
	return client, closeClient, err
}

func connect(l limits, rawURL string, ca *x509.CertPool) (redis.UniversalClient, func() error, error) {
	if rawURL == Embedded {
		server := miniredis.NewMiniRedis()
		if err := server.Start(); err != nil {
			return nil, nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		client := redis.NewClient(options(l, &redis.Options{Addr: server.Addr()}))
		return client, func() error { err := client.Close(); server.Close(); return err }, nil
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	transport, kind, _ := strings.Cut(scheme, "+")
	var encrypted *tls.Config
	switch transport {
	case "redis":
	case "rediss":
		encrypted = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca}
	default:
		return nil, nil, errors.New(forms)
	}
	switch kind {
	case "":
		return connectServer(l, rawURL, ca)
	case "cluster":
		m, err := parseMembers(rest, "6379")
		if err != nil || m.name != "" {
			return nil, nil, errors.New(forms + "; a cluster has no database number")
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: encrypted,
			ContextTimeoutEnabled: true, ClientName: clientName, DisableIdentity: true, DialerRetries: 1,
			DialTimeout: l.dial, ReadTimeout: l.read, ClusterStateReloadInterval: topologyAge,
			MaxRedirects: redirects, MinRetryBackoff: firstPause, MaxRetryBackoff: longestPause,
		})
		return client, client.Close, nil
	case "sentinel":
		m, err := parseMembers(rest, "26379")
		if err != nil || m.name == "" {
			return nil, nil, errors.New(forms + "; sentinels need the name of the master")
		}
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: m.name, SentinelAddrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: encrypted,
			ContextTimeoutEnabled: true, ClientName: clientName, DisableIdentity: true, DialerRetries: 1,
			DialTimeout: l.dial, ReadTimeout: l.read, MaxRetries: 1,
		})
		return client, client.Close, nil
	}
	return nil, nil, errors.New(forms)
}

func connectServer(l limits, rawURL string, ca *x509.CertPool) (redis.UniversalClient, func() error, error) {
	if u, err := url.Parse(rawURL); err != nil || u.Host == "" {
		return nil, nil, errors.New(forms)
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, errors.New(forms + "; the database is not a number, or an option after \"?\" is unknown")
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.RootCAs = ca
	}
	client := redis.NewClient(options(l, opts))
	return client, client.Close, nil
}

// bounded is a client hook that limits how long each call takes.
type bounded struct{ within time.Duration }

// DialHook implements redis.Hook.
func (bounded) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (b bounded) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, b.within)
		defer cancel()
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (b bounded) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, b.within)
		defer cancel()
		return next(ctx, cmds)
	}
}

// members are the parts of a URL that lists several servers. Package net/url cannot parse such a URL: it expects one
// host.
type members struct {
	user, password string
	addrs          []string
	// name is the text behind the slash, which names the sentinels' master.
	name string
}

// parseMembers parses such a URL. A host without a port gets usualPort.
func parseMembers(text, usualPort string) (m members, err error) {
	who, servers := splitUser(text, false)
	user, password, _ := strings.Cut(who, ":")
	if m.user, err = url.PathUnescape(user); err != nil {
		return m, err
	}
	if m.password, err = url.PathUnescape(password); err != nil {
		return m, err
	}
	hosts, name, _ := strings.Cut(servers, "/")
	m.name = name
	for addr := range strings.SplitSeq(hosts, ",") {
		if addr == "" || strings.ContainsAny(addr, "?# ") {
			return m, errors.New("not a host")
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), usualPort)
		}
		m.addrs = append(m.addrs, addr)
	}
	return m, nil
}

const clientName = "reveille"

func options(l limits, o *redis.Options) *redis.Options {
	o.ContextTimeoutEnabled = true
	o.ClientName = clientName
	o.DisableIdentity = true
	// The client reports at once that Redis is away, because callers wait and retry by rules of their own. The one
	// retry is for a connection that broke while it was idle.
	o.DialerRetries, o.MaxRetries = 1, 1
	o.DialTimeout, o.ReadTimeout = l.dial, l.read
	return o
}

// LogTo writes the messages of the Redis client, which are about single connections, to a log at debug level.
func LogTo(log *zap.Logger) {
	redis.SetLogger(&clientLog{log: log, troubles: map[string]*throttle.Trouble{}})
}

// maxRemark is how much of a message is logged, in bytes. maxRemarks is how many kinds of messages are logged.
const maxRemark, maxRemarks = 300, 100

type clientLog struct {
	log *zap.Logger
	mu  sync.Mutex
	// troubles has what was logged of each kind of message, by its format.
	troubles map[string]*throttle.Trouble
}

// Printf implements the client's logging interface.
func (l *clientLog) Printf(_ context.Context, format string, v ...any) {
	e := l.log.Check(zap.DebugLevel, "redis client")
	if e == nil {
		return
	}
	l.mu.Lock()
	t := l.troubles[format]
	if t == nil && len(l.troubles) < maxRemarks {
		t = &throttle.Trouble{}
		l.troubles[format] = t
	}
	l.mu.Unlock()
	if t == nil { // more than maxRemarks kinds, which only happens if the client makes up formats
		return
	}
	if times, log := t.Happened(time.Now()); log {
		text := fmt.Sprintf(format, v...)
		e.Write(zap.String("remark", text[:min(len(text), maxRemark)]), zap.Int("times", times))
	}
}
