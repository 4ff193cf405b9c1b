package dispatcher

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reveille/fsm"
)

func TestWhatAFilterTakes(t *testing.T) {
	types := func(list ...string) fsm.Filter { return fsm.Filter{Events: list} }
	has := func(path string, values ...fsm.Value) fsm.Filter {
		return fsm.Filter{Values: map[string][]fsm.Value{path: values}}
	}
	for _, tc := range []struct {
		name   string
		filter fsm.Filter
		takes  []string
		leaves []string
	}{
		{
			"a type as it stands", types("job.completed", "job.failed"),
			[]string{`{"type":"job.completed"}`, `{"data":{},"type":"job.failed"}`, ` { "type" : "job\u002efailed" } `},
			[]string{
				`{"type":"job.completed.late"}`, `{"type":"job"}`, `{"type":"JOB.FAILED"}`, `{"Type":"job.failed"}`,
				`{"type":""}`, `{"type":null}`, `{"type":["job.failed"]}`, `{"data":{"type":"job.failed"}}`, `{}`, `[]`,
				`["type","job.failed"]`, `"job.failed"`, `7`, `null`,
			},
		},
		{
			"a wildcard", types("job.*", "a.b.*"),
			[]string{`{"type":"job.failed"}`, `{"type":"job.failed.late"}`, `{"type":"a.b.c"}`},
			[]string{`{"type":"job"}`, `{"type":"jobs.failed"}`, `{"type":"my.job.failed"}`, `{"type":"a.c"}`, `1`},
		},
		{"every type", types("a", "*"), []string{`{"type":"b"}`, `{}`, `[]`, `7`, `null`, `"text"`}, nil},
		{
			"a type elsewhere",
			fsm.Filter{Events: []string{"a"}, TypePath: `meta.event\.type`},
			[]string{`{"meta":{"event.type":"a"}}`},
			[]string{`{"type":"a"}`, `{"meta":{"event":{"type":"a"}}}`},
		},
		{
			"a CloudEvent by its own type", types("com.example.*"),
			[]string{`{"specversion":"1.0","id":"1","source":"/","type":"com.example.made","data":{"type":"x"}}`},
			[]string{`{"specversion":"1.0","id":"1","source":"/","type":"x","data":{"type":"com.example.made"}}`},
		},
		{
			"a text", has("data.queue", `"payments"`, `"é ü"`, `"a<b"`, `""`),
			[]string{
				`{"data":{"queue":"payments"}}`, `{"data":{"queue":"\u00e9 \u00fc"}}`, `{"data":{"queue":"a\u003cb"}}`,
				`{"data":{"queue":""}}`, `{"d\u0061ta":{"\u0071ueue":"payments"}}`,
			},
			[]string{
				`{"data":{"queue":"payment"}}`, `{"data":{"queue":["payments"]}}`, `{"data":{"queue":null}}`,
				`{"data":{}}`, `{"data":"payments"}`, `{"data":[{"queue":"payments"}]}`, `{"queue":"payments"}`,
				`{"data.queue":"payments"}`, `{"data":null}`,
			},
		},
		{
			"a number", has("n", "1", "-2.50", "9007199254740993", "1e3", "0"),
			[]string{
				`{"n":1}`, `{"n":1.0}`, `{"n":1.00e0}`, `{"n":0.1e1}`, `{"n":10e-1}`, `{"n":-2.5}`, `{"n":-25E-1}`,
				`{"n":9007199254740993}`, `{"n":1000}`, `{"n":1E+3}`, `{"n":0}`, `{"n":-0.0}`,
				`{"n":0e99999999999999999999}`,
			},
			[]string{
				`{"n":"1"}`, `{"n":2.5}`, `{"n":9007199254740992}`, `{"n":1.0000000000000000001}`, `{"n":true}`,
				`{"n":10}`, `{"n":1e99999999999999999999}`, `{"n":1e-99999999999999999999}`, `{"n":100}`,
			},
		},
		{"true", has("b", "true"), []string{`{"b":true}`}, []string{`{"b":false}`, `{"b":"true"}`, `{"b":1}`, `{}`}},
		{"false", has("b", "false"), []string{`{"b":false}`}, []string{`{"b":true}`, `{"b":null}`, `{"b":0}`, `{}`}},
		{
			"escaped dots and backslashes", has(`a\.b.c\\d`, "1"),
			[]string{`{"a.b":{"c\\d":1}}`},
			[]string{`{"a":{"b":{"c\\d":1}}}`, `{"a.b":{"cd":1}}`},
		},
		{
			"what looks like a position is a name", has("a.0", "1"), []string{`{"a":{"0":1}}`}, []string{`{"a":[1]}`},
		},
		{
			"the last of those of the same name",
			fsm.Filter{
				Events: []string{"a"}, Values: map[string][]fsm.Value{"data.queue": {`"x"`}},
			},
			[]string{`{"type":"b","type":"a","data":{"queue":"y"},"data":{"queue":"x"}}`},
			[]string{
				`{"type":"a","type":"b","data":{"queue":"x"}}`,
				`{"type":"a","data":{"queue":"x"},"data":{"queue":"y"}}`,
				`{"type":"a","data":{"queue":"x"},"data":{}}`, `{"type":"a","data":{"queue":"x","queue":null}}`,
			},
		},
		{
			"all that it asks for",
			fsm.Filter{
				Events: []string{"job.*"},
				Values: map[string][]fsm.Value{"data.queue": {`"x"`, `"y"`}, "data.retry": {"true"}},
			},
			[]string{`{"type":"job.a","data":{"queue":"y","retry":true}}`},
			[]string{
				`{"type":"a","data":{"queue":"y","retry":true}}`, `{"type":"job.a","data":{"queue":"z","retry":true}}`,
				`{"type":"job.a","data":{"queue":"x"}}`, `{"type":"job.a"}`,
			},
		},
		{"a type path alone", fsm.Filter{TypePath: "kind"}, []string{`{"kind":"a"}`, `{}`, `1`}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := newFilter(tc.filter)
			if err != nil {
				t.Fatal(err)
			}
			for takes, events := range map[bool][]string{true: tc.takes, false: tc.leaves} {
				for _, e := range events {
					if f.matches([]byte(e)) != takes {
						t.Errorf("%s: is taken %t, want %t", e, !takes, takes)
					}
				}
			}
		})
	}
}

