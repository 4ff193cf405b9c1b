package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/test/harness"
)

// operatorPort answers requests of the operator's API by what stands here for their method and target, and notes them.
type operatorPort struct {
	answers map[string]string
	got     []string
}

func (o *operatorPort) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request := strings.TrimSpace(r.Method + " " + r.RequestURI + " " + string(body))
	o.got = append(o.got, request)
	answer, ok := o.answers[request]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer = `{"error":{"code":"NOT_FOUND","message":"there is nothing like it"}}`
	}
	_, _ = io.WriteString(w, answer)
}

// call runs the program with a command line and returns its exit status and what it wrote.
func call(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = run(args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

const consumerAnswer = `{"consumer_id":"orders:%2Forders%2F17","subscription_id":"orders","primary_stream":"/orders/17",
"partition":23,"state":"waking","condition":"failing","epoch":7,"wake_id":"w_05d8ac1a58638763ca95",
"woken_at":"2026-11-21T15:03:58Z","attempt":12,"waits_for":"attempt",
"deadline":"2026-11-21T15:20:31.5Z","failing_since":"2026-11-21T15:04:00Z","last_error":"status 503",
"blocked":{"reason":"retry","by":"reveille"},
"streams":[{"path":"/orders/17","acked":"0000000000000000_0000000000000026",
"tail":"0000000000000000_0000000000000052","pending":true},
{"path":"/tools/17","acked":"-1","tail":"-1","pending":false}],"as_of":"2026-11-21T15:20:00Z"}
`

// TestCommands holds what each command asks for, shows and ends with.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name, args, request, answer, want string
	}{
		{
			"status", "status", "GET /api/v1/status",
			`{"version":"1.2","replica":"a/:8080","redis":{"up":true,"since":"2026-11-21T15:04:00Z"},
			"stream_server":{"state":"up","since":"2026-11-21T15:19:55Z","dialect":"standard","watching":"sse"},
			"partitions":64,"partitions_without_replica":3,"replicas_known":true,"replicas":[
			{"id":"a/:8080","alive":true,"alive_since":"2026-11-21T15:04:00Z","partitions":31},
			{"id":"b/:8080","alive":false,"partitions":30}],"subscriptions":13,"consumers_counted":true,
			"conditions":{"ok":9,"retired":1,"asked_to_wait":2,"paused":1},"waiting_since":"2026-11-21T15:10:00Z",
			"worst":[{"subscription_id":"c","condition":"retired","since":"2026-11-21T15:04:00Z",
			"reason":"status 410"},{"subscription_id":"d","condition":"asked_to_wait"}],
			"as_of":"2026-11-21T15:20:00Z"}`,
			`
version         1.2
answered by     a/:8080
redis           up since 2026-11-21T15:04:00Z, 16m0s ago
stream server   up since 2026-11-21T15:19:55Z, 5s ago; dialect standard, watched by sse
partitions      64, 3 of them without a replica
subscriptions   13: 1 retired, 2 asked to wait, 1 paused, 9 ok
oldest waiting  2026-11-21T15:10:00Z, 10m0s ago

REPLICA  STATE  ALIVE SINCE                      PARTITIONS
a/:8080  alive  2026-11-21T15:04:00Z, 16m0s ago  31
b/:8080  gone                                    30

SUBSCRIPTION  CONDITION      FAILING SINCE  LAST ERROR
c             retired        16m0s ago      status 410
d             asked to wait
`,
		},
		{
			"status while all is away", "status", "GET /api/v1/status",
			`{"version":"1.2","replica":"a/:8080","redis":{"up":false,"error":"connection refused"},
			"stream_server":{"state":"not_seen","dialect":"standard","watching":"sse"},"partitions":64,
			"replicas":[{"id":"a/:8080","alive":true,"partitions":64}],"conditions":{"ok":1,"not_known":1},
			"subscriptions":2,"worst":[{"subscription_id":"b","condition":"failing","since":"2026-11-21T15:04:00Z",
			"at_least":true}],"as_of":"2026-11-21T15:20:00Z"}`,
			`
version         1.2
answered by     a/:8080
redis           away: connection refused
stream server   no stream server has answered yet
partitions      64; the other replicas are not known while redis is away
subscriptions   2: 1 ok, 1 not known (not all consumers are counted: more may be failing)
oldest waiting  not known

REPLICA  STATE  PARTITIONS
a/:8080  alive  64

SUBSCRIPTION  CONDITION  FAILING SINCE
b             failing    16m0s ago or longer
`,
		},
		{
			"subscriptions of which only some consumers were counted", "subscriptions",
			"GET /api/v1/subscriptions?limit=100",
			`{"subscriptions":[{"subscription_id":"a","pattern":"/*","mode":"wake","webhook_host":"a.co",
			"consumers":9001,"at_least":true,"pending":17,"condition":"down","states":{"waking":17},
			"waiting_since":"2026-11-21T15:00:00Z","failing_since":"2026-11-21T15:04:00Z"},
			{"subscription_id":"b","pattern":"/**","mode":"push","webhook_host":"b.co","consumers":7000,
			"at_least":true,"pending":0,"condition":"ok","states":{}}],"as_of":"2026-11-21T15:20:00Z"}`,
			`
SUBSCRIPTION  PATTERN  MODE  WEBHOOK  CONSUMERS  PENDING      CONDITION  WAITING              FAILING SINCE
a             /*       wake  a.co     9001       at least 17  down       20m0s ago or longer  16m0s ago or longer
b             /**      push  b.co     7000       at least 0   not known  not known            not known
`,
		},
		{
			"a subscription of which only some consumers were counted", "stats a", "GET /api/v1/subscriptions/a/stats",
			`{"windows":[],"pending":17,"at_least":true,"dead_letters":0,"as_of":"2026-11-21T15:20:00Z"}`,
			`
subscription    a
pending         at least 17
oldest waiting  not known
dead letters    0

WINDOW  SINCE  ATTEMPTS  TAKEN  FAILED  DEAD  EVENTS  P50  P95  P99
`,
		},
		{
			"status before anything was read", "status", "GET /api/v1/status",
			`{"version":"1.2","replica":"a","redis":{"up":false,"since":"2026-11-21T15:19:55Z","error":"no"},
			"stream_server":{"state":"down","dialect":"anycable","watching":"long-poll"},"partitions":4,
			"replicas":[{"id":"a","alive":true,"partitions":0}],"as_of":"2026-11-21T15:20:00Z"}`,
			`
version         1.2
answered by     a
redis           away since 2026-11-21T15:19:55Z, 5s ago: no
stream server   down; dialect anycable, watched by long-poll
partitions      4; the other replicas are not known while redis is away
subscriptions   not read yet
oldest waiting  not known

REPLICA  STATE  PARTITIONS
a        alive  0
`,
		},
		{
			"subscriptions", "subscriptions", "GET /api/v1/subscriptions?limit=100",
			`{"subscriptions":[{"subscription_id":"agents","pattern":"/a/*","mode":"wake","webhook_host":"a.test",
			"consumers":1204,"pending":17,"condition":"failing","states":{"idle":1187,"waking":17,"failing":1},
			"waiting_since":"2026-11-21T15:00:00Z",
			"failing_since":"2026-11-21T15:04:00Z","last_error":"status 503"},
			{"subscription_id":"b","pattern":"/**","mode":"push","webhook_host":"[::1]:80","consumers":0,
			"pending":0,"condition":"ok","states":{}},
			{"subscription_id":"c","pattern":"/*","mode":"push","webhook_host":"[::1]:80","consumers":7,"pending":0,
			"condition":"retired","states":{"waking":7,"retired":7},"dead_letters":3}],"next":"abc",
			"as_of":"2026-11-21T15:20:00Z"}`,
			`
SUBSCRIPTION  PATTERN  MODE  WEBHOOK   CONSUMERS  PENDING  CONDITION  WAITING    FAILING SINCE  LAST ERROR  DEAD LETTERS
c             /*       push  [::1]:80  7                   7 retired                                        3
agents        /a/*     wake  a.test    1204       17       1 failing  20m0s ago  16m0s ago      status 503
b             /**      push  [::1]:80  0                   ok

There is more: reveille subscriptions --cursor abc
`,
		},
		{
			"a long error is cut", "subscriptions", "GET /api/v1/subscriptions?limit=100",
			`{"subscriptions":[{"subscription_id":"a","consumers":1,"condition":"failing","states":{"failing":1},
			"last_error":"the TLS certificate is not valid, and this goes on for much longer"}]}`,
			`
SUBSCRIPTION  CONSUMERS  CONDITION  LAST ERROR
a             1          1 failing  the TLS certificate is not valid, and this goes on for much…
`,
		},
		{
			"the worst come first", "subscriptions --failing", "GET /api/v1/subscriptions?failing=true&limit=100",
			`{"subscriptions":[{"subscription_id":"a","condition":"asked_to_wait","paused":true},
			{"subscription_id":"b","condition":"refusing","failing_since":"2026-11-21T15:04:00Z",
			"last_error":"status 404","dead_letters":2614},
			{"subscription_id":"c","condition":"retired","states":{"retired":2}},
			{"subscription_id":"d","condition":"down"}],
			"as_of":"2026-11-21T15:20:00Z"}`,
			`
SUBSCRIPTION  CONSUMERS  CONDITION                          FAILING SINCE  LAST ERROR  DEAD LETTERS
c             0          2 retired
d             0          down
b             0          refusing                           16m0s ago      status 404  2614
a             0          paused by operator, asked to wait
`,
		},
		{"no subscriptions", "subscriptions --limit 5", "GET /api/v1/subscriptions?limit=5", `{"subscriptions":[]}`, `
SUBSCRIPTION  PATTERN  MODE  WEBHOOK  CONSUMERS  PENDING  CONDITION  WAITING  FAILING SINCE  LAST ERROR  DEAD LETTERS
`},
		{
			"dead letters", "dead-letters --subscription orders --stream /orders/17 --limit 1",
			"GET /api/v1/dead-letters?limit=1&stream=%2Forders%2F17&subscription=orders",
			`{"dead_letters":[{"id":"dl_23_1764167412345678","subscription_id":"orders","stream":"/orders/17",
			"from":"0000_0026","events":2,"attempts":8,"reason":"status 500",
			"dead_at":"2026-11-26T14:30:12.345678Z"}],"next":"abc"}`,
			`
DEAD LETTER             SUBSCRIPTION  STREAM      FROM       EVENTS  ATTEMPTS  DEAD SINCE            REASON
dl_23_1764167412345678  orders        /orders/17  0000_0026  2       8         2026-11-26T14:30:12Z  status 500

There is more: reveille dead-letters --subscription orders --stream /orders/17 --limit 1 --cursor abc
`,
		},
		{
			"one dead letter", "dead-letters dl_23_1764167412345678", "GET /api/v1/dead-letters/dl_23_1764167412345678",
			`{"id":"dl_23_1764167412345678","subscription_id":"orders","stream":"/orders/17","delivery_id":"evt_ab_7",
			"from":"26","skip":3,"events":1,"attempts":1,"class":"client_error","reason":"status 422",
			"status_code":422,"response_body":"no\u001b[31m","dead_at":"2026-11-21T15:04:00Z"}`,
			`
dead letter   dl_23_1764167412345678
subscription  orders
stream        /orders/17
delivery      evt_ab_7
from          26 +3
events        1
attempts      1
class         client_error
reason        status 422
response      no?[31m
dead since    2026-11-21T15:04:00Z
`,
		},
		{
			"the dead letter of a consumer that was given up", "dead-letters dl_23_1764167412345679",
			"GET /api/v1/dead-letters/dl_23_1764167412345679",
			`{"id":"dl_23_1764167412345679","subscription_id":"orders","stream":"/orders/17","from":"26","events":0,
			"to":"41","attempts":12,"class":"given_up","reason":"status 500","failing_since":"2026-11-18T15:04:00Z",
			"dead_at":"2026-11-21T15:04:00Z"}`,
			`
dead letter    dl_23_1764167412345679
subscription   orders
stream         /orders/17
from           26
to             41
events         unknown
attempts       12
class          given_up
reason         status 500
failing since  2026-11-18T15:04:00Z
dead since     2026-11-21T15:04:00Z
`,
		},
		{
			"delivery attempts", "deliveries orders --failed --stream /a --since 2026-11-21T13:50:00Z --limit 3",
			"GET /api/v1/subscriptions/orders/deliveries?limit=3&result=failed%2Cretired%2Cdead&" +
				"since=2026-11-21T13%3A50%3A00Z&stream=%2Fa",
			`{"deliveries":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58.25Z","stream":"/a",
			"subscription_id":"orders","wake_id":"w_1","delivery_id":"evt_ab_7","attempt":2,"max_attempts":9,
			"result":"failed","status_code":503,
			"class":"unavailable","reason":"status 503","took_ms":12.345,"events":1,"bytes":312},
			{"id":"1764167412344-0","at":"2026-11-21T15:18:00Z","stream":"/a","wake_id":"w_1",
			"delivery_id":"evt_ab_7","attempt":1,"result":"failed","class":"timeout","reason":"timeout\u001b[31m",
			"took_ms":30001.5,"events":1,"bytes":312},
			{"id":"1764167412343-0","at":"2026-11-21T15:17:00Z","stream":"/a","wake_id":"w_0","attempt":1,
			"result":"dead","class":"too_large","reason":"too large","took_ms":0.01}],"next":"x"}`,
			`
AT                    STREAM  DELIVERY  ATTEMPT  RESULT  STATUS  TOOK    EVENTS  BYTES  REASON
2026-11-21T15:19:58Z  /a      evt_ab_7  2 of 9   failed  503     12.3ms  1       312    status 503
2026-11-21T15:18:00Z  /a      evt_ab_7  1        failed          30s     1       312    timeout?[31m
2026-11-21T15:17:00Z  /a      w_0       1        dead            0s                     too large

There is more: reveille deliveries orders --stream /a --since 2026-11-21T13:50:00Z --failed --limit 3 --cursor x
`,
		},
		{
			"all of delivery attempts", "deliveries orders --details --status 5xx --class unavailable --id evt_ab_7",
			"GET /api/v1/subscriptions/orders/deliveries?class=unavailable&id=evt_ab_7&limit=100&status=5xx",
			`{"deliveries":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58.25Z","stream":"/a",
			"subscription_id":"orders","wake_id":"w_1","delivery_id":"evt_ab_7","attempt":2,"result":"failed",
			"status_code":503,
			"class":"unavailable","reason":"status 503","took_ms":12.345,"events":1,"bytes":312,
			"waited_ms":0.4,"exchange_ms":11.9,"remote_address":"192.0.2.7:443","http_version":"1.1",
			"tls_version":"1.3","response_body":"<h1>Over\u001b[31m capacity</h1>\nagain"},
			{"id":"1764167412344-0","at":"2026-11-21T15:18:00Z","stream":"/a","wake_id":"w_2","attempt":1,
			"result":"dead","class":"too_large","reason":"too large","took_ms":0.01}],"next":"x"}`,
			`
at            2026-11-21T15:19:58.25Z
subscription  orders
stream        /a
delivery      evt_ab_7
attempt       2
result        failed
class         unavailable
reason        status 503
took          12.3ms
sent          312 bytes, 1 event
to            192.0.2.7:443, HTTP 1.1, TLS 1.3
waited        400µs
exchange      11.9ms
status        503
answer        <h1>Over?[31m capacity</h1>?again

at        2026-11-21T15:18:00Z
stream    /a
delivery  w_2
attempt   1
result    dead
class     too_large
reason    too large
took      0s

There is more: reveille deliveries orders --status 5xx --class unavailable --id evt_ab_7 --details --cursor x
`,
		},
		{
			"what was sent", "deliveries orders --request evt_ab_7",
			"GET /api/v1/subscriptions/orders/deliveries/evt_ab_7/request",
			`{"method":"POST","url":"https://w.example:8443/[masked]","headers":[
			{"name":"Content-Type","value":"application/json"},{"name":"Webhook-Signature","value":"[masked]"}],
			"body":"{\"a\":\n\t\"\u001b[31m\"}","bytes":70000,"body_cut":true}`,
			`
POST /[masked] HTTP/1.1
Host: w.example:8443
Content-Type: application/json
Webhook-Signature: [masked]

{"a":
	"?[31m"}

(this is the beginning of 70000 bytes)
`,
		},
		{
			"what was sent, if it is no text", "deliveries orders --request evt_ab_7",
			"GET /api/v1/subscriptions/orders/deliveries/evt_ab_7/request",
			`{"method":"POST","url":"https://w.example/[masked]","headers":[],"body":"",
			"body_base64":"/wA=","bytes":2}`,
			`
POST /[masked] HTTP/1.1
Host: w.example

(no text; in Base64) /wA=
`,
		},
		{
			"delivery attempts of all", "deliveries --status 503 --limit 1",
			"GET /api/v1/deliveries?limit=1&status=503",
			`{"deliveries":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58.25Z","stream":"/a","wake_id":"w_1",
			"subscription_id":"orders","attempt":2,"result":"failed","status_code":503,"reason":"status 503",
			"took_ms":12.345}],"next":"x"}`, `
AT                    SUBSCRIPTION  STREAM  DELIVERY  ATTEMPT  RESULT  STATUS  TOOK    REASON
2026-11-21T15:19:58Z  orders        /a      w_1       2        failed  503     12.3ms  status 503

There is more: reveille deliveries --status 503 --limit 1 --cursor x
`,
		},
		{
			"who has changed what", "audit --subscription orders --since 2026-11-21T13:50:00Z --limit 2",
			"GET /api/v1/audit?limit=2&since=2026-11-21T13%3A50%3A00Z&subscription=orders",
			`{"changes":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58.25Z","from":"192.0.2.7",
			"what":"subscription changed","subscription_id":"orders","before":{"batch":1,"timeout":"10s"},
			"after":{"timeout":"15s"}},
			{"id":"1764167412344-0","at":"2026-11-21T15:18:00Z","by":"ops\u001b","from":"192.0.2.7",
			"what":"dead letters discarded","subscription_id":"orders","about":"/a","count":3}],"next":"x"}`, `
AT                    BY         WHAT                    SUBSCRIPTION  ABOUT  COUNT  CHANGE
2026-11-21T15:19:58Z  192.0.2.7  subscription changed    orders                      batch: 1 →, timeout: "10s" → "15s"
2026-11-21T15:18:00Z  ops?       dead letters discarded  orders        /a     3

There is more: reveille audit --subscription orders --since 2026-11-21T13:50:00Z --limit 2 --cursor x
`,
		},
		{
			"statistics", "stats orders", "GET /api/v1/subscriptions/orders/stats",
			`{"subscription_id":"orders","pending":3,"waiting_since":"2026-11-21T15:10:00Z","dead_letters":1,"windows":[
			{"window":"15m","since":"2026-11-21T15:06:00Z","attempts":0,"taken":0,"failed":0,"dead":0,"events":0,
			"failures":{}},
			{"window":"7d","since":"2026-11-14T16:00:00Z","attempts":120,"taken":96,"failed":23,"dead":2,"events":200,
			"failures":{"timeout":5,"unavailable":15,"rejected":2,"dns":1},"p50_ms":12,"p95_ms":220,"p99_ms":10240}],
			"as_of":"2026-11-21T15:20:00Z"}`, `
subscription    orders
pending         3
oldest waiting  2026-11-21T15:10:00Z, 10m0s ago
dead letters    1

WINDOW  SINCE                 ATTEMPTS  TAKEN  FAILED  DEAD  EVENTS  P50   P95    P99
15m     2026-11-21T15:06:00Z  0         0      0       0     0
7d      2026-11-14T16:00:00Z  120       96     23      2     200     12ms  220ms  10.24s

FAILED WITH  15m  7d
unavailable  0    15
timeout      0    5
rejected     0    2
dns          0    1
`,
		},
		{
			"statistics of all", "stats --window 1h", "GET /api/v1/stats?window=1h",
			`{"pending":0,"dead_letters":0,"windows":[{"window":"1h","since":"2026-11-21T14:21:00Z","attempts":1,
			"taken":1,"failed":0,"dead":0,"events":0,"failures":{},"p50_ms":0,"p95_ms":0,"p99_ms":0}],
			"as_of":"2026-11-21T15:20:00Z"}`, `
pending       0
dead letters  0

WINDOW  SINCE                 ATTEMPTS  TAKEN  FAILED  DEAD  EVENTS  P50  P95  P99
1h      2026-11-21T14:21:00Z  1         1      0       0     0       0s   0s   0s
`,
		},
		{
			"what has an id", "find evt_ab_7", "GET /api/v1/find?q=evt_ab_7",
			`{"found":[{"kind":"delivery","id":"evt_ab_7","subscription_id":"orders","stream":"/a",
			"consumer_id":"orders:%2Fa","state":"waits","next_attempt_at":"2026-11-21T15:21:00Z",
			"blocked":{"reason":"paused","by":"operator"},"reason":"status 503",
			"attempts":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58.25Z","stream":"/a","wake_id":"w_1",
			"delivery_id":"evt_ab_7","attempt":2,"max_attempts":9,"result":"failed","status_code":503,
			"reason":"status 503","took_ms":12.345,"events":1,"bytes":312}]},
			{"kind":"dead_letter","id":"dl_1_2","subscription_id":"o r","stream":"/a",
			"reason":"a\u001b[31m"}],"as_of":"2026-11-21T15:20:00Z"}`, `
delivery      evt_ab_7
subscription  orders
stream        /a
consumer      orders:%2Fa
state         waits
next attempt  2026-11-21T15:21:00Z, in 1m0s
blocked       ` + fsm.BlockedPaused.Rule().Says + `; ended by ` + fsm.BlockedPaused.Rule().Ends + `
last error    status 503
more          reveille deliveries orders --id evt_ab_7 --details

AT                    STREAM  DELIVERY  ATTEMPT  RESULT  STATUS  TOOK    EVENTS  BYTES  REASON
2026-11-21T15:19:58Z  /a      evt_ab_7  2 of 9   failed  503     12.3ms  1       312    status 503

dead letter   dl_1_2
subscription  o r
stream        /a
last error    a?[31m
more          reveille dead-letters dl_1_2
`,
		},
		{
			"delivery attempts of some", "deliveries --cursor x", "GET /api/v1/deliveries?cursor=x&limit=100",
			`{"deliveries":[{"id":"1764167412345-0","at":"2026-11-21T15:19:58Z","subscription_id":"b","stream":"/a",
			"wake_id":"w_1","attempt":1,"result":"accepted","took_ms":2}],"from_subscription":"a","to_subscription":"m",
			"next":"y"}`,
			`
Older attempts of the subscriptions a to m; those of others are on other pages.

AT                    SUBSCRIPTION  STREAM  DELIVERY  ATTEMPT  RESULT    TOOK
2026-11-21T15:19:58Z  b             /a      w_1       1        accepted  2ms

There is more: reveille deliveries --cursor y
`,
		},
		{
			"no delivery attempts", "deliveries orders --until 2026-11-21T14:20:00Z",
			"GET /api/v1/subscriptions/orders/deliveries?limit=100&until=2026-11-21T14%3A20%3A00Z",
			`{"deliveries":[]}`, `
AT  SUBSCRIPTION  STREAM  DELIVERY  ATTEMPT  RESULT  STATUS  TOOK  EVENTS  BYTES  REASON
`,
		},
		{
			"a dead letter is discarded", "dead-letters discard dl_23_1764167412345678",
			"DELETE /api/v1/dead-letters/dl_23_1764167412345678", `{"discarded":1}`, `
1 discarded
`,
		},
		{
			"a dead letter is replayed", "dead-letters replay dl_23_1764167412345678",
			"POST /api/v1/dead-letters/dl_23_1764167412345678/replay", `{"queued":1}`, `
1 to be replayed, those of a stream one by one
`,
		},
		{
			"what is replayed", "replay --subscription orders", "GET /api/v1/replays?limit=100&subscription=orders",
			`{"replays":[{"subscription_id":"orders","stream":"/orders/17","consumer_id":"orders:%2Forders%2F17",
			"waiting":3,"done":1,"under_way":"rp_23_1764167412345678","at":"0004","skip":2,"to":"0009","attempt":2,
			"failing_since":"2026-11-26T16:00:00Z","last_error":"status 500"}]}`, `
SUBSCRIPTION  STREAM      DONE  WAITING  UNDER WAY               AT       ATTEMPT  FAILING SINCE         LAST ERROR
orders        /orders/17  1     3        rp_23_1764167412345678  0004 +2  2        2026-11-26T16:00:00Z  status 500
`,
		},
		{
			"a span is replayed", "replay orders /orders/17 --from -1 --to 0004",
			`POST /api/v1/subscriptions/orders/replay {"from":"-1","stream":"/orders/17","to":"0004"}`,
			`{"replay_id":"rp_23_1764167412345678","from":"-1","to":"0004"}`, `
rp_23_1764167412345678: the events of /orders/17 are delivered again up to 0004
`,
		},
		{
			"a worker reads again", "rewind orders /orders/17 --to 0002",
			`POST /api/v1/subscriptions/orders/rewind {"stream":"/orders/17","to":"0002"}`,
			`{"consumer_id":"orders:%2Forders%2F17","stream":"/orders/17","from":"0009","to":"0002"}`, `
orders:%2Forders%2F17 goes back in /orders/17, from 0009 to 0002
`,
		},
		{
			"a worker reads again what it has subscribed to", "rewind orders /b --to -1 --consumer-of /orders/17",
			`POST /api/v1/subscriptions/orders/rewind {"consumer_of":"/orders/17","stream":"/b","to":"-1"}`,
			`{"consumer_id":"orders:%2Forders%2F17","stream":"/b","from":"0009","to":"-1"}`, `
orders:%2Forders%2F17 goes back in /b, from 0009 to -1
`,
		},
		{
			"replays are cancelled", "replay cancel --subscription orders --stream /orders/17",
			`POST /api/v1/replays/cancel {"stream":"/orders/17","subscription":"orders"}`, `{"cancelled":4}`, `
4 replays cancelled
`,
		},
		{
			"some dead letters are replayed",
			"dead-letters replay --subscription orders --stream /orders/17 --since 2026-11-26T16:00:00Z",
			`POST /api/v1/dead-letters/replay {"since":"2026-11-26T16:00:00Z","stream":"/orders/17",` +
				`"subscription":"orders"}`, `{"queued":2}`, `
2 to be replayed, those of a stream one by one
`,
		},
		{
			"all dead letters of a subscription are replayed", "dead-letters replay --subscription orders",
			`POST /api/v1/dead-letters/replay {"subscription":"orders"}`, `{"queued":12,"refused":3}`, `
12 to be replayed, those of a stream one by one; 3 cannot be: their stream or subscription is gone, or another one
`,
		},
		{
			"all dead letters of a subscription are discarded", "dead-letters discard --subscription orders",
			`POST /api/v1/dead-letters/discard {"subscription":"orders"}`, `{"discarded":12}`, `
12 discarded
`,
		},
		{
			"one subscription", "subscriptions agent-handler", "GET /api/v1/subscriptions/agent-handler",
			`{"subscription_id":"agent-handler","pattern":"/agents/*","mode":"wake","start":"-1",
			"webhook_host":"agents.example.com","description":"wakes \u001b[31magents",
			"created_at":"2026-11-20T10:00:00Z","backfill":{"done":3,"total":9},
			"previous_signs_until":"2026-11-27T10:00:00.5Z",
			"consumers":30000,"asides":2,"pending":12,"condition":"retired","failing_since":"2026-11-21T15:04:00Z",
			"last_error":"status 410","states":{"idle":29000,"live":10,"waking":992,"retired":990},
			"waiting_since":"2026-11-21T15:00:00Z","last_attempt":{"result":"retired","status_code":410,
			"class":"gone","reason":"status 410","at":"2026-11-21T15:19:00Z"},"as_of":"2026-11-21T15:20:00Z"}`,
			`
subscription     agent-handler
pattern          /agents/*
mode             wake
start            -1
webhook          agents.example.com
description      wakes ?[31magents
created          2026-11-20T10:00:00Z
consumers        30000
asides           2 failed deliveries or replays go on by themselves
pending          12
oldest waiting   2026-11-21T15:00:00Z, 20m0s ago
states           29000 idle, 992 waking, 10 live, 990 retired
condition        990 retired
failing since    2026-11-21T15:04:00Z, 16m0s ago
last error       status 410
last attempt     retired (status 410; class gone), 2026-11-21T15:19:00Z, 1m0s ago
backfill         3 of 9
previous secret  signs until 2026-11-27T10:00:00Z
`,
		},
		{
			"one subscription whose events are pushed", "subscriptions orders", "GET /api/v1/subscriptions/orders",
			`{"subscription_id":"orders","pattern":"/orders/*","mode":"push","format":"cloudevents-batch",
			"ordering":"none","events":["job.failed","order.*"],"type_path":"kind",
			"filter":{"data.queue":["a b",5],"x":[true]},
			"webhook_host":"example.com","created_at":"2026-11-20T10:00:00Z","consumers":1,
			"pending":0,"condition":"ok","states":{"idle":1},"as_of":"2026-11-21T15:20:00Z",
			"last_attempt":{"result":"accepted","status_code":204,"at":"2026-11-21T15:19:00Z"}}`,
			`
subscription  orders
pattern       /orders/*
mode          push
format        cloudevents-batch
ordering      none
events        job.failed, order.*
type path     kind
filter        data.queue: "a b" or 5, x: true
webhook       example.com
created       2026-11-20T10:00:00Z
consumers     1
pending       0
states        1 idle
condition     ok
last attempt  accepted (status 204), 2026-11-21T15:19:00Z, 1m0s ago
`,
		},
		{
			"consumers", "consumers --state failing --subscription orders --limit 2 --cursor xyz",
			"GET /api/v1/consumers?cursor=xyz&limit=2&state=failing&subscription=orders",
			`{"consumers":[{"subscription_id":"orders","primary_stream":"/orders/17","state":"waking",
			"condition":"failing","epoch":7,"attempt":12,
			"deadline":"2026-11-21T15:20:31.5Z","last_error":"status 503"},
			{"subscription_id":"orders","primary_stream":"/orders/18","state":"idle","condition":"ok",
			"epoch":1838351904357378},{"subscription_id":"orders","primary_stream":"/orders/18",
			"aside_of":"orders:%2Forders%2F18","state":"waking","condition":"failing","epoch":9,"attempt":2}],
			"next":"more","as_of":"2026-11-21T15:20:00Z"}`,
			`
SUBSCRIPTION  STREAM      STATE                   EPOCH             ATTEMPT  DEADLINE  LAST ERROR
orders        /orders/17  waking, failing         7                 12       in 32s    status 503
orders        /orders/18  idle                    1838351904357378
orders        /orders/18  aside, waking, failing  9                 2

There is more: reveille consumers --subscription orders --state failing --limit 2 --cursor more
`,
		},
		{
			"consumers that all do well have no empty columns", "consumers", "GET /api/v1/consumers?limit=100",
			`{"consumers":[{"subscription_id":"orders","primary_stream":"/orders/18","state":"live","condition":"ok",
			"epoch":3,"deadline":"2026-11-21T15:20:03.25Z"}],"as_of":"2026-11-21T15:20:00Z"}`,
			`
SUBSCRIPTION  STREAM      STATE  EPOCH  DEADLINE
orders        /orders/18  live   3      in 3.3s
`,
		},
		{
			"one consumer", "consumer orders:%2Forders%2F17", "GET /api/v1/consumers/orders:%2Forders%2F17",
			consumerAnswer, `
consumer       orders:%2Forders%2F17
subscription   orders
stream         /orders/17
state          waking, failing
failing since  2026-11-21T15:04:00Z, 16m0s ago
last error     status 503
blocked        the last attempt failed; ended by the time of the next attempt, or a retry
epoch          7
wake id        w_05d8ac1a58638763ca95
woken          2026-11-21T15:03:58Z, 16m2s ago
attempt        12
deadline       in 32s (2026-11-21T15:20:31Z): the next attempt
partition      23

STREAM      ACKED                              TAIL                               PENDING
/orders/17  0000000000000000_0000000000000026  0000000000000000_0000000000000052  yes
/tools/17   -1                                 -1
`,
		},
		{
			"one with failed deliveries aside", "consumer orders:%2Forders%2F18",
			"GET /api/v1/consumers/orders:%2Forders%2F18",
			`{"consumer_id":"orders:%2Forders%2F18","subscription_id":"orders","primary_stream":"/orders/18",
			"partition":3,"state":"idle","condition":"ok","epoch":9,"asides":2}`, `
consumer      orders:%2Forders%2F18
subscription  orders
stream        /orders/18
state         idle
asides        2 failed deliveries are retried by themselves
epoch         9
partition     3

STREAM  ACKED  TAIL  PENDING
`,
		},
		{
			"one that is aside", "consumer orders:%2Forders%2F18:8",
			"GET /api/v1/consumers/orders:%2Forders%2F18:8",
			`{"consumer_id":"orders:%2Forders%2F18:8","subscription_id":"orders","primary_stream":"/orders/18",
			"aside_of":"orders:%2Forders%2F18","partition":3,"state":"waking","condition":"failing","epoch":9}`, `
consumer      orders:%2Forders%2F18:8
subscription  orders
stream        /orders/18
aside of      orders:%2Forders%2F18
state         aside, waking, failing
epoch         9
partition     3

STREAM  ACKED  TAIL  PENDING
`,
		},
		{
			"known streams", "streams", "GET /api/v1/streams?limit=100",
			`{"streams":[{"path":"/a","known_since":"2026-11-20T10:00:00Z"},
			{"path":"/b","known_since":"2026-11-21T11:00:00Z","awaited":true}]}`, `
STREAM  KNOWN SINCE
/a      2026-11-20T10:00:00Z
/b      2026-11-21T11:00:00Z  awaited: the stream server did not have it yet
`,
		},
		{
			"watched streams", "streams --watched", "GET /api/v1/streams?limit=100&watched=true",
			`{"streams":[{"path":"/a","partition":3,"tail":"0001"},{"path":"/b","partition":9}],"next":"n"}`, `
STREAM  TAIL  PARTITION
/a      0001  3
/b            9

There is more: reveille streams --watched --cursor n
`,
		},
		{"naming streams", "streams name /a /b", `POST /api/v1/streams {"streams":["/a","/b"]}`, `{"streams":2}`, `
2 named
`},
		{"forgetting streams", "streams forget /a", `DELETE /api/v1/streams {"streams":["/a"]}`, `{"streams":1}`, `
1 forgotten, with their consumers
`},
		{
			"pause", "pause orders", "POST /api/v1/subscriptions/orders/pause",
			`{"subscription_id":"orders","consumers":7}`, `
orders is paused, with 7 consumers
`,
		},
		{
			"subscriptions that are paused", "subscriptions", "GET /api/v1/subscriptions?limit=100",
			`{"subscriptions":[{"subscription_id":"a","condition":"paused","paused":true},
			{"subscription_id":"b","condition":"down","paused":true},
			{"subscription_id":"c","condition":"failing","paused":true,"disabled":true},
			{"subscription_id":"d","condition":"asked_to_wait"}]}`, `
SUBSCRIPTION  CONSUMERS  CONDITION
b             0          paused by operator, down
c             0          paused by Reveille, failing
d             0          asked to wait
a             0          paused by operator
`,
		},
		{
			"resume", "resume orders", "POST /api/v1/subscriptions/orders/resume",
			`{"subscription_id":"orders","consumers":0}`, `
orders is resumed, with 0 consumers that waited for it
`,
		},
		{
			"retry", "retry orders", "POST /api/v1/subscriptions/orders/retry",
			`{"subscription_id":"orders","consumers":1}`, `
orders is retried, with 1 consumer that waited for a later attempt
`,
		},
		{
			"rotating a secret", "rotate-secret orders",
			`POST /api/v1/subscriptions/orders/rotate-secret {"overlap":"24h0m0s"}`,
			`{"webhook_secret":"whsec_new","previous_signs_until":"2026-11-27T10:00:00.5Z"}`, `
webhook secret   whsec_new
previous secret  signs until 2026-11-27T10:00:00Z
`,
		},
		{
			"replacing a secret at once", "rotate-secret orders --overlap 0s --keep-previous",
			`POST /api/v1/subscriptions/orders/rotate-secret {"overlap":"0s","keep_previous":true}`,
			`{"webhook_secret":"whsec_new"}`, `
webhook secret   whsec_new
previous secret  does not sign any more
`,
		},
		{
			"a test delivery", "test orders", "POST /api/v1/subscriptions/orders/test",
			`{"success":true,"status_code":204,"response_time_ms":12,"response_body":""}`, `
test delivery  the endpoint took it
status         204
time           12ms
`,
		},
		{"the log level", "log-level", "GET /api/v1/log-level", `{"level":"info"}`, `
info
`},
		{"another log level", "log-level debug", `PUT /api/v1/log-level {"level":"debug"}`, `{"level":"debug"}`, `
debug
`},
		{"the versions", "version", "GET /api/v1/version", `{"version":"1.2.3"}`, `
this program       ` + programVersion() + `
the one that runs  1.2.3
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := &operatorPort{answers: map[string]string{c.request: c.answer}}
			server := httptest.NewServer(port)
			defer server.Close()
			// A consumer can be named by its stream, flags may stand anywhere, and --output json
			// changes nothing of what is there.
			lines := []string{
				c.args + " --addr " + server.URL,
				c.args + " --addr=" + strings.TrimPrefix(server.URL, "http://"),
			}
			if c.name == "one consumer" {
				lines = append(lines, "consumer --addr "+server.URL+" orders /orders/17")
			}
			for _, line := range lines {
				status, out, errs := call("", strings.Fields(line)...)
				if status != 0 || errs != "" || "\n"+out != c.want {
					t.Errorf("reveille %s: status %d, %q, asked for %q, printed\n%s\nwant%s", line, status, errs,
						port.got, out, c.want)
				}
			}
			status, out, _ := call("", strings.Fields(c.args+" --output json --addr "+server.URL)...)
			if status != 0 || out != c.answer {
				t.Errorf("--output json: status %d, %q, want %q", status, out, c.answer)
			}
			port.answers = nil
			status, out, errs := call("", strings.Fields(c.args+" --addr "+server.URL)...)
			if status != 1 || out != "" || errs != "reveille: NOT_FOUND: there is nothing like it\n" {
				t.Errorf("refused: status %d, %q, %q", status, out, errs)
			}
		})
	}
}

// TestATestDeliveryThatIsNotTakenFails holds what is shown of it, and the exit status, with --output json too.
func TestATestDeliveryThatIsNotTakenFails(t *testing.T) {
	for answer, want := range map[string]string{
		`{"success":false,"status_code":401,"response_time_ms":1200,"response_body":"bad\nsignature",` +
			`"error":"status 401"}`: `
test delivery  failed: status 401
status         401
time           1.2s
response body  bad?signature
`,
		`{"success":false,"status_code":0,"response_time_ms":0,"response_body":"","error":"connection refused"}`: `
test delivery  failed: connection refused
time           0s
`,
	} {
		server := httptest.NewServer(&operatorPort{answers: map[string]string{
			"POST /api/v1/subscriptions/orders/test": answer,
		}})
		status, out, errs := call("", "test", "orders", "--addr", server.URL)
		if status != 1 || errs != "" || "\n"+out != want {
			t.Errorf("status %d, %q, printed\n%s\nwant%s", status, errs, out, want)
		}
		status, out, _ = call("", "test", "orders", "--output=json", "--addr", server.URL)
		if status != 1 || out != answer {
			t.Errorf("--output json: status %d, %s", status, out)
		}
		server.Close()
	}
}

func TestACommandWithoutAnAnswerFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<html>forbidden</html>")
	}))
	for _, c := range []struct{ addr, says string }{
		{server.URL, "status 403 and is not from Reveille"},
		{"127.0.0.1:1", "no answer from http://127.0.0.1:1 (--addr or REVEILLE_OPERATOR_ADDR)"},
	} {
		status, out, errs := call("", "consumers", "--addr", c.addr)
		if status != 1 || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q", c.addr, status, out, errs)
		}
	}
	server.Close()
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	defer odd.Close()
	if status, _, errs := call("", "consumers", "--addr", odd.URL); status != 1 ||
		!strings.Contains(errs, "is not from Reveille") {
		t.Errorf("an answer of something else: status %d, %q", status, errs)
	}
}

// TestATimeIsSaidByItselfOrByHowLongAgoItIs holds what --since and --until of the commands that have them ask for.
func TestATimeIsSaidByItselfOrByHowLongAgoItIs(t *testing.T) {
	port := &operatorPort{answers: map[string]string{
		"GET /api/v1/subscriptions/a/deliveries?limit=0&since=2026-11-21T13%3A50%3A00Z&" +
			"until=2026-11-21T15%3A00%3A00Z": `{"deliveries":[]}`,
		"GET /api/v1/dead-letters?limit=0&since=2026-11-21T13%3A50%3A00Z&" +
			"until=2026-11-21T15%3A00%3A00Z": `{"dead_letters":[]}`,
	}}
	server := httptest.NewServer(port)
	defer server.Close()
	for _, times := range [][]string{
		{"90m", "20m"}, {"2026-11-21T13:50:00Z", "20m"}, {"90m", "2026-11-21T15:00:00Z"},
	} {
		for _, command := range []func(*cli) error{
			func(c *cli) error { return c.deliveries(t.Context(), []string{"a"}) },
			func(c *cli) error { return c.letters(t.Context(), nil) },
		} {
			err := command(&cli{
				out: io.Discard, addr: server.URL, since: times[0], until: times[1],
				now: func() time.Time { return time.Date(2026, 11, 21, 15, 20, 0, 0, time.UTC) },
			})
			if err != nil {
				t.Errorf("%q: %v", times, err)
			}
		}
	}
}

func TestADurationMayHaveDaysAndWeeks(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "1d": day, "2w": 14 * day, "1w2d3h4s": 9*day + 3*time.Hour + 4*time.Second,
		"0d": 0, "-1h": -time.Hour,
	} {
		if got, err := duration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "d", "1", "-1d", "1d1", "1d1w", "1.5d", "99999w", "2026-11-21T15:00:00Z", "yesterday",
	} {
		if got, err := duration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestTheVersionOfThisProgramIsShownWhetherOrNotOneRuns(t *testing.T) {
	nobody := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	t.Setenv("REVEILLE_OPERATOR_ADDR", nobody)
	status, out, errs := call("", "version")
	if status != 0 || errs != "" || !strings.Contains(out, "this program       "+programVersion()) ||
		!strings.Contains(out, "no answer from") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	asks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":"UNAUTHORIZED","message":"this port asks for a token"}}`)
	}))
	defer asks.Close()
	t.Setenv("REVEILLE_OPERATOR_ADDR", asks.Listener.Addr().String())
	if status, out, errs := call("", "version"); status != 0 || errs != "" ||
		!strings.Contains(out, "this program       "+programVersion()) || !strings.Contains(out, "asks for a token") {
		t.Errorf("of one that asks for a token: status %d, %q, %q", status, out, errs)
	}
	status, _, errs = call("", "version", "--addr", "http://"+nobody)
	if status != 1 || !strings.Contains(errs, "no answer") {
		t.Errorf("one that was named: status %d, %q", status, errs)
	}
}

