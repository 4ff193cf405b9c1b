// Package cache has what one replica knows of the store's state: the subscriptions, the endpoints in trouble, and the
// partitions that the replica works for. The store keeps all three up to date. Endpoints count on with the replica's
// own clock from what the store's clock showed.
package cache

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"reveille/fsm"
)

// Catalog is the set of subscriptions as one replica knows it, with an index by pattern. The cost of Match depends on
// the length of the path and on how many patterns match, not on how many there are. It is safe for concurrent use.
type Catalog struct {
	mu      sync.RWMutex
	byID    map[string]*entry
	all     []fsm.Subscription  // by ID; never changed in place
	stale   map[string]struct{} // the IDs that have changed since all was made
	root    node
	version int64
	loaded  bool
	changed chan struct{}
	// outbox is the path that the streams of direct deliveries lie below; empty for none. outboxes counts their
	// subscriptions: other replicas may have made some.
	outbox   string
	outboxes int
	// config is how these subscriptions are delivered.
	config fsm.OutboxConfig
}

type entry struct {
	sub     fsm.Subscription
	pattern fsm.Pattern
}

// node of the index: literal segments by name, and the wildcards apart.
type node struct {
	literal map[string]*node
	one     *node // "*"
	many    *node // "**"
	here    []*entry
}

// newEntry keeps a subscription even if this version of the program refuses its pattern, which a later version
// accepted. Such a subscription matches nothing, but clients can see and delete it. The index holds it at its root,
// where no path ends.
func (c *Catalog) newEntry(s fsm.Subscription) *entry {
	p, _ := fsm.ParsePattern(s.Pattern)
	return &entry{sub: c.config.Deliver(s), pattern: p}
}

// NewCatalog returns an empty Catalog that is not Loaded.
func NewCatalog() *Catalog {
	return &Catalog{byID: map[string]*entry{}, changed: make(chan struct{}), config: fsm.DefaultOutboxConfig}
}

// KeepForOutbox keeps a path, and all streams below it, from all subscriptions but those of direct deliveries.
func (c *Catalog) KeepForOutbox(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox = path
}

// DeliverBy has the subscriptions of direct deliveries follow a configuration.
func (c *Catalog) DeliverBy(config fsm.OutboxConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reflect.DeepEqual(c.config, config) {
		return
	}
	c.config = config
	if c.stale == nil {
		c.stale = map[string]struct{}{}
	}
	for id, e := range c.byID {
		if e.sub.Format == fsm.FormatOutbox {
			e.sub = config.Deliver(e.sub)
			c.stale[id] = struct{}{}
		}
	}
}

// OutboxConfig is the configuration of direct deliveries, as this replica knows it.
func (c *Catalog) OutboxConfig() fsm.OutboxConfig {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.config
}

// IsForOutbox says whether a stream is kept for direct deliveries: by this replica's setting, or because a subscription
// of theirs matches it.
func (c *Catalog) IsForOutbox(path string) bool {
	c.mu.RLock()
	kept, outboxes := c.outbox != "" && fsm.Within(path, c.outbox), c.outboxes
	c.mu.RUnlock()
	return kept || outboxes > 0 &&
		slices.ContainsFunc(c.Match(path), func(s fsm.Subscription) bool { return s.Format == fsm.FormatOutbox })
}

// Replace makes the catalog hold just these subscriptions, as of a version of the store's list. Versions go up, unless
// the store has lost its latest changes. The caller makes sure that lists come in the order in which they were read.
func (c *Catalog) Replace(subs []fsm.Subscription, version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make(map[string]*entry, len(subs))
	var root node
	c.outboxes = 0
	for _, s := range subs {
		e := c.newEntry(s)
		entries[s.ID] = e
		c.count(s, 1)
		root.insert(e.pattern.Segments(), e)
	}
	all := make([]fsm.Subscription, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.sub)
	}
	slices.SortFunc(all, byID)
	c.byID, c.all, c.stale, c.root = entries, all, nil, root
	c.became(version)
}

// Change brings the catalog to a later version of the store's list. The new and the changed subscriptions are in subs;
// the IDs of deleted ones are in gone. The cost depends on these alone, not on the size of the catalog.
func (c *Catalog) Change(subs []fsm.Subscription, gone []string, version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stale == nil {
		c.stale = map[string]struct{}{}
	}
	for _, id := range gone {
		c.take(id)
	}
	for _, s := range subs {
		c.take(s.ID)
		e := c.newEntry(s)
		c.byID[s.ID] = e
		c.count(s, 1)
		c.root.insert(e.pattern.Segments(), e)
	}
	c.became(version)
}

// take removes a subscription.
func (c *Catalog) take(id string) {
	c.stale[id] = struct{}{}
	if e, there := c.byID[id]; there {
		delete(c.byID, id)
		c.root.remove(e.pattern.Segments(), e)
		c.count(e.sub, -1)
	}
}

