package httpapi

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
	"reveille/fsm/spec"
	"reveille/fsm/token"
)

const (
	primary    = "/agents/task-1"
	consumerID = "my-sub:%2Fagents%2Ftask-1"
	strangerID = "my-sub:%2Fagents%2Ftask-2"
	generation = "gen-1"
	epoch      = 7
	wakeID     = "w_current"
)

// woken puts a consumer into the store that is in its seventh wake: acked 100, tail 200.
func woken(t *testing.T, change func(*Config)) *harness {
	h := newHarness(t, change)
	c := spec.NewConsumer(fsm.Subscription{ID: "my-sub", Generation: generation}, primary, "100", epoch)
	c.State, c.WakeID, c.Attempt, c.Sent = fsm.Waking, wakeID, 1, true
	c.Links[primary] = fsm.Link{Acked: "100", Tail: "200"}
	h.store.db.PutConsumer(c)
	h.up.streams[primary] = fsm.StreamInfo{Exists: true, Tail: "200"}
	return h
}

func (h *harness) token(consumer string, epoch int64, age time.Duration) string {
	return h.secret(h.tokens.Mint(consumer, generation, epoch, h.clock().Add(-age)))
}

func (h *harness) callback(token, body string) answer {
	h.t.Helper()
	a := h.api(http.MethodPost, "/callback/"+consumerID, body, "Authorization", "Bearer "+token)
	if token, ok := a.body["token"].(string); ok {
		h.secret(token)
	}
	return a
}

// attempt is a callback with any number of things wrong with it.
type attempt struct {
	unsigned, forged, foreign, notJSON, noEpoch, malformed, gone, expired, stale, otherWake bool
	epoch                                                                                   any // if it is set
	offset                                                                                  string
}

func (a attempt) send(h *harness) answer {
	id, age := consumerID, time.Duration(0)
	if a.foreign {
		id = strangerID
	}
	if a.expired {
		age = token.TTL + time.Second
	}
	token := h.token(id, epoch, age)
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
		h.store.db.LoseConsumer(consumerID)
	}
	text, _ := json.Marshal(body)
	if a.notJSON {
		text = text[1:]
	}
	if a.unsigned {
		return h.api(http.MethodPost, "/callback/"+consumerID, string(text))
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
	before, _ := h.store.consumer(consumerID)
	got := a.send(h)
	h.want(got, status, code, says)
	if got.body["ok"] != false {
		t.Fatalf("ok is %v", got.body["ok"])
	}
	fields := []string{"error", "ok"}
	if token {
		fields = append(fields, "token")
	}
	if has := slices.Sorted(maps.Keys(got.body)); !slices.Equal(has, fields) {
		t.Fatalf("the answer has the fields %q, want %q", has, fields)
	}
	text, has := got.body["token"].(string)
	if has {
		parsed, err := h.tokens.Parse(text)
		if err != nil || parsed.Epoch != epoch || parsed.Consumer != consumerID ||
			parsed.Generation != generation || !parsed.Expires.After(h.clock()) {
			t.Fatalf("the answer's token says %+v, %v", parsed, err)
		}
	}
	if after, ok := h.store.consumer(consumerID); ok && fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("a refused callback changed the consumer from %+v to %+v", before, after)
	}
	h.wantCalls()
}

