package browser

import (
	"fmt"
	"net/http"
	"testing"

	"reveille/test/harness"
)

// step is a button, and what the page then says.
type step struct {
	button string
	says   []string
}

// TestButtonsByEveryHand uses each kind of button with a mouse, with a keyboard, and in a browser that runs no scripts.
func TestButtonsByEveryHand(t *testing.T) {
	t.Parallel()
	i := install(t, nil)
	webhook := answers(t, http.StatusBadRequest, "no such order")
	for _, by := range []hand{mouse, keyboard, withoutScripts} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			i, sub := i.of(t), map[hand]string{mouse: "m", keyboard: "k", withoutScripts: "w"}[by]
			i.subscribe(sub, webhook, nil)
			i.gateway.Append("/"+sub+"/1", `{}`)
			letter := i.awaitLetter(sub)
			p := open(t, i.rev.Operator, screen, by)
			walk := func(from string, steps ...step) {
				t.Helper()
				p.visit(from)
				if by == withoutScripts {
					p.must("scripts are off")
				}
				for _, s := range steps {
					p.press(s.button)
					p.must(s.says...)
				}
				p.clean(from)
			}
			walk("/subscriptions/"+sub,
				step{"do-pause", []string{sub + " is paused"}},
				step{"back", []string{"paused"}},
				step{"do-resume", []string{sub + " is resumed"}},
				step{"back", nil},
				step{"do-retry", []string{sub + " is retried"}},
				step{"back", nil},
				step{"do-test", []string{"the test failed: status 400", "no such order"}},
				step{"back", nil},
				step{"do-rotate-secret", []string{"shown once"}},
				step{"cancel", []string{"Latest attempts"}},
				step{"do-rotate-secret", []string{"shown once"}},
				step{"confirm", []string{"it is not shown again", "whsec_"}},
			)
			walk("/dead-letters/"+letter,
				step{"do-discard", []string{"cannot be replayed any more", letter}},
				step{"cancel", []string{"Name a subscription to replay"}},
			)
			walk("/dead-letters?subscription="+sub,
				step{"l-" + letter, []string{"The endpoint refused the request"}},
				step{"do-replay", []string{"are delivered again"}},
			)
			wakes := sub + "-wakes"
			i.gateway.Create("/" + wakes + "/1")
			i.gateway.Append("/"+wakes+"/1", `{}`)
			i.subscribe(wakes, webhook, map[string]any{"mode": "wake", "retry": nil})
			consumer := "/consumers/" + wakes + ":%2F" + wakes + "%2F1"
			harness.Eventually(t, harness.Wait, "the stream has a consumer", func() error {
				operator := harness.NewClient(t, i.rev.Operator)
				res, err := operator.Try(t.Context(), http.MethodGet, "/api/v1"+consumer, "")
				if err == nil && res.Status != http.StatusOK {
					err = fmt.Errorf("status %d", res.Status)
				}
				return err
			})
			p.visit(consumer)
			p.fill("rewind-to", "-1")
			p.press("do-rewind")
			p.must("cannot be led forward again", "/"+wakes+"/1", "-1")
			p.press("confirm")
			p.must("has gone back", "gets another wake")
			p.clean(consumer)
			harness.Eventually(t, harness.Wait, "the replay has failed, too", func() error {
				if again := i.letters(sub); len(again) != 1 || again[0] == letter {
					return fmt.Errorf("%q", again)
				}
				return nil
			})
			walk("/dead-letters?subscription="+sub,
				step{"all-discard", []string{"These dead letters cannot be replayed any more"}},
				step{"confirm", []string{"1 dead letter is discarded"}},
				step{"back", []string{"None."}},
			)
		})
	}
}
