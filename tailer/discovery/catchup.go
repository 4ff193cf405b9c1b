package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// catchUpPatience times BackfillWait bounds how long the creator of a subscription waits for the reading of the
// registry.
const catchUpPatience = 8

// Ready returns nil once the streams of the registry stream are known. During the first reading of the registry, it
// returns fsm.ErrStreamsUnknown.
func (d *Discovery) Ready(ctx context.Context) error {
	if d.cfg.Registry == "" {
		return nil
	}
	read, err := d.store.RegistryRead(ctx)
	if err != nil || read {
		return err
	}
	end, exists := d.registry.end(ctx)
	if !exists {
		return nil
	}
	_, err = d.registry.isBehind(ctx, end)
	return err
}

// catchUp waits until the registry was read up to its present end, and each stream in it was looked at. A later
// subscription begins where those streams end. If that takes too long, the subscription begins earlier, which costs no
// event. Only during the first reading, catchUp fails instead, with fsm.ErrStreamsUnknown. The subscription would begin
// at the start of each stream that is not known yet.
func (r *registry) catchUp(ctx context.Context) error {
	patience := catchUpPatience * r.d.cfg.BackfillWait
	till := time.Now().Add(patience)
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	end, exists := r.end(brief)
	if !exists {
		return nil
	}
	for wait := (upstream.Backoff{Min: registryPace / 5, Max: registryPace}); ; {
		behind, err := r.isBehind(ctx, end)
		switch {
		case err == nil && !behind, err != nil && !errors.Is(err, fsm.ErrStreamsUnknown):
			return err
		case time.Now().After(till), !upstream.Sleep(ctx, wait.Next()):
			return err
		}
	}
}

// end returns where the registry ends now; empty if it cannot be asked. exists is false if there is no registry.
func (r *registry) end(ctx context.Context) (end fsm.Offset, exists bool) {
	if r.d.cfg.Registry == "" {
		return "", false
	}
	info, err := r.d.up.HeadAnew(ctx, r.d.cfg.Registry)
	return info.Tail, err != nil || info.Exists
}

// isBehind says whether the registry must still be read up to an offset.
func (r *registry) isBehind(ctx context.Context, end fsm.Offset) (bool, error) {
	read, err := r.d.store.RegistryRead(ctx)
	if err != nil {
		return false, err
	}
	place, err := r.d.store.RegistryPlace(ctx)
	if err == nil && !read {
		err = fmt.Errorf("%w: the registry stream was read up to %q, its end is %q", fsm.ErrStreamsUnknown,
			place.Offset.Value(), end.Value())
	}
	return end.After(place.Offset), err
}
