package native_test

import (
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi"
	"reveille/httpapi/web"
)

func TestCallbackBodyErrorsNameTheField(t *testing.T) {
	h := woken(t, func(c *httpapi.Config) { c.MaxStreamsPerConsumer = 3 })
	token := h.Token(consumerID, epoch, 0)
	for says, bodies := range map[string][]string{
		"not JSON": {
			``, ` `, `{"epoch":7`, `}`, `{"epoch":7} x`, `epoch=7`, `{"epoch":7}{"epoch":7}`, `{"epoch":7,}`,
			`{'epoch':7}`, `{"epoch":07}`, "\xef\xbb\xbf{\"epoch\":7}", strings.Repeat("[", 20_000),
			"{\"epoch\":7,\"wake_id\":\"\xff\"}",
		},
		"not a JSON object": {`[]`, `null`, ` "x"`, `true`, `7`, `[{"epoch":7}]`},
		"epoch is missing":  {`{}`, `{"epoch":null}`, `{"Epoch":7}`},
		"epoch must": {
			`{"epoch":"7"}`, `{"epoch":7.5}`, `{"epoch":1e99}`, `{"epoch":1e400}`, `{"epoch":99999999999999999999}`,
			`{"epoch":[7]}`, `{"epoch":{}}`, `{"epoch":true}`,
		},
		"wake_id must":     {`{"epoch":7,"wake_id":7}`, `{"epoch":7,"wake_id":{}}`, `{"epoch":7,"wake_id":["w_1"]}`},
		"wake_id is empty": {`{"epoch":7,"wake_id":""}`},
		"done must":        {`{"epoch":7,"done":1}`, `{"epoch":7,"done":"true"}`, `{"epoch":7,"done":[]}`},
		"acks must":        {`{"epoch":7,"acks":{}}`, `{"epoch":7,"acks":"all"}`},
		"acks[0] must":     {`{"epoch":7,"acks":[null]}`, `{"epoch":7,"acks":[1]}`, `{"epoch":7,"acks":["/a"]}`},
		"acks[0].path must": {
			`{"epoch":7,"acks":[{}]}`, `{"epoch":7,"acks":[{"offset":"1"}]}`,
			`{"epoch":7,"acks":[{"path":7,"offset":"1"}]}`,
		},
		"acks[0].offset must": {
			`{"epoch":7,"acks":[{"path":"/a"}]}`, `{"epoch":7,"acks":[{"path":"/a","offset":5}]}`,
		},
		"acks[1].offset must": {
			`{"epoch":7,"acks":[{"path":"/a","offset":"5"},{"path":"/a","offset":null}]}`,
		},
		"subscribe must":    {`{"epoch":7,"subscribe":"/a"}`, `{"epoch":7,"subscribe":{}}`},
		"subscribe[1] must": {`{"epoch":7,"subscribe":["/a",7]}`, `{"epoch":7,"subscribe":["/a",null]}`},
		"subscribe[0]: not a stream path": {
			`{"epoch":7,"subscribe":["/` + strings.Repeat("x", 2048) + `"]}`,
		},
		"unsubscribe must":    {`{"epoch":7,"unsubscribe":"/a"}`},
		"unsubscribe[0] must": {`{"epoch":7,"unsubscribe":[null]}`, `{"epoch":7,"unsubscribe":[["/a"]]}`},
		"subscribe: a consumer can be subscribed to at most 3 streams (REVEILLE_MAX_STREAMS_PER_CONSUMER)": {
			`{"epoch":7,"subscribe":["/a","/b","/c","/d"]}`,
		},
	} {
		for _, body := range bodies {
			a := h.callback(token, body)
			h.Want(a, 400, fsm.CodeInvalidRequest, says)
			if _, has := a.Body["token"]; has {
				t.Fatalf("%s: the refusal has a token", body)
			}
		}
	}
	if len(h.Up.Asked()) > 0 || h.Store.DB.Calls("Callback") > 0 {
		t.Fatal("a malformed body got further than reading it")
	}
	// Three new ones and the primary are four: the store counts.
	h.Want(h.callback(token, `{"epoch":7,"subscribe":["/a","/b","/c"]}`), 400, fsm.CodeInvalidRequest,
		"subscribe: a consumer")
}

func TestCallbackBodyHasAMostSize(t *testing.T) {
	h := woken(t, nil)
	token := h.Token(consumerID, epoch, 0)
	const head, foot = `{"epoch":7,"x":"`, `"}`
	padded := func(size int) string { return head + strings.Repeat("x", size-len(head)-len(foot)) + foot }
	if a := h.callback(token, padded(web.MaxBody)); a.Status != http.StatusOK {
		t.Errorf("%d bytes: %d", web.MaxBody, a.Status)
	}
	h.Want(h.callback(token, padded(web.MaxBody+1)), 413, fsm.CodeBodyTooLarge, "1048576")
}

func TestCallbackFieldsThatNobodyKnowsAreIgnoredAndNullIsAbsent(t *testing.T) {
	for _, body := range []string{
		`{"epoch":7,"wake_id":null,"acks":null,"subscribe":null,"unsubscribe":null,"done":null,"else":[1]}`,
		`{"epoch":7,"acks":[],"subscribe":[],"unsubscribe":[],"done":false}`,
		`{"epoch":7,"more":{"acks":[{"path":"/agents/task-1","offset":"now"}]},"DONE":true,"x":null}`,
		`{"epoch":7,"acks":[{"path":"/agents/task-1","offset":"-1","note":"hello"}]}`,
	} {
		h := woken(t, nil)
		a := h.callback(h.Token(consumerID, epoch, 0), body)
		if c, _ := h.Store.Lookup(consumerID); a.Status != http.StatusOK || c.State != fsm.Waking ||
			!strings.Contains(a.Text, `"streams":[{"path":"/agents/task-1","offset":"100"}]`) {
			t.Errorf("%s: %d %s, the consumer is %s", body, a.Status, a.Text, c.State)
		}
	}
}
