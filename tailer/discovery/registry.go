package discovery

import (
	"cmp"
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
	// registryTime bounds how long an answer that is there already may take, and then each read of its body. Dealing
	// with what was read may take longer: the first reading of a registry can find thousands of streams.
	registryTime = 30 * time.Second
	// registryPace is the pause after an answer that shows nothing new.
	registryPace = 50 * time.Millisecond
	// renewedMax bounds the streams in renewed. Further deletions are dealt with once more.
	renewedMax = 100_000
	// registryLooks bounds the looks under way at streams that the registry tells of: the queue has room for others.
	registryLooks = 1000
)

// registry reads the stream in which a server keeps which streams it has (protocol, Registry stream).
type registry struct {
	d *Discovery
	// at is the offset that was read from last, empty before the first read; cursor is the last answer's.
	at     fsm.Offset
	cursor string
	// goal is an end of the registry that a look has shown, until it is read up to there. A registry that grows all the
	// time may never be read to its present end.
	goal fsm.Offset
	// renewed are the streams that were renewed after goal was shown, with the losses of their partitions before that:
	// messages up to goal that tell of their deletion are older, unless the store may have lost the renewal. It is nil
	// beyond goal, where nothing is known of a message's age.
	renewed map[string]int64
	// first is true while the registry is read for the first time ever, by whichever replicas (catchUp).
	first bool
	// dealt is how many messages behind at were dealt with: should the rest have to be read again, a deletion among
	// them must not hit the stream that was made after it.
	dealt int
	// looks are the looks under way at streams that the registry tells of behind at.
	looks []chan error
	// unread is what was logged of reads that failed, foreign of what is no messages, odd of messages of another form.
	unread, foreign, odd fsm.Trouble
}

// change is one message of the registry stream.
type change struct {
	Key   string `json:"key"`
	Value struct {
		Path string `json:"path"`
	} `json:"value"`
	Headers struct {
		Operation string `json:"operation"`
	} `json:"headers"`
}

var (
	// errMovedOn says that another replica has read on, or that the store has lost how far this one had read.
	errMovedOn = errors.New("the store has another offset of the registry stream than it was read from")
	// errForeign says that a body cannot be read as messages.
	errForeign = errors.New("not an array of messages")
)