// count notes that a subscription has come, or has gone.
func (c *Catalog) count(sub fsm.Subscription, n int) {
	if sub.Format == fsm.FormatOutbox {
		c.outboxes += n
	}
}

func (c *Catalog) became(version int64) {
	c.version, c.loaded = version, true
	close(c.changed)
	c.changed = make(chan struct{})
}

func byID(a, b fsm.Subscription) int { return strings.Compare(a.ID, b.ID) }

// Loaded says whether the subscriptions were read at least once.
func (c *Catalog) Loaded() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.loaded
}

// Version of the store's list that the catalog holds.
func (c *Catalog) Version() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// Changed returns a channel that is closed at the next Replace or Change.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Get returns the subscription of that ID.
func (c *Catalog) Get(id string) (fsm.Subscription, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e, ok := c.byID[id]; ok {
		return e.sub, true
	}
	return fsm.Subscription{}, false
}

// All returns every subscription, ordered by ID. The caller must not change the list.
func (c *Catalog) All() []fsm.Subscription {
	c.mu.RLock()
	all, stale := c.all, len(c.stale)
	c.mu.RUnlock()
	if stale == 0 {
		return all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := make([]fsm.Subscription, 0, len(c.stale))
	for id := range c.stale {
		if e, there := c.byID[id]; there {
			changed = append(changed, e.sub)
		}
	}
	slices.SortFunc(changed, byID)
	all = make([]fsm.Subscription, 0, len(c.byID))
	for _, s := range c.all {
		if _, stale := c.stale[s.ID]; stale {
			continue
		}
		for len(changed) > 0 && changed[0].ID < s.ID {
			all, changed = append(all, changed[0]), changed[1:]
		}
		all = append(all, s)
	}
	c.all, c.stale = append(all, changed...), nil
	return c.all
}

// Match returns the subscriptions whose pattern matches a stream path, as Pattern.Matches says, ordered by ID. The
// stream of an outbox is for the subscription of its target alone.
func (c *Catalog) Match(path string) []fsm.Subscription {
	segments, ok := fsm.PathSegments(path)
	if !ok {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	m := matching{found: map[*entry]struct{}{}}
	m.walk(&c.root, segments)
	if len(m.found) == 0 {
		return nil
	}
	kept := c.outbox != "" && fsm.Within(path, c.outbox)
	subs := make([]fsm.Subscription, 0, len(m.found))
	for e := range m.found {
		switch {
		case e.sub.Format == fsm.FormatOutbox:
			return []fsm.Subscription{e.sub}
		case !kept:
			subs = append(subs, e.sub)
		}
	}
	slices.SortFunc(subs, byID)
	return subs
}

func (n *node) insert(segments []string, e *entry) {
	for _, s := range segments {
		var next **node
		switch s {
		case "*":
			next = &n.one
		case "**":
			next = &n.many
		default:
			if n.literal == nil {
				n.literal = map[string]*node{}
			}
			child := n.literal[s]
			if child == nil {
				child = &node{}
				n.literal[s] = child
			}
			n = child
			continue
		}
		if *next == nil {
			*next = &node{}
		}
		n = *next
	}
	n.here = append(n.here, e)
}

// remove takes an entry out, with the nodes that become useless. It returns whether this node is one of them.
func (n *node) remove(segments []string, e *entry) (empty bool) {
	if len(segments) == 0 {
		n.here = slices.DeleteFunc(n.here, func(there *entry) bool { return there == e })
	} else {
		switch s, rest := segments[0], segments[1:]; s {
		case "*":
			if n.one.remove(rest, e) {
				n.one = nil
			}
		case "**":
			if n.many.remove(rest, e) {
				n.many = nil
			}
		default:
			if n.literal[s].remove(rest, e) {
				delete(n.literal, s)
			}
		}
	}
	return len(n.here) == 0 && len(n.literal) == 0 && n.one == nil && n.many == nil
}

// matching is one walk of a path through the index. It visits each node below a "**" once per rest of the path. So a
// pattern with many "**" costs no more than the product of the lengths.
type matching struct {
	found   map[*entry]struct{}
	visited map[visit]struct{}
	// steps counts the cost of the walk.
	steps int
}

type visit struct {
	at   *node
	left int
}

func (m *matching) walk(n *node, path []string) {
	if n.many != nil {
		for i := 0; i <= len(path); i++ {
			m.steps++
			v := visit{n.many, len(path) - i}
			if _, seen := m.visited[v]; seen {
				break // and so was, or will be, every shorter rest
			}
			if m.visited == nil {
				m.visited = map[visit]struct{}{}
			}
			m.visited[v] = struct{}{}
			m.walk(n.many, path[i:])
		}
	}
	if len(path) == 0 {
		for _, e := range n.here {
			m.found[e] = struct{}{}
		}
		return
	}
	if n.one != nil && path[0] != "" {
		m.walk(n.one, path[1:])
	}
	if child := n.literal[path[0]]; child != nil {
		m.walk(child, path[1:])
	}
}
