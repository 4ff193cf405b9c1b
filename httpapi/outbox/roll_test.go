package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/httpapi/control"
	"reveille/test/ports"
	"reveille/test/ports/service"
)

// keeper is a stream server that keeps in which stream each event lies, by ID.
type keeper struct {
	control.OutboxServer
	mu sync.Mutex
	at map[string]string
}

func (k *keeper) Append(_ context.Context, path, _ string, body []byte) (fsm.Offset, error) {
	var e fsm.OutboxEvent
	if err := json.Unmarshal(body, &e); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at[e.ID] = path
	return "1", nil
}

// forgetful is a store that loses each idempotency key.
type forgetful struct {
	httpapi.Store
	loses bool
}

func (f *forgetful) ReserveKey(ctx context.Context, key string, k fsm.OutboxKey) (fsm.OutboxKey, error) {
	if k.New = true; f.loses {
		return k, nil
	}
	return f.Store.ReserveKey(ctx, key, k)
}

// TestOtherStreamsBeginWithEachRoll holds which stream an event goes to, and that a repeated hand-over leads to the
// same event across the end of the streams, also if the store has lost its key.
func TestOtherStreamsBeginWithEachRoll(t *testing.T) {
	const roll = 7 * 24 * time.Hour
	server, store := &keeper{at: map[string]string{}}, &forgetful{}
	h, _ := service.New(t, func(c *httpapi.Config) {
		store.Store = c.Store
		c.Outbox, c.OutboxServer, c.Store = "/outbox", server, store
	})
	hands := func(target, key string, want int) (id string) {
		t.Helper()
		a := h.API(http.MethodPost, "/webhooks/deliver",
			fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":1,"idempotency_key":%q}`, target, key))
		var event struct{ ID string }
		if err := json.Unmarshal([]byte(a.Text), &event); err != nil || a.Status != want {
			t.Fatalf("%s: %d %s, want %d", key, a.Status, a.Text, want)
		}
		return event.ID
	}
	const one, two = "https://one.example/hook", "https://two.example/hook"
	// end is the part of a stream's name that says until when it takes events.
	end := func(id string) string { return path.Base(server.at[id])[:8] }
	first := hands(one, "first", http.StatusAccepted)
	if other := hands(two, "first", http.StatusConflict); other != "" {
		t.Errorf("the key of another target's event led to %s", other)
	}
	if other := hands(two, "other", http.StatusAccepted); end(other) == end(first) {
		t.Errorf("the streams of two targets end at the same time")
	}
	var until int64
	if _, err := fmt.Sscanf(end(first), "%x", &until); err != nil {
		t.Fatal(err)
	}
	left := time.Unix(until, 0).Sub(h.Clock())
	if left <= 0 || left > roll {
		t.Fatalf("the streams end in %s", left)
	}
	h.Pass(left - time.Second)
	last := hands(one, "last", http.StatusAccepted)
	if end(last) != end(first) {
		t.Errorf("just before the end, events go to %s, not to %s", server.at[last], server.at[first])
	}
	h.Pass(time.Second)
	next := hands(one, "next", http.StatusAccepted)
	if end(next) != fmt.Sprintf("%08x", until+int64(roll/time.Second)) {
		t.Errorf("then they go to %s after %s", server.at[next], server.at[last])
	}
	for _, loses := range []bool{false, true} {
		store.loses = loses
		if again := hands(one, "last", http.StatusOK); again != last {
			t.Errorf("with lost keys %t, the same again is %s, not %s", loses, again, last)
		}
	}
	store.loses = false
	h.Pass(2 * roll)
	h.Store.DB.Crowd(fsm.MaxOutboxEvents)
	hands(one, "new", http.StatusTooManyRequests)
	if again := hands(one, "last", http.StatusOK); again != last {
		t.Errorf("long after, the same again is %s, not %s", again, last)
	}
	wantHome(t, h, server)
}

// wantHome checks that the ID of each event names the partition of its stream.
func wantHome(t *testing.T, h *ports.Harness, server *keeper) {
	t.Helper()
	for id, stream := range server.at {
		if p, err := fsm.OutboxPartition(id, h.Store.Partitions()); err != nil || p != h.Store.PartitionOf(stream) {
			t.Errorf("%s lies in %s of partition %d, %v", id, stream, h.Store.PartitionOf(stream), err)
		}
	}
}
