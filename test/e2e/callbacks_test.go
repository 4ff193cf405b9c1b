package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// maxBody is how large a request's body may be, in bytes.
const maxBody = 1 << 20

// carriesToken says whether the answer to a refused callback has a token to go on with: the consumer is there and the
// presented token is its own.
var carriesToken = map[fsm.Code]bool{
	fsm.CodeTokenExpired: true, fsm.CodeStaleEpoch: true, fsm.CodeAlreadyClaimed: true, fsm.CodeInvalidOffset: true,
}

// wantRefusal checks an answer against the shape of an error (webhook spec, Error Responses).
func (s *fixture) wantRefusal(a harness.CallbackAnswer, status int, code fsm.Code) {
	s.t.Helper()
	if a.Status != status {
		s.t.Errorf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		s.t.Errorf("Content-Type %q", ct)
	}
	var body map[string]json.RawMessage
	a.Decode(s.t, &body)
	want := []string{"error", "ok"}
	if carriesToken[code] {
		want = append(want, "token")
	}
	if got := slices.Sorted(maps.Keys(body)); !slices.Equal(got, want) {
		s.t.Errorf("the answer has the fields %v, want %v: %s", got, want, a.Body)
	}
	if string(body["ok"]) != "false" || a.Error.Code != string(code) || a.Error.Message == "" {
		s.t.Errorf("the answer is %s, want the code %s and a message", a.Body, code)
	}
}

// unchanged has a callback refused and checks that this changed nothing of the consumer.
func (s *fixture) unchanged(url, token, body string, status int, code fsm.Code) harness.CallbackAnswer {
	s.t.Helper()
	before := s.consumer()
	a := s.gateway.RawCallback(url, token, body)
	s.wantRefusal(a, status, code)
	wantSame(s.t, before, s.consumer())
	return a
}

// settledLive is a live fixture in its second wake cycle whose tail is known and stays, so that nothing changes by
// itself.
func (e *env) settledLive(t *testing.T) (s *fixture, first, wake harness.Wake, tail string) {
	t.Helper()
	s, first = e.live(t)
	s.callback(first, first.Claim(true))
	wake = s.worker.Wake(2)
	s.awaitState(fsm.Live)
	tail = s.streams.Tail(s.path)
	s.awaitTail(s.path, tail)
	return s, first, wake, tail
}

