package native_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/httpapi"
	"reveille/httpapi/native"
	"reveille/test/ports"
)

const (
	primary    = ports.Primary
	consumerID = ports.ConsumerID
	generation = ports.Generation
	epoch      = ports.Epoch
	wakeID     = ports.WakeID
	strangerID = "my-sub:%2Fagents%2Ftask-2"
)

// woken is a harness whose consumer is in its seventh wake.
func woken(t *testing.T, change func(*httpapi.Config)) *harness {
	h := newHarness(t, change)
	h.Wake()
	return h
}

func (h *harness) callback(token, body string) ports.Answer {
	h.T.Helper()
	a := h.API(http.MethodPost, "/callback/"+consumerID, body, "Authorization", "Bearer "+token)
	if token, ok := a.Body["token"].(string); ok {
		h.Secret(token)
	}
	return a
}

// attempt is a callback with any number of things wrong with it.
type attempt struct {
	unsigned, forged, foreign, notJSON, noEpoch, malformed, gone, expired, stale, otherWake bool
	epoch                                                                                   any // if it is set
	offset                                                                                  string
}

func (a attempt) send(h *harness) ports.Answer {
	id, age := consumerID, time.Duration(0)
	if a.foreign {
		id = strangerID
	}
	if a.expired {
		age = token.TTL + time.Second
	}
	token := h.Token(id, epoch, age)
	if a.forged {
		token = token[:len(token)-4] + "AAAA"
	}
	body := map[string]any{"epoch": epoch, "wake_id": wakeID}
	if a.stale {
		body["epoch"] = epoch - 1
	}
	if a.epoch != nil {
		body["epoch"] = a.epoch
	}
	if a.noEpoch {
		delete(body, "epoch")
	}
	if a.otherWake {
		body["wake_id"] = "w_other"
	}
	if a.offset != "" {
		body["acks"] = []any{map[string]any{"path": primary, "offset": a.offset}}
	}
	if a.malformed {
		body["done"] = "yes"
	}
	if a.gone {
		h.Store.DB.LoseConsumer(consumerID)
	}
	text, _ := json.Marshal(body)
	if a.notJSON {
		text = text[1:]
	}
	if a.unsigned {
		return h.API(http.MethodPost, "/callback/"+consumerID, string(text))
	}
	return h.callback(token, string(text))
}

func TestCallbackIsJudgedInOrderAndTheFirstFailureAnswers(t *testing.T) {
	faults := []struct {
		name   string
		spoil  func(*attempt)
		status int
		code   fsm.Code
		says   string
		token  bool
	}{
		{"no token", func(a *attempt) { a.unsigned = true }, 401, fsm.CodeTokenInvalid, "Authorization", false},
		{"forged token", func(a *attempt) { a.forged = true }, 401, fsm.CodeTokenInvalid, "signature", false},
		{
			"token of another consumer", func(a *attempt) { a.foreign = true }, 401, fsm.CodeTokenInvalid,
			"not for the consumer", false,
		},
		{"body not JSON", func(a *attempt) { a.notJSON = true }, 400, fsm.CodeInvalidRequest, "not JSON", false},
		{"missing epoch", func(a *attempt) { a.noEpoch = true }, 400, fsm.CodeInvalidRequest, "epoch is miss", false},
		{
			"field of the wrong type", func(a *attempt) { a.malformed = true }, 400, fsm.CodeInvalidRequest, "done",
			false,
		},
		{"consumer gone", func(a *attempt) { a.gone = true }, 410, fsm.CodeConsumerGone, "no longer exists", false},
		{"token expired", func(a *attempt) { a.expired = true }, 401, fsm.CodeTokenExpired, "expired", true},
		{"stale epoch", func(a *attempt) { a.stale = true }, 409, fsm.CodeStaleEpoch, "epoch 6", true},
		{"another wake id", func(a *attempt) { a.otherWake = true }, 409, fsm.CodeAlreadyClaimed, "w_other", true},
		{"ack beyond the tail", func(a *attempt) { a.offset = "201" }, 409, fsm.CodeInvalidOffset, `"200"`, true},
	}
	for i, first := range faults {
		t.Run(first.name+" alone", func(t *testing.T) {
			judge(t, first.spoil, nil, first.status, first.code, first.says, first.token)
		})
		for _, second := range faults[i+1:] {
			t.Run(first.name+" before "+second.name, func(t *testing.T) {
				judge(t, first.spoil, second.spoil, first.status, first.code, first.says, first.token)
			})
		}
		if first.code == fsm.CodeInvalidOffset {
			continue
		}
		t.Run(first.name+" before an ack that is no offset", func(t *testing.T) {
			judge(t, first.spoil, func(a *attempt) { a.offset = "a,b" }, first.status, first.code, first.says,
				first.token)
		})
	}
	for _, other := range []int{epoch + 1, 0, -1} {
		t.Run(fmt.Sprintf("epoch %d before another wake id", other), func(t *testing.T) {
			judge(t, func(a *attempt) { a.epoch = other }, func(a *attempt) { a.otherWake = true }, 409,
				fsm.CodeStaleEpoch, fmt.Sprintf("epoch %d", other), true)
		})
	}
	for _, bad := range []string{"a,b", "now", "a b", "a/b", strings.Repeat("9", 257)} {
		t.Run("ack "+bad[:3]+" is no offset", func(t *testing.T) {
			judge(t, func(a *attempt) { a.offset = bad }, nil, 409, fsm.CodeInvalidOffset,
				`"/agents/task-1": not an offset`, true)
		})
	}
}

