package dispatcher

import (
	"errors"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

func TestPayload(t *testing.T) {
	for _, tc := range []struct {
		name string
		wake fsm.Wake
		want string
	}{
		{
			name: "is the example of the spec",
			wake: fsm.Wake{
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
			wake: fsm.Wake{
				Consumer: "s:%2Fa%26b'(c)", Primary: "/a&b'(c)", Epoch: 1, WakeID: "w_1",
				Streams: []fsm.StreamTail{{Path: "/a&b'(c)", Acked: fsm.KeyedOffset("0009", "9"), Tail: fsm.KeyedOffset("0010", "10")}},
			},
			want: `{"consumer_id":"s:%2Fa%26b'(c)","epoch":1,"wake_id":"w_1","primary_stream":"/a&b'(c)",` +
				`"streams":[{"path":"/a&b'(c)","offset":"9"}],"triggered_by":["/a&b'(c)"],` +
				`"callback":"https://streams.example.com/callback/s:%2Fa%26b'(c)","token":"TOKEN"}`,
		},
		{
			name: "has lists, not null, when they are empty",
			wake: fsm.Wake{Consumer: "s:%2Fa", Primary: "/a", Epoch: 1, WakeID: "w_1"},
			want: `{"consumer_id":"s:%2Fa","epoch":1,"wake_id":"w_1","primary_stream":"/a","streams":[],"triggered_by":[],` +
				`"callback":"https://streams.example.com/callback/s:%2Fa","token":"TOKEN"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := EncodePayload(tc.wake, "https://streams.example.com", "TOKEN")
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestSignature(t *testing.T) {
	at := time.Unix(1704067200, 0)
	body := []byte(`{"epoch":7}`)
	header := Sign("whsec_abc123", at, body)
	// printf '1704067200.{"epoch":7}' | openssl dgst -sha256 -hmac whsec_abc123
	const want = "t=1704067200,sha256=95252b658c25de3b811aa26eb2c2067f17e6f4f44e2d66cd17919f8844da1756"
	if header != want {
		t.Errorf("got %s, want %s", header, want)
	}
	for _, tc := range []struct {
		name   string
		secret string
		header string
		body   string
		now    time.Time
		ok     bool
	}{
		{"the signature of this body is valid", "whsec_abc123", header, string(body), at, true},
		{"five minutes late is still in time", "whsec_abc123", header, string(body), at.Add(5 * time.Minute), true},
		{"five minutes early is still in time", "whsec_abc123", header, string(body), at.Add(-5 * time.Minute), true},
		{"later than that is not", "whsec_abc123", header, string(body), at.Add(5*time.Minute + time.Second), false},
		{"earlier than that is not", "whsec_abc123", header, string(body), at.Add(-5*time.Minute - time.Second), false},
		{"another body is refused", "whsec_abc123", header, `{"epoch":8}`, at, false},
		{"another secret is refused", "whsec_abc124", header, string(body), at, false},
		{"the secret counts with its prefix", "abc123", header, string(body), at, false},
		{"another time is refused", "whsec_abc123", strings.Replace(header, "1704067200", "1704067201", 1), string(body), at, false},
		{"no header is refused", "whsec_abc123", "", string(body), at, false},
		{"a header without a time is refused", "whsec_abc123", header[strings.Index(header, "sha256"):], string(body), at, false},
		{"a signature that is not hexadecimal is refused", "whsec_abc123", "t=1704067200,sha256=zz", string(body), at, false},
		{"a signature cut short is refused", "whsec_abc123", header[:len(header)-2], string(body), at, false},
		{"a time that is no number is refused", "whsec_abc123", "t=x,sha256=00", string(body), at, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Verify(tc.secret, tc.header, []byte(tc.body), tc.now, SignatureTolerance)
			if tc.ok && err != nil || !tc.ok && !errors.Is(err, ErrSignature) {
				t.Errorf("got %v", err)
			}
		})
	}
}