// TestCommandsSendTheTokenOfTheirEnvironment holds that the operator port gets it, and the API port does not.
func TestCommandsSendTheTokenOfTheirEnvironment(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	for _, c := range []struct{ admin, read, want string }{
		{"", "", ""}, {"", "reads", "Bearer reads"}, {"admin", "", "Bearer admin"}, {"admin", "reads", "Bearer admin"},
	} {
		t.Setenv("REVEILLE_ADMIN_TOKEN", c.admin)
		t.Setenv("REVEILLE_READ_TOKEN", c.read)
		got = nil
		call("", "status", "--addr", server.URL)
		call("", "subscribe", "/a/*", "https://example.com", "--api", server.URL)
		if !slices.Equal(got, []string{c.want, ""}) {
			t.Errorf("with %+v, the ports get %q", c, got)
		}
	}
}

// TestATokenStaysWhereItWasSent holds that no redirect takes the token of the operator port elsewhere, or goes on.
func TestATokenStaysWhereItWasSent(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	to := other.URL
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+"/api/v1/status", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	t.Setenv("REVEILLE_ADMIN_TOKEN", "a token")
	if _, _, errs := call("", "status", "--addr", server.URL); elsewhere > 0 ||
		!strings.Contains(errs, "it redirects to "+other.URL+": give that address") {
		t.Errorf("%d requests went elsewhere: %s", elsewhere, errs)
	}
	to = server.URL
	if _, _, errs := call("", "status", "--addr", server.URL); !strings.Contains(errs, "redirects more than 10 times") {
		t.Errorf("a circle: %s", errs)
	}
}

