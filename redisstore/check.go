package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// ErrIncompatible is the cause of errors about a Redis or a database that this program cannot work with.
var ErrIncompatible = errors.New("redis cannot be used")

// SettingError is an error that another value of a setting fixes. It wraps ErrIncompatible.
type SettingError struct {
	// Setting is the full name of the setting, such as REVEILLE_TOKEN_KEY.
	Setting string
	// Reason never holds a secret.
	Reason string
}

func (e *SettingError) Error() string { return e.Reason }

// Unwrap implements the interface of errors.Is.
func (e *SettingError) Unwrap() error { return ErrIncompatible }

// layout is the version of the data layout: keys, records and fields (lua/library/keys.lua). It changes when a version
// of this program cannot work with the data that another version has stored.
const layout = "3"

// Check verifies the Redis server and the database. Redis must answer, be of the kind that its URL says, and have
// version 6.2 or later, for 64 bits. The database must hold no data of another layout, partition count or upstream.
// Check writes these three to a database that is used for the first time. It also checks the token keys. Errors wrap
// fsm.ErrUnavailable or ErrIncompatible. If a setting other than the URL is at fault, the error is a SettingError that
// names it.
func (s *Store) Check(ctx context.Context) error {
	if err := s.checkServer(ctx); err != nil {
		return err
	}
	stored, err := s.setOnce(ctx, "layout", layout)
	if err != nil {
		return err
	}
	if stored != layout {
		return fmt.Errorf("%w: its database has data of layout %.20q, this program works with layout %s; run the "+
			"version of Reveille that wrote it, or use another database", ErrIncompatible, stored, layout)
	}
	partitions, err := s.setOnce(ctx, "partitions", strconv.Itoa(s.opts.Partitions))
	if err != nil {
		return err
	}
	if partitions != strconv.Itoa(s.opts.Partitions) {
		return &SettingError{"REVEILLE_PARTITIONS", fmt.Sprintf(
			"the database has REVEILLE_PARTITIONS=%s, this program has %d; the number cannot change",
			partitions, s.opts.Partitions)}
	}
	if err := s.readAge(ctx); err != nil {
		return err
	}
	if err := s.checkTokenKeys(ctx); err != nil {
		return err
	}
	s.warnOfEviction(ctx)
	if s.opts.Upstream == "" {
		return nil
	}
	upstream, err := s.setOnce(ctx, "upstream", s.opts.Upstream)
	if err != nil {
		return err
	}
	if upstream != s.opts.Upstream {
		return &SettingError{"REVEILLE_UPSTREAM_NAME", fmt.Sprintf(
			"the database belongs to the stream server %s, this program has %s "+
				"(REVEILLE_UPSTREAM_NAME or REVEILLE_UPSTREAM_URL); use another database or, if it is the same server "+
				"under a new name, run: redis-cli HSET '%s' upstream '%s'",
			upstream, s.opts.Upstream, s.keys.meta(), s.opts.Upstream)}
	}
	return nil
}

// warnOfEviction logs a warning if Redis may evict consumers. If Redis does not tell its policy, warnOfEviction trusts
// the operator.
func (s *Store) warnOfEviction(ctx context.Context) {
	if s.opts.Embedded {
		return
	}
	policy := ""
	if info, err := s.rdb.Info(ctx, "memory").Result(); err == nil {
		policy = field(info, "maxmemory_policy")
	}
	if policy != "" && policy != "noeviction" {
		s.opts.Logger.Warn("redis evicts keys when its memory is full, which loses consumers; set maxmemory-policy "+
			"to noeviction",
			zap.String("maxmemory_policy", policy))
	}
}

// setOnce stores a setting of the database unless one is stored already, and returns the stored value. The first
// program that uses the database decides.
func (s *Store) setOnce(ctx context.Context, field, value string) (string, error) {
	if err := s.rdb.HSetNX(ctx, s.keys.meta(), field, value).Err(); err != nil {
		return "", refused(err)
	}
	there, err := s.rdb.HGet(ctx, s.keys.meta(), field).Result()
	return there, refused(err)
}

// freshFor is the age at which every partition of a database has an incarnation on record for sure. In a new database,
// lease.lua stores it within a few seconds. A partition that lost its incarnation cannot tell that it ever had one.
const freshFor = 15 * time.Second

// readAge reads when the database was first used, and stores when it stops being new.
func (s *Store) readAge(ctx context.Context) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	text, err := s.setOnce(ctx, "born", strconv.FormatInt(now.UnixMilli(), 10))
	if err != nil {
		return err
	}
	born, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("redis: the time of its first use is stored as %q", text)
	}
	from := time.Now().Add(freshFor - now.Sub(time.UnixMilli(born)))
	s.lasting.Store(&from)
	return nil
}

// isLasting says whether the database is so old that none of its partitions is new.
func (s *Store) isLasting() bool {
	from := s.lasting.Load()
	return from != nil && time.Now().After(*from)
}

func (s *Store) checkServer(ctx context.Context) error {
	if s.opts.Embedded {
		return s.Ping(ctx)
	}
	info, err := s.rdb.Info(ctx, "server").Result()
	if err != nil {
		return refused(err)
	}
	if v := field(info, "redis_version"); !atLeast(v, 6, 2) {
		return fmt.Errorf("%w: it is version %s; version 6.2 or later is needed", ErrIncompatible, v)
	}
	if field(info, "arch_bits") == "32" { // int in lua/library/call.lua
		return fmt.Errorf("%w: it is built for 32 bits; a build for 64 bits is needed", ErrIncompatible)
	}
	_, cluster := s.rdb.(*redis.ClusterClient)
	switch mode := field(info, "redis_mode"); {
	case mode == "sentinel":
		return fmt.Errorf("%w: it is a sentinel; expected redis+sentinel://host:port,…/mastername", ErrIncompatible)
	case mode == "cluster" && !cluster:
		return fmt.Errorf("%w: it is a node of a cluster; expected redis+cluster://host:port,…", ErrIncompatible)
	}
	return nil
}

// refused wraps an error at the start of the program. The program does not wait if only another URL or other
// permissions can fix the error.
func refused(err error) error {
	var network net.Error
	var reply redis.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return &SettingError{
			"REVEILLE_REDIS_CA_FILE", "neither REVEILLE_REDIS_CA_FILE nor the system trusts the certificate of " +
				"Redis: " + oneLine(untrusted.Error()),
		}
	case err == nil, errors.As(err, &network), !errors.As(err, &reply):
	case redis.IsAuthError(err):
		return &SettingError{"REVEILLE_REDIS_PASSWORD", "Redis rejects the user or the password"}
	case redis.IsPermissionError(err):
		return fmt.Errorf("%w: the user lacks permissions: %s", ErrIncompatible, oneLine(reply.Error()))
	case strings.Contains(reply.Error(), "cluster support disabled"),
		strings.Contains(strings.ToLower(reply.Error()), "unknown command 'cluster'"):
		return fmt.Errorf("%w: it is not a cluster; expected redis://host:port", ErrIncompatible)
	case strings.Contains(strings.ToLower(reply.Error()), "unknown command 'sentinel'"):
		return fmt.Errorf("%w: it is not a sentinel; expected redis://host:port", ErrIncompatible)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w: the sentinels know no master of that name", ErrIncompatible)
	}
	return wrap(err)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}

func atLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	return errX == nil && errY == nil && (x > major || x == major && y >= minor)
}
