package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// hintsMax is how many hints may wait to be sent. Further hints are dropped: the replicas notice these changes in
	// other ways.
	hintsMax = 4096
	// hintBatch is how many hints a message has at most.
	hintBatch = 256
)

// The hints that the store itself acts on.
const (
	hintSubscriptions fsm.HintKind = "subscriptions"
	hintReplicas      fsm.HintKind = "replicas"
	hintEndpoints     fsm.HintKind = "endpoints"
)

// hints exchanges hints with other replicas through Redis pub/sub. A message has the sender's ID on the first line and
// one hint on each further line: kind, partition, path.
type hints struct {
	s *Store
	// id is unique among the senders.
	id      string
	waiting chan fsm.Hint
}

func newHints(s *Store, id string) *hints {
	return &hints{s: s, id: id, waiting: make(chan fsm.Hint, hintsMax)}
}

// Hint implements discovery.ReplicaStore.
func (s *Store) Hint(h fsm.Hint) { s.hints.tell(h) }

func (h *hints) tell(hint fsm.Hint) {
	if h.s.alone.Load() && hint.Kind != hintReplicas {
		return
	}
	select {
	case h.waiting <- hint:
	default:
	}
}

func (h *hints) tellReplicas()      { h.tell(fsm.Hint{Kind: hintReplicas}) }
func (h *hints) tellSubscriptions() { h.tell(fsm.Hint{Kind: hintSubscriptions}) }
func (h *hints) tellEndpoints()     { h.tell(fsm.Hint{Kind: hintEndpoints}) }

// send sends hints until ctx is done.
func (h *hints) send(ctx context.Context) {
	for {
		select {
		case hint := <-h.waiting:
			h.publish(ctx, hint)
		case <-ctx.Done():
			return
		}
	}
}

// publish sends a hint, together with hints that wait, in one message.
func (h *hints) publish(ctx context.Context, hint fsm.Hint) {
	var message strings.Builder
	message.WriteString(h.id)
	list := append(make([]fsm.Hint, 0, hintBatch), hint)
	for more := true; more && len(list) < hintBatch; {
		select {
		case hint := <-h.waiting:
			list = append(list, hint)
		default:
			more = false
		}
	}
	for _, hint := range list {
		message.WriteString("\n" + string(hint.Kind) + " " + strconv.Itoa(hint.Partition) + " " + hint.Path)
	}
	ctx, cancel := context.WithTimeout(ctx, h.s.opts.limits.all)
	defer cancel()
	if err := h.s.rdb.Publish(ctx, h.s.keys.hints(), message.String()).Err(); err != nil {
		h.s.opts.Logger.Debug("hints to other replicas were not sent; they notice the changes by themselves",
			zap.Error(err))
	}
}

// receive acts on the hints of other replicas until ctx is done. When its connection breaks, the client subscribes
// again by itself. After each subscription, the store reads the replicas, the subscriptions and the endpoints at once.
// Other missed hints would only have made things faster.
func (h *hints) receive(ctx context.Context) {
	sub := h.s.rdb.Subscribe(ctx, h.s.keys.hints())
	defer func() { _ = sub.Close() }()
	messages := sub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case m, open := <-messages:
			switch m := m.(type) {
			case *redis.Subscription:
				h.act(fsm.Hint{Kind: hintReplicas})
				h.act(fsm.Hint{Kind: hintSubscriptions})
				h.act(fsm.Hint{Kind: hintEndpoints})
			case *redis.Message:
				for _, hint := range h.parse(m.Payload) {
					h.act(hint)
				}
			}
			if !open {
				return
			}
		}
	}
}

// parse returns the hints of another replica's message. It skips lines that it cannot read, because a later version may
// have sent them.
func (h *hints) parse(message string) (list []fsm.Hint) {
	sender, rest, _ := strings.Cut(message, "\n")
	if sender == h.id {
		return nil
	}
	for line := range strings.SplitSeq(rest, "\n") {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 {
			continue
		}
		partition, err := strconv.Atoi(fields[1])
		if err == nil && partition >= 0 && partition < h.s.keys.partitions {
			list = append(list, fsm.Hint{Kind: fsm.HintKind(fields[0]), Partition: partition, Path: fields[2]})
		}
	}
	return list
}

func (h *hints) act(hint fsm.Hint) {
	switch hint.Kind {
	case hintReplicas:
		h.s.replicas.soon()
	case hintSubscriptions:
		h.s.refreshNow.Ring()
	case hintEndpoints:
		h.s.lookNow.Ring()
	default:
		if h.s.opts.Hinted != nil {
			h.s.opts.Hinted(hint)
		}
	}
}