// TestEachCommandSaysWhatItDoes holds that --help has more than flags where the arguments need words.
func TestEachCommandSaysWhatItDoes(t *testing.T) {
	for _, cmd := range commands {
		if strings.ContainsAny(cmd.args, "[|") && cmd.about == "" {
			t.Errorf("reveille %s --help does not say what %s are", cmd.name, cmd.args)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"--port=80", `unknown argument "--port=80"`},
		{"consumer", "usage: reveille consumer [flags] ID | SUBSCRIPTION STREAM"},
		{"consumer a b c", "usage:"},
		{"consumer orders", "no consumer's id"},
		{"consumer orders no-path", `stream "no-path"`},
		{"consumers extra", "usage: reveille consumers [flags]"},
		{"consumers --frob", "consumers: flag provided but not defined: -frob"},
		{"consumers --output xml", `consumers: invalid value "xml" for flag -output: expected json or text`},
		{"pause a --output JSON", "-output: expected json or text"},
		{"test a --json", "not defined: -json"},
		{"consumers --limit many", "consumers: invalid value"},
		{"subscriptions a b", "usage:"},
		{"streams name", "usage: reveille streams"},
		{"streams rename /a", "usage: reveille streams"},
		{"status x", "usage: reveille status"},
		{"resume", "usage:"},
		{"retry a b", "usage: reveille retry"},
		{"deliveries a b", "usage: reveille deliveries [flags] [SUBSCRIPTION]"},
		{"deliveries --request evt_1", "--request needs the subscription"},
		{"deliveries a --request evt_1 --failed", "--request takes no flag but"},
		{"deliveries --follow --cursor x", "it takes no --cursor"},
		{"find", "usage: reveille find [flags] ID"},
		{"deliveries a --since -1h", `--since "-1h": expected how long ago`},
		{"pause", "usage:"},
		{"rotate-secret", "usage:"},
		{"test", "usage:"},
		{"rotate-secret a --overlap soon", "rotate-secret: invalid value"},
		{"log-level a b", "usage:"},
		{"version x", "usage:"},
		{"completion", "usage: reveille completion [flags] bash|zsh|fish"},
		{"completion csh", "usage: reveille completion bash|zsh|fish"},
		{"unsubscribe", "usage:"},
		{"listen x", "usage: reveille listen"},
		{"listen --port x", "listen: invalid value"},
		{"listen --forward localhost:4000", `listen: --forward "localhost:4000": expected a URL`},
		{"listen --upstream http://", `listen: --upstream "http://": expected a URL`},
		{"consumers --addr ftp://x", "expected host:port"},
		{"consumers --addr localhost", "expected host:port"},
		{"verify --signature t=1,sha256=ab", "--secret or REVEILLE_WEBHOOK_SECRET"},
		{"verify --secret whsec_x", "--signature"},
		{"verify --secret whsec_x --signature t=1 --tolerance -1s", "negative"},
		{"verify --secret whsec_x --signature v1,ab", "--id and --timestamp"},
		{"verify --secret whsec_x --signature v1,ab --id w_1", "--id and --timestamp"},
	} {
		status, out, errs := call("", strings.Fields(c.line)...)
		if status != 2 || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("reveille %s: status %d, %q, %q; want 2 and %q on one line", c.line, status, out, errs, c.says)
		}
	}
}

