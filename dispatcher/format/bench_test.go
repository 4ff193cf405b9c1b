package format

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

func benchWake(streams int) fsm.Delivery {
	w := fsm.Delivery{
		Consumer: "agent-handler:%2Fagents%2Ftask-123", Primary: "/agents/task-123",
		Epoch: 7, WakeID: "w_05d8ac1a58638763ca95",
	}
	for i := range streams {
		w.Streams = append(w.Streams, fsm.StreamTail{
			Path:  fmt.Sprintf("/agents/task-%d", 123+i),
			Acked: "0000000000000000_0000000000000026", Tail: "0000000000000000_0000000000000039",
		})
	}
	return w
}

func BenchmarkEncodeWake(b *testing.B) {
	token := strings.Repeat("t", 250)
	for _, streams := range []int{1, 100} {
		w := benchWake(streams)
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			for b.Loop() {
				if _, err := encodeWake(w, "https://streams.example.com", token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSign(b *testing.B) {
	body, now := []byte(strings.Repeat("x", 700)), time.Now()
	for b.Loop() {
		Sign("whsec_5f3d9a0b1c2e4f605f3d9a0b1c2e4f60", now, body)
	}
}

func BenchmarkExamine(b *testing.B) {
	body, now := []byte(strings.Repeat("x", 700)), time.Now()
	const secret = "whsec_5f3d9a0b1c2e4f605f3d9a0b1c2e4f60"
	header := Sign(secret, now, body)
	for b.Loop() {
		if e := Examine(secret, header, body, now, SignatureTolerance); !e.OK() {
			b.Fatal(e)
		}
	}
}
