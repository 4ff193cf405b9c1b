package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// watched makes a long-poll from an offset, and returns what it has told of.
func watched(t *testing.T, c *Client, path string, from fsm.Offset) (told []Event) {
	t.Helper()
	conn := c.NewConn()
	defer conn.Close()
	_ = c.Poll(t.Context(), &conn, path, from, "", func(e Event) error {
		told = append(told, e)
		return nil
	})
	return told
}

// readBoth reads a batch of what a server shows, by a client that asks for it, and by one whose watch was shown it
// before. Both get the same, and the second does not ask if there is anything to get.
func readBoth(t *testing.T, h http.HandlerFunc, at fsm.Offset, most int) (fsm.Batch, error) {
	t.Helper()
	asks := testClient(t, h, "", nil)
	want, wrong := asks.ReadBatch(t.Context(), "r", "/a", at, "", most, 0, nil)
	var asked atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}, "", nil)
	from, _ := at.Split()
	c.recent.find("r", "/a", from)
	watched(t, c, "/a", from)
	kept, before := c.recent.size, asked.Load()
	got, err := c.ReadBatch(t.Context(), "r", "/a", at, "", most, 0, nil)
	if fmt.Sprint(err) != fmt.Sprint(wrong) || !reflect.DeepEqual(got, want) {
		t.Errorf("what was shown is %+v, %v\nwhat is asked for %+v, %v", got, err, want, wrong)
	}
	if spared := asked.Load() == before; spared != (kept > 0 && len(want.Events) > 0) {
		t.Errorf("spared: %t, of %d bytes kept and %d events", spared, kept, len(want.Events))
	}
	return want, wrong
}

// TestWhatWasShownIsWhatIsAskedFor holds it for any events and batches.
func TestWhatWasShownIsWhatIsAskedFor(t *testing.T) {
	var h http.HandlerFunc
	var asked atomic.Int32
	server := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}
	asks, shows := testClient(t, server, "", nil), testClient(t, server, "", nil)
	readers, spared := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		readers++
		reader := fmt.Sprint(readers)
		var data string
		contentType := rapid.SampledFrom([]string{"application/json", "text/plain"}).Draw(rt, "content type")
		if contentType == "application/json" {
			text, err := json.Marshal(rapid.SliceOfN(valuesOfJSON(), 0, 20).Draw(rt, "messages"))
			if err != nil {
				rt.Fatal(err)
			}
			data = string(text)
		} else {
			data = rapid.String().Draw(rt, "bytes")
		}
		h = shown(contentType, "9", data)
		shows.recent.find(reader, "/a", "1")
		watched(t, shows, "/a", "1")
		for position := at(rapid.Int64Range(0, 5).Draw(rt, "behind")); position != "9"; {
			most := rapid.IntRange(1, 12).Draw(rt, "events of a batch")
			want, wrong := asks.ReadBatch(context.Background(), reader, "/a", position, "", most, 0, nil)
			before := asked.Load()
			got, err := shows.ReadBatch(context.Background(), reader, "/a", position, "", most, 0, nil)
			if fmt.Sprint(err) != fmt.Sprint(wrong) || !reflect.DeepEqual(got, want) {
				rt.Fatalf("from %q: got %+v, %v, want %+v, %v", position, got, err, want, wrong)
			}
			if err != nil {
				return
			}
			if position = want.To; asked.Load() == before {
				spared++
			} else if len(got.Events) > 0 {
				rt.Fatalf("from %q it was asked for", position)
			}
		}
	})
	if spared == 0 {
		t.Error("no read was spared")
	}
}