// TestAFilterReadsJSONAsOthersDo compares it with encoding/json, for any valid JSON.
func TestAFilterReadsJSONAsOthersDo(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", `\u0061`, "a.b", "", `é`, `\"`, `\ud83d\ude00`})
	scalars := rapid.OneOf(
		rapid.SampledFrom([]string{"true", "false", "null", `"x"`, `"\u0078"`, `"\n\\"`, "1", "1.0", "10e-1", "-0"}),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`),
	)
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	var values func(depth int) *rapid.Generator[string]
	values = func(depth int) *rapid.Generator[string] {
		if depth == 0 {
			return scalars
		}
		return rapid.Custom(func(t *rapid.T) string {
			gap := space.Draw(t, "space")
			var parts []string
			n := rapid.IntRange(0, 3).Draw(t, "members")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				return scalars.Draw(t, "scalar")
			case 1:
				for range n {
					parts = append(parts, values(depth-1).Draw(t, "element"))
				}
				return "[" + strings.Join(parts, gap+",") + gap + "]"
			}
			for range n {
				parts = append(parts,
					`"`+names.Draw(t, "name")+`"`+gap+":"+gap+values(depth-1).Draw(t, "value"))
			}
			return "{" + gap + strings.Join(parts, gap+",") + gap + "}"
		})
	}
	paths := rapid.SampledFrom([]string{"a", "b", `a\.b`, "a.b", "b.a", "a.a.a", `a\.b.é`, `"`, "😀"})
	allowed := rapid.SampledFrom([]fsm.Value{`"x"`, `"\n\\"`, "1", "0", "true", "false", "100"})
	rapid.Check(t, func(t *rapid.T) {
		event := values(3).Draw(t, "event")
		path, value := paths.Draw(t, "path"), allowed.Draw(t, "value")
		f, err := newFilter(fsm.Filter{Values: map[string][]fsm.Value{path: {value}}})
		if err != nil || !json.Valid([]byte(event)) {
			t.Fatalf("%s: %v", event, err)
		}
		if got, want := f.matches([]byte(event)), read(t, event, path) == written(t, string(value)); got != want {
			t.Errorf("%s has %s at %s: got %t, want %t", event, value, path, got, want)
		}
	})
}

// read returns the value at a path of an event as encoding/json reads it; empty if there is none.
func read(t *rapid.T, event, path string) string {
	path = strings.ReplaceAll(path, `\.`, "\x00")
	raw := json.RawMessage(event)
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return ""
		}
		raw = members[strings.ReplaceAll(name, "\x00", ".")]
		if raw == nil {
			return ""
		}
	}
	return written(t, string(raw))
}

