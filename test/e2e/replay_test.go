package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestDeadLettersAreReplayed has an endpoint refuse some events of two streams. Once it is repaired, they come again
// under the ids that they had, in the order of their stream, while what is new goes on.
func TestDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, nil)
	refuses := func(part string) func(int, harness.Push) int {
		return func(_ int, push harness.Push) int {
			if part != "" && bytes.Contains(push.Body, []byte(part)) {
				return http.StatusUnprocessableEntity
			}
			return http.StatusNoContent
		}
	}
	p.receiver.Answer(refuses(`"bad"`))
	paths := []string{p.folder + "/one", p.folder + "/two"}
	good := map[string][]string{}
	for _, path := range paths {
		p.gateway.Create(path)
		for i := range 3 {
			p.gateway.Append(path, fmt.Sprintf(`{"bad":%d}`, i))
			good[path] = append(good[path], fmt.Sprintf(`{"good":%d}`, i))
			p.gateway.Append(path, good[path][i])
		}
	}
	for _, path := range paths {
		p.want(path, good[path])
	}
	ids := map[string]string{} // of what was refused, by its stream and body
	for _, push := range p.receiver.Pushes() {
		if push.Status == http.StatusUnprocessableEntity {
			ids[push.Stream+string(push.Body)] = push.ID
			if push.Header.Get("Reveille-Replay") != "" {
				t.Errorf("%s says that it is a replay", push.Body)
			}
		}
	}
	ask := func(args ...string) string {
		t.Helper()
		status, out, errs := p.rev.Ask("", append([]string{"dead-letters"}, args...)...)
		if status != 0 {
			t.Fatalf("reveille dead-letters %s: %s", strings.Join(args, " "), errs)
		}
		return out
	}
	letters := func() []string { return strings.Split(ask("--subscription", p.sub.ID), "\n")[1:] }
	if n := len(letters()) - 1; n != 6 {
		t.Fatalf("there are %d dead letters, want 6: %q", n, letters())
	}

	// One is refused again, and leaves another letter; the others are taken.
	p.receiver.Answer(refuses(`{"bad":1}`))
	if out := ask("replay", "--subscription", p.sub.ID); !strings.HasPrefix(out, "6 to be replayed") {
		t.Errorf("replay prints %q", out)
	}
	p.gateway.Append(paths[0], `{"good":3}`)
	want := func(path string, replayed ...string) {
		t.Helper()
		harness.Eventually(t, soon, "what is replayed of "+path+" is taken", func() error {
			var got []string
			for _, push := range p.receiver.Pushes() {
				replayed := push.Header.Get("Reveille-Replay") == "true"
				if replayed && push.Stream == path && push.Status == http.StatusNoContent {
					got = append(got, string(push.Body))
					if push.ID != ids[path+string(push.Body)] {
						t.Errorf("%s has the id %s, and had %s", push.Body, push.ID, ids[path+string(push.Body)])
					}
				}
			}
			if !slices.Equal(got, replayed) {
				return fmt.Errorf("%q came", got)
			}
			return nil
		})
	}
	for _, path := range paths {
		want(path, `{"bad":0}`, `{"bad":2}`)
	}
	harness.Eventually(t, soon, "what is new is taken", func() error {
		if _, got := p.receiver.Taken(paths[0]); !slices.Contains(got, `{"good":3}`) {
			return fmt.Errorf("%q came", got)
		}
		return nil
	})
	harness.Eventually(t, soon, "what was refused again has left another letter each", func() error {
		if left := letters(); len(left) != 3 || !strings.Contains(left[0]+left[1], "status 422") {
			return fmt.Errorf("%q are left", left)
		}
		return nil
	})

	// A stream that was made anew has nothing to read again.
	p.receiver.Answer(refuses(""))
	p.gateway.DeleteStream(paths[1])
	p.gateway.Create(paths[1])
	p.gateway.Append(paths[1], `{"good":"anew"}`)
	harness.Eventually(t, soon, "the new stream is pushed", func() error {
		if _, got := p.receiver.Taken(paths[1]); !slices.Contains(got, `{"good":"anew"}`) {
			return fmt.Errorf("%q came", got)
		}
		return nil
	})
	if out := ask("replay", "--subscription", p.sub.ID); !strings.HasPrefix(out, "1 to be replayed") ||
		!strings.Contains(out, "1 cannot be") {
		t.Errorf("replay prints %q", out)
	}
	want(paths[0], `{"bad":0}`, `{"bad":2}`, `{"bad":1}`)
	harness.Eventually(t, soon, "the letter of the stream that was deleted is left", func() error {
		if left := letters(); len(left) != 2 || !strings.Contains(left[0], paths[1]) {
			return fmt.Errorf("%q are left", left)
		}
		return nil
	})
}

