package discovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

const (
	// namesWidth is how many named streams get a look at a time.
	namesWidth = 32
	// nameFor is how long a stream that an operator has named is awaited. No fact proves that a stream will never be
	// made.
	nameFor = 7 * 24 * time.Hour
)

// Name puts streams on record and links those that exist from their start. The others are awaited. An upstream that
// cannot be asked counts as one without the streams.
func (d *Discovery) Name(ctx context.Context, paths []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(namesWidth)
	for _, path := range paths {
		g.Go(func() error {
			if !d.Tracked(path) {
				return nil
			}
			if _, err := d.await(ctx, path, nameFor); err != nil {
				return fmt.Errorf("stream %s could not be named: %w", path, err)
			}
			_ = d.Do(ctx, path, Evidence{}) // it is on record and tried again
			return nil
		})
	}
	return g.Wait()
}

// Named says whether a setting or a literal pattern names a stream. Reveille waits for the stream while it is named.
func (d *Discovery) Named(path string) bool {
	return slices.Contains(d.cfg.Names, path) ||
		slices.ContainsFunc(d.store.Catalog().Match(path), func(s fsm.Subscription) bool { return literal(s) == path })
}

// enqueueNamed enqueues the streams of some partitions that settings and literal patterns name. The store may not have
// them on record.
func (d *Discovery) enqueueNamed(partitions []int) {
	names := slices.Clone(d.cfg.Names)
	for _, sub := range d.store.Catalog().All() {
		names = append(names, literal(sub))
	}
	for _, path := range names {
		if path != "" && slices.Contains(partitions, d.store.PartitionOf(path)) {
			d.Enqueue(path, Evidence{confirm: true})
		}
	}
}

// literal returns the path that a subscription's pattern names; empty if the pattern has a wildcard.
func literal(s fsm.Subscription) string {
	p, err := fsm.ParsePattern(s.Pattern)
	if err != nil || !p.Literal() {
		return ""
	}
	return p.String()
}
