package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	// maxForm bounds the body of a form, in bytes.
	maxForm     = 64 << 10
	lettersPage = "/dead-letters"
)

// shared are the fields that a list's filters and the forms of its page share.
var shared = []string{"subscription", "stream", "since", "until"}

// action is something that a button does.
type action struct {
	// route is where the form goes, and back where its page is; both may have an :id.
	route, back string
	title       string
	// asks is the question that a click must confirm, for what cannot be undone; empty for what can. It is followed by
	// what it is about.
	asks string
	// means writes into a form what the question is about, for what comes after the question is not meant by it. It is
	// nil where nothing does.
	means func(ctx context.Context, id string, form url.Values) error
	do    func(ctx context.Context, id string, form url.Values) (said, error)
}

// said says what an action has done.
type said struct {
	Text string
	// Rows are names and values, and Answer is what an endpoint answered.
	Rows   [][2]string
	Answer string
	// Next is where the same goes on, if there was no time for all.
	Next string
}

// doneBody is the page after an action, or before one that must be confirmed.
type doneBody struct {
	said
	// Asks is the question that must be confirmed, About what it is about, and Form what is then sent again.
	Asks, About string
	Form        url.Values
}

func (f *Face) actions() []action {
	const one, letter = "/subscriptions/:id", "/dead-letters/:id"
	c := f.Operator.Control
	onConsumers := func(says string, do func(context.Context, string) (int, error)) func(
		context.Context, string, url.Values) (said, error) {
		return func(ctx context.Context, id string, _ url.Values) (said, error) {
			n, err := do(ctx, id)
			return said{Text: fmt.Sprintf(says, id, counted(n, "consumer"))}, err
		}
	}
	return []action{
		{
			route: one + "/retry", back: one, title: "Retry now",
			do: onConsumers("%s is retried, with %s that waited for a later attempt.", c.Retry),
		},
		{
			route: one + "/pause", back: one, title: "Pause",
			do: onConsumers("%s is paused, with %s. Nothing is lost: resume it to deliver what comes "+
				"meanwhile.", c.Pause),
		},
		{
			route: one + "/resume", back: one, title: "Resume",
			do: onConsumers("%s is resumed, with %s that waited for that.", c.Resume),
		},
		{route: one + "/test", back: one, title: "Test", do: f.test},
		{route: one + "/consent", back: one, title: "Ask for consent", do: f.askConsent},
		{
			route: one + "/rotate-secret", back: one, title: "Rotate the secret",
			asks: "Deliveries are then signed with a new secret, which is shown once. The one that receivers have " +
				"also signs, for a day.",
			means: f.presentSecret, do: f.rotate,
		},
		{route: one + "/replay", back: one, title: "Replay a span", do: f.replaySpan},
		{
			route: one + "/rewind", back: one, title: "Rewind",
			asks: "The consumer reads the stream again from the offset, and whoever works for it is fenced off. It " +
				"cannot be led forward again.",
			do: f.rewind,
		},
		{
			route: letter + "/replay", back: lettersPage, title: "Replay",
			do: f.onLetter("The events of the dead letter %s are delivered again.", c.ReplayLetter),
		},
		{
			route: letter + "/discard", back: lettersPage, title: "Discard",
			asks: "The dead letter cannot be replayed any more. Nothing is removed from its stream.",
			do:   f.onLetter("The dead letter %s is discarded.", c.DiscardLetter),
		},
		{
			route: "/dead-letters/replay", back: lettersPage, title: "Replay all that match",
			do: f.onLetters(func(ctx context.Context, which control.Letters) (string, string, error) {
				work, next, err := c.ReplayLetters(ctx, which)
				says := are(work.Done, "dead letter") + " replayed."
				if work.Refused > 0 {
					says += fmt.Sprintf(" %d cannot be replayed: their streams or consumers are gone.", work.Refused)
				}
				return says, next, err
			}),
		},
		{
			route: "/dead-letters/discard", back: lettersPage, title: "Discard all that match",
			asks:  "These dead letters cannot be replayed any more. Nothing is removed from their streams.",
			means: f.lettersUntilNow,
			do: f.onLetters(func(ctx context.Context, which control.Letters) (string, string, error) {
				n, next, err := c.DiscardLetters(ctx, which)
				return are(n, "dead letter") + " discarded.", next, err
			}),
		},
		{
			route: "/replays/cancel", back: "/replays", title: "Cancel the replays",
			asks: "These replays end. Dead letters stay, but spans of streams must be asked for again.",
			do: f.onLetters(func(ctx context.Context, which control.Letters) (string, string, error) {
				ctx, cancel := context.WithTimeout(ctx, paging.Timeout)
				defer cancel()
				n, err := c.CancelReplays(ctx, which)
				return are(n, "replay") + " cancelled.", "", err
			}),
		},
	}
}

