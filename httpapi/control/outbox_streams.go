package control

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

const (
	// removeEvery is how often Run looks for streams to remove; more often if a Roll is shorter.
	removeEvery = time.Minute
	// repeatedFor is for how long a hand-over is likely to be repeated. The store knows its key for longer, unless it
	// has lost it.
	repeatedFor = 24 * time.Hour
)

// The ID of an event has 20 hexadecimal digits of its own, then the end of its streams, and a digit that says which one
// of the streams it is.
const (
	idDigits  = 20
	endDigits = 8
)

// idOf returns the ID of an event whose streams take events until an end, in seconds since 1970. The key and the target
// decide all else of it. So a hand-over that is repeated until then leads to the same place, whatever the store has
// lost.
func (o *Outbox) idOf(e fsm.OutboxEvent, end int64) string {
	sum := sha256.Sum256([]byte(e.Key + "\n" + e.Target))
	lane := strconv.Itoa(int(sum[idDigits/2]) % fsm.OutboxLanes)
	digits := fmt.Sprintf("%x%0*x%s", sum[:idDigits/2], endDigits, end, lane)
	return fsm.NewOutboxID(o.Store.PartitionOf(o.streamUntil(e.Target, end, lane)), digits)
}

// earlierID returns the ID that an event has if it was handed over a while ago, to streams that have ended since; empty
// if they have not.
func (o *Outbox) earlierID(e fsm.OutboxEvent) string {
	before := e
	before.CreatedAt -= min(o.Roll, repeatedFor).Milliseconds()
	if end := o.endOf(before); end != o.endOf(e) {
		return o.idOf(e, end)
	}
	return ""
}

// endOf is until when the streams take events that an event goes to, in seconds since 1970. Those of another target end
// at another time, so that not all begin at once.
func (o *Outbox) endOf(e fsm.OutboxEvent) int64 {
	roll := max(int64(o.Roll/time.Second), 1)
	sum := sha256.Sum256([]byte(e.Target))
	at := e.CreatedAt/1000 + int64(binary.BigEndian.Uint32(sum[:]))%roll
	return e.CreatedAt/1000 + roll - at%roll
}

// endOfID is the end in an ID; 0 if another program has made the ID.
func endOfID(id string) int64 {
	_, digits, _ := strings.Cut(strings.TrimPrefix(id, fsm.OutboxPrefix), "_")
	if len(digits) != idDigits+endDigits+1 {
		return 0
	}
	end, _ := strconv.ParseInt(digits[idDigits:idDigits+endDigits], 16, 64)
	return end
}

// endOfStream is the end in the name of a stream; 0 if another program has made the stream.
func endOfStream(stream string) int64 {
	end, _, _ := strings.Cut(stream[strings.LastIndexByte(stream, '/')+1:], "-")
	n, err := strconv.ParseInt(end, 16, 64)
	if err != nil || len(end) != endDigits {
		return 0
	}
	return n
}

// streamOf returns the stream of an event, which its ID decides.
func (o *Outbox) streamOf(target, id string) string {
	return o.streamUntil(target, endOfID(id), id[len(id)-1:])
}

func (o *Outbox) streamUntil(target string, end int64, lane string) string {
	return fmt.Sprintf("%s/%0*x-%s", o.pathOf(target), endDigits, end, lane)
}

// pathOf is what the streams of a target lie below.
func (o *Outbox) pathOf(target string) string { return o.Root + "/" + hashOf(o.Root, target) }

// hashOf returns 24 hexadecimal digits that are the same for the same lines.
func hashOf(lines ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:12])
}

// removeStreams removes streams of this replica's partitions whose events are all over and no longer kept.
func (o *Outbox) removeStreams(ctx context.Context) {
	streams, err := o.Store.UnusedStreams(ctx)
	o.notRemoved(ctx, "", err)
	var removed atomic.Int64
	var work errgroup.Group
	work.SetLimit(releasedAtOnce)
	for _, stream := range streams {
		end := time.Unix(endOfStream(stream), 0)
		over := end.Add(min(o.Roll, repeatedFor)).Before(o.Control.Clock())
		if end.Unix() == 0 || !over || !fsm.Within(stream, o.Root) {
			continue
		}
		work.Go(func() error {
			short, cancel := context.WithTimeout(ctx, handOverTime)
			defer cancel()
			done, err := o.removeStream(short, stream)
			if o.notRemoved(ctx, stream, err); done {
				removed.Add(1)
			}
			return nil
		})
	}
	if _ = work.Wait(); removed.Load() > 0 {
		o.Control.Log.Info("streams were removed whose events are not kept any more",
			zap.Int64("streams", removed.Load()))
	}
}

// removeStream removes a stream unless it must stay. It says whether the stream was there. A removal ends with a later
// call. By then, no hand-over is under way that knew nothing of it.
func (o *Outbox) removeStream(ctx context.Context, stream string) (removed bool, err error) {
	info, err := o.Server.HeadAnew(ctx, stream)
	if err != nil || info.Exists && info.Tail == "" {
		return false, err
	}
	hash, _, _ := strings.Cut(strings.TrimPrefix(stream, o.Root+"/"), "/")
	consumer := fsm.ConsumerID(fsm.OutboxSubscription(hash), stream)
	begun, err := o.Store.BeginRemoval(ctx, stream, consumer, info.Tail)
	switch {
	case err != nil, !begun:
		return false, err
	case !info.Exists:
		_, err = o.Store.EndRemoval(ctx, stream)
		return false, err
	}
	if err := o.Server.Delete(ctx, stream); err != nil && !errors.Is(err, fsm.ErrNoStream) {
		return false, err
	}
	return true, o.Writes.Deleted(ctx, stream)
}

func (o *Outbox) notRemoved(ctx context.Context, stream string, err error) {
	if err != nil && ctx.Err() == nil {
		o.unremoved.Log(o.Control.Log, o.Control.Clock()).Warn(
			"a stream whose events are not kept any more cannot be removed yet", zap.String("stream", stream),
			zap.Error(err))
	}
}
