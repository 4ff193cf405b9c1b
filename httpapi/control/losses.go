package control

import (
	"context"
	"time"

	"github.com/google/uuid"

	"reveille/fsm"
)

// maxLosses bounds the losses that a replica remembers. More of them are told under no subscription.
const maxLosses = 1000

// lossKey says whose consumers were lost, and how.
type lossKey struct{ kind, subscription string }

// loss is consumers that were lost, and not told of yet.
type loss struct {
	id        string
	at        time.Time
	stream    string
	consumers int
	// tried is how many of them the notice counts that was tried last; 0 if none was.
	tried int
	// following is the stream of the first consumer behind those.
	following string
	// next is when operators may be told of it; zero for now.
	next time.Time
}

// lossKinds are the kinds of notices by the causes of removals. Nobody has asked for these.
var lossKinds = map[fsm.RemovalCause]string{
	fsm.RemovedGivenUp: noticeGivenUp, fsm.RemovedStreamGone: noticeNoStream,
}

// followed notes the consumers that an outcome says are lost.
func (n *Notices) followed(o fsm.Outcome, _ fsm.Sighting) {
	for _, c := range o.Removed {
		if kind, lost := lossKinds[c.Cause]; lost {
			n.lost(kind, c)
		}
	}
}

func (n *Notices) lost(kind string, c fsm.Removal) {
	if n.Stream == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := lossKey{kind, c.Subscription}
	if n.losses[key] == nil {
		if len(n.losses) >= maxLosses {
			key.subscription = ""
		}
		if n.losses == nil {
			n.losses = map[lossKey]*loss{}
		}
	}
	l := n.losses[key]
	if l == nil {
		l = &loss{}
		n.losses[key] = l
	}
	if l.consumers == l.tried { // the next notice begins with this one
		l.following = c.Primary
	}
	if l.consumers == 0 {
		l.begin(n.Control.Clock())
	}
	l.consumers++
}

// begin makes the next notice.
func (l *loss) begin(now time.Time) { l.id, l.at, l.stream = "evt_"+uuid.NewString(), now, l.following }

// tellLosses tells of what this replica has seen. The next notice about the same subscription comes After this one, or
// at the stop of the program (all). What cannot be told now is told by a later call, under the same ID. It returns how
// many notices it could not tell.
func (n *Notices) tellLosses(ctx context.Context, all bool) (left int) {
	for {
		notices, keys := n.lossesDue(all)
		if len(notices) == 0 {
			return 0
		}
		if n.append(ctx, notices) != nil {
			return n.untoldLosses()
		}
		n.mu.Lock()
		now := n.Control.Clock()
		for _, key := range keys {
			l := n.losses[key]
			l.consumers, l.tried, l.next = l.consumers-l.tried, 0, now.Add(n.After)
			l.begin(now) // of those that came meanwhile
		}
		n.mu.Unlock()
	}
}

// lossesDue returns the notices of some losses. It forgets losses that were told After ago.
func (n *Notices) lossesDue(all bool) (notices []notice, keys []lossKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Control.Clock()
	for key, l := range n.losses {
		switch {
		case l.next.After(now) && (!all || l.consumers == 0), len(notices) == noticesAtATime:
			continue
		case l.consumers == 0:
			delete(n.losses, key)
			continue
		case l.tried == 0:
			l.tried = l.consumers
		}
		at := l.at.UTC()
		keys = append(keys, key)
		notices = append(notices, notice{
			SpecVersion: "1.0", ID: l.id, Type: key.kind, Source: n.Source, Time: at, Subject: key.subscription,
			Data: noticeData{Subscription: key.subscription, Stream: l.stream, Consumers: l.tried, Since: &at},
		})
	}
	return notices, keys
}

func (n *Notices) untoldLosses() (left int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.losses {
		if l.consumers > 0 {
			left++
		}
	}
	return left
}