func (f *Face) test(ctx context.Context, id string, _ url.Values) (s said, err error) {
	t, err := f.Operator.Control.Test(ctx, id)
	if s.Text = "The endpoint took the test."; t.Failure != "" {
		s.Text = "The test failed: " + t.Failure
	}
	s.Rows = [][2]string{{"Took", millis(float64(t.Took.Microseconds()) / 1000)}}
	if t.Status > 0 {
		s.Rows = append(s.Rows, [2]string{"Status", fmt.Sprint(t.Status)})
	}
	s.Answer = string(t.Body)
	return s, err
}

func (f *Face) askConsent(ctx context.Context, id string, _ url.Values) (said, error) {
	consent, err := f.Operator.Control.AskConsent(ctx, id)
	s := said{Text: "The endpoint was asked: " + words(consent.State) + "."}
	if consent.Reason != "" {
		s.Rows = [][2]string{{"Reason", consent.Reason}}
	}
	return s, err
}

// rotate rotates the secret that the form was made for. Nobody knows the secret in between if a form is sent twice: it
// would end the signatures of the one that receivers have.
func (f *Face) rotate(ctx context.Context, id string, form url.Values) (s said, err error) {
	now, err := f.Operator.Control.Subscription(ctx, id)
	if err != nil {
		return s, err
	}
	if form.Get("secret") != secretMark(now) {
		return s, refusal.New(fsm.CodeSubscriptionConflict, "the secret has been changed since this page was made")
	}
	sub, err := f.Operator.Control.Rotate(ctx, id, fsm.Rotation{
		Random: control.Random(32), Overlap: fsm.RotationOverlap, KeepPrevious: true,
	})
	return said{
		Text: "This is the new secret. It is not shown again.",
		Rows: [][2]string{{"Secret", sub.Secret}, {"The previous one signs until", stamp(sub.Previous.Until)}},
	}, err
}

// secretMark tells a secret from others, and does not tell the secret.
func secretMark(sub fsm.Subscription) string {
	sum := sha256.Sum256([]byte("page " + sub.Generation + " " + sub.Secret))
	return hex.EncodeToString(sum[:8])
}

func (f *Face) replaySpan(ctx context.Context, id string, form url.Values) (s said, err error) {
	ctx, cancel := context.WithTimeout(ctx, paging.Timeout)
	defer cancel()
	r, err := f.Operator.ReplaySpan(ctx, id, form.Get)
	return said{
		Text: "The events are delivered again, beside what is new.",
		Rows: [][2]string{{"Replay", r.ID}, {"Stream", r.Stream}, {"From", r.From.Value()}, {"To", r.To.Value()}},
	}, err
}

func (f *Face) rewind(ctx context.Context, id string, form url.Values) (s said, err error) {
	ctx, cancel := context.WithTimeout(ctx, paging.Timeout)
	defer cancel()
	r, err := f.Operator.Rewind(ctx, id, form.Get)
	return said{
		Text: "The consumer has gone back. It gets another wake, once nothing holds its deliveries.",
		Rows: [][2]string{
			{"Consumer", r.Consumer}, {"Stream", r.Stream}, {"From", r.From.Value()}, {"To", r.To.Value()},
		},
	}, err
}

// onLetter does something with one dead letter.
func (f *Face) onLetter(
	says string, do func(context.Context, fsm.DeadLetter) error,
) func(context.Context, string, url.Values) (said, error) {
	return func(ctx context.Context, id string, _ url.Values) (said, error) {
		l, err := f.Operator.Control.Letter(ctx, id)
		if err == nil {
			err = do(ctx, l)
		}
		return said{Text: fmt.Sprintf(says, id)}, err
	}
}

// onLetters does something with the dead letters of a subscription, or with their replays, by the filters of the form.
func (f *Face) onLetters(
	do func(context.Context, control.Letters) (says, next string, err error),
) func(context.Context, string, url.Values) (said, error) {
	return func(ctx context.Context, _ string, form url.Values) (s said, err error) {
		which, err := f.Operator.LettersToChange(form.Get)
		if err != nil {
			return s, err
		}
		s.Text, s.Next, err = do(ctx, which)
		return s, err
	}
}

