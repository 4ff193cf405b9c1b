package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"reveille/test/harness"
)

// hand is a way to use a page.
type hand string

const (
	mouse    hand = "mouse"
	keyboard hand = "keyboard"
	// withoutScripts is a mouse in a browser that runs no script of a page.
	withoutScripts hand = "without scripts"
)

// look is a screen, and a scheme of colours.
type look struct {
	name          string
	width, height int64
	scheme        string
}

var (
	screen = look{"a light screen", 1280, 940, "light"}
	phone  = look{"a dark phone", 390, 844, "dark"}
)

// tab is a window of a browser. It notes what the browser complains of, and each request to somebody else.
type tab struct {
	t      testing.TB
	ctx    context.Context
	origin string
	hand   hand

	notes *notes
}

type notes struct {
	mu         sync.Mutex
	complaints []string
}

// open starts a browser for the pages of an origin.
func open(t testing.TB, origin string, l look, by hand) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox) // in a container, Chromium often may have none
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // of events of later versions
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, origin: origin, hand: by, notes: &notes{}}
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	p.do(
		chromedp.EmulateViewport(l.width, l.height),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}},
			})
			return err
		}),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
				emulation.SetScriptExecutionDisabledParams{Value: by == withoutScripts})
			return err
		}),
	)
	return p
}

// of is the tab, for a part of a test.
func (p *tab) of(t testing.TB) *tab {
	p.complained()
	part := &tab{t: t, ctx: p.ctx, origin: p.origin, hand: p.hand, notes: p.notes}
	return part
}

// note keeps what should not happen.
func (p *tab) note(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.origin+"/") {
			p.complain("it asks for " + e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		p.complain("a script fails: " + e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.complain(fmt.Sprintf("a script writes %s to the console", e.Type))
	case *log.EventEntryAdded:
		p.complain(fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		p.complain("a script asks: " + e.Message) // and waits for ever: nobody answers
	}
}

func (p *tab) complain(text string) {
	p.notes.mu.Lock()
	defer p.notes.mu.Unlock()
	p.notes.complaints = append(p.notes.complaints, text)
}

// complained returns what was noted since it was asked before.
func (p *tab) complained() []string {
	p.notes.mu.Lock()
	defer p.notes.mu.Unlock()
	defer func() { p.notes.complaints = nil }()
	return slices.Clone(p.notes.complaints)
}

// clean fails the test if anything was noted.
func (p *tab) clean(where string) {
	p.t.Helper()
	for _, text := range p.complained() {
		p.t.Errorf("%s: %s", where, text)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, harness.Wait)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; %q", err, p.complained())
	}
}

// visit opens a page.
func (p *tab) visit(target string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.origin + target))
}

// value evaluates an expression of JavaScript, beside the scripts of the page.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, harness.Wait)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v; %q", expression, err, p.complained())
	}
	return v
}

// says returns the text of the page.
func (p *tab) says() string {
	p.t.Helper()
	return value[string](p, "document.body.innerText")
}

// at is where the page is.
func (p *tab) at() string {
	p.t.Helper()
	return value[string](p, "location.pathname + location.search")
}

// must fails the test if the page does not say each of these texts.
func (p *tab) must(texts ...string) {
	p.t.Helper()
	shown := p.says()
	for _, text := range texts {
		if !strings.Contains(strings.ToLower(shown), strings.ToLower(text)) {
			p.t.Fatalf("%s does not say %q:\n%s", p.at(), text, shown)
		}
	}
}

// await waits until the page says a text.
func (p *tab) await(text string) {
	p.t.Helper()
	harness.Eventually(p.t, harness.Wait, fmt.Sprintf("%s says %q", p.at(), text), func() error {
		if shown := p.says(); !strings.Contains(shown, text) {
			return errors.New(shown)
		}
		return nil
	})
}

// press uses the link or the button with an ID, and waits for the page that it leads to.
func (p *tab) press(id string) {
	p.t.Helper()
	use := p.click
	if p.hand == keyboard {
		use = p.key
	}
	ctx, cancel := context.WithTimeout(p.ctx, harness.Wait)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		return use(ctx, target, id)
	}))
	if err != nil {
		p.t.Fatalf("the %s on #%s: %v; %q", p.hand, id, err, p.complained())
	}
}

// fill types a text into the field with an ID.
func (p *tab) fill(id, text string) {
	p.t.Helper()
	p.do(func(ctx context.Context, target *chromedp.Target) (v chromedp.Void, err error) {
		focus := fmt.Sprintf(`document.getElementById(%q).focus()`, id)
		if _, err = chromedp.Evaluate[any](focus)(ctx, target); err != nil {
			return v, err
		}
		return chromedp.KeyEvent(text)(ctx, target)
	})
}

// still has the page not refresh itself any more, so that nothing moves.
const still = `
	document.addEventListener("htmx:beforeRequest", (event) => event.preventDefault());
	document.addEventListener("htmx:beforeSwap", (event) => { event.detail.shouldSwap = false; });`

// click finds the element and its place in one look, as the page may be made anew in between.
func (p *tab) click(ctx context.Context, target *chromedp.Target, id string) error {
	at, err := chromedp.Evaluate[[]float64](fmt.Sprintf(`(() => {`+still+`
		const found = document.getElementById(%q);
		if (!found) return [];
		found.scrollIntoView({block: "center", behavior: "instant"});
		const box = found.getClientRects()[0];
		return [box.x + box.width / 2, box.y + box.height / 2];
	})()`, id))(ctx, target)
	if err != nil {
		return err
	}
	if len(at) != 2 {
		return errors.New("there is no such element")
	}
	_, err = chromedp.MouseClickXY(at[0], at[1])(ctx, target)
	return err
}

// key goes to the element with the tab key, and presses it.
func (p *tab) key(ctx context.Context, target *chromedp.Target, id string) error {
	for range 300 {
		if _, err := chromedp.KeyEvent(kb.Tab)(ctx, target); err != nil {
			return err
		}
		focused, err := chromedp.Evaluate[string]("document.activeElement.id")(ctx, target)
		if err != nil {
			return err
		}
		if focused == id {
			_, err = chromedp.KeyEvent(kb.Enter)(ctx, target)
			return err
		}
	}
	return errors.New("the tab key does not come to it")
}

// axe returns the source of what looks for barriers to people with disabilities.
var axe = sync.OnceValues(func() (string, error) {
	if err := harness.NodeModules(context.Background(), "test/browser", func() {}); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	return string(text), err
})

// barriers returns what axe finds on the page.
func (p *tab) barriers() []string {
	p.t.Helper()
	source, err := axe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.do(chromedp.Evaluate[chromedp.Void]("{"+still+"}"), chromedp.Evaluate[chromedp.Void](source))
	return value[[]string](p, `axe.run().then(found => found.violations.flatMap(
		rule => rule.nodes.map(node => rule.id + ": " + node.html + " " + node.failureSummary)).concat(
		found.passes.length > 10 ? [] : ["axe has hardly looked"]))`)
}