func TestCallbackTokenErrors(t *testing.T) {
	h := woken(t, nil)
	other, err := token.New(otherKey)
	if err != nil {
		t.Fatal(err)
	}
	good := h.token(consumerID, epoch, 0)
	target := "/callback/" + consumerID
	for name, header := range map[string]string{
		"another scheme":           "Basic " + good,
		"no scheme":                good,
		"no token":                 "Bearer",
		"a token cut short":        "Bearer " + good[:len(good)-9],
		"a token of another key":   "Bearer " + h.secret(other.Mint(consumerID, generation, epoch, h.clock())),
		"a token that is no token": "Bearer abc",
		"a very long token":        "Bearer " + strings.Repeat("a", 40_000),
		"a token without signing":  "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJteS1zdWI6JTJGYWdlbnRzJTJGdGFzay0xIn0.",
	} {
		t.Run(name, func(t *testing.T) {
			h.want(h.api(http.MethodPost, target, `{"epoch":7}`, "Authorization", header), 401, fsm.CodeTokenInvalid,
				"token")
		})
	}
	h.want(h.api(http.MethodPost, target, `{"epoch":7}`), 401, fsm.CodeTokenInvalid, "Authorization")
	if a := h.api(http.MethodPost, target, `{"epoch":7}`, "Authorization", "bEARER "+good); a.status != 200 {
		t.Fatalf("the scheme is case-insensitive, got %s", a.text)
	}
	h.want(h.api(http.MethodPost, target+"?token="+good, `{"epoch":7}`), 401, fsm.CodeTokenInvalid, "Authorization")
	for _, id := range []string{
		"nobody", "my-sub:%2fagents%2ftask-1", "my-sub:agents", "my-sub%3A%2Fagents%2Ftask-1", "my-sub", "my-sub:",
		":" + consumerID, strings.Replace(consumerID, "%2F", "%252F", 1), consumerID + "x", strangerID,
		"my-subx:%2Fagents%2Ftask-1",
	} {
		h.want(h.api(http.MethodPost, "/callback/"+id, `{"epoch":7}`, "Authorization", "Bearer "+good), 401,
			fsm.CodeTokenInvalid, "")
	}
	odd := h.token("nobody", epoch, 0)
	h.want(h.api(http.MethodPost, "/callback/nobody", `{"epoch":7}`, "Authorization", "Bearer "+odd), 401,
		fsm.CodeTokenInvalid, "path")
}

func TestACallbackWhosePathWasDecodedDoesNotGoToTheStreamServer(t *testing.T) {
	reached := make(chan string, 9)
	h, root, _ := behind(t, "", func(_ http.ResponseWriter, r *http.Request) { reached <- r.RequestURI })
	post := func(path, token string) int {
		res := raw(t, root,
			"POST "+path+
				" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: Bearer "+token+
				"\r\n\r\n")
		_ = res.Body.Close()
		return res.StatusCode
	}
	token := h.token(consumerID, epoch, 0)
	for _, path := range []string{"/callback/my-sub:/agents/task-1", "/callback/my-sub:%2Fagents/task-1"} {
		if status := post(path, token); status != 404 || len(reached) > 0 {
			t.Errorf("%s: %d, %d requests at the stream server", path, status, len(reached))
		}
	}
	if n := h.logs.FilterMessageSnippet("callbacks arrive with a decoded path").Len(); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
	// Whoever sends it: nothing below /callback/ is a stream's.
	for path, bearer := range map[string]string{
		"/callback/my-sub:/agents/task-1": "theirs", "/callback/my-sub:/agents/task-2": token,
		"/x/../callback/a": token, "/callback/": token,
	} {
		if status := post(path, bearer); status != 404 || len(reached) > 0 {
			t.Errorf("%s: %d, %d requests at the stream server", path, status, len(reached))
		}
	}
	if status := post("/callback", token); status != 200 || <-reached != "/callback" {
		t.Errorf("a stream named /callback got %d", status)
	}
}

