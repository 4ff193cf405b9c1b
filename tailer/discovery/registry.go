package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// registryElementMax bounds one message of the registry stream in bytes.
	registryElementMax = 64 << 10
	// registryBodyTime bounds how long the body of one answer may take.
	registryBodyTime = 30 * time.Second
	// registrySkew is by how much the clock that stamps the registry's messages may be off.
	registrySkew = 5 * time.Second
)

// registry reads the stream in which a server keeps which streams it has (protocol, Registry stream).
type registry struct {
	d *Discovery
	// loading is true while the registry is read for the first time ever: it then tells of streams that were there
	// before their subscriptions.
	loading bool
	// from is the offset that is read from.
	from fsm.Offset
	// dealt is how many messages behind the offset to read from were dealt with: should the rest have to be read again,
	// a deletion among them must not hit the stream that was made after it.
	dealt int
	// unread is what was logged of reads that failed, foreign of what is no messages, odd of messages of another form.
	unread, foreign, odd fsm.Trouble
}

// change is one message of the registry stream.
type change struct {
	Key   string `json:"key"`
	Value struct {
		Path      string  `json:"path"`
		CreatedAt float64 `json:"createdAt"`
	} `json:"value"`
	Headers struct {
		Operation string `json:"operation"`
	} `json:"headers"`
}

// errMovedOn says that somebody else has read on, or that the store has lost how far this one had read.
var errMovedOn = errors.New("the store has another offset of the registry stream than it was read from")

// run reads the registry until the context ends, while its partition is this replica's.
func (r *registry) run(ctx context.Context) {
	if r.d.cfg.Registry == "" {
		return
	}
	r.d.whileOwned(ctx, r.d.store.PartitionOf(r.d.cfg.Registry), func(ctx context.Context) {
		for ctx.Err() == nil {
			r.follow(ctx)
		}
	})
}

// follow reads on from where the store says, until the context ends or that is no longer true.
func (r *registry) follow(ctx context.Context) {
	var offset fsm.Offset
	err := r.d.insist(ctx, func() (err error) {
		offset, err = r.d.store.RegistryOffset(ctx)
		return err
	})
	if err != nil {
		return
	}
	r.loading, r.dealt = offset == fsm.Start, 0
	missing := upstream.Backoff{Min: r.d.cfg.AwaitMin, Max: r.d.cfg.RetryMax}
	failures := upstream.Backoff{Min: r.d.cfg.RetryMin, Max: r.d.cfg.RetryMax}
	cursor := ""
	for ctx.Err() == nil {
		info, err := r.d.up.Look(ctx, r.d.cfg.Registry)
		if err == nil && info.Exists && offset.After(info.Tail) {
			info, err = r.d.up.HeadAnew(ctx, r.d.cfg.Registry)
			if err == nil && info.Exists && offset.After(info.Tail) {
				r.d.log.Info("the registry stream was made anew; it is read from its start",
					zap.String("was", offset.Value()))
				err = r.move(ctx, offset, fsm.Start)
				offset, r.dealt = fsm.Start, 0
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errMovedOn):
			return
		case err == nil && !info.Exists:
			upstream.Sleep(ctx, upstream.Jitter(missing.Next()))
			continue
		case err == nil:
			missing.Reset()
			live := offset == info.Tail
			r.loading = r.loading && !live
			began, was := time.Now(), offset
			offset, cursor, err = r.read(ctx, offset, live, cursor)
			if err == nil && offset == was && time.Since(began) < r.d.cfg.RegistryPace {
				err = errSpinning
			}
		}
		switch {
		case errors.Is(err, errMovedOn):
			return
		case err == nil || ctx.Err() != nil:
			failures.Reset()
			if err == nil && r.unread.Over() {
				r.d.log.Info("the registry stream is read again")
			}
			continue
		}
		if times, log := r.unread.Happened(time.Now()); log {
			r.d.log.Warn("the registry stream could not be read; it is read again", zap.Int("times", times),
				zap.Error(err))
		}
		upstream.Sleep(ctx, upstream.Jitter(failures.Next()))
	}
}

