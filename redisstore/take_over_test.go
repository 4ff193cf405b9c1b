package redisstore_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestStreamsOfAnEarlierVersionAreTakenOver holds that a database whose records say only since when a stream is known
// goes on as if they had been made by this version: a stream is linked to every subscription but those whose backfill
// is not over, and who has unsubscribed stays gone.
func TestStreamsOfAnEarlierVersionAreTakenOver(t *testing.T) {
	t.Parallel()
	const micros, ms = 1_790_000_000_000_000, 1000
	version := func(micros int64) int64 { return micros / 1000 * 2048 }
	for name, tt := range map[string]struct {
		backfill string
		linked   func(present int64) int64
	}{
		"no backfill is under way":  {"", func(int64) int64 { return math.MaxInt64 }},
		"one is, of the later one":  {"later", func(int64) int64 { return version(micros+5*ms) - 1 }},
		"one is, of the former one": {"former", func(noted int64) int64 { return noted }},
	} {
		t.Run(name, func(t *testing.T) {
			server := redisstore.EmptyRedis(t)
			rdb, ctx := client(t, server), t.Context()
			former := map[string]int64{"former": micros + 2*ms, "later": micros + 5*ms}
			for id, at := range former {
				text := fmt.Sprintf(`{"id":%q,"generation":"g-%s","pattern":"/**","webhook":"https://example.com/",`+
					`"secret":"whsec_x","created_at":%d}`, id, id, at)
				if err := rdb.HSet(ctx, "rv:{subs}:all", id, text).Err(); err != nil {
					t.Fatal(err)
				}
			}
			fields := []any{
				"/present", fmt.Sprint(micros + 3*ms), "/awaited", fmt.Sprint("?", micros+1*ms),
				"/late", fmt.Sprint(micros + 20*ms),
			}
			for _, err := range []error{
				rdb.Set(ctx, "rv:{subs}:version", micros+9*ms, 0).Err(),
				rdb.HSet(ctx, "rv:{0}:known", fields...).Err(),
				rdb.HSet(ctx, "rv:{subs}:meta", "partitions", 1).Err(),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if tt.backfill != "" {
				if err := rdb.HSet(ctx, "rv:{subs}:backfill", tt.backfill, "g-"+tt.backfill+" 0 0").Err(); err != nil {
					t.Fatal(err)
				}
			}
			s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing}.Patient())
			for range 2 { // at each start
				if err := s.Check(ctx); err != nil {
					t.Fatal(err)
				}
			}
			present := must[fsm.Stream](t)(s.Stream(ctx, "/present"))
			if !present.Present() || present.Noted != version(micros+3*ms) ||
				!linkedAsFar(present, tt.linked(present.Noted)) ||
				!present.First.Equal(time.UnixMicro(micros+3*ms)) || present.Begin != fsm.Start {
				t.Errorf("a stream that is known: %+v", present)
			}
			if late := must[fsm.Stream](t)(s.Stream(ctx, "/late")); late.Linked < version(micros+20*ms) {
				t.Errorf("one that an older replica has linked since: %+v", late)
			}
			awaited := must[fsm.Stream](t)(s.Stream(ctx, "/awaited"))
			if awaited.State != fsm.StreamAwaited || awaited.Linked != 0 || awaited.Noted != version(micros+1*ms) {
				t.Errorf("one that is awaited: %+v", awaited)
			}
			for id, at := range former {
				if sub, _ := s.Catalog().Get(id); sub.Version != version(at) {
					t.Errorf("subscription %s has version %d, want %d", id, sub.Version, version(at))
				}
			}
			// It is linked by its record's new form from now on.
			sub, _ := s.Catalog().Get("later")
			reply, err := s.LinkStream(ctx, "/present", fsm.Linking{
				Stamp: present.Stamp, Tail: "7", Version: version(micros + 90*ms), Look: time.Hour,
				Links: []fsm.NewLink{{Subscription: sub, Acked: "7"}},
			})
			if err != nil || !reply.Done || reply.Linked != 1 ||
				reply.Stream.Linked != version(micros+90*ms) || reply.Stream.Stamp == 0 {
				t.Errorf("linked %+v, %v", reply, err)
			}
			after, _, err := s.ScanStreams(ctx, 0, "0")
			if err != nil || len(after) != 3 {
				t.Errorf("scanned %+v, %v", after, err)
			}
			fresh, created, err := s.CreateSubscription(ctx, subscription("fresh"))
			if err != nil || !created || fresh.Version <= version(micros+20*ms) {
				t.Errorf("a new subscription has version %d (%v, %v)", fresh.Version, created, err)
			}
		})
	}
}

// linkedAsFar says whether a stream is linked through a version; MaxInt64 is that of the list when it was taken over.
func linkedAsFar(s fsm.Stream, want int64) bool {
	if want == math.MaxInt64 {
		return s.Linked > time.Now().Add(-time.Hour).UnixMilli()*2048
	}
	return s.Linked == want
}
