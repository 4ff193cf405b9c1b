package tailer

import (
	"context"
	"time"

	"reveille/fsm"
)

// gatewayPatience is how long a write through the gateway waits while another goroutine tells the store of an event.
const gatewayPatience = 100 * time.Millisecond

// Tell implements discovery.Watcher. That is one store call for each partition that watches the stream, usually one in
// all.
func (ws *watches) Tell(ctx context.Context, seen fsm.Sighting, subscribed, anew bool) (linked bool, err error) {
	path := seen.Path
	w, runs := ws.get(path)
	switch {
	case runs && anew:
		ws.stir(path, inputActive)
	case !runs && !subscribed:
		return true, nil
	case !runs:
		w = newWatch(ws.t, path) // for this write alone
	}
	if w.looksAfterPause() {
		return true, nil
	}
	linked = true
	home := w.machine.home
	_, watched := w.told(home)
	for _, partition := range w.partitions(subscribed) {
		mine, err := w.takeTurn(ctx, partition, seen.Tail, time.After(gatewayPatience))
		if err != nil {
			return linked, err
		} else if !mine {
			continue
		}
		o, err := w.observe(ctx, partition, seen.Tail, false, seen)
		if err == nil {
			w.step(&input{kind: inputObserved, observed: o})
		}
		w.endTurn()
		switch {
		case err != nil:
			return linked, err
		case o.noted.Closed: // a new stream, unless the answer is late: a watch at rest must look
			ws.Watch(partition, path)
		case partition != home:
		case !o.watched:
			linked = false
		case !watched && ws.t.store.Ownership().Owns(home):
			ws.Watch(home, path)
		}
	}
	return linked, nil
}
