package fsm

import (
	"testing"
	"time"
)

// TestTheStateOfAnEventIsThatOfItsConsumer holds what a client sees at each moment.
func TestTheStateOfAnEventIsThatOfItsConsumer(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_000)
	waking := OutboxBearer{State: Waking, Place: "1 0005", Attempt: 2, Deadline: at}
	with := func(change func(*OutboxBearer)) OutboxBearer {
		b := waking
		change(&b)
		return b
	}
	taken := OutboxRecord{Status: OutboxDelivering, Attempts: 0, Consumer: "s:%2Fa", Place: "1 0005"}
	for name, tc := range map[string]struct {
		record OutboxRecord
		bearer OutboxBearer
		want   OutboxState
	}{
		"nobody has taken it up": {OutboxRecord{Status: OutboxPending}, waking, OutboxState{
			Status: OutboxPending,
		}},
		"an attempt is out": {taken, with(func(b *OutboxBearer) { b.Sent = true }), OutboxState{
			Status: OutboxDelivering, Attempts: 2,
		}},
		"an attempt has failed": {taken, waking, OutboxState{
			Status: OutboxRetrying, Attempts: 2, NextRetryAt: at,
		}},
		"its first attempt was put off": {taken, with(func(b *OutboxBearer) { b.Attempt = 0 }), OutboxState{
			Status: OutboxPending,
		}},
		"its consumer is at another place": {
			taken, with(func(b *OutboxBearer) { b.Place = "1 0006" }),
			OutboxState{Status: OutboxPending},
		},
		"its consumer is idle": {taken, with(func(b *OutboxBearer) { b.State = Idle }), OutboxState{
			Status: OutboxPending,
		}},
		"its consumer is gone with the stream": {taken, OutboxBearer{}, OutboxState{Status: OutboxDead}},
		"its consumer was made anew with the stream": {
			taken, with(func(b *OutboxBearer) { b.Place = "2 0005" }),
			OutboxState{Status: OutboxDead},
		},
		"its consumer is gone before it was taken up": {
			OutboxRecord{Status: OutboxPending, Consumer: "s:%2Fa", Place: "1 0004"},
			OutboxBearer{},
			OutboxState{Status: OutboxDead},
		},
		"a replay of what was delivered is cancelled": {
			OutboxRecord{Status: OutboxDelivering, Consumer: "s:%2Fa:7", Place: "1 0005", DeliveredAt: at},
			OutboxBearer{},
			OutboxState{Status: OutboxDelivered},
		},
		"it is over": {
			OutboxRecord{Status: OutboxDelivered, Attempts: 3, Consumer: "s:%2Fa", Place: "1 0005"},
			waking,
			OutboxState{Status: OutboxDelivered, Attempts: 3},
		},
	} {
		if got := tc.record.State(tc.bearer); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestTheIDOfAnEventNamesItsPartition(t *testing.T) {
	id := NewOutboxID(17, "5f0c")
	if p, err := OutboxPartition(id, 64); err != nil || p != 17 {
		t.Errorf("%s is in %d, %v", id, p, err)
	}
	for _, id := range []string{
		"", "whe_", "whe_17", "whe_17_", "whe_64_a", "whe_-1_a", "whe_017_a", "whe_+1_a", "evt_17_a", "whe_a_17",
	} {
		if p, err := OutboxPartition(id, 64); err == nil {
			t.Errorf("%q is in %d", id, p)
		}
	}
}
