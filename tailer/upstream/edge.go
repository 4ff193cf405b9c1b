package upstream

import (
	"context"

	"reveille/fsm"
)

// edge is the last place where a batch may end. An end counts from an offset that an earlier answer led to. The server
// may now show more in one answer, and lead beyond that offset. Or it may show less, and lead to another one before the
// end.
type edge struct {
	// n is how many messages, or bytes, lie before the edge, from the batch's position on. It counts if bounded is
	// true.
	n       int64
	bounded bool
	// base is the offset that the end counts from, if the edge is at base and the answer leads beyond it. The end lies
	// there or behind it, and reading continues from there. Otherwise base is empty.
	base fsm.Offset
}

// edge returns where a batch from a position to an end must end: what lies behind the end does not belong to it. If the
// answer leads beyond the end and does not say how far, edge reads once more.
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

// behind is the batch of a position at the edge or behind it. It has no events. It leads to the same place, as a
// position that counts from the base of the end.
func (e edge) behind(b fsm.Batch, end fsm.Offset) fsm.Batch {
	b.To = e.base.At(-e.n, e.base)
	if !end.After(b.To) {
		b.To = end
	}
	b.Within = b.To
	return b
}

// follow returns the answer that follows one that is over, as a part of it. Positions still count from where the first
// one began, because the server may now show less in one answer. ok is false if nothing follows. Then, and after an
// error, the answer that is over is still open.
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
