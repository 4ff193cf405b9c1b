package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// shown is a handler that answers each read with a content type, a next offset and data.
func shown(contentType, next, data string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set(HeaderNextOffset, next)
		_, _ = io.WriteString(w, data)
	}
}

// at is the position behind n messages of a read from offset 1, which leads to 9.
func at(n int64) fsm.Offset { return fsm.Offset("1").At(n, "9") }

func texts(events [][]byte) (list []string) {
	for _, e := range events {
		list = append(list, string(e))
	}
	return list
}

// nested is a message of this depth.
func nested(depth int) string {
	return strings.Repeat(`[{"a":`, depth/2) + strings.Repeat("[", depth%2) + "0" + strings.Repeat("]", depth%2) +
		strings.Repeat("}]", depth/2)
}

// TestABatchOfMessages holds what a batch has of a JSON stream, read from offset 1, which leads to offset 9.
func TestABatchOfMessages(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	most, half := long(fsm.MaxDeliveryBytes), long(fsm.MaxDeliveryBytes/2)
	notJSON, shrunk := errNotJSON.What, errShrunk.What
	for _, tc := range []struct {
		name   string
		data   string
		behind int64
		most   int
		want   []string
		to     fsm.Offset
		large  bool
		deep   bool
		wrong  string
	}{
		{name: "all there are", data: `[1,2,3]`, most: 5, want: []string{"1", "2", "3"}, to: "9"},
		{name: "exactly all there are", data: `[1,2,3]`, most: 3, want: []string{"1", "2", "3"}, to: "9"},
		{name: "the first ones", data: `[1,2,3]`, most: 2, want: []string{"1", "2"}, to: at(2)},
		{name: "what follows them", data: `[1,2,3]`, behind: 2, most: 2, want: []string{"3"}, to: "9"},
		{name: "one of the middle", data: `[1,2,3]`, behind: 1, most: 1, want: []string{"2"}, to: at(2)},
		{name: "one at least", data: `[1,2]`, most: 0, want: []string{"1"}, to: at(1)},
		{name: "nothing behind the last", data: `[1,2]`, behind: 2, most: 2, to: "9"},
		{name: "nothing of an empty array", data: `[]`, most: 2, to: "9"},
		{name: "nothing of an empty array with space in it", data: " [ \n]\t", most: 2, to: "9"},
		{
			name: "no space around messages", data: "\n[ 1 ,\t{\"a\" : [ 1 ]}\r\n, \"b \" , null ] \n", most: 5,
			want: []string{"1", `{"a" : [ 1 ]}`, `"b "`, "null"}, to: "9",
		},
		{
			name: "strings with all that ends something elsewhere", most: 5, to: "9",
			data: `["],[{}","\"],[","\\",{"}\\\"]":",\\"},"\u005d\\\\\""]`,
			want: []string{`"],[{}"`, `"\"],["`, `"\\"`, `{"}\\\"]":",\\"}`, `"\u005d\\\\\""`},
		},
		{
			name: "arrays in arrays", data: `[[],[[1,2],[{"a":[]}]],[[[]]],{}]`, most: 5, to: "9",
			want: []string{"[]", `[[1,2],[{"a":[]}]]`, "[[[]]]", "{}"},
		},
		{
			name: "every kind of value", data: `[-1.5e+3,true,false,null,"é€😀",0]`, most: 9, to: "9",
			want: []string{"-1.5e+3", "true", "false", "null", `"é€😀"`, "0"},
		},
		{
			name: "messages behind others with every kind of end", data: `[[1,"]"],"\",",{"a":"}"},4, 5]`, behind: 4,
			most: 5, want: []string{"5"}, to: "9",
		},
		{name: "the largest", data: `[` + most + `]`, most: 5, want: []string{most}, to: "9"},
		{name: "the largest before another", data: `[` + most + `,1]`, most: 5, want: []string{most}, to: at(1)},
		{name: "one before the largest", data: `[1,` + most + `]`, most: 5, want: []string{"1"}, to: at(1)},
		{
			name: "as many as fit", data: `[` + half + `,` + half + `,1]`, most: 5, want: []string{half, half},
			to: at(2),
		},
		{
			name: "nothing of one that is too large", data: `[ [` + most + `] , 2]`, most: 5, to: at(1), large: true,
		},
		{name: "nothing of a last one that is too large", data: `[[` + most + `] ]`, most: 5, to: "9", large: true},
		{
			name: "nothing of one that is too large among others", data: `[1,[` + most + `],2]`, behind: 1, most: 5,
			to: at(2), large: true,
		},
		{
			name: "what follows one that is too large", data: `[1,[` + most + most + `],2]`, behind: 2, most: 5,
			want: []string{"2"}, to: "9",
		},
		{
			name: "the deepest", data: `[` + nested(fsm.MaxDepth) + `]`, most: 5, want: []string{nested(fsm.MaxDepth)},
			to: "9",
		},
		{name: "one that is too deep", data: `[` + nested(fsm.MaxDepth+1) + `,2]`, most: 5, to: at(1), deep: true},
		{
			name: "up to one that is too deep", data: `[1,` + nested(fsm.MaxDepth+1) + `,2]`, most: 5,
			want: []string{"1"}, to: at(1),
		},
		{
			name: "what follows one that is too deep", data: `[` + nested(100_000) + `,[[2]]]`, behind: 1, most: 5,
			want: []string{"[[2]]"}, to: "9",
		},
		{name: "fewer messages than were there", data: `[1,2]`, behind: 3, most: 5, wrong: shrunk},
		{name: "no messages where some were there", data: `[]`, behind: 1, most: 5, wrong: shrunk},
		{name: "no array", data: `{"a":1}`, most: 5, wrong: notJSON},
		{name: "an array without a comma", data: `[1 2]`, most: 5, wrong: notJSON},
		{name: "an array that begins with a comma", data: `[,1]`, most: 5, wrong: notJSON},
		{name: "an array that ends with a comma", data: `[1,]`, most: 5, wrong: notJSON},
		{name: "two commas behind each other", data: `[1,,2]`, behind: 2, most: 5, wrong: notJSON},
		{name: "an array that ends with a brace", data: `[1}`, most: 5, wrong: notJSON},
		{name: "more than an array", data: `[1][2]`, most: 5, wrong: notJSON},
		{name: "more than an empty array", data: `[]1`, most: 5, wrong: notJSON},
		{name: "a message that is not valid", data: `[1,{"a" 1},2]`, most: 5, wrong: notJSON},
		{name: "a word that is none", data: `[nil]`, most: 5, wrong: notJSON},
		{name: "a line break in a string", data: "[\"a\nb\"]", most: 5, wrong: notJSON},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := readBoth(t, shown("application/json", "9", tc.data), at(tc.behind), tc.most)
			var answer AnswerError
			if errors.As(err, &answer); answer.What != tc.wrong || (err != nil) != (tc.wrong != "") {
				t.Fatalf("got %v, want %q", err, tc.wrong)
			}
			if err != nil {
				return
			}
			if got := texts(b.Events); !slices.Equal(got, tc.want) || b.To != tc.to || b.TooLarge != tc.large ||
				b.TooDeep != tc.deep {
				t.Errorf("got %.300q to %q, too large: %t, too deep: %t", got, b.To, b.TooLarge, b.TooDeep)
			}
			if b.From != at(tc.behind) || b.Tail != "9" || !b.JSON || b.ContentType != "application/json" {
				t.Errorf("it is from %q of %q, %q, JSON: %t", b.From, b.Tail, b.ContentType, b.JSON)
			}
		})
	}
}

