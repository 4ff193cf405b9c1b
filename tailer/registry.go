package tailer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
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
	t *Tailer
	// loading is true while the registry is read for the first time ever: it then tells of streams that were there before their
	// subscriptions.
	loading bool
	// from is the offset that is read from.
	from fsm.Offset
	// dealt is how many messages behind the offset to read from were dealt with: should the rest have to be read again, a
	// deletion among them must not hit the stream that was made after it.
	dealt int
	// unread is what was logged of reads that failed, foreign of what is no messages, odd of messages of another form.
	unread, foreign, odd fsm.Trouble
}

// change is one message of the registry stream.
type change struct {
	Type  string `json:"type"`
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

// Run reads the registry until the context ends, while its partition is this replica's.
func (r *registry) Run(ctx context.Context) error {
	if r.t.cfg.Registry == "" {
		return nil
	}
	r.t.whileOwned(ctx, r.t.store.PartitionOf(r.t.cfg.Registry), func(ctx context.Context) {
		for ctx.Err() == nil {
			r.follow(ctx)
		}
	})
	return nil
}

// follow reads on from where the store says, until the context ends or that is no longer true.
func (r *registry) follow(ctx context.Context) {
	var offset fsm.Offset
	err := r.t.insist(ctx, "registry", zap.String("stream", r.t.cfg.Registry), func() (err error) {
		offset, err = r.t.store.RegistryOffset(ctx)
		return err
	})
	if err != nil {
		return
	}
	if offset == "" {
		offset = fsm.Start
	}
	r.loading, r.dealt = offset == fsm.Start, 0
	missing := growing{least: r.t.cfg.AwaitMin, most: r.t.cfg.Check}
	failures := growing{least: r.t.cfg.BackoffMin, most: r.t.cfg.Check}
	cursor := ""
	for ctx.Err() == nil {
		info, err := r.t.look(ctx, r.t.cfg.Registry)
		if err == nil && info.Exists && offset.After(info.Tail) {
			info, err = r.t.HeadAnew(ctx, r.t.cfg.Registry)
			if err == nil && info.Exists && offset.After(info.Tail) {
				r.t.log.Info("the registry stream was made anew; it is read from its start", zap.String("was", offset.Value()))
				err = r.move(ctx, offset, fsm.Start)
				offset, r.dealt = fsm.Start, 0
			}
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errMovedOn):
			return
		case err == nil && !info.Exists:
			sleep(ctx, jitter(missing.next()))
			continue
		case err == nil:
			missing.reset()
			live := ""
			if offset == info.Tail {
				live, r.loading = "long-poll", false
			}
			began, was := time.Now(), offset
			offset, cursor, err = r.read(ctx, offset, live, cursor)
			if err == nil && offset == was && time.Since(began) < r.t.cfg.PaceMin {
				err = errSpinning
			}
		}
		switch {
		case errors.Is(err, errMovedOn):
			return
		case err == nil || ctx.Err() != nil:
			failures.reset()
			if err == nil && r.unread.Over() {
				r.t.log.Info("the registry stream is read again")
			}
			continue
		}
		if times, log := r.unread.Happened(time.Now()); log {
			r.t.log.Warn("the registry stream could not be read; it is read again", zap.Int("times", times), zap.Error(err))
		}
		sleep(ctx, jitter(failures.next()))
	}
}

// move tells the store how far the registry was read.
func (r *registry) move(ctx context.Context, from, to fsm.Offset) error {
	var moved bool
	err := r.t.insist(ctx, "registry", zap.String("stream", r.t.cfg.Registry), func() (err error) {
		moved, err = r.t.store.MoveRegistryOffset(ctx, from, to)
		return err
	})
	if err == nil && !moved {
		err = errMovedOn
	}
	return err
}

// read makes one request, deals with its messages and returns the offset to go on from.
func (r *registry) read(ctx context.Context, offset fsm.Offset, live, cursor string) (fsm.Offset, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := r.request(ctx, offset, live, cursor)
	if err != nil || res.Response == nil {
		return offset, "", err
	}
	defer res.Body.Close()
	e, err := headerEvent(res.Header)
	if err != nil || e.offset == "" || e.offset == offset {
		return offset, e.cursor, err
	}
	if !e.offset.After(offset) {
		return offset, "", answerError{"its next offset lies behind the one that was asked for"}
	}
	if res.StatusCode == http.StatusOK {
		r.from = offset
		stop := time.AfterFunc(registryBodyTime, cancel)
		err = r.messages(ctx, res.Body)
		stop.Stop()
		var bad badMessage
		switch {
		case errors.As(err, &bad):
			if times, log := r.foreign.Happened(time.Now()); log {
				r.t.log.Warn("the registry stream holds something else than messages in JSON; it is skipped up to the next offset",
					zap.String("offset", offset.Value()), zap.String("next_offset", e.offset.Value()), zap.Int("times", times), zap.Error(err))
			}
		case err != nil:
			return offset, "", err
		}
	}
	if err := r.move(ctx, offset, e.offset); err != nil {
		return offset, "", err
	}
	r.dealt = 0
	return e.offset, e.cursor, nil
}