// move tells the store how far the registry was read.
func (r *registry) move(ctx context.Context, from, to fsm.Offset) error {
	var moved bool
	err := r.d.insist(ctx, func() (err error) {
		moved, err = r.d.store.MoveRegistryOffset(ctx, from, to)
		return err
	})
	if err == nil && !moved {
		err = errMovedOn
	}
	return err
}

// read makes one request, deals with its messages and returns the offset to go on from.
func (r *registry) read(ctx context.Context, offset fsm.Offset, live bool, cursor string) (fsm.Offset, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := r.request(ctx, cancel, offset, live, cursor)
	if err != nil || e == nil {
		return offset, "", err
	}
	defer e.Body.Close()
	if e.Offset == "" || e.Offset == offset {
		return offset, e.Cursor, nil
	}
	if !e.Offset.After(offset) {
		return offset, "", upstream.AnswerError{What: "its next offset lies behind the one that was asked for"}
	}
	if !e.Empty {
		r.from = offset
		stop := time.AfterFunc(registryBodyTime, cancel)
		err = r.messages(ctx, e.Body)
		stop.Stop()
		var bad badMessage
		switch {
		case errors.As(err, &bad):
			if times, log := r.foreign.Happened(time.Now()); log {
				r.d.log.Warn("the registry stream holds something else than messages in JSON; "+
					"it is skipped up to the next offset",
					zap.String("offset", offset.Value()), zap.String("next_offset", e.Offset.Value()),
					zap.Int("times", times), zap.Error(err))
			}
		case err != nil:
			return offset, "", err
		}
	}
	if err := r.move(ctx, offset, e.Offset); err != nil {
		return offset, "", err
	}
	r.dealt = 0
	return e.Offset, e.Cursor, nil
}

var errSpinning = errors.New("upstream answers reads of the registry stream at once without anything new")

// request returns an answer to a read; nil if a HEAD has shown that the silent request missed
// something. cancel ends ctx.
func (r *registry) request(
	ctx context.Context, cancel func(), offset fsm.Offset, live bool, cursor string,
) (*upstream.Answer, error) {
	type result struct {
		answer *upstream.Answer
		err    error
	}
	results := make(chan result, 1)
	go func() {
		a, err := r.d.up.Registry(ctx, r.d.cfg.Registry, offset, live, cursor)
		results <- result{a, err}
	}()
	abandon := func() {
		cancel()
		if a := <-results; a.err == nil {
			_ = a.answer.Body.Close()
		}
	}
	silence := time.NewTimer(r.d.cfg.RegistrySilence)
	defer silence.Stop()
	for {
		select {
		case a := <-results:
			return a.answer, a.err
		case <-silence.C:
			abandon()
			return nil, nil
		case <-time.After(upstream.Jitter(r.d.cfg.RegistryCheck)):
			info, err := r.d.up.Look(ctx, r.d.cfg.Registry)
			if err == nil && (!info.Exists || info.Tail != offset) && live {
				abandon()
				return nil, nil
			}
		}
	}
}

// badMessage is what cannot be read as messages.
type badMessage struct{ cause error }

func (e badMessage) Error() string { return e.cause.Error() }

// messages deals with a JSON array of messages, one by one.
func (r *registry) messages(ctx context.Context, body io.Reader) error {
	in := &allowance{in: body, left: registryElementMax}
	d := json.NewDecoder(in)
	if token, err := d.Token(); err != nil || token != json.Delim('[') {
		return in.cause(fmt.Errorf("it is not an array: %w", orElse(err)))
	}
	for n := 0; d.More(); n++ {
		in.left = registryElementMax
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return in.cause(err)
		}
		if n < r.dealt {
			continue
		}
		var c change
		if err := json.Unmarshal(raw, &c); err != nil {
			if times, log := r.odd.Happened(time.Now()); log {
				r.d.log.Warn("a message of the registry stream has another form; it is skipped",
					zap.Int("times", times), zap.Error(err))
			}
		} else if err := r.change(ctx, c); err != nil {
			return err
		}
		r.dealt = n + 1
	}
	in.left = registryElementMax
	if _, err := d.Token(); err != nil {
		return in.cause(err)
	}
	return nil
}

