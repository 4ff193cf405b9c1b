package discovery

import "context"

// whileOwned calls f whenever a partition comes to be this replica's, with a context that ends when it no longer is or
// when the store may have lost its latest changes to it; f must then return. It returns when ctx is done.
func (d *Discovery) whileOwned(ctx context.Context, partition int, f func(ctx context.Context)) {
	ownership := d.store.Ownership()
	for ctx.Err() == nil {
		changed, doubts := ownership.Changed(), ownership.Doubts(partition)
		if !ownership.Owns(partition) {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		owned, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ownership.Owns(partition) && ownership.Doubts(partition) == doubts {
				select {
				case <-owned.Done():
					return
				case <-changed:
				}
				changed = ownership.Changed()
			}
			cancel()
		}()
		f(owned)
		cancel()
		<-over
	}
}