// TestWhoIsSparedARead holds who gets what a watch was shown from offset 1 on. The reader is r.
func TestWhoIsSparedARead(t *testing.T) {
	for _, tc := range []struct {
		name string
		// other is who has asked before in the place of r; late is true if that was while the watch waited.
		other  string
		late   bool
		path   string
		at     fsm.Offset
		again  int64
		header [2]string
		data   string
		give   http.HandlerFunc
		want   bool
	}{
		{name: "a reader that has asked before", want: true},
		{name: "one that is inside of it", at: at(2), want: true},
		{name: "one that is behind all of it", at: at(3)},
		{name: "one that is elsewhere", at: "0"},
		{name: "one of another stream", path: "/b"},
		{name: "one whose stream is of another incarnation", other: "an earlier one's"},
		{name: "one that came while the watch waited", late: true},
		{name: "one that reads once more", again: 1},
		{name: "none, if a cache has given it", header: [2]string{"Age", "7"}},
		{name: "none, if it is compressed", header: [2]string{"Content-Encoding", "gzip"}},
		{name: "an answer as long as may be", data: `["` + strings.Repeat("x", recentMax-4) + `"]`, want: true},
		{name: "none, if it is longer", data: `["` + strings.Repeat("x", recentMax-3) + `"]`},
		{
			name: "none, if it has no end", data: "[1,2,3]", give: func(w http.ResponseWriter, _ *http.Request) {
				conn, _, _ := http.NewResponseController(w).Hijack()
				_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nStream-Next-Offset: 9\r\n"+
					"Content-Type: application/json\r\n\r\n[1,2,3]")
				_ = conn.Close()
			},
		},
		{
			name: "none, if it was cut", give: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "8")
				shown("application/json", "9", "[1,2,3]")(w, r)
			},
		},
		{name: "none, if it leads nowhere", give: shown("application/json", "1", "[]")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c *Client
			var reads atomic.Int32
			if tc.data == "" {
				tc.data = "[1,2,3]"
			}
			if tc.at == "" {
				tc.at = "1"
			}
			if tc.path == "" {
				tc.path = "/a"
			}
			first := "r"
			if tc.other != "" {
				first = tc.other
			}
			read := func(reader, path string, at fsm.Offset, again int64) {
				t.Helper()
				if _, err := c.ReadBatch(t.Context(), reader, path, at, "", 5, again, nil); err != nil {
					t.Error(err)
				}
			}
			c = testClient(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Query().Get("live") == "":
					reads.Add(1)
					shown("application/json", "9", `[1,2,3,4]`)(w, r)
					return
				case tc.late:
					read("r", "/a", "1", 0)
				}
				if tc.give != nil {
					tc.give(w, r)
					return
				}
				if tc.header[0] != "" {
					w.Header().Set(tc.header[0], tc.header[1])
				}
				shown("application/json", "9", tc.data)(w, r)
			}, "", nil)
			if tc.late {
				first = "another"
			}
			read(first, "/a", "1", 0)
			told := watched(t, c, "/a", "1")
			if len(told) != 1 || told[0].Offset != "9" && tc.want {
				t.Errorf("the watch is told %+v", told)
			}
			before := reads.Load()
			read("r", tc.path, tc.at, tc.again)
			if spared := reads.Load() == before; spared != tc.want {
				t.Errorf("spared: %t, want %t", spared, tc.want)
			}
		})
	}
}

// TestWhatWasShownOfADeletedStreamIsNotForTheNext has a stream deleted and made anew, with the same offsets.
func TestWhatWasShownOfADeletedStreamIsNotForTheNext(t *testing.T) {
	var stream atomic.Value
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		shown("application/json", "9", fmt.Sprintf("[%q]", stream.Load()))(w, r)
	}, "", nil)
	read := func(reader string) string {
		t.Helper()
		b, err := c.ReadBatch(t.Context(), reader, "/a", "1", "", 1, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(texts(b.Events), ",")
	}
	stream.Store("old")
	read("the old one's")
	watched(t, c, "/a", "1")
	stream.Store("new")
	if got := read("the old one's"); got != `"old"` {
		t.Errorf("what the watch was shown is not used: %s came", got)
	}
	// Twice, for what is kept may not come with the second batch either.
	for range 2 {
		if got := read("the new one's"); got != `"new"` {
			t.Errorf("of the new stream came %s", got)
		}
	}
}

// TestAWatchKeepsNothingOfStreamsThatNobodyReads holds that what is only woken for costs nothing.
func TestAWatchKeepsNothingOfStreamsThatNobodyReads(t *testing.T) {
	c := testClient(t, shown("application/json", "9", "[1]"), "", nil)
	c.recent.find("r", "/b", "1")
	watched(t, c, "/a", "1")
	if len(c.recent.paths) != 1 || c.recent.size > 0 || c.recent.expiry != nil {
		t.Errorf("%d streams are followed, with %d bytes", len(c.recent.paths), c.recent.size)
	}
	if n := testing.AllocsPerRun(100, func() { c.recent.asks("/a") }); n > 0 {
		t.Errorf("asking allocates %v times", n)
	}
}