func TestNoCommandShowsThePasswordOfTheAddress(t *testing.T) {
	for _, addr := range []string{
		"http://op:hunter2@127.0.0.1:1", "http://op:hunter2@127.0.0.1:1/%zz",
		"http://op:hunter2@[::1", "op:hunter2@127.0.0.1:1",
	} {
		for _, args := range [][]string{
			{"consumers"},
			{"consumer", "a\nb", "/x"},
			{"consumer", "a b", "/x"},
			{"resume", "a%zz"},
			{"retry", "a%zz"},
			{"subscriptions", "\x7f"},
		} {
			status, out, errs := call("", append(args, "--addr", addr)...)
			if status == 0 || strings.Contains(out+errs, "hunter2") || strings.Count(errs, "\n") != 1 {
				t.Errorf("%q --addr %s: status %d, %q, %q", args, addr, status, out, errs)
			}
		}
	}
}

// TestARetryOfNothingSaysWhatWouldHelp holds that a command which finds nothing to do names the one that does.
func TestARetryOfNothingSaysWhatWouldHelp(t *testing.T) {
	const none = "orders is retried, with 0 consumers that waited for a later attempt\n"
	for subscription, want := range map[string]string{
		`"states":{}`:   none,
		`"paused":true`: none + "it is paused: reveille resume orders delivers again\n",
		`"states":{"retired":1}`: none + "the endpoint answered 410 to 1 consumer: " +
			"reveille resume orders delivers again\n",
		`"states":{"given_up":3}`:     none + "3 consumers were given up: reveille resume orders delivers again\n",
		`"states":{"failing":3}`:      none,
		`"states":{"waking":3,"x":1}`: none,
	} {
		port := &operatorPort{answers: map[string]string{
			"POST /api/v1/subscriptions/orders/retry": `{"subscription_id":"orders","consumers":0}`,
			"GET /api/v1/subscriptions/orders":        `{"subscription_id":"orders",` + subscription + `}`,
		}}
		server := httptest.NewServer(port)
		if status, out, errs := call("", "retry", "orders", "--addr", server.URL); status != 0 || out != want {
			t.Errorf("%s: status %d, %q, %q, want %q", subscription, status, out, errs, want)
		}
		server.Close()
	}
}

