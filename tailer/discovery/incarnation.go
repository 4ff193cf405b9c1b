package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

const (
	// pieceMax bounds the messages that identify an incarnation of the registry stream. pieceMin are enough.
	pieceMax, pieceMin = 64, 16
	// pieceReads bounds the answers that are read for them.
	pieceReads = 100
	// createdAhead is how far ahead of the replica's clock a creation may lie. Later times count as unknown.
	createdAhead = 24 * time.Hour
)

// mark identifies the incarnation of the registry stream that was read, whatever its length. It is stored with the
// position, as one value (fsm.RegistryPlace).
type mark struct {
	// Piece covers messages that were read. N is 0 if there were none yet.
	Piece piece `json:"piece"`
	// Latest is when the latest stream was made, as far as the registry had told at its last proof. It is in
	// milliseconds by the stream server's clock; 0 if the registry told no time.
	Latest int64 `json:"latest,omitempty"`
	// Again is how far the registry is read once more, from its start; empty if it is not. What is on record stays.
	Again fsm.Offset `json:"again,omitempty"`
	// Anew says that another incarnation was read before. Former is the Latest of that one.
	Anew   bool  `json:"anew,omitempty"`
	Former int64 `json:"former,omitempty"`
}

// piece says what stands behind an offset: N messages with the digest Sum. Another incarnation has other messages
// there.
type piece struct {
	From fsm.Offset `json:"from"`
	N    int        `json:"n"`
	Sum  string     `json:"sum,omitempty"`
}

// unproved is what was read since the last proof that the registry is the same. The next proof makes it part of the
// mark.
type unproved struct {
	piece  piece
	latest int64
}

// add adds the next message, unless there are enough.
func (p *piece) add(raw json.RawMessage) {
	if p.N >= pieceMax {
		return
	}
	text := bytes.NewBufferString(p.Sum)
	if json.Compact(text, raw) != nil { // a server may write spaces as it likes
		return
	}
	sum := sha256.Sum256(text.Bytes())
	p.N, p.Sum = p.N+1, hex.EncodeToString(sum[:])
}

func (m mark) String() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a mark holds nothing that JSON lacks
	}
	return string(b)
}

// readMark returns the mark of a place. known is false if the place has no mark, unless the place is the start.
func readMark(p fsm.RegistryPlace) (m mark, known bool) {
	if p.Mark == "" || json.Unmarshal([]byte(p.Mark), &m) != nil {
		return mark{}, p.Offset == fsm.Start
	}
	return m, true
}

// made returns when a stream was made, in milliseconds by the stream server's clock; 0 if the message does not say.
func (c change) made() (at int64) {
	if json.Unmarshal(c.Value.CreatedAt, &at) != nil {
		return 0
	}
	return at
}

// tells notes when the stream of a message was made.
func (u *unproved) tells(c change) {
	if t := c.made(); t < time.Now().Add(createdAhead).UnixMilli() {
		u.latest = max(u.latest, t)
	}
}

// begin continues from the store's place. It may belong to another incarnation than upstream has now.
func (r *registry) begin(place fsm.RegistryPlace) {
	r.place, r.cursor, r.dealt, r.looks, r.goal, r.doubt = place, "", 0, nil, "", true
	r.mark, r.known = readMark(place)
	r.next = unproved{piece: piece{From: place.Offset}}
}

// isSame says whether the registry is the same as the one read before. That is in doubt after a 404, a failure or an
// outage, and after RegistryProof. It is also in doubt when the registry was just read for the first time. Then isSame
// compares what was read with what stands there.
func (r *registry) isSame(ctx context.Context, tail fsm.Offset) (bool, error) {
	if outages := r.d.up.Outages(); outages != r.outages {
		r.outages, r.doubt = outages, true
	}
	first := r.mark.Latest == 0 && r.next.latest > 0 && r.place.Offset == tail
	if !r.doubt && !first && time.Since(r.proved) < r.d.cfg.RegistryProof {
		return true, nil
	}
	if r.mark.Piece.N > 0 {
		now, err := r.stands(ctx, r.mark.Piece)
		switch {
		case errors.Is(err, upstream.ErrNotKept):
			r.known = false
		case err != nil:
			return false, err
		case now != r.mark.Piece:
			return false, nil
		case r.next.piece.N >= pieceMin: // both are from one incarnation, and the later one needs no long answer
			r.mark.Piece, r.next.piece = r.next.piece, piece{From: r.place.Offset}
		}
	}
	r.mark.Latest = max(r.mark.Latest, r.next.latest)
	r.doubt, r.proved = false, time.Now()
	if r.known && r.mark.Piece.N > 0 && r.mark.String() != r.place.Mark {
		return true, r.moveTo(ctx, fsm.RegistryPlace{Offset: r.place.Offset, Mark: r.mark.String()})
	}
	return true, nil
}

// stands returns the piece that the registry has in the place of an earlier one.
func (r *registry) stands(ctx context.Context, was piece) (piece, error) {
	now := piece{From: was.From}
	for at, n := was.From, 0; n < pieceReads && now.N < was.N; n++ {
		next, err := r.readPiece(ctx, at, was.N, &now)
		if err != nil || !next.After(at) {
			return now, err
		}
		at = next
	}
	return now, nil
}

// readPiece adds what one answer shows behind an offset to a piece, until the piece has n messages. It returns the next
// offset.
func (r *registry) readPiece(ctx context.Context, at fsm.Offset, n int, p *piece) (next fsm.Offset, err error) {
	ctx, cancel := context.WithTimeout(ctx, registryTime)
	defer cancel()
	a, err := r.d.up.Registry(ctx, r.d.cfg.Registry, at, false, "")
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	if a.Empty {
		return a.Offset, nil
	}
	err = eachMessage(a.Body, func(raw json.RawMessage) error {
		if p.add(raw); p.N >= n {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || errors.Is(err, errForeign) {
		err = nil
	}
	return a.Offset, err
}

// errEnough ends the reading of an answer.
var errEnough = errors.New("enough was read")

// startAgain starts reading the registry again, from its start up to its present tail. anew says that it is another one
// than was read before. Otherwise that is unknown.
func (r *registry) startAgain(ctx context.Context, tail fsm.Offset, anew bool) error {
	m := mark{Latest: r.mark.Latest, Again: tail, Anew: r.mark.Anew, Former: r.mark.Former}
	if anew {
		m.Anew, m.Former = true, r.mark.Latest
		r.d.log.Info("the registry stream was made anew; it is read from its start",
			zap.String("was", r.place.Offset.Value()))
	} else {
		r.d.log.Info("it is not known which registry stream was read; it is read again from its start",
			zap.String("was", r.place.Offset.Value()))
	}
	return r.move(ctx, fsm.RegistryPlace{Offset: fsm.Start, Mark: m.String()}, anew)
}

// replaced replaces the record of a stream that the registry says was made, if the record belongs to another stream of
// that name. It does if it is from before this registry was found, and the stream was made after all that the former
// registry told of. A registry that tells no times is taken to tell of new streams.
func (r *registry) replaced(ctx context.Context, s fsm.Stream, made int64) error {
	former := r.mark.Anew && s.Present() && s.First.Before(r.place.Since)
	if !former || made != 0 && made <= r.mark.Former {
		return nil
	}
	r.d.log.Debug("a stream on record was made anew, as its registry was", zap.String("stream", s.Path))
	if _, err := r.d.replace(ctx, s, s.First); err != nil {
		return err
	}
	_, err := r.d.await(ctx, s.Path, r.d.cfg.WriteFor)
	return err
}