func TestABatchOfBytes(t *testing.T) {
	most := strings.Repeat("x", fsm.MaxDeliveryBytes)
	for _, tc := range []struct {
		name   string
		data   string
		behind int64
		want   []string
		to     fsm.Offset
		wrong  string
	}{
		{name: "all there are", data: "[1,2]", want: []string{"[1,2]"}, to: "9"},
		{name: "what follows", data: "[1,2]", behind: 2, want: []string{",2]"}, to: "9"},
		{name: "nothing behind the last", data: "[1,2]", behind: 5, to: "9"},
		{name: "nothing of nothing", to: "9"},
		{name: "the most", data: most, want: []string{most}, to: "9"},
		{name: "the most of more", data: most + "y", want: []string{most}, to: at(fsm.MaxDeliveryBytes)},
		{name: "the rest", data: most + "yz", behind: fsm.MaxDeliveryBytes + 1, want: []string{"z"}, to: "9"},
		{name: "fewer than were there", data: "[1,2]", behind: 6, wrong: errShrunk.What},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := readBoth(t, shown("text/plain; charset=utf-8", "9", tc.data), at(tc.behind), 5)
			var answer AnswerError
			if errors.As(err, &answer); answer.What != tc.wrong || (err != nil) != (tc.wrong != "") {
				t.Fatalf("got %v, want %q", err, tc.wrong)
			}
			if got := texts(b.Events); err == nil && (!slices.Equal(got, tc.want) || b.To != tc.to || b.JSON ||
				b.ContentType != "text/plain; charset=utf-8" || b.From != at(tc.behind) || b.Tail != "9") {
				t.Errorf("got %.300q to %q: %t, %s", got, b.To, b.JSON, b.ContentType)
			}
		})
	}
}

