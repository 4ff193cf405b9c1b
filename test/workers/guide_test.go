package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/httpapi/web"
	"reveille/test/harness"
)

// signatures is the page of how to verify a request.
const signatures = "../../dispatcher/format/SIGNATURES.md"

// guide is the pages for those who write workers.
var guide = []string{"GUIDE.md", "CALLBACKS.md", signatures}

// block is a block of code of a page. Before it stands a comment that says what it is to be held against: "file: "
// and one of the examples, or "json: " and what it is the body of.
type block struct {
	page              string
	line              int
	kind, of          string
	language, content string
}

func TestTheCodeInTheGuideIsThatOfTheExamples(t *testing.T) {
	quoted := map[string]bool{}
	for _, b := range blocks(t) {
		switch {
		case b.language == "json":
			continue // held against what the program sends and takes, below
		case b.page == signatures && b.kind == "":
			continue // run, in other tests
		case b.kind != "file" || !strings.HasSuffix(b.of, "."+b.language):
			t.Errorf("%s:%d: a block of %s without the example that it is from", b.page, b.line, b.language)
			continue
		}
		text, err := os.ReadFile(b.of)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains("\n"+string(text), "\n"+b.content) {
			t.Errorf("%s:%d: %s has no such lines:\n%s", b.page, b.line, b.of, b.content)
		}
		quoted[b.of] = true
	}
	for _, name := range []string{"cloudflare.ts", "lambda.ts", "goworker/worker.go", "goworker/callbacks.go"} {
		if !quoted[name] {
			t.Errorf("the guide shows nothing of %s", name)
		}
	}
}

func TestTheBodiesInTheGuideHaveTheFieldsOfTheContract(t *testing.T) {
	bodies := map[string]any{"wake": &harness.Payload{}, "callback": &harness.Callback{}}
	for _, b := range blocks(t) {
		body := bodies[b.of]
		if b.kind != "json" || body == nil {
			continue
		}
		delete(bodies, b.of)
		d := json.NewDecoder(strings.NewReader(b.content))
		d.DisallowUnknownFields()
		if err := d.Decode(body); err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
			continue
		}
		// Every field has a value, so all that there are survive being left out when empty.
		var shown, all map[string]json.RawMessage
		again, err := json.Marshal(body)
		if err != nil || json.Unmarshal(again, &all) != nil || json.Unmarshal([]byte(b.content), &shown) != nil {
			t.Fatalf("%v: %s", err, again)
		}
		for name, value := range all {
			if _, ok := shown[name]; !ok || bytes.Equal(value, []byte("null")) {
				t.Errorf("%s:%d: the field %q is missing", b.page, b.line, name)
			}
		}
	}
	for name := range bodies {
		t.Errorf("the guide shows no %s", name)
	}
}

func TestTheGuideListsEveryAnswerToACallbackWithItsStatus(t *testing.T) {
	text := read(t)
	for _, code := range []fsm.Code{
		fsm.CodeInvalidRequest, fsm.CodeTokenExpired, fsm.CodeTokenInvalid, fsm.CodeAlreadyClaimed,
		fsm.CodeInvalidOffset,
		fsm.CodeStaleEpoch, fsm.CodeConsumerGone, fsm.CodeBodyTooLarge, fsm.CodeInternal, fsm.CodeUnavailable,
	} {
		if row := fmt.Sprintf("\n| %d | `%s` |", web.Status(code), code); !strings.Contains(text, row) {
			t.Errorf("the guide has no row that begins %q", row[1:])
		}
	}
}

func read(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, page := range guide {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

var origin = regexp.MustCompile(`^<!-- (file|json): (\S+) -->$`)

// blocks returns the fenced blocks of code of the guide.
func blocks(t *testing.T) (list []block) {
	t.Helper()
	for _, page := range guide {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var b *block
		before := ""
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			trimmed := strings.TrimRight(line, "\n")
			language, fence := strings.CutPrefix(trimmed, "```")
			switch {
			case fence && b == nil:
				b = &block{page: page, line: n, language: language}
				if m := origin.FindStringSubmatch(before); m != nil {
					b.kind, b.of = m[1], m[2]
				}
			case fence:
				list = append(list, *b)
				b = nil
			case b != nil:
				b.content += line
			}
			before = trimmed
		}
		if b != nil {
			t.Fatalf("%s has a block of code that does not end", page)
		}
	}
	if len(list) == 0 {
		t.Fatal("the guide has no block of code")
	}
	return list
}
