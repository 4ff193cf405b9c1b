package tailer

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

// Name is fsm.Streams'. An upstream that cannot be asked counts as one that does not have the streams yet.
func (t *Tailer) Name(ctx context.Context, paths []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(backfillWidth)
	for _, path := range paths {
		g.Go(func() error {
			if !t.tracked(path) {
				return nil
			}
			if err := t.name(ctx, path); err != nil {
				return fmt.Errorf("stream %s could not be named: %w", path, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (t *Tailer) name(ctx context.Context, path string) error {
	already, err := t.linkedTo(ctx, path)
	if err != nil {
		return err
	}
	info, err := t.Head(ctx, path)
	if err == nil && info.Exists {
		return t.adopt(ctx, path, info.Tail, already, fromStart)
	}
	return t.await(ctx, path, true)
}

// linkedTo returns the subscriptions that a stream has been linked to, by what the store knows of it. Linking it again would bring
// back a consumer whose worker has unsubscribed.
func (t *Tailer) linkedTo(ctx context.Context, path string) ([]subscriptionKey, error) {
	known, found, err := t.store.Known(ctx, path)
	if err != nil || !found || known.Awaited {
		return nil, err
	}
	return t.finished(ctx, t.store.Catalog().Match(path))
}

// isNamed says whether a stream is waited for whatever becomes of it: a setting or a literal pattern names it.
func (t *Tailer) isNamed(path string) bool {
	if slices.Contains(t.cfg.Names, path) || t.awaited.isNamed(path) {
		return true
	}
	return slices.ContainsFunc(t.store.Catalog().Match(path), func(s fsm.Subscription) bool { return literal(s) == path })
}

// literal is the path that a subscription's pattern names, or empty if it has a wildcard.
func literal(s fsm.Subscription) string {
	p, err := fsm.ParsePattern(s.Pattern)
	if err != nil || !p.Literal() {
		return ""
	}
	return p.String()
}

// await remembers a stream that does not exist yet and asks for it until it does.
func (t *Tailer) await(ctx context.Context, path string, named bool) error {
	t.awaited.add(path, named)
	_, _, err := t.store.NoteKnown(ctx, path, true)
	return err
}