// TestASpanOfAStreamIsReplayed has an operator repeat what lies between two offsets, of a stream that was pushed event
// by event and that the server shows in one answer now.
func TestASpanOfAStreamIsReplayed(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, map[string]any{"batch": 2})
	ask := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := p.rev.Ask("", append([]string{"replay"}, args...)...)
		if status != want {
			t.Fatalf("reveille replay %s: %d %s", strings.Join(args, " "), status, errs)
		}
		return out + errs
	}
	p.gateway.Create(p.path)
	var events []string
	offsets := []string{"-1"}
	for i := range 9 {
		events = append(events, fmt.Sprintf(`{"n":%d}`, i))
		offsets = append(offsets, p.gateway.Append(p.path, events[i]))
	}
	p.receiver.Await(p.path, len(events))
	// replayed returns the events that came by replay from the nth on, and their ids.
	replayed := func(n int) (got, ids []string) {
		for _, push := range p.receiver.Pushes() {
			if push.Header.Get("Reveille-Replay") == "true" && push.Status < 300 {
				its, brought, err := push.Events()
				if err != nil {
					t.Fatal(err)
				}
				got, ids = append(got, brought...), append(ids, its...)
			}
		}
		return got[min(n, len(got)):], ids[min(n, len(ids)):]
	}
	span := []string{p.sub.ID, p.path, "--from", offsets[3], "--to", offsets[8], "--wait"}
	if out := ask(0, span...); !strings.Contains(out, "1 of 1 replayed") {
		t.Errorf("replay --wait prints %q", out)
	}
	first, ids := replayed(0)
	if !slices.Equal(first, events[3:8]) {
		t.Errorf("from %s to %s came %q", offsets[3], offsets[8], first)
	}
	ask(0, span...)
	if again, same := replayed(len(first)); !slices.Equal(again, first) || !slices.Equal(same, ids) {
		t.Errorf("the second time, %q came under the ids %q; the first time under %q", again, same, ids)
	}
	if out := ask(1, p.sub.ID, p.path, "--from", offsets[8]+"x"); !strings.Contains(out, "from") {
		t.Errorf("an offset that is none: %q", out)
	}

	// One that fails shows why, does not hold up what is new, and can be cancelled.
	p.receiver.Answer(func(_ int, push harness.Push) int {
		if push.Header.Get("Reveille-Replay") != "" {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	ask(0, p.sub.ID, p.path, "--from", "-1")
	harness.Eventually(t, soon, "the replay fails", func() error {
		if out := ask(0, "--subscription", p.sub.ID); !strings.Contains(out, "status 500") {
			return fmt.Errorf("it shows %q", out)
		}
		return nil
	})
	p.gateway.Append(p.path, `{"n":"new"}`)
	harness.Eventually(t, soon, "what is new is taken", func() error {
		if _, got := p.receiver.Taken(p.path); !slices.Contains(got, `{"n":"new"}`) {
			return fmt.Errorf("%q came", got)
		}
		return nil
	})
	if out := ask(0, "cancel", "--subscription", p.sub.ID); out != "1 replay cancelled\n" {
		t.Errorf("cancel prints %q", out)
	}
	if out := ask(0, "--subscription", p.sub.ID, "--wait"); !strings.Contains(out, "nothing is") {
		t.Errorf("nothing is to be replayed: %q", out)
	}
}
