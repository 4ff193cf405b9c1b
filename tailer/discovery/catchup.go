package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// catchUpPatience is for how many times BackfillWait the creator of a subscription waits for the registry to be read.
const catchUpPatience = 8

// Ready returns nil once the streams are known that the registry stream tells of, and fsm.ErrStreamsUnknown while it is
// read for the first time.
func (d *Discovery) Ready(ctx context.Context) error {
	end, exists := d.registry.end(ctx)
	if !exists {
		return nil
	}
	_, err := d.registry.isBehind(ctx, end)
	return err
}

// catchUp waits until all streams were looked at that the registry tells of by now, so that a subscription which is
// created after that begins where they end. What takes longer costs no event: the subscription then begins earlier.
// Only while the registry is read for the first time catchUp fails, with fsm.ErrStreamsUnknown: the subscription would
// begin at the start of each of the many streams that are not known yet.
func (r *registry) catchUp(ctx context.Context) error {
	end, exists := r.end(ctx)
	if !exists {
		return nil
	}
	wait := upstream.Backoff{Min: registryPace / 5, Max: registryPace}
	for till := time.Now().Add(catchUpPatience * r.d.cfg.BackfillWait); ; {
		behind, err := r.isBehind(ctx, end)
		switch {
		case err == nil && !behind, err != nil && !errors.Is(err, fsm.ErrStreamsUnknown):
			return err
		case time.Now().After(till), !upstream.Sleep(ctx, wait.Next()):
			return err
		}
	}
}

// end returns where the registry ends now, or nothing if it cannot be asked. It says whether there is a registry.
func (r *registry) end(ctx context.Context) (end fsm.Offset, exists bool) {
	if r.d.cfg.Registry == "" {
		return "", false
	}
	info, err := r.d.up.LookNow(ctx, r.d.cfg.Registry)
	return info.Tail, err != nil || info.Exists
}

// isBehind says whether the registry is still to be read up to an offset.
func (r *registry) isBehind(ctx context.Context, end fsm.Offset) (bool, error) {
	seen, _, err := r.d.store.RegistrySeen(ctx)
	if err != nil {
		return false, err
	}
	at, err := r.d.store.RegistryOffset(ctx)
	if err == nil && seen.IsZero() {
		err = fmt.Errorf("%w: the registry stream was read up to %q, its end is %q", fsm.ErrStreamsUnknown, at.Value(),
			end.Value())
	}
	return end.After(at), err
}