func judge(t *testing.T, first, second func(*attempt), status int, code fsm.Code, says string, token bool) {
	h := woken(t, nil)
	var a attempt
	first(&a)
	if second != nil {
		second(&a)
	}
	before, _ := h.Store.Lookup(consumerID)
	got := a.send(h)
	h.Want(got, status, code, says)
	if got.Body["ok"] != false {
		t.Fatalf("ok is %v", got.Body["ok"])
	}
	fields := []string{"error", "ok"}
	if token {
		fields = append(fields, "token")
	}
	if has := slices.Sorted(maps.Keys(got.Body)); !slices.Equal(has, fields) {
		t.Fatalf("the answer has the fields %q, want %q", has, fields)
	}
	text, has := got.Body["token"].(string)
	if has {
		parsed, err := h.Tokens.Parse(text)
		if err != nil || parsed.Epoch != epoch || parsed.Consumer != consumerID ||
			parsed.Generation != generation || !parsed.Expires.After(h.Clock()) {
			t.Fatalf("the answer's token says %+v, %v", parsed, err)
		}
	}
	if after, ok := h.Store.Lookup(consumerID); ok && fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("a refused callback changed the consumer from %+v to %+v", before, after)
	}
	h.WantCalls()
}

func TestCallbackTokenErrors(t *testing.T) {
	h := woken(t, nil)
	other, err := token.New(ports.OtherKey)
	if err != nil {
		t.Fatal(err)
	}
	good := h.Token(consumerID, epoch, 0)
	target := "/callback/" + consumerID
	for name, header := range map[string]string{
		"another scheme":           "Basic " + good,
		"no scheme":                good,
		"no token":                 "Bearer",
		"a token cut short":        "Bearer " + good[:len(good)-9],
		"a token of another key":   "Bearer " + h.Secret(other.Mint(consumerID, generation, epoch, h.Clock())),
		"a token that is no token": "Bearer abc",
		"a very long token":        "Bearer " + strings.Repeat("a", 40_000),
		"a token without signing":  "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJteS1zdWI6JTJGYWdlbnRzJTJGdGFzay0xIn0.",
	} {
		t.Run(name, func(t *testing.T) {
			h.Want(h.API(http.MethodPost, target, `{"epoch":7}`, "Authorization", header), 401, fsm.CodeTokenInvalid,
				"token")
		})
	}
	h.Want(h.API(http.MethodPost, target, `{"epoch":7}`), 401, fsm.CodeTokenInvalid, "Authorization")
	if a := h.API(http.MethodPost, target, `{"epoch":7}`, "Authorization", "bEARER "+good); a.Status != 200 {
		t.Fatalf("the scheme is case-insensitive, got %s", a.Text)
	}
	h.Want(h.API(http.MethodPost, target+"?token="+good, `{"epoch":7}`), 401, fsm.CodeTokenInvalid, "Authorization")
	for _, id := range []string{
		"nobody", "my-sub:%2fagents%2ftask-1", "my-sub:agents", "my-sub%3A%2Fagents%2Ftask-1", "my-sub", "my-sub:",
		":" + consumerID, strings.Replace(consumerID, "%2F", "%252F", 1), consumerID + "x", strangerID,
		"my-subx:%2Fagents%2Ftask-1",
	} {
		h.Want(h.API(http.MethodPost, "/callback/"+id, `{"epoch":7}`, "Authorization", "Bearer "+good), 401,
			fsm.CodeTokenInvalid, "")
	}
	odd := h.Token("nobody", epoch, 0)
	h.Want(h.API(http.MethodPost, "/callback/nobody", `{"epoch":7}`, "Authorization", "Bearer "+odd), 401,
		fsm.CodeTokenInvalid, "path")
}

