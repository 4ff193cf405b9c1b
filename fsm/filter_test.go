package fsm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestPathsOfAFilter(t *testing.T) {
	long := strings.Repeat("x", MaxFilterText)
	for _, tc := range []struct {
		path  string
		names []string
		wrong string
	}{
		{"type", []string{"type"}, ""},
		{"data.queue", []string{"data", "queue"}, ""},
		{`data.event\.type.x`, []string{"data", "event.type", "x"}, ""},
		{`a\\.b`, []string{`a\`, "b"}, ""},
		{`\.`, []string{"."}, ""},
		{"a-b_c d.é.0.$x:y[1]{}", []string{"a-b_c d", "é", "0", "$x:y[1]{}"}, ""},
		{long, []string{long}, ""},
		{strings.Repeat("a.", MaxFilterNames-1) + "a", slices.Repeat([]string{"a"}, MaxFilterNames), ""},
		{"", nil, "must have 1 to 256 bytes"},
		{long + "x", nil, "must have 1 to 256 bytes"},
		{strings.Repeat("a.", MaxFilterNames) + "a", nil, "has more than 16 names"},
		{".", nil, "has an empty name"},
		{".a", nil, "has an empty name"},
		{"a.", nil, "has an empty name"},
		{"a..b", nil, "has an empty name"},
		{`a\`, nil, "ends in a backslash"},
		{`a\*`, nil, `has a backslash before "*"`},
		{"a.*", nil, `has "*": a path is the names of members`},
		{"a?", nil, `has "?"`},
		{"a.#", nil, `has "#"`},
		{`a.#(b=="c")`, nil, `has "#"`},
		{"a|b", nil, `has "|"`},
		{"@type", []string{"@type"}, ""}, // of JSON-LD
		{"!true", nil, `has "!"`},
	} {
		names, err := SplitFilterPath(tc.path)
		if (err == nil) != (tc.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), tc.wrong) ||
			!slices.Equal(names, tc.names) {
			t.Errorf("%.40q: got %q, %v; want %q, %s", tc.path, names, err, tc.names, tc.wrong)
		}
	}
}

func TestTypesOfAFilter(t *testing.T) {
	for text, ok := range map[string]bool{
		"a": true, "job.completed": true, "*": true, "job.*": true, "a.b.*": true, "a b": true, "é": true, ".": true,
		strings.Repeat("x", MaxFilterText): true, strings.Repeat("x", MaxFilterText+1): false,
		"": false, "job*": false, ".*": false, "*.a": false, "a.*.b": false, "**": false, "a.**": false, "*.*": false,
	} {
		if err := CheckEventType(text); (err == nil) != ok {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestValuesOfAFilter(t *testing.T) {
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for raw, want := range map[string]Value{
		`"a"`: `"a"`, ` "\u0061" `: `"a"`, `"a<b"`: `"a<b"`, `"\u00e9"`: `"é"`, `""`: `""`, `1`: "1", `1.50`: "1.50",
		`-2E+3`: "-2E+3", `true`: "true", `false`: "false", text(MaxFilterText): Value(text(MaxFilterText)),
		`null`: "", `[]`: "", `{}`: "", `1e999`: "", text(MaxFilterText + 1): "", strings.Repeat("1", 257): "",
	} {
		got, err := NewValue(json.RawMessage(raw))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.40s: got %.40s, %v; want %.40s", raw, got, err, want)
		}
		if want == "" {
			continue
		}
		var again []Value
		text, err := json.Marshal([]Value{got})
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if err != nil || !slices.Equal(again, []Value{got}) {
			t.Errorf("%.40s is stored as %.40s and read as %.40s, %v", got, text, again, err)
		}
	}
}

// TestADeliveryOfWhatAFilterHasPicked holds that other events are another delivery, and that it is the same one
// wherever it is read from.
func TestADeliveryOfWhatAFilterHasPicked(t *testing.T) {
	wake := Delivery{Generation: "g", Primary: "/a"}
	id := func(skip int64, places ...int64) string {
		for i := range places {
			places[i] -= skip
		}
		b := Batch{JSON: true, From: Offset("5").At(skip, "9"), Tail: "9", Places: places}
		b.Events = make([][]byte, len(places))
		if first := b.First(); first != Offset("5").At(skip+places[0], "9") {
			t.Errorf("%d in a batch from %d is at %q", places[0], skip, first)
		}
		return b.DeliveryID(wake)
	}
	follow := Batch{JSON: true, From: Offset("5").At(2, "9"), Events: make([][]byte, 3)}.DeliveryID(wake)
	if got := id(0, 2, 3, 4); got != follow || got != id(1, 2, 3, 4) || !strings.HasSuffix(got, "_2-4") {
		t.Errorf("those that follow each other are %s and %s", got, follow)
	}
	gaps := id(0, 2, 3, 7, 9)
	if gaps != id(2, 2, 3, 7, 9) || !strings.HasPrefix(gaps, strings.TrimSuffix(follow, "4")+"9-") {
		t.Errorf("those with gaps are %s", gaps)
	}
	for _, other := range []string{id(0, 2, 4, 7, 9), id(0, 2, 7, 9), id(0, 2, 3, 4, 7, 9), id(0, 2, 9)} {
		if other == gaps {
			t.Errorf("other events are %s, too", other)
		}
	}
	one := id(0, 7)
	if one != EventID(wake, Offset("5").At(7, "9")) {
		t.Errorf("one by itself is %s", one)
	}
	for id, want := range map[string]bool{
		one: true, follow: true, gaps: true, "": false, one + "-": false, gaps + "0": false, one[1:]: false,
		"del_1": false, "evt_019539a4-b68c-7def-8000-112233445566": false, one + "\n": false,
	} {
		if ValidDeliveryID(id) != want {
			t.Errorf("%q can be the ID of a delivery: %t", id, !want)
		}
	}
}