// TestCallbackErrors has a subtest for each row of the table of error responses.
func TestCallbackErrors(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	s, first, wake, tail := e.settledLive(t)
	everything := fmt.Sprintf(`"acks":[{"path":%q,"offset":%q}],"subscribe":[%q],"unsubscribe":[%q],"done":true}`,
		s.path, tail, s.folder+"-other/x", s.path)

	t.Run("400 INVALID_REQUEST: malformed JSON", func(t *testing.T) {
		s.unchanged(wake.Callback, wake.Token, `{"epoch":`, http.StatusBadRequest, fsm.CodeInvalidRequest)
	})
	t.Run("400 INVALID_REQUEST: missing epoch", func(t *testing.T) {
		a := s.unchanged(wake.Callback, wake.Token, `{`+everything, http.StatusBadRequest, fsm.CodeInvalidRequest)
		if !strings.Contains(a.Error.Message, "epoch") {
			t.Errorf("the message does not name the field: %s", a.Error.Message)
		}
	})
	t.Run("401 TOKEN_EXPIRED: the answer has a new token, which can be used to retry", func(t *testing.T) {
		own := s.parseToken(wake.Token)
		expired := tokens(t, harness.TokenKey).Mint(own.Consumer, own.Generation, own.Epoch,
			time.Now().Add(-fsm.TokenTTL-time.Second))
		a := s.unchanged(wake.Callback, expired, fmt.Sprintf(`{"epoch":%d,`, wake.Epoch)+everything,
			http.StatusUnauthorized, fsm.CodeTokenExpired)
		fresh := s.parseToken(a.Token)
		if left := time.Until(fresh.Expires); left < 59*time.Minute || fresh.Consumer != own.Consumer ||
			fresh.Epoch != own.Epoch {
			t.Errorf("the new token has %s left and is for %s, epoch %d", left, fresh.Consumer, fresh.Epoch)
		}
		retry := wake
		retry.Token = a.Token
		s.callback(retry, harness.Callback{Epoch: wake.Epoch})
	})
	t.Run("401 TOKEN_EXPIRED: a token of an earlier epoch is not traded for one of the current", func(t *testing.T) {
		own := s.parseToken(first.Token)
		expired := tokens(t, harness.TokenKey).Mint(own.Consumer, own.Generation, own.Epoch,
			time.Now().Add(-fsm.TokenTTL-time.Second))
		a := s.unchanged(wake.Callback, expired, fmt.Sprintf(`{"epoch":%d,`, wake.Epoch)+everything,
			http.StatusUnauthorized, fsm.CodeTokenExpired)
		if got := s.parseToken(a.Token).Epoch; got != first.Epoch {
			t.Errorf("the new token is for epoch %d, want %d", got, first.Epoch)
		}
	})
	t.Run("401 TOKEN_INVALID: token malformed", func(t *testing.T) {
		s.unchanged(wake.Callback, "nonsense", fmt.Sprintf(`{"epoch":%d,`, wake.Epoch)+everything,
			http.StatusUnauthorized, fsm.CodeTokenInvalid)
	})
	t.Run("409 ALREADY_CLAIMED: wake_id does not match the current wake", func(t *testing.T) {
		for _, id := range []string{first.WakeID, "w_another", wake.WakeID + " "} {
			s.unchanged(wake.Callback, wake.Token, fmt.Sprintf(`{"epoch":%d,"wake_id":%q,`, wake.Epoch, id)+everything,
				http.StatusConflict, fsm.CodeAlreadyClaimed)
		}
	})
	t.Run("409 INVALID_OFFSET: beyond the tail", func(t *testing.T) {
		a := s.unchanged(wake.Callback, wake.Token,
			fmt.Sprintf(`{"epoch":%d,"acks":[{"path":%q,"offset":%q},{"path":%q,"offset":%q}],"done":true}`,
				wake.Epoch, s.path, tail, s.path, beyond), http.StatusConflict, fsm.CodeInvalidOffset)
		if !strings.Contains(a.Error.Message, "acks") || !strings.Contains(a.Error.Message, s.path) {
			t.Errorf("the message does not name the field and the stream: %s", a.Error.Message)
		}
	})
	t.Run("409 STALE_EPOCH: callback epoch before the current", func(t *testing.T) {
		for _, token := range []string{first.Token, wake.Token} {
			s.unchanged(wake.Callback, token, fmt.Sprintf(`{"epoch":%d,"wake_id":%q,`, first.Epoch,
				first.WakeID)+everything, http.StatusConflict, fsm.CodeStaleEpoch)
		}
	})
	t.Run("410 CONSUMER_GONE: the consumer instance no longer exists", func(t *testing.T) {
		s, wake := e.live(t)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		for _, done := range []bool{false, true} {
			a := s.gateway.Callback(wake, wake.Claim(done))
			s.wantRefusal(a, http.StatusGone, fsm.CodeConsumerGone)
		}
	})
	t.Run("none of them was in the way of the consumer's own callbacks", func(t *testing.T) {
		s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(tail))), s.ack(tail))
		s.noWakeAfter(2, quiet)
	})
}