// written returns a scalar in one spelling; empty for any other value.
func written(t *rapid.T, raw string) string {
	var v any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		n, ok := new(big.Rat).SetString(v.String())
		if !ok {
			t.Fatalf("%s is no number", raw)
		}
		return n.String()
	}
	return ""
}

// BenchmarkAFilter looks at an event of some 400 bytes whose type is at its end.
func BenchmarkAFilter(b *testing.B) {
	event := []byte(`{"specversion":"1.0","id":"019539a4","source":"/jobs","time":"2026-02-15T22:00:00Z","data":{` +
		`"job_type":"payment.process","queue":"payments","duration_ms":1200,"attempt":1,"note":"` +
		strings.Repeat("x", 180) + `"},"type":"job.completed"}`)
	for name, filter := range map[string]fsm.Filter{
		"type": {Events: []string{"job.failed"}},
		"values": {Events: []string{"job.*"}, Values: map[string][]fsm.Value{
			"data.queue": {`"billing"`, `"payments"`}, "data.attempt": {"1.0"},
		}},
	} {
		b.Run(name, func(b *testing.B) {
			f, err := newFilter(filter)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				f.matches(event)
			}
		})
	}
}

// TestAFilterReadsTextAsAReceiverDoes holds that a type is read as encoding/json reads it, even if its text is odd.
func TestAFilterReadsTextAsAReceiverDoes(t *testing.T) {
	for _, event := range []string{
		`{"type":"\ud800\u0061"}`, `{"type":"\ud800a"}`, "{\"type\":\"a\xff\"}", `{"type":"\ud83d\ude00"}`,
		`{"type":"\ud83d\ud83d\ude00"}`, `{"type":"\u0000x"}`, `{"ty\u0070e":"x"}`,
	} {
		var v struct{ Type string }
		if err := json.Unmarshal([]byte(event), &v); err != nil {
			t.Fatal(err)
		}
		f, err := newFilter(fsm.Filter{Events: []string{v.Type}})
		if err != nil || !f.matches([]byte(event)) {
			t.Errorf("%q has the type %q, which does not match, %v", event, v.Type, err)
		}
	}
}

// TestAFilterReadsAValueOnce holds that a long value of an event costs no more if many values are allowed.
func TestAFilterReadsAValueOnce(t *testing.T) {
	for name, event := range map[string]string{"a string": `{"a":"\u0061bc"}`, "a number": `{"a":1.25e3}`} {
		reads := func(allowed int) float64 {
			values := make([]fsm.Value, allowed)
			for i := range values {
				values[i] = fsm.Value(strconv.Itoa(i))
				if name == "a string" {
					values[i] = fsm.Value(strconv.Quote(strconv.Itoa(i)))
				}
			}
			f, err := newFilter(fsm.Filter{Values: map[string][]fsm.Value{"a": values}})
			if err != nil {
				t.Fatal(err)
			}
			return testing.AllocsPerRun(10, func() { f.matches([]byte(event)) })
		}
		if one, many := reads(1), reads(fsm.MaxFilterValues); many > one {
			t.Errorf("%s: with one allowed value there are %g allocations, with many %g", name, one, many)
		}
	}
}
