package upstream

import (
	"context"

	"reveille/fsm"
)

// edge is where a batch ends at the latest. An end counts from an offset that an answer has led to. The server may show
// more in one answer by now, and lead beyond that offset, or less, and lead to another one before the end.
type edge struct {
	// n is how many messages, or bytes, lie before it, from the batch's position on; it counts if bounded is true.
	n       int64
	bounded bool
	// base is the offset that the end counts from, if the edge is there and the answer leads beyond it: the end lies
	// there or behind it, and reading goes on from there. Otherwise it is empty.
	base fsm.Offset
}

// edge returns where a batch from a position to an end has to end. It is found by reading once more, if the answer
// leads beyond the end and does not say how far: what lies behind the end is not for the batch.
func (r *reading) edge(ctx context.Context, at, end fsm.Offset) (edge, error) {
	n, ok := r.d.between(at, end)
	base, _ := end.Split()
	if ok || end == "" || !r.next.After(end) || !base.After(r.from) {
		return edge{n: n, bounded: ok}, nil
	}
	if base != r.base {
		p, err := r.client.place(ctx, r.path, r.from, base)
		if err != nil {
			return edge{}, err
		}
		r.base, r.before = base, p.before+p.n
	}
	_, passed := at.Split()
	return edge{n: r.before - passed, bounded: true, base: base}, nil
}

// behind is the batch of a position at the edge, or behind it: it has no events, and leads to the same place as it
// counts from where the end does.
func (e edge) behind(b fsm.Batch, end fsm.Offset) fsm.Batch {
	b.To = e.base.At(-e.n, e.base)
	if !end.After(b.To) {
		b.To = end
	}
	b.Within = b.To
	return b
}

// follow returns the answer that follows one which is over, as a part of it: positions go on to count from where that
// one began, and the server may show less in one answer than it did. ok is false if nothing follows; then, and with an
// error, the one that is over is still open.
func (r *reading) follow(ctx context.Context) (f *reading, ok bool, err error) {
	if r.d.number != nil || !r.next.After(r.from) {
		return nil, false, nil
	}
	if f, err = r.client.open(ctx, r.path, r.next); err != nil {
		return nil, false, err
	}
	if !f.next.After(r.next) || f.json != r.json {
		f.close()
		return nil, false, nil
	}
	r.close()
	f.from, f.done = r.from, r.done
	return f, true, nil
}