// TestCallbackBadInput sends what no worker should. Each is refused with an error that names the field, and changes
// nothing.
func TestCallbackBadInput(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	s, _, wake, tail := e.settledLive(t)
	epoch := fmt.Sprintf(`{"epoch":%d`, wake.Epoch)

	t.Run("a body that is not JSON, or no object", func(t *testing.T) {
		for _, body := range []string{
			"", " ", "{", "}", "epoch=2", "null", "true", "2", `"epoch"`, "[]", `[{"epoch":2}]`,
			`{"epoch":2}{"epoch":2}`, `{"epoch":2,}`,
			"{\"epoch\":2,\"x\":\"\xff\"}", `{'epoch':2}`, `{"epoch":02}`, "\xef\xbb\xbf{\"epoch\":2}",
			strings.Repeat("[", 20_000),
		} {
			s.unchanged(wake.Callback, wake.Token, body, http.StatusBadRequest, fsm.CodeInvalidRequest)
		}
	})

	t.Run("a field that is missing or of another type is named", func(t *testing.T) {
		for _, tt := range []struct{ body, field string }{
			{`{}`, "epoch"},
			{`{"Epoch":2}`, "epoch"},
			{`{"epoch":null}`, "epoch"},
			{`{"epoch":"2"}`, "epoch"},
			{`{"epoch":2.5}`, "epoch"},
			{`{"epoch":true}`, "epoch"},
			{`{"epoch":[2]}`, "epoch"},
			{`{"epoch":{}}`, "epoch"},
			{`{"epoch":1e400}`, "epoch"},
			{`{"epoch":99999999999999999999}`, "epoch"},
			{epoch + `,"wake_id":5}`, "wake_id"},
			{epoch + `,"wake_id":""}`, "wake_id"},
			{epoch + `,"wake_id":{}}`, "wake_id"},
			{epoch + `,"wake_id":["w_1"]}`, "wake_id"},
			{epoch + `,"acks":{}}`, "acks"},
			{epoch + `,"acks":"all"}`, "acks"},
			{epoch + `,"acks":[1]}`, "acks[0]"},
			{epoch + `,"acks":[null]}`, "acks[0]"},
			{epoch + `,"acks":[{}]}`, "acks[0].path"},
			{epoch + `,"acks":[{"path":"` + s.path + `"}]}`, "acks[0].offset"},
			{epoch + `,"acks":[{"offset":"` + tail + `"}]}`, "acks[0].path"},
			{epoch + `,"acks":[{"path":7,"offset":"` + tail + `"}]}`, "acks[0].path"},
			{epoch + `,"acks":[{"path":"` + s.path + `","offset":7}]}`, "acks[0].offset"},
			{epoch + `,"acks":[{"path":"` + s.path + `","offset":"` + tail + `"},{"path":"` + s.path +
				`","offset":null}]}`, "acks[1].offset"},
			{epoch + `,"subscribe":"/x"}`, "subscribe"},
			{epoch + `,"subscribe":{}}`, "subscribe"},
			{epoch + `,"subscribe":[1]}`, "subscribe[0]"},
			{epoch + `,"subscribe":["/x",null]}`, "subscribe[1]"},
			{epoch + `,"subscribe":["/` + strings.Repeat("x", 2048) + `"]}`, "subscribe[0]"},
			{epoch + `,"unsubscribe":"` + s.path + `"}`, "unsubscribe"},
			{epoch + `,"unsubscribe":[["` + s.path + `"]]}`, "unsubscribe[0]"},
			{epoch + `,"done":"true"}`, "done"},
			{epoch + `,"done":1}`, "done"},
			{epoch + `,"done":[]}`, "done"},
		} {
			a := s.unchanged(wake.Callback, wake.Token, tt.body, http.StatusBadRequest, fsm.CodeInvalidRequest)
			if !strings.Contains(a.Error.Message, tt.field) {
				t.Errorf("%s: the message does not name %s: %s", tt.body, tt.field, a.Error.Message)
			}
		}
	})

	t.Run("fields that nobody knows are ignored, those left out or null count as absent", func(t *testing.T) {
		for _, body := range []string{
			epoch + `,"more":{"acks":[{"path":"` + s.path + `","offset":"now"}]},"DONE":true,"x":null}`,
			epoch + `,"acks":[{"path":"` + s.path + `","offset":"-1","note":"hello"}]}`,
			epoch + `,"wake_id":null,"acks":null,"subscribe":null,"unsubscribe":null,"done":null}`,
			epoch + `,"acks":[],"subscribe":[],"unsubscribe":[],"done":false}`,
		} {
			a := s.gateway.RawCallback(wake.Callback, wake.Token, body)
			if a.Status != http.StatusOK || !a.OK {
				t.Errorf("%s: %d %s", body, a.Status, a.Body)
			}
			s.wantStreams(a, s.ack(s.tail))
		}
		if c := s.consumer(); c.State != fsm.Live {
			t.Errorf("one of them was taken for done: %+v", c)
		}
	})

	t.Run("a body of 1 MiB is fine, a larger one is refused with 413", func(t *testing.T) {
		padded := func(size int) string {
			frame := epoch + `,"padding":""}`
			return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
		}
		if a := s.gateway.RawCallback(wake.Callback, wake.Token, padded(maxBody)); a.Status != http.StatusOK {
			t.Errorf("1 MiB: %d %s", a.Status, a.Body)
		}
		s.unchanged(wake.Callback, wake.Token, padded(maxBody+1), http.StatusRequestEntityTooLarge,
			fsm.CodeBodyTooLarge)

		before := s.consumer()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, wake.Callback,
			io.MultiReader(bytes.NewReader([]byte(padded(2*maxBody)))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+wake.Token)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("without a Content-Length: %s", res.Status)
		}
		wantSame(t, before, s.consumer())
	})

	t.Run("an ack that is no offset is refused like one beyond the tail", func(t *testing.T) {
		for _, offset := range []string{
			"now", "", " ", "a,b", "a&b", "a=b", "a?b", "a/b", "a b", "a\nb", "a\x00", "ü", tail + " ",
			strings.Repeat("0", 257), beyond, tail + "0",
		} {
			body := epoch + `,"acks":[` + jsonOf(t, s.ack(offset)) + `],"subscribe":["` + s.folder +
				`-other/x"],"done":true}`
			a := s.unchanged(wake.Callback, wake.Token, body, http.StatusConflict, fsm.CodeInvalidOffset)
			if !strings.Contains(a.Error.Message, "acks") || !strings.Contains(a.Error.Message, s.path) {
				t.Errorf("%q: the message does not name the field and the stream: %s", offset, a.Error.Message)
			}
		}
	})

	t.Run("a token that is not this consumer's own is refused", func(t *testing.T) {
		own := s.parseToken(wake.Token)
		other, otherWake := e.live(t)
		header, rest, _ := strings.Cut(wake.Token, ".")
		claims, signature, _ := strings.Cut(rest, ".")
		none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
		laterEpoch, err := base64.RawURLEncoding.DecodeString(claims)
		if err != nil {
			t.Fatal(err)
		}
		altered := base64.RawURLEncoding.EncodeToString(bytes.Replace(laterEpoch, []byte(`"exp":1`), []byte(`"exp":9`),
			1))
		if altered == claims {
			t.Fatal("the token's claims do not look as this test assumes")
		}
		for name, token := range map[string]string{
			"none":                      "",
			"cut short by a character":  wake.Token[:len(wake.Token)-1],
			"cut in half":               wake.Token[:len(wake.Token)/2],
			"without signature":         header + "." + claims,
			"with an empty signature":   header + "." + claims + ".",
			"not signed, and saying so": none + "." + claims + ".",
			"with another algorithm":    none + "." + claims + "." + signature,
			"with altered claims":       header + "." + altered + "." + signature,
			"with more at the end":      wake.Token + "x",
			"twice":                     wake.Token + " " + wake.Token,
			"the secret":                s.sub.Secret,
			"signed with another key": tokens(t, strings.Repeat("another key ", 4)).Mint(own.Consumer, own.Generation,
				own.Epoch, time.Now()),
			"of another consumer": otherWake.Token,
			"very long":           strings.Repeat("x", 20_000),
		} {
			before := other.consumer()
			a := s.unchanged(wake.Callback, token, epoch+`,"wake_id":"`+wake.WakeID+`","done":true}`,
				http.StatusUnauthorized, fsm.CodeTokenInvalid)
			if strings.Contains(a.Body, wake.Token) || strings.Contains(a.Body, "eyJ") {
				t.Errorf("token %s: the answer gives a token away: %s", name, a.Body)
			}
			wantSame(t, before, other.consumer())
		}
		for name, header := range map[string][]string{
			"another scheme":  {"Authorization", "Basic " + wake.Token},
			"no scheme":       {"Authorization", wake.Token},
			"in a query only": {},
		} {
			path := strings.TrimPrefix(wake.Callback, s.gateway.Root)
			if len(header) == 0 {
				path += "?token=" + wake.Token
			}
			before := s.consumer()
			if res := s.gateway.Do(http.MethodPost, path, epoch+"}", header...); res.Status != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", name, res.Status, res.Body)
			}
			wantSame(t, before, s.consumer())
		}
	})

	t.Run("a callback URL that is not quite the one of the wake reaches nobody", func(t *testing.T) {
		id := s.id()
		for _, other := range []string{
			id + "x", strings.Replace(id, "%2F", "%2f", 1), strings.Replace(id, "%2F", "%252F", 1),
			strings.Replace(id, ":", "%3A", 1),
			s.sub.ID, s.sub.ID + ":", ":" + id, fsm.ConsumerID(s.sub.ID+"x", s.path),
		} {
			s.unchanged(s.rev.URL+"/callback/"+other, wake.Token, epoch+`,"done":true}`, http.StatusUnauthorized,
				fsm.CodeTokenInvalid)
		}
	})

	t.Run("another method than POST is refused with 405", func(t *testing.T) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			before := s.consumer()
			res := s.gateway.Do(method, strings.TrimPrefix(wake.Callback, s.gateway.Root), "", "Authorization",
				"Bearer "+wake.Token)
			if res.Status != http.StatusMethodNotAllowed || res.Header.Get("Allow") != http.MethodPost {
				t.Errorf("%s: %d, Allow %q", method, res.Status, res.Header.Get("Allow"))
			}
			wantSame(t, before, s.consumer())
		}
	})

	t.Run("a token of the consumer's namesake before it was made anew finds the consumer gone", func(t *testing.T) {
		s, wake := e.live(t)
		s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
		s.subscribe(s.sub.Pattern)
		s.awaitState(fsm.Idle)
		s.append()
		second := s.worker.Wake(2)
		s.awaitState(fsm.Live)
		s.awaitTail(s.path, s.streams.Tail(s.path))
		for _, epoch := range []int64{wake.Epoch, second.Epoch} {
			body := fmt.Sprintf(`{"epoch":%d,"wake_id":%q,"done":true}`, epoch, second.WakeID)
			s.unchanged(wake.Callback, wake.Token, body, http.StatusGone, fsm.CodeConsumerGone)
		}
	})

	t.Run("after all that the consumer's own callbacks go on", func(t *testing.T) {
		s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(tail))), s.ack(tail))
		s.noWakeAfter(2, quiet)
	})
}