var errNotArray = errors.New("it begins with something else")

func orElse(err error) error {
	if err == nil {
		return errNotArray
	}
	return err
}

// allowance is a reader that gives no more than left bytes until that is set anew.
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

// cause tells a body that could not be received, which is asked for again, from one that is no good.
func (a *allowance) cause(err error) error {
	if a.err != nil {
		return fmt.Errorf("GET: %w", a.err)
	}
	return badMessage{err}
}

// change deals with one message. An error means that it is to be dealt with again.
func (r *registry) change(ctx context.Context, c change) error {
	name := c.Value.Path
	if name == "" {
		name = c.Key
	}
	path, err := fsm.CanonicalPath("/" + strings.TrimPrefix(name, "/"))
	if err != nil || name == "" || !r.d.Tracked(path) {
		return nil
	}
	switch c.Headers.Operation {
	case "insert", "upsert":
		return r.created(ctx, path, time.UnixMilli(int64(c.Value.CreatedAt)))
	case "delete":
		return r.deleted(ctx, path)
	}
	return nil
}

// deleted is careful with old news: a replica that was slow, or stood still for a while, may read on although another
// has taken over and has dealt with the deletion, and with the stream that was made anew after it.
func (r *registry) deleted(ctx context.Context, path string) error {
	r.d.memory.remove(path)
	// A deletion that a client made through the gateway was dealt with then; the stream may be there again by now.
	if taken, err := r.d.store.TakeDeletion(ctx, path); taken || err != nil {
		return err
	}
	at, err := r.d.store.RegistryOffset(ctx)
	if err != nil {
		return err
	}
	if at != r.from {
		return errMovedOn
	}
	if err := r.d.remove(ctx, path, false); err != nil {
		return err
	}
	// Should the stream be there all the same, it is linked again.
	r.d.Enqueue(path, Evidence{})
	return nil
}

// created puts a stream on record, so that the registry need not be read again for it.
func (r *registry) created(ctx context.Context, path string, at time.Time) error {
	if r.loading {
		if noted, err := r.loaded(ctx, path, at); noted || err != nil {
			return err
		}
	}
	if _, _, err := r.d.store.NoteStream(ctx, fsm.NewStream(path, ""), r.d.cfg.WriteFor); err != nil {
		return err
	}
	r.d.Enqueue(path, Evidence{confirm: true})
	return nil
}

// loaded puts a stream on record that the registry tells of while it is read for the first time ever: it may have been
// there before the subscriptions. That is told by clocks, because nobody had heard of the stream then.
func (r *registry) loaded(ctx context.Context, path string, at time.Time) (noted bool, err error) {
	for _, sub := range r.d.store.Catalog().Match(path) {
		if !at.Before(sub.CreatedAt.Add(-registrySkew)) {
			return false, nil
		}
	}
	s, err := r.d.store.Stream(ctx, path)
	if err != nil || s.Found() {
		return false, err
	}
	info, err := r.d.up.Look(ctx, path)
	if err != nil || !info.Exists {
		return false, ctx.Err() // a stream that cannot be asked for must not hold up those behind it
	}
	n := fsm.NewStream(path, info.Tail)
	n.Stamp = s.Stamp
	if _, noted, err = r.d.store.NoteStream(ctx, n, r.d.cfg.LookEvery); noted {
		r.d.Enqueue(path, Evidence{})
	}
	return noted, err
}

// insist repeats a call of the store until it succeeds; the error is the context's.
func (d *Discovery) insist(ctx context.Context, call func() error) error {
	failures := upstream.Backoff{Min: d.cfg.RetryMin, Max: d.cfg.RetryMax}
	for {
		err := call()
		if err == nil {
			return nil
		}
		d.complain(ctx, "which offset of the registry stream was read last", err)
		if !upstream.Sleep(ctx, upstream.Jitter(failures.Next())) {
			return ctx.Err()
		}
	}
}