func TestEachCommandHasHelp(t *testing.T) {
	_, all, _ := call("", "--help")
	for _, cmd := range commands {
		status, out, errs := call("", cmd.name, "--help")
		if status != 0 || errs != "" || !strings.Contains(out, "Usage: reveille "+cmd.name) ||
			!strings.Contains(out, "Exit status: 0") {
			t.Errorf("%s --help: status %d, %q, %q", cmd.name, status, out, errs)
		}
		if !strings.Contains(all, "  "+cmd.name) || !strings.Contains(all, cmd.does) {
			t.Errorf("reveille --help does not list %s", cmd.name)
		}
		for line := range strings.Lines(out) {
			if len([]rune(line)) > 121 {
				t.Errorf("%s --help has a line of %d characters: %s", cmd.name, len([]rune(line)), line)
			}
		}
	}
	if _, out, _ := call("", "verify", "--help"); !strings.Contains(out, "(ps)") {
		t.Error("verify does not say who can see a secret on a command line")
	}
}

func TestTheOperatorPortIsFoundByTheSettingOfTheOneThatRuns(t *testing.T) {
	for addr, want := range map[string]string{
		"": "http://localhost:9090", ":9091": "http://localhost:9091", "0.0.0.0:9091": "http://localhost:9091",
		"[::]:1":                            "http://localhost:1",
		"10.0.0.1:9090":                     "http://10.0.0.1:9090",
		"https://ops.example.com/reveille/": "https://ops.example.com/reveille",
	} {
		t.Setenv("REVEILLE_OPERATOR_ADDR", addr)
		if got, err := (&cli{addr: operatorAddr()}).operatorPort().url(); err != nil || got != want {
			t.Errorf("REVEILLE_OPERATOR_ADDR=%s leads to %s (%v), want %s", addr, got, err, want)
		}
	}
}