// TestAWatchDoesNotWaitForABodyThatDoesNotCome holds that it tells of the event all the same.
func TestAWatchDoesNotWaitForABodyThatDoesNotCome(t *testing.T) {
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		shown("application/json", "9", "[1")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, "", nil)
	c.recent.find("r", "/a", "1")
	if told := watched(t, c, "/a", "1"); len(told) != 1 || told[0].Offset != "9" || c.recent.size > 0 {
		t.Errorf("it told of %+v, and keeps %d bytes", told, c.recent.size)
	}
}

func TestRecentAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rs recent
		defer rs.close()
		keep := func(path string, size int) {
			rs.find("r", path, "1")
			asked, _ := rs.asks(path)
			rs.keep(path, &recentAnswer{asked: asked, from: "1", next: "9", body: make([]byte, size)})
		}
		// holds says how many bytes, streams, and answers of a stream are kept, and how many readers it has.
		holds := func(path string) (size, paths, answers, readers int) {
			t.Helper()
			rs.mu.Lock()
			defer rs.mu.Unlock()
			for e := rs.used.Front(); e != nil; e = e.Next() {
				f := e.Value.(*followed)
				for _, a := range f.answers {
					size += len(a.body)
				}
				if f.path == path {
					answers, readers = len(f.answers), len(f.readers)
				}
			}
			if rs.size != size || rs.used.Len() != len(rs.paths) || (rs.expiry != nil) != (size > 0) {
				t.Errorf("%d bytes are counted as %d, %d streams as %d, with the timer %v",
					size, rs.size, rs.used.Len(), len(rs.paths), rs.expiry)
			}
			return size, len(rs.paths), answers, readers
		}

		for range 2 * recentEach {
			keep("/a", 1)
		}
		if _, _, answers, _ := holds("/a"); answers != recentEach {
			t.Errorf("%d answers of a stream are kept", answers)
		}
		for i := range recentSize/recentMax + 10 {
			keep(fmt.Sprint("/large/", i), recentMax)
		}
		if size, _, first, _ := holds("/large/0"); size > recentSize || size < recentSize-recentMax || first > 0 {
			t.Errorf("%d bytes are kept, %d answers of those that came first", size, first)
		}
		for i := range 2 * recentReaders {
			rs.find(fmt.Sprint(i), "/a", "1")
		}
		if _, _, _, readers := holds("/a"); readers != recentReaders {
			t.Errorf("a stream has %d readers", readers)
		}

		time.Sleep(recentIdle / 2)
		keep("/later", 7)
		time.Sleep(recentIdle / 2)
		synctest.Wait()
		if size, _, _, _ := holds(""); size != 7 {
			t.Errorf("%d bytes are kept, want those of the last answer", size)
		}
		time.Sleep(recentIdle)
		synctest.Wait()
		if size, _, _, _ := holds(""); size > 0 {
			t.Errorf("%d bytes are kept for ever", size)
		}

		for i := range recentPaths + 10 {
			keep(fmt.Sprint("/many/", i), 1)
		}
		if _, paths, first, _ := holds("/many/0"); paths != recentPaths || first > 0 {
			t.Errorf("%d streams are followed, with %d answers of the first", paths, first)
		}
	})
}

var errStop = errors.New("stop")

// TestTheErrorOfAWatchThatKeepsAnswersIsReturned holds it for what take says, and for what the server does.
func TestTheErrorOfAWatchThatKeepsAnswersIsReturned(t *testing.T) {
	var gone atomic.Bool
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		shown("application/json", "9", "[1]")(w, r)
	}, "", nil)
	c.recent.find("r", "/a", "1")
	conn := c.NewConn()
	defer conn.Close()
	poll := func() error {
		return c.Poll(t.Context(), &conn, "/a", "1", "", func(Event) error { return errStop })
	}
	if err := poll(); !errors.Is(err, errStop) {
		t.Errorf("got %v", err)
	}
	gone.Store(true)
	if err := poll(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
}
