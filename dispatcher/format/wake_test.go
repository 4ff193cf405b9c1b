package format

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

func wakeFormat(t *testing.T) Format {
	t.Helper()
	f, err := Of(fsm.Subscription{ID: "s"}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestTheRequestOfAWake holds the payload and the header of the webhook spec.
func TestTheRequestOfAWake(t *testing.T) {
	at := time.Unix(1704067200, 0)
	for _, tc := range []struct {
		name string
		wake fsm.Delivery
		want string
	}{
		{
			name: "is the example of the spec",
			wake: fsm.Delivery{
				Consumer: "my-sub:%2Fagents%2Ftask-123", Primary: "/agents/task-123", Epoch: 7, WakeID: "w_f8a3b2c1",
				Streams: []fsm.StreamTail{
					{Path: "/agents/task-123", Acked: "1002", Tail: "1005"},
					{Path: "/shared-filesystem/task-123", Acked: "500", Tail: "500"},
				},
			},
			want: `{"consumer_id":"my-sub:%2Fagents%2Ftask-123","epoch":7,"wake_id":"w_f8a3b2c1",` +
				`"primary_stream":"/agents/task-123","streams":[{"path":"/agents/task-123","offset":"1002"},` +
				`{"path":"/shared-filesystem/task-123","offset":"500"}],"triggered_by":["/agents/task-123"],` +
				`"callback":"https://streams.example.com/callback/my-sub:%2Fagents%2Ftask-123","token":"TOKEN"}`,
		},
		{
			name: "has offsets as the upstream knows them, and paths as they stand",
			wake: fsm.Delivery{
				Consumer: "s:%2Fa%26b'(c)", Primary: "/a&b'(c)", Epoch: 1, WakeID: "w_1",
				Streams: []fsm.StreamTail{{
					Path: "/a&b'(c)", Acked: fsm.IncarnateOffset("x", "0009", "9"),
					Tail: fsm.IncarnateOffset("x", "0010", "10"),
				}},
			},
			want: `{"consumer_id":"s:%2Fa%26b'(c)","epoch":1,"wake_id":"w_1","primary_stream":"/a&b'(c)",` +
				`"streams":[{"path":"/a&b'(c)","offset":"9"}],"triggered_by":["/a&b'(c)"],` +
				`"callback":"https://streams.example.com/callback/s:%2Fa%26b'(c)","token":"TOKEN"}`,
		},
		{
			name: "has lists, not null, when they are empty",
			wake: fsm.Delivery{Consumer: "s:%2Fa", Primary: "/a", Epoch: 1, WakeID: "w_1"},
			want: `{"consumer_id":"s:%2Fa","epoch":1,"wake_id":"w_1","primary_stream":"/a","streams":[],` +
				`"triggered_by":[],"callback":"https://streams.example.com/callback/s:%2Fa","token":"TOKEN"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header, got, err := wakeFormat(t).Request(Content{
				Delivery: tc.wake, PublicURL: "https://streams.example.com", Token: "TOKEN",
				Secret: "whsec_abc123", At: at,
			})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			want := http.Header{
				"Content-Type": {"application/json"}, "Webhook-Signature": {Sign("whsec_abc123", at, got)},
			}
			if !maps.EqualFunc(header, want, slices.Equal) {
				t.Errorf("the header is %v, want %v", header, want)
			}
		})
	}
}