func TestVerifySaysWhichCheckFails(t *testing.T) {
	const secret, body = "whsec_0123456789abcdef", `{"epoch":7}`
	now := time.Unix(1_790_000_000, 0)
	signed := func(secret string, age time.Duration, body string) string {
		return format.Sign(secret, now.Add(-age), []byte(body))
	}
	for _, c := range []struct {
		name, signature, secret, body string
		want                          []string
		status                        int
	}{
		{
			"all is right", signed(secret, time.Minute, body), secret, body,
			[]string{"form right", "time right: signed 1m0s ago", "HMAC right", "The signature is valid."},
			0,
		},
		{
			"with the header's name", "Webhook-Signature: " + signed(secret, 0, body), secret, body,
			[]string{"The signature is valid."},
			0,
		},
		{
			"with the other header's name", "webhook-signature-new: " + signed(secret, 0, body), secret, body,
			[]string{"The signature is valid."},
			0,
		},
		{
			"no signature", "sha256=ab", secret, body,
			[]string{"form wrong: it is not t=<unix seconds>,sha256=<hex>", "The signature is not valid."},
			1,
		},
		{
			"not hex", "t=1,sha256=zz", secret, body,
			[]string{"form wrong: sha256= is not followed by 64 hexadecimal digits"},
			1,
		},
		{
			"no time", "t=now,sha256=" + strings.Repeat("0", 64), secret, body,
			[]string{"form wrong: t= is not followed by"},
			1,
		},
		{
			"old", signed(secret, 6*time.Minute, body), secret, body,
			[]string{"time wrong: signed 6m0s ago by this machine's clock, 5m0s may be between", "HMAC right"},
			1,
		},
		{"early", signed(secret, -6*time.Minute, body), secret, body, []string{"time wrong: signed in 6m0s"}, 1},
		{
			"another body", signed(secret, 0, `{"epoch": 7}`), secret, body,
			[]string{
				"time right", "HMAC wrong", `the HMAC-SHA256 of "1790000000." and the 11 bytes of the body`,
				"the 22 bytes of the secret",
			},
			1,
		},
		{
			"a line break too many", signed(secret, 0, body), secret, body + "\n",
			[]string{"HMAC wrong", "hint: it is that of the body without the line break"},
			1,
		},
		{
			"a line break too few", signed(secret, 0, body+"\n"), secret, body,
			[]string{"hint: it is that of the body with a line break"},
			1,
		},
		{
			"the secret without its prefix", signed(secret, 0, body), secret[6:], body,
			[]string{"hint: it is that of the secret with whsec_"},
			1,
		},
		{
			"the secret with a space", signed(secret, 0, body), secret + " ", body,
			[]string{"hint: it is that of the secret without the space"},
			1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, from := range []string{"flag", "environment"} {
				var out, errs strings.Builder
				program := &cli{in: strings.NewReader(c.body), out: &out, now: func() time.Time { return now }}
				args := []string{"verify", "--signature", c.signature}
				if from == "flag" {
					t.Setenv(webhookSecretName, "")
					args = append(args, "--secret", c.secret)
				} else {
					t.Setenv(webhookSecretName, c.secret)
				}
				status := program.exit(program.run(context.Background(), args), &errs)
				text := strings.Join(strings.Fields(out.String()), " ")
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("it does not say %q:\n%s", want, out.String())
					}
				}
				if status != c.status || errs.String() != "" || strings.Contains(text, c.secret) {
					t.Errorf("status %d, want %d; %q\n%s", status, c.status, errs.String(), out.String())
				}
			}
		})
	}
}

