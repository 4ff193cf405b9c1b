package redisstore

import (
	"context"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// patient are the limits of tests in which no server hangs: a process that pauses for a while is waited for.
var patient = limits{
	dial: 5 * time.Minute, read: 5 * time.Minute, call: 5 * time.Minute, all: 5 * time.Minute, census: 5 * time.Minute,
	stop: 5 * time.Minute,
}

// ConnectPatiently is Connect with limits that no pause of a process reaches.
func ConnectPatiently(rawURL string, ca *x509.CertPool) (redis.UniversalClient, func() error, error) {
	return connectWithin(patient, rawURL, ca)
}

// Patient returns the options with limits that no pause of a process reaches.
func (o Options) Patient() Options {
	o.limits = patient
	return o
}

// DroppedAtATime is how many dead letters are dropped at a time.
const DroppedAtATime = droppedAtATime

// TallyFew is TallyConsumers, but looks at so many consumers at a time.
func (s *Store) TallyFew(ctx context.Context, subs []fsm.Subscription, most int) ([]fsm.Tally, error) {
	return s.tally(ctx, subs, most)
}

// TallyWithin is TallyConsumers with other bounds: it looks at so many consumers at a time, and at so many in all.
func (s *Store) TallyWithin(ctx context.Context, subs []fsm.Subscription, most, bound int) ([]fsm.Tally, error) {
	return s.tallyWithin(ctx, subs, most, bound)
}

// TallyEachFew is TallyEach, but looks at so many consumers at a time.
func (s *Store) TallyEachFew(ctx context.Context, subs []fsm.Subscription, most, bound int) ([]fsm.Tally, error) {
	return s.tallyEach(ctx, subs, most, bound)
}

// Clear removes what deleted subscriptions have left, as Run does now and then.
func (s *Store) Clear(ctx context.Context) error { return s.clear(ctx) }

// DropIn removes what a deleted subscription has left in a partition, even if nothing is left.
func (s *Store) DropIn(ctx context.Context, partition int, sub fsm.Subscription) error {
	return s.drop(ctx, []dropping{{partition: partition, id: sub.ID, generation: sub.Generation}})
}

// BoundLetters drops dead letters that are too old or too many, as Run does now and then.
func (s *Store) BoundLetters(ctx context.Context) error { return s.boundLetters(ctx) }

// ReadEndpoints reads which endpoints are in trouble, as Run does every second.
func (s *Store) ReadEndpoints(ctx context.Context) error { return s.readEndpoints(ctx) }

// LogWaiting is how many attempts may wait to be written to the delivery log.
const LogWaiting = logWaiting

// WriteLog writes what waits for the delivery log, and removes the logs of deleted subscriptions, as Run does.
func (s *Store) WriteLog(ctx context.Context) error {
	defer s.log.sweep(ctx)
	return s.log.writeAll(ctx)
}

// LogKey is where the delivery log of a subscription is.
func (s *Store) LogKey(sub fsm.Subscription) string {
	return s.keys.deliveryLog(sub.ID, sub.Generation)
}

// RepeatUnanswered sends the calls again that were not answered, as Run does.
func (s *Store) RepeatUnanswered(ctx context.Context) { s.repeatOnce(ctx) }

// LoadScripts has a server know all scripts by their hashes.
func LoadScripts(ctx context.Context, rdb redis.UniversalClient) error {
	for _, s := range scripts {
		if err := rdb.ScriptLoad(ctx, s.text()).Err(); err != nil {
			return err
		}
	}
	load := func(ctx context.Context, server *redis.Client) error {
		return server.FunctionLoad(ctx, ownFunctions().text).Err()
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, load)
	}
	return load(ctx, rdb.(*redis.Client))
}

// ExpireEvents is expireEvents.
func (s *Store) ExpireEvents(ctx context.Context) error { return s.expireEvents(ctx) }

// SeeToLosses is resumeLost.
func (s *Store) SeeToLosses(ctx context.Context) error { return s.resumeLost(ctx) }

// WriteCounts writes what waits for the statistics, as Run does.
func (s *Store) WriteCounts(ctx context.Context) error { return s.counter.write(ctx) }

// RunCounter writes what waits for the statistics until ctx is done, as Run does.
func (s *Store) RunCounter(ctx context.Context) { s.counter.run(ctx) }

// IndexLogs compares the index of the delivery logs with the logs, as Run does.
func (s *Store) IndexLogs(ctx context.Context) error { return s.log.indexAll(ctx) }

// DropOtherFunctions drops the functions of other versions, whatever this replica owns.
func (s *Store) DropOtherFunctions(ctx context.Context) error { return s.scripts.dropOthers(ctx) }

// DropOthers drops the functions of other versions at an interval, as Run does. DropOthersOnce does so once.
func (s *Store) DropOthers(ctx context.Context, every time.Duration) { s.dropOthers(ctx, every) }

// DropOthersOnce is one turn of DropOthers.
func (s *Store) DropOthersOnce(ctx context.Context) { s.dropOthersOnce(ctx) }

// FunctionsName is the name of this version's library of functions.
func FunctionsName() string { return ownFunctions().name }

// RecordParts are the parts of a consumer's record.
var RecordParts = append(slices.Concat(recordLines...), "primary", "acked", "aside")

// WithPart returns a consumer's record with another part in place of one.
func WithPart(record, part, is string) string {
	lines := strings.Split(record, "\n")
	for i, names := range append(slices.Clone(recordLines), []string{"primary"}, []string{"acked"}, []string{"aside"}) {
		at := slices.Index(names, part)
		switch {
		case at < 0:
		case len(names) == 1:
			lines[i] = is
		default:
			if lines[i] == "" {
				lines[i] = strings.TrimSpace(strings.Repeat("0 ", len(names)))
			}
			words := strings.Split(lines[i], " ")
			words[at] = is
			lines[i] = strings.Join(words, " ")
		}
	}
	return strings.Join(lines, "\n")
}