func TestCallbackSucceeds(t *testing.T) {
	h := woken(t, nil)
	h.up.streams["/tools/x"] = fsm.StreamInfo{Exists: true, Tail: "42"}
	token := h.token(consumerID, epoch, 0)
	a := h.callback(token, `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/./task-1","offset":"150"},`+
		`{"path":"/not/mine","offset":"9"},{"path":"/not/mine","offset":"a,b"}],`+
		`"subscribe":["/tools/x","/lazy","/tools/x"]}`)
	want := `{"ok":true,"token":"` + token + `","streams":[{"path":"/agents/task-1","offset":"150"},` +
		`{"path":"/lazy","offset":"-1"},{"path":"/tools/x","offset":"42"}]}`
	if a.status != 200 || strings.TrimSpace(a.text) != want {
		t.Fatalf("got %d %s, want %s", a.status, a.text, want)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		t.Fatal("the answer may be kept")
	}
	c, _ := h.store.consumer(consumerID)
	if c.State != fsm.Live || c.Links["/tools/x"] != (fsm.Link{Acked: "42", Tail: "42"}) ||
		c.Links["/lazy"] != (fsm.Link{Acked: fsm.Start}) {
		t.Fatalf("consumer is %+v", c)
	}
	h.wantCalls("watch /agents/task-1 [/tools/x /lazy]")
	if got := h.up.asked(); got[0] != primary || len(got) != 3 || !slices.Contains(got, "/lazy") ||
		!slices.Contains(got, "/tools/x") {
		t.Fatalf("asked upstream %q", got)
	}
}

// A worker names a stream as its wake did, also if that is on record as an earlier version has stored it.
func TestCallbackAcksAndUnsubscribesByTheNameThatIsOnRecord(t *testing.T) {
	for name, linked := range map[string]string{
		"as it is stored now": "/tools/~x", "as an earlier version stored it": "/tools/%7ex",
	} {
		t.Run(name, func(t *testing.T) {
			h := woken(t, nil)
			link := func() {
				c, _ := h.store.consumer(consumerID)
				c.Links[linked] = fsm.Link{Acked: "10", Tail: "42"}
				h.store.db.PutConsumer(c)
			}
			link()
			token := h.token(consumerID, epoch, 0)
			a := h.callback(token, `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/tools/%7ex","offset":"42"}]}`)
			if a.status != 200 || !strings.Contains(a.text, `{"path":"`+linked+`","offset":"42"}`) {
				t.Errorf("ack: %d %s", a.status, a.text)
			}
			a = h.callback(token, `{"epoch":7,"unsubscribe":["/tools/%7ex"]}`)
			if a.status != 200 || strings.Contains(a.text, linked) {
				t.Errorf("unsubscribe: %d %s", a.status, a.text)
			}
			// The offset is judged by that name, too.
			link()
			a = h.callback(token, `{"epoch":7,"acks":[{"path":"/tools/%7ex","offset":"99"}]}`)
			h.want(a, 409, fsm.CodeInvalidOffset, linked)
		})
	}
}

func TestCallbackSubscribesToAnyPath(t *testing.T) {
	h := woken(t, nil)
	a := h.callback(h.token(consumerID, epoch, 0),
		`{"epoch":7,"subscribe":["tools/x","/q?offset=1#y","/ü v","/a/../b"]}`)
	for _, path := range []string{"/tools/x", "/q%3Foffset=1%23y", "/%C3%BC%20v", "/b"} {
		if a.status != 200 || !strings.Contains(a.text, `{"path":"`+path+`","offset":"-1"}`) {
			t.Errorf("%s is not among the streams: %d %s", path, a.status, a.text)
		}
	}
}

func TestACallbackCannotNameWhatIsNoStream(t *testing.T) {
	h := woken(t, nil)
	token := h.token(consumerID, epoch, 0)
	for _, path := range []string{
		"/..%2ftenantB%2fx", "../x", "//x", "/a//b", "/__ds/x", "/a/%5F_ds", "/agents/*",
		"/a%2Ab",
	} {
		for field, body := range map[string]string{
			"subscribe[0]":   `"subscribe":["` + path + `"]`,
			"unsubscribe[0]": `"unsubscribe":["` + path + `"]`,
			"acks[0].path":   `"acks":[{"path":"` + path + `","offset":"1"}]`,
		} {
			h.want(h.callback(token, `{"epoch":7,`+body+`}`), 400, fsm.CodeInvalidRequest, field+": not a stream path")
		}
	}
	for _, head := range h.up.heads {
		if !strings.HasSuffix(head, primary) {
			t.Errorf("upstream was asked: %s", head)
		}
	}
}