// doneTemplate shows what an action has done, or what must be confirmed before.
var doneTemplate = parsed("done.html")

// guarded keeps pages of others from sending forms in the name of who looks at them. A browser says where a form comes
// from, or sends the token that the page has back.
var guarded = middleware.CSRFWithConfig(middleware.CSRFConfig{
	TokenLookup: "form:csrf", CookieName: "reveille_csrf", CookiePath: "/", CookieHTTPOnly: true,
	CookieSameSite:        http.SameSiteStrictMode,
	ErrorHandler:          func(error, echo.Context) error { return errForeign },
	AllowSecFetchSiteFunc: func(echo.Context) (bool, error) { return false, errForeign },
})

var errForeign = refusal.New(fsm.CodeForbidden,
	"this form does not come from a page of this program, or is a day old: load the page again")

// resource is what answers the form of an action.
func (f *Face) resource(a action, menu []entry) web.Resource {
	return web.Resource{Route: a.route, Role: web.RoleOperate, Methods: web.Post(func(c echo.Context) error {
		r := c.Request()
		f.Operator.Bodies.Limit(c)
		r.Body = http.MaxBytesReader(c.Response(), r.Body, maxForm)
		var body doneBody
		p := f.page(c, view{menu: a.title, still: true}, menu)
		err := f.onlyHere(r)
		if err == nil {
			err = guarded(func(c echo.Context) (err error) {
				body, err = f.act(c, a)
				return err
			})(c)
		}
		p.Body, p.CSRF, p.Back = body, tokenOf(c), backTo(c, a)
		return f.write(c, p, doneTemplate, err)
	})}
}

// backTo is the page that a form was sent from, with the filters that it has.
func backTo(c echo.Context, a action) string {
	query := url.Values{}
	for _, key := range shared {
		if value := c.FormValue(key); value != "" && a.back == replaced(a.back, "") {
			query.Set(key, value)
		}
	}
	if len(query) == 0 {
		return replaced(a.back, c.Param("id"))
	}
	return a.back + "?" + query.Encode()
}

// act does what a form asks for, unless it must be confirmed before.
func (f *Face) act(c echo.Context, a action) (body doneBody, err error) {
	ctx := c.Request().Context() // without a bound: an endpoint, or many consumers, may take long
	form, err := c.FormParams()
	if err != nil {
		return body, refusal.New(fsm.CodeInvalidRequest, "the form cannot be read: %v", err)
	}
	id := c.Param("id")
	form.Del("csrf")
	body.Form = form
	if a.asks != "" && form.Get("confirmed") == "" {
		return f.ask(ctx, a, id, body)
	}
	body.said, err = a.do(ctx, id, form)
	// An endpoint may take longer than an answer of the port may, as in Bodies.Limit.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(f.Operator.WriteTimeout))
	return body, err
}

// ask returns the question that must be confirmed.
func (f *Face) ask(ctx context.Context, a action, id string, body doneBody) (doneBody, error) {
	body.Asks, body.About = a.asks, id
	if a.means != nil {
		if err := a.means(ctx, id, body.Form); err != nil {
			return body, err
		}
	}
	for _, key := range append(slices.Clip(shared), "consumer_of", "to") {
		if value := body.Form.Get(key); value != "" {
			body.Rows = append(body.Rows, [2]string{words(key), value})
		}
	}
	return body, nil
}

// lettersUntilNow leaves out of a form the dead letters that come after the question.
func (f *Face) lettersUntilNow(_ context.Context, _ string, form url.Values) error {
	now := f.Operator.Control.Clock().UTC()
	until, err := paging.Time("until", form.Get("until"))
	if err == nil && (until.IsZero() || until.After(now)) {
		form.Set("until", now.Format(time.RFC3339Nano))
	}
	return err
}

// presentSecret notes in a form which secret it replaces.
func (f *Face) presentSecret(ctx context.Context, id string, form url.Values) error {
	sub, err := f.Operator.Control.Subscription(ctx, id)
	form.Set("secret", secretMark(sub))
	return err
}

func tokenOf(c echo.Context) string {
	token, _ := c.Get(middleware.DefaultCSRFConfig.ContextKey).(string)
	return token
}

func parsed(name string) *template.Template {
	return template.Must(template.New("").Funcs(texts).ParseFS(sources,
		"templates/layout.html", "templates/parts.html", "templates/"+name))
}