// TestABatchByTheHeaderOfTheAnswer holds what statuses, offsets and content types mean for a batch.
func TestABatchByTheHeaderOfTheAnswer(t *testing.T) {
	const inX, oneBefore = "x/00000000000000000003 3::x", "x/00000000000000000002 2::x"
	for _, tc := range []struct {
		name string
		at   fsm.Offset
		give func(w http.ResponseWriter)
		want fsm.Batch
		// wrong is what the error is; gone and notKept are of their kinds.
		wrong         string
		gone, notKept bool
	}{
		{
			name: "JSON in capitals and with a parameter", at: "1", want: fsm.Batch{
				ContentType: "Application/JSON; charset=utf-8", JSON: true, Events: [][]byte{[]byte("1")}, To: "9",
				Within: "1  000000000001", Tail: "9",
			},
			give: func(w http.ResponseWriter) { shown("Application/JSON; charset=utf-8", "9", "[1]")(w, nil) },
		},
		{
			name: "a type that is like JSON is not", at: "1", want: fsm.Batch{
				ContentType: "application/problem+json", Events: [][]byte{[]byte("[1]")}, To: "9", Tail: "9",
				Within: "1  000000000003",
			},
			give: func(w http.ResponseWriter) { shown("application/problem+json", "9", "[1]")(w, nil) },
		},
		{
			name: "no content", at: "1", want: fsm.Batch{To: "1", Within: "1", Tail: "1"},
			give: func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		},
		{
			name: "no content, up to an offset", at: fsm.Start, want: fsm.Batch{To: "0", Within: "-1", Tail: "0"},
			give: func(w http.ResponseWriter) {
				w.Header().Set(HeaderNextOffset, "0")
				w.WriteHeader(http.StatusNoContent)
			},
		},
		{
			name: "no content where some was there", at: "1  000000000002", wrong: errShrunk.What,
			give: func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		},
		{
			name: "an empty array without an offset", at: "1",
			want: fsm.Batch{ContentType: "application/json", JSON: true, To: "1", Within: "1", Tail: "1"},
			give: func(w http.ResponseWriter) { shown("application/json", "", "[]")(w, nil) },
		},
		{
			name: "messages without an offset", at: "1", wrong: "it has data, and its next offset is not beyond it",
			give: func(w http.ResponseWriter) { shown("application/json", "", "[1]")(w, nil) },
		},
		{
			name: "messages that lead nowhere", at: "9", wrong: "it has data, and its next offset is not beyond it",
			give: func(w http.ResponseWriter) { shown("application/json", "9", "[1]")(w, nil) },
		},
		{
			name: "an offset that is none", at: "1", wrong: "its next offset",
			give: func(w http.ResponseWriter) { shown("application/json", "a b", "[1]")(w, nil) },
		},
		{
			name: "the start of an incarnation", at: fsm.Start, want: fsm.Batch{
				ContentType: "application/json", JSON: true, Events: [][]byte{[]byte("1"), []byte("2")},
				To: oneBefore, Within: oneBefore, Tail: inX,
			},
			give: func(w http.ResponseWriter) { shown("application/json", "3::x", "[1,2,3]")(w, nil) },
		},
		{
			name: "another incarnation", at: oneBefore, notKept: true,
			give: func(w http.ResponseWriter) { shown("application/json", "3::y", "[1,2,3]")(w, nil) },
		},
		{
			name: "no stream", at: "1", gone: true,
			give: func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		},
		{
			name: "an error", at: "1", wrong: "upstream answered 500",
			give: func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		},
		{
			name: "bytes whose end cannot be told from a cut", at: "1", wrong: "it does not say how long it is",
			give: func(w http.ResponseWriter) {
				conn, _, _ := http.NewResponseController(w).Hijack()
				_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nStream-Next-Offset: 9\r\n\r\nabc")
				_ = conn.Close()
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked string
			b, err := readBoth(t, func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Query().Get("offset")
				tc.give(w)
			}, tc.at, 2)
			if asked != tc.at.Value() {
				t.Errorf("it asked for what follows %q", asked)
			}
			if tc.wrong != "" || tc.gone || tc.notKept {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) || errors.Is(err, ErrGone) != tc.gone ||
					errors.Is(err, ErrNotKept) != tc.notKept {
					t.Errorf("got %+v, %v", b, err)
				}
				return
			}
			if tc.want.From = tc.at; err != nil || !reflect.DeepEqual(b, tc.want) {
				t.Errorf("got %+v, %v\nwant %+v", b, err, tc.want)
			}
		})
	}
}

