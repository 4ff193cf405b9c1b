package control

import (
	"context"
	"errors"

	"reveille/fsm"
)

// StreamServer is the stream server as the program itself writes to it. upstream.Client implements it.
type StreamServer interface {
	Append(ctx context.Context, path, contentType string, body []byte) (fsm.Offset, error)
	Create(ctx context.Context, path, contentType string) (tail fsm.Offset, created bool, err error)
}

// StreamWrites hears of each write, as it does of the gateway's. discovery.Discovery implements it.
type StreamWrites interface {
	BeforeWrite(ctx context.Context, path string, create bool) fsm.Write
	Written(w fsm.Write, tail fsm.Offset, created bool)
	Refused(w fsm.Write)
}

// Writer writes JSON to streams of the program's own.
type Writer struct {
	Server StreamServer
	Writes StreamWrites
}

const contentType = "application/json"

// Append appends JSON to a stream, which it makes if there is none. After an error, the server may have appended it.
func (w Writer) Append(ctx context.Context, stream string, body []byte) error {
	err := w.append(ctx, stream, body)
	if errors.Is(err, fsm.ErrNoStream) {
		if err = w.create(ctx, stream); err == nil {
			err = w.append(ctx, stream, body)
		}
	}
	return err
}

func (w Writer) append(ctx context.Context, stream string, body []byte) error {
	told := w.Writes.BeforeWrite(ctx, stream, false)
	tail, err := w.Server.Append(ctx, stream, contentType, body)
	w.tell(told, tail, false, err)
	return err
}

func (w Writer) create(ctx context.Context, stream string) error {
	told := w.Writes.BeforeWrite(ctx, stream, true)
	tail, created, err := w.Server.Create(ctx, stream, contentType)
	w.tell(told, tail, created, err)
	return err
}

func (w Writer) tell(told fsm.Write, tail fsm.Offset, created bool, err error) {
	if err != nil {
		w.Writes.Refused(told)
	} else {
		w.Writes.Written(told, tail, created)
	}
}