func TestCallbackDone(t *testing.T) {
	t.Run("with work pending wakes again at once", func(t *testing.T) {
		h := woken(t, nil)
		if a := h.callback(
			h.token(consumerID, epoch, 0), `{"epoch":7,"wake_id":"w_current","done":true}`,
		); a.status != 200 {
			t.Fatal(a.text)
		}
		h.wantCalls("deliver "+consumerID+" 8", "idle [/agents/task-1]")
	})
	t.Run("without work pending comes to rest", func(t *testing.T) {
		h := woken(t, nil)
		body := `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/task-1","offset":"200"}],"done":true}`
		for range 2 { // a lost answer is repeated
			if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 {
				t.Fatal(a.text)
			}
		}
		h.wantCalls("idle [/agents/task-1]")
	})
	t.Run("a late callback of what came to rest acks what upstream shows, and wakes nothing", func(t *testing.T) {
		h := woken(t, nil)
		h.change(consumerID, func(c *fsm.Consumer) {
			c.State, c.Links[primary] = fsm.Idle, fsm.Link{Acked: "200", Tail: "200"}
		})
		h.up.streams[primary] = fsm.StreamInfo{Exists: true, Tail: "300"}
		body := `{"epoch":7,"acks":[{"path":"/agents/task-1","offset":"300"}]}`
		a := h.callback(h.token(consumerID, epoch, 0), body)
		if c, _ := h.store.consumer(consumerID); a.status != 200 || c.State != fsm.Idle ||
			c.Links[primary] != (fsm.Link{Acked: "300", Tail: "300"}) {
			t.Fatalf("%d %s: %+v", a.status, a.text, c)
		}
		h.wantCalls()
	})
	t.Run("a tail that upstream shows counts as pending", func(t *testing.T) {
		h := woken(t, nil)
		h.up.streams[primary] = fsm.StreamInfo{Exists: true, Tail: "300"}
		body := `{"epoch":7,"wake_id":"w_current","acks":[{"path":"/agents/task-1","offset":"200"}],"done":true}`
		if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 {
			t.Fatal(a.text)
		}
		h.wantCalls("deliver "+consumerID+" 8", "idle [/agents/task-1]")
	})
	t.Run("unsubscribing from all answers 200 with no streams, and the consumer is gone", func(t *testing.T) {
		h := woken(t, nil)
		token := h.token(consumerID, epoch, 0)
		a := h.callback(token, `{"epoch":7,"subscribe":["/x"],"unsubscribe":["/agents/task-1","/x"]}`)
		if a.status != 200 || !strings.Contains(a.text, `"streams":[]`) {
			t.Fatal(a.text)
		}
		if got := h.up.asked(); !slices.Equal(got, []string{primary}) {
			t.Fatalf("a stream that is dropped at once was asked for: %q", got)
		}
		h.wantCalls()
		h.want(h.callback(token, `{"epoch":7}`), 410, fsm.CodeConsumerGone, "")
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
			old := h.token(consumerID, epoch, c.age)
			got := h.callback(old, c.body).body["token"].(string)
			parsed, err := h.tokens.Parse(got)
			if err != nil || parsed.Epoch != epoch || (got != old) != c.fresh {
				t.Fatalf("got %+v, %v, fresh %v", parsed, err, got != old)
			}
			if c.fresh && !parsed.Expires.Equal(h.clock().Add(token.TTL)) {
				t.Fatalf("expires %v", parsed.Expires)
			}
		})
	}
}