// TestABatchThatIsCutShortIsAnError cuts an answer off after each of its bytes, in each way in which it can be sent.
func TestABatchThatIsCutShortIsAnError(t *testing.T) {
	const data = `[1,"a\"",{"b":[2]} ]`
	for name, header := range map[string]string{
		"with a length": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n", len(data)),
		"in chunks":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
		"until it ends": "HTTP/1.0 200 OK\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, contentType := range []string{"application/json", "text/plain"} {
				var sent atomic.Int64
				c := testClient(t, func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = conn.Close() }()
					part := data[:sent.Load()]
					if strings.Contains(header, "chunked") {
						part = fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
					}
					_, _ = io.WriteString(conn, header+"Stream-Next-Offset: 9\r\nContent-Type: "+contentType+
						"\r\n\r\n"+part)
				}, "", nil)
				for n := 1; n < len(data); n++ {
					sent.Store(int64(n))
					b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 5, 0, nil)
					if err == nil {
						t.Errorf("%d bytes of %s: got %q to %q", n, contentType, b.Events, b.To)
					}
				}
			}
		})
	}
}

// TestABatchThatIsFullIsReadNoFurther holds that the rest of an answer is not waited for, and that a batch whose rest
// does not come ends with its context.
func TestABatchThatIsFullIsReadNoFurther(t *testing.T) {
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		shown("application/json", "9", "[1,2,3")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, "", nil)
	b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 2, 0, nil)
	if err != nil || len(b.Events) != 2 || b.To != at(2) {
		t.Errorf("got %+v, %v", b, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.ReadBatch(ctx, "r", "/a", "1", "", 3, 0, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestABatchTakesLittleMemory holds that of a message that is too large nothing is kept.
func TestABatchTakesLittleMemory(t *testing.T) {
	const size, enough = 64 << 20, 16 << 20
	part := bytes.Repeat([]byte("x"), 1<<20)
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		shown("application/json", "9", `["`)(w, r)
		for range size / len(part) {
			_, _ = w.Write(part)
		}
		_, _ = io.WriteString(w, `",2]`)
	}, "", nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 5, 0, nil)
	runtime.ReadMemStats(&after)
	if err != nil || !b.TooLarge || b.Events != nil || b.To != at(1) {
		t.Errorf("got %d events to %q, %v", len(b.Events), b.To, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > enough {
		t.Errorf("it took %d bytes of memory", used)
	}
}

// TestWalkingInBatchesGivesEachEventOnce holds it for any events, by any sizes of batches, on a server that shows some
// messages a read.
func TestWalkingInBatchesGivesEachEventOnce(t *testing.T) {
	var messages, spaces []string
	var chunk int
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		n = max(n, 0)
		end := min(n+chunk, len(messages))
		var data strings.Builder
		for i := n; i < end; i++ {
			data.WriteString([]string{",", "["}[min(1, max(0, n+1-i))])
			data.WriteString(spaces[i%len(spaces)] + messages[i] + spaces[(i+1)%len(spaces)])
		}
		if n == end {
			data.WriteByte('[')
		}
		shown("application/json", fmt.Sprintf("%06d", end), data.String()+"]")(w, r)
	}, "", nil)
	value := valuesOfJSON()
	space := rapid.StringMatching(`[ \t\r\n]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		messages = nil
		for _, v := range rapid.SliceOfN(value, 0, 30).Draw(t, "messages") {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, string(text))
		}
		spaces = rapid.SliceOfN(space, 1, 5).Draw(t, "spaces")
		chunk = rapid.IntRange(1, 40).Draw(t, "messages of a read")
		var got []string
		at, tail := fsm.Start, fsm.Offset(fmt.Sprintf("%06d", len(messages)))
		for tail.After(at) {
			most := rapid.IntRange(1, 12).Draw(t, "events of a batch")
			b, err := c.ReadBatch(context.Background(), "r", "/a", at, "", most, 0, nil)
			if err != nil {
				t.Fatalf("from %q: %v", at, err)
			}
			if b.From != at || len(b.Events) > most || !b.To.After(at) || b.To.After(b.Tail) {
				t.Fatalf("from %q: %d events of %d at most, to %q, tail %q", at, len(b.Events), most, b.To, b.Tail)
			}
			got = append(got, texts(b.Events)...)
			at = b.To
		}
		if !slices.Equal(got, messages) {
			t.Fatalf("got %q, want %q", got, messages)
		}
	})
}

// valuesOfJSON draws values of every kind, with all that may confuse a reader of them.
func valuesOfJSON() *rapid.Generator[any] {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[\[\]{},:"\\ ]{0,8}`))
	simple := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.Map(text, func(s string) any { return s }),
	)
	value := simple
	for range 3 {
		inner := value
		value = rapid.OneOf(
			simple, rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(text, inner, 0, 4), func(m map[string]any) any { return m }),
		)
	}
	return value
}