// request returns an answer to a read; none if a HEAD has shown that the silent request missed something.
func (r *registry) request(ctx context.Context, offset fsm.Offset, live, cursor string) (reply, error) {
	type result struct {
		reply
		err error
	}
	reqCtx, cancel := context.WithCancel(ctx)
	results := make(chan result, 1)
	go func() {
		res, err := r.t.get(reqCtx, nil, kindRegistry, r.t.cfg.Registry, offset, live, cursor)
		results <- result{res, err}
	}()
	abandon := func() {
		cancel()
		if a := <-results; a.err == nil {
			_ = a.Body.Close()
		}
	}
	silence := time.NewTimer(r.t.cfg.Silence)
	defer silence.Stop()
	for {
		select {
		case a := <-results:
			if a.err != nil {
				cancel()
				return reply{}, a.err
			}
			a.Body = &sharedBody{a.Body, cancel}
			return a.reply, nil
		case <-silence.C:
			abandon()
			return reply{}, nil
		case <-time.After(jitter(r.t.cfg.Check)):
			info, err := r.t.look(ctx, r.t.cfg.Registry)
			if err == nil && (!info.Exists || info.Tail != offset) && live != "" {
				abandon()
				return reply{}, nil
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
				r.t.log.Warn("a message of the registry stream has another form; it is skipped", zap.Int("times", times), zap.Error(err))
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
	if err != nil || name == "" || !r.t.tracked(path) {
		return nil
	}
	switch c.Headers.Operation {
	case "insert", "upsert":
		return r.created(ctx, path, time.UnixMilli(int64(c.Value.CreatedAt)))
	case "delete":
		// A deletion that a client made through here was dealt with then; the stream may be there again by now.
		if r.t.tookDelete(path) {
			return nil
		}
		return r.deleted(ctx, path)
	}
	return nil
}

// deleted is careful with old news: a replica that was slow, or stood still for a while, may read on although another has taken over
// and has dealt with the deletion, and with the stream that was made anew after it.
func (r *registry) deleted(ctx context.Context, path string) error {
	at, err := r.t.store.RegistryOffset(ctx)
	if err != nil {
		return err
	}
	if at != r.from {
		return errMovedOn
	}
	if err := r.t.deleted(ctx, path); err != nil {
		return err
	}
	// Should the stream be there all the same, it is linked again.
	r.t.awaited.doubt(path, 0)
	return r.t.await(ctx, path, false)
}

func (r *registry) created(ctx context.Context, path string, at time.Time) error {
	if l, ok := r.t.linked.Get(path); ok && l.version == r.t.store.Catalog().Version() {
		return nil
	}
	if r.t.awaited.writtenTo(path) || r.t.writes.has(path) {
		return nil // the gateway saw it made and knows more of when that was
	}
	already, err := r.t.linkedTo(ctx, path)
	if err != nil {
		return err
	}
	info, err := r.t.look(ctx, path)
	if err == nil && !info.Exists {
		// A proxy in front of a server that is down says so of every stream, the registry too.
		if own, err := r.t.HeadAnew(ctx, r.t.cfg.Registry); err != nil || !own.Exists {
			return errors.Join(errAway, err)
		}
		info, err = r.t.HeadAnew(ctx, path)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		// A stream that cannot be asked for must not hold up those behind it.
		r.t.awaited.doubt(path, r.t.cfg.GoneGrace)
		return r.t.await(ctx, path, false)
	case !info.Exists:
		return nil
	}
	from := fromStart
	if r.loading {
		from = func(sub fsm.Subscription) fsm.Offset {
			if at.Before(sub.CreatedAt.Add(-registrySkew)) {
				return info.Tail
			}
			return fsm.Start
		}
	}
	if err := r.t.adopt(ctx, path, info.Tail, already, from); err != nil {
		return err
	}
	r.t.awaited.remove(path)
	return nil
}