func TestCallbackSucceeds(t *testing.T) {
	h := woken(t, nil)
	h.Up.Streams["/tools/x"] = fsm.StreamInfo{Exists: true, Tail: "42"}
	token := h.Token(consumerID, epoch, 0)
	a := h.callback(token, `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/./task-1","offset":"150"},`+
		`{"path":"/not/mine","offset":"9"},{"path":"/not/mine","offset":"a,b"}],`+
		`"subscribe":["/tools/x","/lazy","/tools/x"]}`)
	want := `{"ok":true,"token":"` + token + `","streams":[{"path":"/agents/task-1","offset":"150"},` +
		`{"path":"/lazy","offset":"-1"},{"path":"/tools/x","offset":"42"}]}`
	if a.Status != 200 || strings.TrimSpace(a.Text) != want {
		t.Fatalf("got %d %s, want %s", a.Status, a.Text, want)
	}
	if a.Header.Get("Cache-Control") != "no-store" {
		t.Fatal("the answer may be kept")
	}
	c, _ := h.Store.Lookup(consumerID)
	if c.State != fsm.Live || c.Links["/tools/x"] != (fsm.Link{Acked: "42", Tail: "42"}) ||
		c.Links["/lazy"] != (fsm.Link{Acked: fsm.Start}) {
		t.Fatalf("consumer is %+v", c)
	}
	h.WantCalls("watch /agents/task-1 [/tools/x /lazy]")
	if got := h.Up.Asked(); got[0] != primary || len(got) != 3 || !slices.Contains(got, "/lazy") ||
		!slices.Contains(got, "/tools/x") {
		t.Fatalf("asked upstream %q", got)
	}
}

// TestCallbackNamesAStreamHoweverItIsSpelled holds that acks, unsubscribe and the judgement of an offset take the
// canonical name of what a worker spells.
func TestCallbackNamesAStreamHoweverItIsSpelled(t *testing.T) {
	const linked = "/tools/~x"
	h := woken(t, nil)
	link := func() {
		c, _ := h.Store.Lookup(consumerID)
		c.Links[linked] = fsm.Link{Acked: "10", Tail: "42"}
		h.Store.DB.PutConsumer(c)
	}
	link()
	token := h.Token(consumerID, epoch, 0)
	a := h.callback(token, `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/tools/%7ex","offset":"42"}]}`)
	if a.Status != 200 || !strings.Contains(a.Text, `{"path":"`+linked+`","offset":"42"}`) {
		t.Errorf("ack: %d %s", a.Status, a.Text)
	}
	a = h.callback(token, `{"epoch":7,"unsubscribe":["/tools/%7ex"]}`)
	if a.Status != 200 || strings.Contains(a.Text, linked) {
		t.Errorf("unsubscribe: %d %s", a.Status, a.Text)
	}
	link()
	a = h.callback(token, `{"epoch":7,"acks":[{"path":"/tools/%7ex","offset":"99"}]}`)
	h.Want(a, 409, fsm.CodeInvalidOffset, linked)
}