func TestVerifyKnowsStandardWebhooks(t *testing.T) {
	// The example of the specification of Standard Webhooks.
	const (
		secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
		body   = `{"email":"test@example.com","username":"test_user"}`
	)
	t.Setenv(webhookSecretName, secret)
	for _, c := range []struct {
		name, id, body string
		want           []string
		status         int
	}{
		{
			"all is right", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", body,
			[]string{"form right", "time right: signed 1m0s ago", "HMAC right", "The signature is valid."},
			0,
		},
		{
			"another id", "msg_2", body,
			[]string{"HMAC wrong", `the HMAC-SHA256 of "msg_2.1649367553." and the 51 bytes`, "the secret's base64"},
			1,
		},
		{
			"a line break too many", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", body + "\n",
			[]string{"hint: it is that of the body without the line break"},
			1,
		},
		{"an id that is none", "a.b", body, []string{"form wrong: webhook-id is empty or has a dot"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs strings.Builder
			program := &cli{
				in: strings.NewReader(c.body), out: &out, now: func() time.Time { return time.Unix(1649367613, 0) },
			}
			status := program.exit(program.run(context.Background(), []string{
				"verify", "--signature", "webhook-signature: v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
				"--id", c.id, "--timestamp", "1649367553",
			}), &errs)
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
			if status != c.status || errs.String() != "" || strings.Contains(text, secret) {
				t.Errorf("status %d, want %d; %q\n%s", status, c.status, errs.String(), out.String())
			}
		})
	}
}

