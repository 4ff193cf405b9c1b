package discovery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// empty is a stream server that has no stream.
type empty struct{ server }

func (*empty) Look(context.Context, string) (fsm.StreamInfo, error) { return fsm.StreamInfo{}, nil }

func (*empty) LookNow(context.Context, string) (fsm.StreamInfo, error) { return fsm.StreamInfo{}, nil }

func (*empty) HeadAnew(context.Context, string) (fsm.StreamInfo, error) { return fsm.StreamInfo{}, nil }

func TestANameOfAnOperatorIsForgottenWhenItsTimeIsOver(t *testing.T) {
	for name, subs := range map[string][]fsm.Subscription{
		"nobody is subscribed":                 nil,
		"somebody is subscribed by a wildcard": {{ID: "s", Generation: "g", Pattern: "/**"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const path = "/named"
				db := memstore.New(memstore.Options{})
				for _, sub := range subs {
					db.PutSubscription(sub)
				}
				d := build(t, Config{
					Store: db.Replica("a", 0), Upstream: &empty{},
					// The week takes few looks.
					Resync: time.Minute, RetryMax: time.Minute, GoneGrace: 4 * time.Minute,
				})
				run(t, d)
				if err := d.Name(t.Context(), []string{path}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(nameFor - time.Second)
				if state := db.Records()[path].State; state != fsm.StreamAwaited {
					t.Errorf("before its time is over it is %q", state)
				}
				time.Sleep(10 * time.Minute)
				if s := db.Records()[path]; s.Found() {
					t.Errorf("when its time is over it is %q until %s", s.State, s.Until)
				}
				for what, n := range d.Held() {
					if n > 0 {
						t.Errorf("%d %s are kept in memory", n, what)
					}
				}
			})
		})
	}
}
