package redisstore

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

// keyPrefix begins every key.
const keyPrefix = "rv"

// keys builds every key that Go code names. The file lua/library/keys.lua lists the keys within a partition.
type keys struct{ partitions int }

// partition returns the prefix that all keys of a partition share, hash tag included.
func (k keys) partition(p int) string { return keyPrefix + ":{" + strconv.Itoa(p) + "}:" }

// guard returns the keys that every script of a partition declares: the prefix and a second name. Neither is ever
// stored. While the partition's slot moves, the old node has neither key and points to the new node. The new node
// answers TRYAGAIN to a script with several keys if it lacks some of them. So no script ever runs on half of a
// partition.
func (k keys) guard(p int) []string { return []string{k.partition(p), k.partition(p) + "~"} }

// partitionIn returns the partition that has this prefix.
func (k keys) partitionIn(prefix string) int {
	_, number, _ := strings.Cut(prefix, "{")
	number, _, _ = strings.Cut(number, "}")
	p, err := strconv.Atoi(number)
	if err != nil {
		panic("redisstore: " + prefix + " is no partition's prefix")
	}
	return p
}

func (k keys) partitionOf(path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int(h.Sum32() % uint32(k.partitions))
}

// consumersOf names the set of a subscription's consumers in a partition.
func (k keys) consumersOf(sub fsm.Subscription, p int) string {
	return k.partition(p) + "b:" + sub.ID + ":" + sub.Generation
}

// deliveryLog names the Redis stream with a subscription's delivery attempts. The logs are spread over the partitions,
// and so over the nodes of a cluster. No script uses them.
func (k keys) deliveryLog(id, generation string) string {
	return k.partition(k.partitionOf(id)) + "log:" + id + ":" + generation
}

// countedHour names the hash with what is counted of a subscription's attempts in an hour, and countedMinute that of a
// minute (counter.go). They lie in the same partition, spread like the logs.
func (k keys) countedHour(of subOf, hour int64) string {
	return k.countsOf(of) + "h" + strconv.FormatInt(hour, 10)
}

func (k keys) countedMinute(of subOf, minute int64) string {
	return k.countsOf(of) + "m" + strconv.FormatInt(minute, 10)
}

func (k keys) countsOf(of subOf) string {
	return k.partition(k.partitionOf(of.id)) + "counts:" + of.id + ":" + of.generation + ":"
}

// counted names all counts of a subscription that may be shown at a time: those of the minutes, then those of the
// hours, the oldest first.
func (k keys) counted(of subOf, now time.Time) (names []string) {
	for minute := minuteOf(now) - fsm.CountedMinutes + 1; minute <= minuteOf(now); minute++ {
		names = append(names, k.countedMinute(of, minute))
	}
	for hour := hourOf(now) - fsm.CountedHours + 1; hour <= hourOf(now); hour++ {
		names = append(names, k.countedHour(of, hour))
	}
	return names
}

// limits names what is kept of some limits. Like the logs, they are spread over the partitions, by the last of them.
func (k keys) limits(limits []fsm.Limit) (names []string) {
	p := k.partition(k.partitionOf(limits[len(limits)-1].Name))
	for _, l := range limits {
		names = append(names, p+"rate:"+l.Name)
	}
	return names
}

func (k keys) watched(p int) string      { return k.partition(p) + "watched" }
func (k keys) due(p int) string          { return k.partition(p) + "due" }
func (k keys) delayed(p int) string      { return k.partition(p) + "delayed" }
func (k keys) eventStreams(p int) string { return k.partition(p) + "event_streams" }
func (k keys) metaOf(p int) string       { return k.partition(p) + "meta" }
func (k keys) lease(p int) string        { return k.partition(p) + "lease" }

// droppingIn names the hash of deleted subscriptions that have data left in a partition.
func (k keys) droppingIn(p int) string { return k.partition(p) + "dropping" }

// Keys that belong to no partition share a hash tag of their own.
func (k keys) global(name string) string { return keyPrefix + ":{subs}:" + name }
func (k keys) subscriptions() string     { return k.global("all") }
func (k keys) version() string           { return k.global("version") }
func (k keys) changes() string           { return k.global("changes") }
func (k keys) outbox() string            { return k.global("outbox") }
func (k keys) endpoints() string         { return k.global("endpoints") }
func (k keys) endpointsVersion() string  { return k.global("endpoints_version") }
func (k keys) endpointsChanges() string  { return k.global("endpoints_changes") }
func (k keys) pauses() string            { return k.global("pauses") }
func (k keys) audit() string             { return k.global("audit") }
func (k keys) troubles() string          { return k.global("troubles") }
func (k keys) logged() string            { return k.global("logged") }
func (k keys) backfills() string         { return k.global("backfill") }
func (k keys) dropping() string          { return k.global("dropping") }
func (k keys) registry() string          { return k.global("registry") }
func (k keys) registryMark() string      { return k.global("registry_mark") }
func (k keys) registrySince() string     { return k.global("registry_since") }
func (k keys) registryRead() string      { return k.global("registry_read") }
func (k keys) meta() string              { return k.global("meta") }
func (k keys) tokenKeys() string         { return k.global("token_keys") }
func (k keys) replicas() string          { return k.global("replicas") }
func (k keys) unnoted() string           { return k.global("unnoted") }
func (k keys) left() string              { return k.global("left") }
func (k keys) aliveSince() string        { return k.global("alive_since") }

// listOfEndpoints are the keys of the list of endpoints in trouble.
func (k keys) listOfEndpoints() []string {
	return []string{k.endpoints(), k.endpointsVersion(), k.endpointsChanges()}
}

// hints names the channel on which replicas exchange hints.
func (k keys) hints() string { return k.global("hints") }