// run reads the registry until the context ends, while its partition is this replica's.
func (r *registry) run(ctx context.Context) {
	if r.d.cfg.Registry == "" {
		return
	}
	ownership, partition := r.d.store.Ownership(), r.d.store.PartitionOf(r.d.cfg.Registry)
	failures := upstream.Backoff{Min: r.d.cfg.RetryMin, Max: r.d.cfg.RetryMax}
	for ctx.Err() == nil {
		changed := ownership.Changed()
		if !ownership.Owns(partition) {
			r.at = ""
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		again, err := r.tick(ctx)
		switch {
		case err == nil:
			failures.Reset()
		case ctx.Err() == nil && !errors.Is(err, errMovedOn):
			if times, log := r.unread.Happened(time.Now()); log {
				r.d.log.Warn("the registry stream could not be read; it is read again", zap.Int("times", times),
					zap.Error(err))
			}
			again = upstream.Jitter(failures.Next())
		}
		upstream.Sleep(ctx, again)
	}
}

// tick makes one read from where the store says, deals with its messages and returns after how long to go on.
func (r *registry) tick(ctx context.Context) (again time.Duration, err error) {
	at, err := r.d.store.RegistryOffset(ctx)
	if err != nil {
		return 0, err
	}
	read, err := r.d.store.RegistryRead(ctx)
	if err != nil {
		return 0, err
	}
	info, err := r.d.up.Look(ctx, r.d.cfg.Registry)
	switch {
	case err != nil:
		return 0, err
	case !info.Exists && !read:
		if info, err = r.d.up.HeadAnew(ctx, r.d.cfg.Registry); err == nil && !info.Exists {
			err = r.d.store.SetRegistryRead(ctx) // whatever it holds later was written after now
		}
		return upstream.Jitter(r.d.cfg.RetryMax), err
	case !info.Exists:
		return upstream.Jitter(r.d.cfg.RetryMax), nil
	case at.After(info.Tail):
		r.d.log.Info("the registry stream was made anew; it is read from its start", zap.String("was", at.Value()))
		return 0, r.move(ctx, at, fsm.Start)
	}
	if r.at != at {
		r.at, r.cursor, r.dealt, r.looks, r.goal = at, "", 0, nil, ""
	}
	live := at == info.Tail
	if live || r.goal == "" {
		r.goal, r.renewed = info.Tail, map[string]int64{}
	}
	if r.first = !read; !r.goal.After(at) {
		if r.first {
			if err := r.d.store.SetRegistryRead(ctx); err != nil {
				return 0, err
			}
		}
		r.first, r.goal = false, ""
	}
	again, err = r.read(ctx, live)
	if err == nil && r.unread.Over() {
		r.d.log.Info("the registry stream is read again")
	}
	return again, err
}

// read makes one request and deals with its messages. The registry counts as read once the streams that it tells of
// were looked at: a subscription that is created after that begins at the tails that they had.
func (r *registry) read(running context.Context, live bool) (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(running)
	defer cancel()
	patience := registryTime
	if live {
		// Its answer may get lost, which the look before the next one shows.
		patience = upstream.Jitter(r.d.cfg.RegistryCheck)
	}
	timer := time.AfterFunc(patience, cancel)
	defer timer.Stop()
	a, err := r.d.up.Registry(ctx, r.d.cfg.Registry, r.at, live, r.cursor)
	if err == nil {
		defer a.Body.Close()
	}
	switch silent := !timer.Stop(); {
	case silent && live:
		return 0, nil
	case err != nil:
		return 0, err
	case a.Offset == "" || a.Offset == r.at:
		r.cursor = a.Cursor
		return registryPace, nil
	case !a.Offset.After(r.at):
		return 0, upstream.AnswerError{What: "its next offset lies behind the one that was asked for"}
	case !a.Empty:
		if a.Offset.After(r.goal) {
			r.renewed = nil
		}
		err = r.messages(running, timedBody{in: a.Body, timer: timer})
	}
	if errors.Is(err, errForeign) {
		if times, log := r.foreign.Happened(time.Now()); log {
			r.d.log.Warn("the registry stream holds something else than messages in JSON; "+
				"it is skipped up to the next offset",
				zap.String("offset", r.at.Value()), zap.String("next_offset", a.Offset.Value()),
				zap.Int("times", times), zap.Error(err))
		}
		err = nil
	}
	if err == nil {
		err = r.looked(running)
	}
	if err == nil {
		err = r.move(running, r.at, a.Offset)
	}
	if err == nil {
		r.at, r.cursor, r.dealt = a.Offset, a.Cursor, 0
	}
	return 0, err
}

// looked waits until each stream that the registry tells of was looked at once. One that cannot be asked for holds up
// nothing: it is on record, and asked for again.
func (r *registry) looked(ctx context.Context) error {
	for ; len(r.looks) > 0; r.looks = r.looks[1:] {
		select {
		case err := <-r.looks[0]:
			r.d.complain(ctx, "a stream that the registry tells of", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// move tells the store how far the registry was read.
func (r *registry) move(ctx context.Context, from, to fsm.Offset) error {
	moved, err := r.d.store.MoveRegistryOffset(ctx, from, to)
	if err == nil && !moved {
		err = errMovedOn
	}
	return err
}

// messages deals with a JSON array of messages, one by one.
func (r *registry) messages(ctx context.Context, body io.Reader) error {
	in := &allowance{in: body, left: registryElementMax}
	d := json.NewDecoder(in)
	token, err := d.Token()
	if err == nil && token != json.Delim('[') {
		return errForeign
	}
	for n := 0; err == nil && d.More(); n++ {
		in.left = registryElementMax
		var raw json.RawMessage
		if err = d.Decode(&raw); err != nil || n < r.dealt {
			continue
		}
		if err := r.message(ctx, raw); err != nil {
			return err
		}
		r.dealt = n + 1
	}
	if err == nil {
		in.left = registryElementMax
		_, err = d.Token()
	}
	switch {
	case err == nil:
		return nil
	case in.err != nil: // it could not be received, and is asked for again
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

// message deals with one message. An error means that it is to be dealt with again.
func (r *registry) message(ctx context.Context, raw json.RawMessage) error {
	var c change
	if err := json.Unmarshal(raw, &c); err != nil {
		if times, log := r.odd.Happened(time.Now()); log {
			r.d.log.Warn("a message of the registry stream has another form; it is skipped",
				zap.Int("times", times), zap.Error(err))
		}
		return nil
	}
	name := cmp.Or(c.Value.Path, c.Key)
	path, err := fsm.CanonicalPath("/" + strings.TrimPrefix(name, "/"))
	if err != nil || name == "" || !r.d.Tracked(path) {
		return nil
	}
	switch c.Headers.Operation {
	case "insert", "upsert":
		return r.created(ctx, path)
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
	if at != r.at {
		return errMovedOn
	}
	losses := r.d.memory.losses(path)
	if was, renewed := r.renewed[path]; renewed && was == losses {
		return nil
	}
	if r.first {
		// There may be deletions from long before Reveille: a stream that is there stays. Later its consumers begin at
		// the start, once more if need be: an event too many, never one too few.
		info, err := r.d.up.Look(ctx, path)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !info.Gone() { // the queue looks again at one that cannot be asked for
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

// created puts a stream on record, so that the registry need not be read again for it, and has it looked at. What it
// holds by then may be news to every subscription that there is; one that is created later begins at the tail that the
// look shows.
func (r *registry) created(ctx context.Context, path string) error {
	if _, err := r.d.await(ctx, path, r.d.cfg.WriteFor); err != nil {
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