func TestCallbackLooksAtThePrimaryStream(t *testing.T) {
	body := `{"epoch":7,"wake_id":"w_current"}`
	t.Run("gone, confirmed by a second HEAD, is gone", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.up.streams, primary)
		h.want(h.callback(h.token(consumerID, epoch, 0), body), 410, fsm.CodeConsumerGone, "")
		if !slices.Equal(h.store.hidden, []string{primary}) ||
			!slices.Equal(h.up.asked(), []string{primary, "anew " + primary}) {
			t.Fatalf("hidden %q, asked %q", h.store.hidden, h.up.asked())
		}
		if got := h.rec.noted(); !slices.Equal(got, []string{"gone " + primary}) {
			t.Fatalf("told %q, want that the stream is looked at until it is back", got)
		}
	})
	t.Run("gone comes before an expired token", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.up.streams, primary)
		h.want(h.callback(h.token(consumerID, epoch, 2*time.Hour), body), 410, fsm.CodeConsumerGone, "")
	})
	t.Run("one answer alone that lacks the stream is not trusted", func(t *testing.T) {
		h := woken(t, nil)
		h.up.shared[primary] = fsm.StreamInfo{}
		if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 || len(h.store.hidden) > 0 {
			t.Fatal(a.text)
		}
	})
	t.Run("upstream that cannot be asked does not stop the callback", func(t *testing.T) {
		h := woken(t, nil)
		h.up.broken[primary] = true
		if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 {
			t.Fatal(a.text)
		}
	})
	t.Run("a store that cannot hide it is unavailable", func(t *testing.T) {
		h := woken(t, nil)
		delete(h.up.streams, primary)
		h.store.fail(fsm.ErrUnavailable)
		h.want(h.callback(h.token(consumerID, epoch, 0), body), 503, fsm.CodeUnavailable, "")
	})
}

