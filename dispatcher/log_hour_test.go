package dispatcher

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// waysToFail are twelve, each with what a line says of it. An endpoint whose way is a number answers with it.
var waysToFail = map[string]string{
	"302": "status 302 (redirects are not followed)", "401": "status 401", "404": "status 404", "410": "status 410",
	"429": "status 429", "500": "status 500", "503": "status 503",
	"hang": fsm.ReasonTimeout, "reset": "the connection was closed without an answer",
	"refused": "connection refused", "dns": "the host name does not resolve",
	"tls": "the TLS certificate has expired",
}

// failingByQuery is an endpoint that fails in the way that the query of its URL says.
func failingByQuery(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch status, err := strconv.Atoi(r.URL.RawQuery); {
	case err == nil:
		w.WriteHeader(status)
	case r.URL.RawQuery == "hang":
		hangs(r)
	default:
		panic(http.ErrAbortHandler)
	}
}

// unreachable are the addresses that a connection is never made to, and why.
var unreachable = map[string]error{
	"refused": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
	"dns":     &net.DNSError{Err: "no such host", Name: "gone.test"},
	"tls": &tls.CertificateVerificationError{
		Err: x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}},
	},
}

// TestTheLogOfAnHourInWhichAllFailFitsOnAScreen has subscriptions of both kinds fail in all ways for an hour, with 20
// events a second. Each is named once, with its reason; what goes on is summed. The short form ends after ten minutes.
func TestTheLogOfAnHourInWhichAllFailFitsOnAScreen(t *testing.T) {
	const screen, hooks, aSecond = 60, 18, 20
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		var subs []fsm.Subscription
		reasons, unreached := map[string]string{}, map[string]error{}
		ways := slices.Sorted(maps.Keys(waysToFail))
		for i := range hooks {
			way, mode := ways[i%len(ways)], fsm.ModePush
			if i >= len(ways) {
				mode = fsm.ModeWake
			}
			id, host := way+"."+string(mode), fmt.Sprintf("10.0.0.%d:80", i+1)
			sub := fsm.Subscription{
				ID: id, Generation: "g-" + id, Pattern: "/" + id + "/*", Secret: "whsec_c2VjcmV0", Mode: mode,
				Webhook: "http://" + host + "/?" + way,
			}.WithDefaults()
			store.db.PutSubscription(sub)
			subs, reasons[id], unreached[host] = append(subs, sub), waysToFail[way], unreachable[way]
		}
		f := start(t, store, func(c *Config) {
			c.DueInterval = 200 * time.Millisecond
			c.ReadBatch = func(
				_ context.Context, _, _ string, at, _ fsm.Offset, _ int, _ int64, _ func([]byte) bool,
			) (fsm.Batch, error) {
				n, _ := strconv.Atoi(strings.TrimPrefix(string(at), "-"))
				to := eventAt(n + 1)
				return fsm.Batch{
					ContentType: "application/json", JSON: true, Events: [][]byte{[]byte(`{"n":1}`)},
					From: at, To: to, Tail: to,
				}, nil
			}
		}, without(t, http.HandlerFunc(failingByQuery)), func(d *Dispatcher) {
			reach := d.sender.dial
			d.sender.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if err := unreached[addr]; err != nil {
					return nil, err
				}
				return reach(ctx, network, addr)
			}
		})
		span := time.Hour
		if testing.Short() {
			span = 10 * time.Minute
		}
		for n := range int(span/time.Second) * aSecond {
			sub := subs[n%len(subs)]
			f.Deliver(store.event(sub, "/"+sub.ID+"/1", eventAt(n/len(subs)+2)))
			if n%aSecond == 0 {
				pass(time.Second)
			}
		}
		lines, named := 0, map[string]int{}
		for _, e := range f.logs.All() {
			if e.Level < zap.WarnLevel {
				continue
			}
			lines++
			id, _ := e.ContextMap()["subscription"].(string)
			if _, attempt := e.ContextMap()["attempt"]; !attempt {
				continue
			}
			named[id]++
			if e.ContextMap()["reason"] != reasons[id] {
				t.Errorf("%s is said to fail because %q, want %q", id, e.ContextMap()["reason"], reasons[id])
			}
		}
		for id := range reasons {
			if named[id] != 1 {
				t.Errorf("%s is named %d times, want once", id, named[id])
			}
		}
		if lines > screen {
			t.Errorf("the log of %s has %d lines, want %d at most", span, lines, screen)
		}
		t.Logf("the log of %s has %d lines", span, lines)
		f.stop()
	})
}

// eventAt is the offset of an event.
func eventAt(n int) fsm.Offset { return fsm.Offset(fmt.Sprintf("%08d", n)) }