func TestCallbackSubscribesToAnyPath(t *testing.T) {
	h := woken(t, nil)
	a := h.callback(h.Token(consumerID, epoch, 0),
		`{"epoch":7,"subscribe":["tools/x","/q?offset=1#y","/ü v","/a/../b"]}`)
	for _, path := range []string{"/tools/x", "/q%3Foffset=1%23y", "/%C3%BC%20v", "/b"} {
		if a.Status != 200 || !strings.Contains(a.Text, `{"path":"`+path+`","offset":"-1"}`) {
			t.Errorf("%s is not among the streams: %d %s", path, a.Status, a.Text)
		}
	}
}

func TestACallbackCannotNameWhatIsNoStream(t *testing.T) {
	h := woken(t, nil)
	token := h.Token(consumerID, epoch, 0)
	for _, path := range []string{
		"/..%2ftenantB%2fx", "../x", "//x", "/a//b", "/__ds/x", "/a/%5F_ds", "/agents/*",
		"/a%2Ab",
	} {
		for field, body := range map[string]string{
			"subscribe[0]":   `"subscribe":["` + path + `"]`,
			"unsubscribe[0]": `"unsubscribe":["` + path + `"]`,
			"acks[0].path":   `"acks":[{"path":"` + path + `","offset":"1"}]`,
		} {
			h.Want(h.callback(token, `{"epoch":7,`+body+`}`), 400, fsm.CodeInvalidRequest, field+": not a stream path")
		}
	}
	for _, head := range h.Up.Heads {
		if !strings.HasSuffix(head, primary) {
			t.Errorf("upstream was asked: %s", head)
		}
	}
}

func TestCallbackDone(t *testing.T) {
	t.Run("with work pending wakes again at once", func(t *testing.T) {
		h := woken(t, nil)
		if a := h.callback(
			h.Token(consumerID, epoch, 0), `{"epoch":7,"wake_id":"w_current","done":true}`,
		); a.Status != 200 {
			t.Fatal(a.Text)
		}
		h.WantCalls("deliver "+consumerID+" 8", "idle [/agents/task-1]")
	})
	t.Run("without work pending comes to rest", func(t *testing.T) {
		h := woken(t, nil)
		body := `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/task-1","offset":"200"}],"done":true}`
		for range 2 { // a lost answer is repeated
			if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 {
				t.Fatal(a.Text)
			}
		}
		h.WantCalls("idle [/agents/task-1]")
	})
	t.Run("a late callback of what came to rest acks what upstream shows, and wakes nothing", func(t *testing.T) {
		h := woken(t, nil)
		h.Change(consumerID, func(c *fsm.Consumer) {
			c.State, c.Links[primary] = fsm.Idle, fsm.Link{Acked: "200", Tail: "200"}
		})
		h.Up.Streams[primary] = fsm.StreamInfo{Exists: true, Tail: "300"}
		body := `{"epoch":7,"acks":[{"path":"/agents/task-1","offset":"300"}]}`
		a := h.callback(h.Token(consumerID, epoch, 0), body)
		if c, _ := h.Store.Lookup(consumerID); a.Status != 200 || c.State != fsm.Idle ||
			c.Links[primary] != (fsm.Link{Acked: "300", Tail: "300"}) {
			t.Fatalf("%d %s: %+v", a.Status, a.Text, c)
		}
		h.WantCalls()
	})
	t.Run("a tail that upstream shows counts as pending", func(t *testing.T) {
		h := woken(t, nil)
		h.Up.Streams[primary] = fsm.StreamInfo{Exists: true, Tail: "300"}
		body := `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/task-1","offset":"200"}],"done":true}`
		if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 {
			t.Fatal(a.Text)
		}
		h.WantCalls("deliver "+consumerID+" 8", "idle [/agents/task-1]")
	})
	t.Run("unsubscribing from all answers 200 with no streams, and the consumer is gone", func(t *testing.T) {
		h := woken(t, nil)
		token := h.Token(consumerID, epoch, 0)
		a := h.callback(token, `{"epoch":7,"subscribe":["/x"],"unsubscribe":["/agents/task-1","/x"]}`)
		if a.Status != 200 || !strings.Contains(a.Text, `"streams":[]`) {
			t.Fatal(a.Text)
		}
		if got := h.Up.Asked(); !slices.Equal(got, []string{primary}) {
			t.Fatalf("a stream that is dropped at once was asked for: %q", got)
		}
		h.WantCalls()
		h.Want(h.callback(token, `{"epoch":7}`), 410, fsm.CodeConsumerGone, "")
	})
}