func TestCallbackAsksForATailThatAnAckLiesBeyond(t *testing.T) {
	second := func(t *testing.T) *harness {
		h := woken(t, nil)
		h.change(consumerID, func(c *fsm.Consumer) { c.Links["/b"] = fsm.Link{Acked: "1", Tail: "5"} })
		h.store.db.SetTail(primary, "/b", "5")
		return h
	}
	body := `{"epoch":7,"acks":[{"path":"/b","offset":"9"}]}`
	t.Run("and takes the ack if it is there by now", func(t *testing.T) {
		h := second(t)
		h.up.streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "9"}
		if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 ||
			!strings.Contains(a.text, `{"path":"/b","offset":"9"}`) {
			t.Fatal(a.text)
		}
		if got := h.up.asked(); !slices.Equal(got, []string{primary, "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and once more if the answer is from long ago, as in a process that was frozen", func(t *testing.T) {
		h := second(t)
		h.up.streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "8"}
		h.up.answered = func(head string) {
			if head == "anew /b" {
				h.mu.Lock()
				h.now = h.now.Add(time.Minute)
				h.mu.Unlock()
				h.up.mu.Lock()
				h.up.streams["/b"], h.up.answered = fsm.StreamInfo{Exists: true, Tail: "9"}, nil
				h.up.mu.Unlock()
			}
		}
		if a := h.callback(h.token(consumerID, epoch, 0), body); a.status != 200 {
			t.Fatal(a.text)
		}
		if got := h.up.asked(); !slices.Equal(got, []string{primary, "anew /b", "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and refuses it if not, asking once", func(t *testing.T) {
		h := second(t)
		h.up.streams["/b"] = fsm.StreamInfo{Exists: true, Tail: "8"}
		h.want(h.callback(h.token(consumerID, epoch, 0), body), 409, fsm.CodeInvalidOffset,
			`"/b" lies beyond the stream's tail "8"`)
		if got := h.up.asked(); !slices.Equal(got, []string{primary, "anew /b"}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and refuses it if there is no such stream", func(t *testing.T) {
		h := second(t)
		h.want(h.callback(h.token(consumerID, epoch, 0), body), 409, fsm.CodeInvalidOffset, `"/b"`)
	})
	t.Run("and has the worker try again if upstream cannot be asked", func(t *testing.T) {
		h := second(t)
		h.up.broken["/b"] = true
		a := h.callback(h.token(consumerID, epoch, 0), body)
		h.want(a, 503, fsm.CodeUnavailable, `"/b"`)
	})
	t.Run("but not for one that is no offset", func(t *testing.T) {
		h := second(t)
		h.want(h.callback(h.token(consumerID, epoch, 0), `{"epoch":7,"acks":[{"path":"/b","offset":"now"}]}`),
			409, fsm.CodeInvalidOffset, "now")
		if got := h.up.asked(); !slices.Equal(got, []string{primary}) {
			t.Fatalf("asked %q", got)
		}
	})
	t.Run("and learns that the primary is gone", func(t *testing.T) {
		h := woken(t, nil)
		h.up.shared[primary] = fsm.StreamInfo{Exists: true, Tail: "200"}
		delete(h.up.streams, primary)
		h.want(h.callback(h.token(consumerID, epoch, 0),
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
		h.up.streams[path] = fsm.StreamInfo{Exists: true, Tail: fsm.Offset(fmt.Sprint(1000 + i))}
	}
	h.up.broken["/many/7"] = true
	list, _ := json.Marshal(paths)
	a := h.callback(h.token(consumerID, epoch, 0), `{"epoch":7,"subscribe":`+string(list)+`}`)
	if a.status != 200 {
		t.Fatal(a.text)
	}
	c, _ := h.store.consumer(consumerID)
	for i, path := range paths {
		want := fsm.Offset(fmt.Sprint(1000 + i))
		if i == 7 {
			want = fsm.Start // no event may be lost
		}
		if c.Links[path].Acked != want {
			t.Fatalf("%s begins at %q, want %q", path, c.Links[path].Acked, want)
		}
	}
	if h.up.most > lookLimit {
		t.Fatalf("%d HEADs at a time", h.up.most)
	}
}

func TestCallbackPathIsRaw(t *testing.T) {
	h := woken(t, nil)
	token := h.token(consumerID, epoch, 0)
	for _, target := range []string{
		"/callback/my-sub:/agents/task-1", "/callback/", "/callback", "/callback/a/b",
		"/callback%2F" + consumerID,
	} {
		h.want(h.api(http.MethodPost, target, `{"epoch":7}`, "Authorization", "Bearer "+token), 404, fsm.CodeNotFound,
			"")
	}
	h.want(h.api(http.MethodPost, "/callback/my-sub:/agents/task-1", `{"epoch":7}`, "Authorization", "Bearer "+token),
		404, fsm.CodeNotFound, "decoded")
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "HEAD", "PURGE"} {
		a := h.api(method, "/callback/"+consumerID, "")
		if a.status != 405 || a.header.Get("Allow") != "POST" {
			t.Fatalf("%s: %d, Allow %q", method, a.status, a.header.Get("Allow"))
		}
	}
	if a := h.api(
		http.MethodPost, "/callback/"+consumerID+"?x=1", `{"epoch":7}`, "Authorization", "Bearer "+token,
	); a.status != 200 {
		t.Fatal(a.text)
	}
}

func TestCallbackStoreErrors(t *testing.T) {
	h := woken(t, nil)
	token := h.token(consumerID, epoch, 0)
	h.store.fail(fmt.Errorf("callback: %w", fsm.ErrUnavailable))
	h.want(h.callback(token, `{"epoch":7}`), 503, fsm.CodeUnavailable, "try again")
	h.store.fail(fmt.Errorf("script broken"))
	a := h.callback(token, `{"epoch":7}`)
	h.want(a, 500, fsm.CodeInternal, "")
	if strings.Contains(a.text, "script") {
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
				h.store.db.SetTail(primary, primary, "120")
				h.up.shared[primary] = fsm.StreamInfo{Exists: true, Tail: "120"}
			}
			h.store.begun = []fsm.Wake{{Consumer: strangerID, Epoch: 9}}
			if a := tt.attempt.send(h); a.status != tt.status {
				t.Fatalf("answered %d %s", a.status, a.text)
			}
			if got := h.rec.noted(); !slices.Contains(got, "deliver "+strangerID+" 9") {
				t.Errorf("told %q", got)
			}
		})
	}
}