func TestVerifyKnowsOpenJobSpec(t *testing.T) {
	const secret, body = "whsec_abc123", `{"epoch":7}`
	// printf '1704067200.{"epoch":7}' | openssl dgst -sha256 -hmac whsec_abc123
	const right = "sha256=95252b658c25de3b811aa26eb2c2067f17e6f4f44e2d66cd17919f8844da1756"
	wrong := "sha256=" + strings.Repeat("0", 64)
	t.Setenv(webhookSecretName, secret)
	for _, c := range []struct {
		name, signature, timestamp, body string
		want                             []string
		status                           int
	}{
		{
			"all is right", right, "1704067200", body,
			[]string{"form right", "time right: signed 1m0s ago", "HMAC right", "The signature is valid."},
			0,
		},
		{
			"one of two, with the header's name", "x-ojs-signature: " + wrong + "," + right, "1704067200", body,
			[]string{"The signature is valid."},
			0,
		},
		{
			"another secret's", wrong, "1704067200", body,
			[]string{"HMAC wrong", `the HMAC-SHA256 of "1704067200." and the 11 bytes`, "the 12 bytes of the secret"},
			1,
		},
		{"cut short", right[:20], "1704067200", body, []string{"form wrong: it is not sha256= and 64 hexadecimal"}, 1},
		{"no time", right, "now", body, []string{"form wrong: X-OJS-Timestamp is not a number of seconds"}, 1},
		{"a line break too many", right, "1704067200", body + "\n", []string{"hint: it is that of the body"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs strings.Builder
			program := &cli{
				in: strings.NewReader(c.body), out: &out, now: func() time.Time { return time.Unix(1704067260, 0) },
			}
			status := program.exit(program.run(context.Background(), []string{
				"verify", "--signature", c.signature, "--timestamp", c.timestamp,
			}), &errs)
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
			if status != c.status || errs.String() != "" || strings.Contains(text, secret) {
				t.Errorf("status %d, want %d; %q\n%s", status, c.status, errs.String(), out.String())
			}
		})
	}
}

func TestVersionOfABuild(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct{ module, revision, modified, want string }{
		{"(devel)", "", "", "dev"},
		{"(devel)", revision, "false", "dev-0123456789ab"},
		{"(devel)", revision, "true", "dev-0123456789ab-dirty"},
		{"v0.0.0-20261121150405-0123456789ab", revision, "false", "dev-0123456789ab"},
		{"v0.0.0-20261121150405-0123456789ab+dirty", revision, "true", "dev-0123456789ab-dirty"},
		{"v1.2.4-0.20261121150405-0123456789ab", revision, "false", "dev-0123456789ab"},
		{"v1.2.3", "", "", "v1.2.3"},
		{"v1.2.3", revision, "false", "v1.2.3"},
		{"v1.2.3+dirty", revision, "true", "dev-0123456789ab-dirty"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: c.module}}
		if c.revision != "" {
			info.Settings = []debug.BuildSetting{
				{Key: "vcs.revision", Value: c.revision},
				{Key: "vcs.modified", Value: c.modified},
			}
		}
		if got := versionOf(info); got != c.want {
			t.Errorf("%+v is %s, want %s", c, got, c.want)
		}
	}
}
