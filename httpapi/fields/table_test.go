package fields

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
)

func TestEveryFieldIsReadAndShown(t *testing.T) {
	for _, f := range fsm.Fields {
		if c := codecs[f.Name]; c.read == nil || c.show == nil {
			t.Errorf("%s is not read and shown: add it to codecs", f.Name)
		}
	}
	if len(codecs) != len(fsm.Fields) {
		t.Errorf("%d fields are read, and a subscription has %d", len(codecs), len(fsm.Fields))
	}
}

// page describes the fields, first those of all modes, then those of a push.
const page = "../native/SUBSCRIPTIONS.md"

var fieldRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.+?) \\|")

// spoken are the defaults that the page puts into words.
var spoken = map[string]string{
	"webhook": "required", "start": "`\"now\"`", "retry": "by mode", "events": "all", "type_path": "`\"type\"`",
}

func TestThePageHasEveryFieldWithItsDefaultAndModes(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Fields\n")
	ofAll, ofPush, _ := strings.Cut(section, "fields are for `\"mode\":\"push\"` only")
	ofPush, _, _ = strings.Cut(ofPush, "\n#")
	for _, part := range []struct {
		text string
		push bool
	}{{ofAll, false}, {ofPush, true}} {
		var got, want []string
		for _, row := range fieldRow.FindAllStringSubmatch(part.text, -1) {
			got = append(got, row[1]+": "+row[2])
		}
		for _, f := range fsm.Fields {
			if codecs[f.Name].push == part.push {
				want = append(want, f.Name+": "+described(f, part.push))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("push %t: %s has\n%s\nand not\n%s", part.push, page, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
}

// described is the default of a field as the page has it.
func described(f fsm.Field, push bool) string {
	if words, ok := spoken[f.Name]; ok {
		return words
	}
	of := map[fsm.Mode]string{}
	for _, mode := range fsm.Modes {
		sub := fsm.Subscription{Mode: mode}.WithDefaults()
		if of[mode] = "none"; !f.Same(&sub, &fsm.Subscription{}) {
			text, _ := json.Marshal(codecs[f.Name].show(f.Value(&sub)))
			if of[mode] = string(text); text[0] == '"' {
				of[mode] = "`" + of[mode] + "`"
			}
		}
	}
	switch wake, ofPush := of[fsm.ModeWake], of[fsm.ModePush]; {
	case push:
		return ofPush
	case f.Name != "mode" && wake != ofPush:
		return wake + "; in push mode " + ofPush
	default:
		return wake
	}
}