func TestCallbackTokenIsRefreshedNearItsEndAndNeverForANewerEpoch(t *testing.T) {
	for _, c := range []struct {
		name  string
		age   time.Duration
		body  string
		fresh bool
	}{
		{"a young token stays", token.TTL - token.Refresh, `{"epoch":7}`, false},
		{"an old one is replaced", token.TTL - token.Refresh + time.Second, `{"epoch":7}`, true},
		{
			"an old one is replaced when a new wake begins", token.TTL - time.Second,
			`{"epoch":7,"wake_id":"w_current","done":true}`, true,
		},
		{"an old one is replaced in a refusal", token.TTL - time.Second, `{"epoch":6}`, true},
		{"a young one stays in a refusal", 0, `{"epoch":6}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := woken(t, nil)
			old := h.Token(consumerID, epoch, c.age)
			got := h.callback(old, c.body).Body["token"].(string)
			parsed, err := h.Tokens.Parse(got)
			if err != nil || parsed.Epoch != epoch || (got != old) != c.fresh {
				t.Fatalf("got %+v, %v, fresh %v", parsed, err, got != old)
			}
			if c.fresh && !parsed.Expires.Equal(h.Clock().Add(token.TTL)) {
				t.Fatalf("expires %v", parsed.Expires)
			}
		})
	}
}

func TestCallbackLooksAtThePrimaryStream(t *testing.T) {
	body := `{"epoch":7,"wake_id":"w_current"}`
	t.Run("gone, confirmed by a second HEAD, is gone", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.Up.Streams, primary)
		h.Want(h.callback(h.Token(consumerID, epoch, 0), body), 410, fsm.CodeConsumerGone, "")
		if !slices.Equal(h.Store.HiddenStreams, []string{primary}) ||
			!slices.Equal(h.Up.Asked(), []string{primary, "anew " + primary}) {
			t.Fatalf("hidden %q, asked %q", h.Store.HiddenStreams, h.Up.Asked())
		}
		if got := h.Rec.Noted(); !slices.Equal(got, []string{"gone " + primary}) {
			t.Fatalf("told %q, want that the stream is looked at until it is back", got)
		}
	})
	t.Run("gone comes before an expired token", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.Up.Streams, primary)
		h.Want(h.callback(h.Token(consumerID, epoch, 2*time.Hour), body), 410, fsm.CodeConsumerGone, "")
	})
	t.Run("one answer alone that lacks the stream is not trusted", func(t *testing.T) {
		h := woken(t, nil)
		h.Up.Shared[primary] = fsm.StreamInfo{}
		if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 || len(h.Store.HiddenStreams) > 0 {
			t.Fatal(a.Text)
		}
	})
	t.Run("upstream that cannot be asked does not stop the callback", func(t *testing.T) {
		h := woken(t, nil)
		h.Up.Broken[primary] = true
		if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 {
			t.Fatal(a.Text)
		}
	})
	t.Run("a store that cannot hide it is unavailable", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.Up.Streams, primary)
		h.Store.Fail(fsm.ErrUnavailable)
		h.Want(h.callback(h.Token(consumerID, epoch, 0), body), 503, fsm.CodeUnavailable, "")
	})
}

func TestCallbackAsksForATailThatAnAckLiesBeyond(t *testing.T) {
	second := func(t *testing.T) *harness {
		h := woken(t, nil)
		h.Change(consumerID, func(c *fsm.Consumer) { c.Links["/b"] = fsm.Link{Acked: "1", Tail: "5"} })
		h.Store.DB.SetTail(primary, "/b", "5")
		return h
	}
	body := `{"epoch":7,"acks":[{"path":"/b","offset":"9"}]}`
	t.Run("and takes the ack if it is there by now", func(t *testing.T) {
		h := second(t)
		h.Up.Streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "9"}
		if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 ||
			!strings.Contains(a.Text, `{"path":"/b","offset":"9"}`) {
			t.Fatal(a.Text)
		}
		if got := h.Up.Asked(); !slices.Equal(got, []string{primary, "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and once more if the answer is from long ago, as in a process that was frozen", func(t *testing.T) {
		h := second(t)
		h.Up.Streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "8"}
		h.Up.Answered = func(head string) {
			if head == "anew /b" {
				h.Pass(time.Minute)
				h.Up.Mu.Lock()
				h.Up.Streams["/b"], h.Up.Answered = fsm.StreamInfo{Exists: true, Tail: "9"}, nil
				h.Up.Mu.Unlock()
			}
		}
		if a := h.callback(h.Token(consumerID, epoch, 0), body); a.Status != 200 {
			t.Fatal(a.Text)
		}
		if got := h.Up.Asked(); !slices.Equal(got, []string{primary, "anew /b", "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and refuses it if not, asking once", func(t *testing.T) {
		h := second(t)
		h.Up.Streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "8"}
		h.Want(h.callback(h.Token(consumerID, epoch, 0), body), 409, fsm.CodeInvalidOffset,
			`"/b" lies beyond the stream's tail "8"`)
		if got := h.Up.Asked(); !slices.Equal(got, []string{primary, "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and refuses it if there is no such stream", func(t *testing.T) {
		h := second(t)
		h.Want(h.callback(h.Token(consumerID, epoch, 0), body), 409, fsm.CodeInvalidOffset, `"/b"`)
	})
	t.Run("and has the worker try again if upstream cannot be asked", func(t *testing.T) {
		h := second(t)
		h.Up.Broken["/b"] = true
		a := h.callback(h.Token(consumerID, epoch, 0), body)
		h.Want(a, 503, fsm.CodeUnavailable, `"/b"`)
	})
	t.Run("but not for one that is no offset", func(t *testing.T) {
		h := second(t)
		h.Want(h.callback(h.Token(consumerID, epoch, 0), `{"epoch":7,"acks":[{"path":"/b","offset":"now"}]}`),
			409, fsm.CodeInvalidOffset, "now")
		if got := h.Up.Asked(); !slices.Equal(got, []string{primary}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and learns that the primary is gone", func(t *testing.T) {
		h := woken(t, nil)
		h.Up.Shared[primary] = fsm.StreamInfo{Exists: true, Tail: "200"}
		delete(h.Up.Streams, primary)
		h.Want(h.callback(h.Token(consumerID, epoch, 0),
			`{"epoch":7,"acks":[{"path":"/agents/task-1","offset":"300"}]}`),
			410, fsm.CodeConsumerGone, "")
	})
}

func TestCallbackSubscribesManyStreams(t *testing.T) {
	h := woken(t, nil)
	var paths []string
	for i := range 100 {
		path := fmt.Sprintf("/many/%d", i)
		paths = append(paths, path)
		h.Up.Streams[path] = fsm.StreamInfo{Exists: true, Tail: fsm.Offset(fmt.Sprint(1000 + i))}
	}
	h.Up.Broken["/many/7"] = true
	list, _ := json.Marshal(paths)
	a := h.callback(h.Token(consumerID, epoch, 0), `{"epoch":7,"subscribe":`+string(list)+`}`)
	if a.Status != 200 {
		t.Fatal(a.Text)
	}
	c, _ := h.Store.Lookup(consumerID)
	for i, path := range paths {
		want := fsm.Offset(fmt.Sprint(1000 + i))
		if i == 7 {
			want = fsm.Start // no event may be lost
		}
		if c.Links[path].Acked != want {
			t.Fatalf("%s begins at %q, want %q", path, c.Links[path].Acked, want)
		}
	}
	if h.Up.Most > native.LookLimit {
		t.Fatalf("%d HEADs at a time", h.Up.Most)
	}
}

func TestCallbackPathIsRaw(t *testing.T) {
	h := woken(t, nil)
	token := h.Token(consumerID, epoch, 0)
	for _, target := range []string{
		"/callback/my-sub:/agents/task-1", "/callback/", "/callback", "/callback/a/b",
		"/callback%2F" + consumerID,
	} {
		h.Want(h.API(http.MethodPost, target, `{"epoch":7}`, "Authorization", "Bearer "+token), 404, fsm.CodeNotFound,
			"")
	}
	h.Want(h.API(http.MethodPost, "/callback/my-sub:/agents/task-1", `{"epoch":7}`, "Authorization", "Bearer "+token),
		404, fsm.CodeNotFound, "decoded")
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "HEAD", "PURGE"} {
		a := h.API(method, "/callback/"+consumerID, "")
		if a.Status != 405 || a.Header.Get("Allow") != "POST" {
			t.Fatalf("%s: %d, Allow %q", method, a.Status, a.Header.Get("Allow"))
		}
	}
	if a := h.API(
		http.MethodPost, "/callback/"+consumerID+"?x=1", `{"epoch":7}`, "Authorization", "Bearer "+token,
	); a.Status != 200 {
		t.Fatal(a.Text)
	}
}

func TestCallbackStoreErrors(t *testing.T) {
	h := woken(t, nil)
	token := h.Token(consumerID, epoch, 0)
	h.Store.Fail(fmt.Errorf("callback: %w", fsm.ErrUnavailable))
	h.Want(h.callback(token, `{"epoch":7}`), 503, fsm.CodeUnavailable, "try again")
	h.Store.Fail(fmt.Errorf("script broken"))
	a := h.callback(token, `{"epoch":7}`)
	h.Want(a, 500, fsm.CodeInternal, "")
	if strings.Contains(a.Text, "script") {
		t.Fatal("the cause of a failure is nobody's business outside")
	}
}

// TestWhatARefusedCallbackHasBegunIsDone holds that wakes that the store has begun on the way are delivered, whatever
// it says to the callback.
func TestWhatARefusedCallbackHasBegunIsDone(t *testing.T) {
	for name, tt := range map[string]struct {
		attempt attempt
		status  int
	}{
		"refused":          {attempt{stale: true}, http.StatusConflict},
		"beyond the tail":  {attempt{offset: "201"}, http.StatusConflict},
		"judged again":     {attempt{offset: "150"}, http.StatusOK},
		"taken right away": {attempt{}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			h := woken(t, nil)
			if name == "judged again" {
				h.Store.DB.SetTail(primary, primary, "120")
				h.Up.Shared[primary] = fsm.StreamInfo{Exists: true, Tail: "120"}
			}
			h.Store.Begun = []fsm.Delivery{{Consumer: strangerID, Epoch: 9}}
			if a := tt.attempt.send(h); a.Status != tt.status {
				t.Fatalf("answered %d %s", a.Status, a.Text)
			}
			if got := h.Rec.Noted(); !slices.Contains(got, "deliver "+strangerID+" 9") {
				t.Errorf("told %q", got)
			}
		})
	}
}
