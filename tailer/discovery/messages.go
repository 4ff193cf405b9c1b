package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// messages handles a JSON array of messages, one by one. It returns the mark and next as they are after them.
func (r *registry) messages(ctx context.Context, body io.Reader) (m mark, next unproved, err error) {
	m, next = r.mark, r.next
	begins := m.Piece.N == 0
	if begins {
		m.Piece = piece{From: r.place.Offset}
	}
	n := 0
	err = eachMessage(body, func(raw json.RawMessage) error {
		if next.piece.add(raw); begins {
			m.Piece.add(raw)
		}
		var c change
		failure := json.Unmarshal(raw, &c)
		if failure == nil {
			next.tells(c)
		}
		if n++; n <= r.dealt {
			return nil
		}
		if err := r.message(ctx, c, failure); err != nil {
			return err
		}
		r.dealt = n
		return nil
	})
	return m, next, err
}

// eachMessage calls f for each message of a JSON array.
func eachMessage(body io.Reader, f func(json.RawMessage) error) error {
	in := &allowance{in: body, left: registryElementMax}
	d := json.NewDecoder(in)
	token, err := d.Token()
	if err == nil && token != json.Delim('[') {
		return errForeign
	}
	for err == nil && d.More() {
		in.left = registryElementMax
		var raw json.RawMessage
		if err = d.Decode(&raw); err != nil {
			continue
		}
		if err := f(raw); err != nil {
			return err
		}
	}
	if err == nil {
		in.left = registryElementMax
		_, err = d.Token()
	}
	switch {
	case err == nil:
		return nil
	case in.err != nil: // the body could not be received, and is asked for again
		return fmt.Errorf("GET: %w", in.err)
	}
	return fmt.Errorf("%w: %w", errForeign, err)
}

// timedBody limits each read of a body to registryTime: after that, timer ends the request.
type timedBody struct {
	in    io.Reader
	timer *time.Timer
}

func (t timedBody) Read(b []byte) (int, error) {
	t.timer.Reset(registryTime)
	defer t.timer.Stop()
	return t.in.Read(b)
}

// allowance is a reader that gives no more than left bytes until left is set again.
type allowance struct {
	in   io.Reader
	left int
	err  error
}

var errElementSize = fmt.Errorf("a message is longer than %d bytes", registryElementMax)

func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, errElementSize
	}
	n, err := a.in.Read(p[:min(len(p), a.left)])
	a.left -= n
	if err != nil && err != io.EOF {
		a.err = err
	}
	return n, err
}

// message handles one message, or the failure to read it. After an error it must be handled again.
func (r *registry) message(ctx context.Context, c change, failure error) error {
	if failure != nil {
		r.odd.Log(r.d.log, time.Now()).Warn("a message of the registry stream has another form; it is skipped",
			zap.Error(failure))
		return nil
	}
	name := cmp.Or(c.Value.Path, c.Key)
	path, err := fsm.CanonicalPath("/" + strings.TrimPrefix(name, "/"))
	if err != nil || name == "" || !r.d.Tracked(path) {
		return nil
	}
	switch c.Headers.Operation {
	case "insert", "upsert":
		return r.created(ctx, path, c.made())
	case "delete":
		return r.deleted(ctx, path)
	}
	return nil
}

// deleted is careful with old news. A replica that was slow, or stood still, may read on after another one has taken
// over. The other replica may have handled the deletion, and the stream that was made anew after it.
func (r *registry) deleted(ctx context.Context, path string) error {
	r.d.memory.remove(path)
	// A deletion by a client through the gateway was handled then. The stream may exist again.
	if taken, err := r.d.store.TakeDeletion(ctx, path); taken || err != nil {
		return err
	}
	place, err := r.d.store.RegistryPlace(ctx)
	if err != nil {
		return err
	}
	if place != r.place {
		return errMovedOn
	}
	losses := r.d.memory.losses(path)
	if was, renewed := r.renewed[path]; renewed && was == losses {
		return nil
	}
	if r.first || r.mark.Again != "" {
		// There may be deletions from long ago: a stream that exists stays. A later deletion makes its consumers begin
		// at the start, perhaps a second time: an event too many, never one too few.
		info, err := r.d.up.Look(ctx, path)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !info.Gone() { // after an error, the queue asks again
			r.d.Enqueue(path, Evidence{})
			return nil
		}
	}
	err = r.d.renew(ctx, path, fsm.Deletion{Anew: true})
	if err == nil && r.renewed != nil && len(r.renewed) < renewedMax {
		r.renewed[path] = losses
	}
	return err
}

// created puts a stream on record, so that the registry need not be read again for it, and starts a look at it. What
// the stream holds then may be news to every existing subscription. A later subscription begins at the tail that the
// look shows. The stream was made at the time made, in milliseconds by the stream server's clock; 0 if that is unknown.
func (r *registry) created(ctx context.Context, path string, made int64) error {
	s, err := r.d.await(ctx, path, r.d.cfg.WriteFor)
	if err == nil {
		err = r.replaced(ctx, s, made)
	}
	if err != nil {
		return err
	}
	if len(r.looks) >= registryLooks {
		if err := r.looked(ctx); err != nil {
			return err
		}
	}
	look := make(chan error, 1)
	if r.d.queue.add(path, Evidence{confirm: true}, time.Now(), look) {
		r.looks = append(r.looks, look)
	}
	return nil
}
