package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/test/ports"
)

// board is a NoticeStore, and a stream that takes notices or does not.
type board struct {
	troubles map[string]fsm.Trouble
	live     []string
	lost     map[string]time.Time
	// follows is true if another replica tells. err is what the stream server answers, unread what the store does.
	follows     bool
	err, unread error
	// took are the notices that were not read yet, ids those of all.
	took []told
	ids  map[string]int
}

type told struct {
	ID, Type, Subject string
	Time              time.Time
	Data              map[string]any
}

func (b *board) Leads(context.Context) (bool, error) { return !b.follows, nil }

func (b *board) Troubles(context.Context) (map[string]fsm.Trouble, error) {
	return maps.Clone(b.troubles), b.unread
}

func (b *board) NoteTroubles(_ context.Context, begun, noted map[string]fsm.Trouble, over []string) error {
	for _, key := range over {
		delete(b.troubles, key)
	}
	for key, trouble := range begun {
		if _, there := b.troubles[key]; !there {
			b.troubles[key] = trouble
		}
	}
	maps.Copy(b.troubles, noted)
	return nil
}

func (b *board) OtherReplicas() ([]string, map[string]time.Time) { return b.live, maps.Clone(b.lost) }

func (b *board) Create(context.Context, string, string) (fsm.Offset, bool, error) {
	return "0", true, nil
}

func (b *board) Append(_ context.Context, _, _ string, body []byte) (fsm.Offset, error) {
	var notices []told
	if err := json.Unmarshal(body, &notices); err != nil {
		return "", err
	}
	for _, n := range notices {
		b.ids[n.ID]++
	}
	if b.err != nil {
		return "", b.err
	}
	b.took = append(b.took, notices...)
	return "1", nil
}

// read returns the notices since the last call, each as its type and subject.
func (b *board) read() (list []string) {
	for _, n := range b.took {
		list = append(list, strings.TrimPrefix(n.Type, "reveille.")+" "+n.Subject)
	}
	b.took = nil
	slices.Sort(list)
	return list
}

const noticeAfter = time.Minute

func newNotices(t *testing.T) (*ports.Harness, *board, *control.Notices) {
	t.Helper()
	h := ports.New(t)
	h.Store.Own(0)
	b := &board{troubles: map[string]fsm.Trouble{}, lost: map[string]time.Time{}, ids: map[string]int{}}
	return h, b, &control.Notices{
		Control: &control.Service{
			View: control.NewView(h.Store, h.Rec), Upstream: h.Up, Tester: h.Tester, Consents: h.Consents,
			Outcomes: h.Outcomes, Clock: h.Clock, Log: h.Logger, Differences: fields.Differences,
		},
		Store: b, Server: b, Writes: h.Rec, Stream: "/events", Source: "https://reveille.example.com",
		Check: h.Rec.CheckTarget, After: noticeAfter, Letters: 10,
	}
}

// TestOperatorsAreToldOfWhatGoesWrong holds when there is a notice, and when there is none.
func TestOperatorsAreToldOfWhatGoesWrong(t *testing.T) {
	h, b, n := newNotices(t)
	ctx := t.Context()
	sub := h.Subscribe("s", 0)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fail := func() {
		_, err := h.Store.FailEndpoint(ctx, sub, fsm.EndpointFailure{Reason: "status 503"})
		must(err)
	}
	recover := func() {
		_, err := h.Store.RecoverEndpoint(ctx, sub)
		must(err)
	}
	change := func(f func(*fsm.Subscription)) {
		_, err := h.Store.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
			f(&s)
			return s, nil
		})
		must(err)
	}
	letters := func(count int) {
		for range count {
			h.Store.DB.PutLetter(fsm.DeadLetter{
				Subscription: "s", Generation: sub.Generation, Consumer: fsm.ConsumerID("s", "/a"), Stream: "/a",
			})
		}
	}
	drop := func(most int) {
		for p := range ports.Partitions {
			span := fsm.LetterSpan{Partition: p, Through: fsm.MaxLetterNumber}
			_, _, err := h.Store.DropDeadLetters(ctx, span, most)
			must(err)
		}
	}
	consent := func(state fsm.ConsentState) func() {
		return func() { h.Consents.Granted["s"] = fsm.Consent{State: state, Reason: "it says no"} }
	}
	alive := func(alive ...string) func() { return func() { b.live = alive } }
	for _, step := range []struct {
		name string
		do   func()
		pass time.Duration
		want []string
	}{
		{"all is well", func() {}, time.Hour, nil},
		{"an endpoint fails for a moment", fail, noticeAfter - time.Second, nil},
		{"and recovers", recover, time.Hour, nil},
		{"it fails", fail, noticeAfter, []string{"endpoint.failing s"}},
		{"it goes on", fail, time.Hour, nil},
		{"it is paused", func() { change(func(s *fsm.Subscription) { s.Paused = true }) }, time.Hour, nil},
		{"it recovers while paused", recover, time.Hour, nil},
		{
			"it is resumed", func() { change(func(s *fsm.Subscription) { s.Paused = false }) }, 0,
			[]string{"endpoint.recovered s"},
		},
		{"it fails while paused", func() {
			change(func(s *fsm.Subscription) { s.Paused = true })
			fail()
		}, time.Hour, nil},
		{
			"it still fails", func() { change(func(s *fsm.Subscription) { s.Paused = false }) }, noticeAfter,
			[]string{"endpoint.failing s"},
		},
		{"it is paused, as it has failed for too long", func() {
			change(func(s *fsm.Subscription) { s.Paused, s.Disabled = true, true })
		}, 0, []string{"subscription.paused s"}},
		{
			"it is resumed without success",
			func() { change(func(s *fsm.Subscription) { *s = s.Resumed() }) }, time.Hour, nil,
		},
		{
			"it answers 410", func() { change(func(s *fsm.Subscription) { s.Retired = true }) }, 0,
			[]string{"endpoint.gone s"},
		},
		{"it is resumed after the 410", func() {
			recover()
			change(func(s *fsm.Subscription) { s.Retired = false })
		}, time.Second, []string{"endpoint.recovered s"}},
		{
			"it answers 410 again", func() { change(func(s *fsm.Subscription) { s.Retired = true }) }, time.Second,
			[]string{"endpoint.gone s"},
		},
		{"it is resumed", func() { change(func(s *fsm.Subscription) { s.Retired = false }) }, time.Hour, nil},

		{"it refuses deliveries", consent(fsm.ConsentRefused), 0, []string{"consent.refused s"}},
		{"it is asked again", consent(fsm.ConsentPending), 0, nil},
		{"it still refuses", consent(fsm.ConsentRefused), 0, nil},
		{"it consents", consent(fsm.ConsentGranted), 0, []string{"consent.granted s"}},
		{"it cannot be understood", consent(fsm.ConsentUnsupported), time.Hour, nil},

		{"there are as many letters as may be", func() { letters(10) }, time.Minute, nil},
		{"there is one more", func() { letters(1) }, time.Minute, []string{"dead_letters.over dead_letters"}},
		{"there are fewer", func() { drop(2) }, time.Minute, nil},
		{"there are half as many", func() { drop(4) }, time.Minute, []string{"dead_letters.under dead_letters"}},

		{"a replica comes", alive("a", "b"), time.Hour, nil},
		{"it leaves", alive("a"), time.Hour, nil},
		{"it is lost", func() { b.lost["b"] = h.Clock() }, 0, []string{"replica.lost b"}},
		{"another replica looks, which does not know", func() { clear(b.lost) }, time.Hour, nil},
		{"it is back", alive("a", "b"), 0, []string{"replica.back b"}},
		{"it is lost for good", func() {
			alive("a")()
			b.lost["b"] = h.Clock()
		}, 0, []string{"replica.lost b"}},
		{"nobody remembers it", func() { clear(b.lost) }, 8 * 24 * time.Hour, nil},

		{"it fails, and is deleted", func() {
			fail()
			n.Look(ctx)
			h.Pass(noticeAfter)
			n.Look(ctx)
			must(h.Store.DeleteSubscription(ctx, "s"))
		}, 0, []string{"endpoint.failing s"}},
		{"nothing is left", func() {}, time.Hour, nil},
	} {
		step.do()
		must(h.Store.RefreshCatalog(ctx))
		n.Look(ctx)
		h.Pass(step.pass)
		n.Look(ctx)
		n.Look(ctx)
		if got := b.read(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	if len(b.troubles) > 0 {
		t.Errorf("still noted are %v", b.troubles)
	}
	for id, times := range b.ids {
		if times > 1 {
			t.Errorf("%s came %d times", id, times)
		}
	}
}

// TestANoticeSaysWhatToKnow holds what is in one, and that no part of the webhook's URL but its origin is.
func TestANoticeSaysWhatToKnow(t *testing.T) {
	h, b, n := newNotices(t)
	sub := h.Subscribe("s", 0)
	began := h.Clock().Format(time.RFC3339Nano)
	if _, err := h.Store.FailEndpoint(t.Context(), sub, fsm.EndpointFailure{Reason: "status 503"}); err != nil {
		t.Fatal(err)
	}
	n.Look(t.Context())
	h.Pass(noticeAfter)
	n.Look(t.Context())
	if len(b.took) != 1 {
		t.Fatalf("told is %+v", b.took)
	}
	got, _ := json.Marshal(b.took[0])
	want := `"Data":{"condition":"failing","endpoint":"` + sub.Origin() + `","reason":"status 503","since":"` + began +
		`","subscription_id":"s"}`
	if !strings.Contains(string(got), want) || !b.took[0].Time.Equal(h.Clock()) {
		t.Errorf("%s lacks %s", got, want)
	}
}

// TestANoticeThatIsNotTakenComesAgain holds that it does, under its ID, whichever replica tells it, and that only the
// replica of the first partition does.
func TestANoticeThatIsNotTakenComesAgain(t *testing.T) {
	h, b, n := newNotices(t)
	for i := range 120 {
		sub := h.Subscribe(fmt.Sprint("s", i), 0)
		if _, err := h.Store.FailEndpoint(t.Context(), sub, fsm.EndpointFailure{}); err != nil {
			t.Fatal(err)
		}
	}
	h.Pass(noticeAfter)
	b.err = errors.New("it is away")
	for range 3 {
		n.Look(t.Context())
		h.Pass(time.Hour)
	}
	if len(b.ids) != 50 {
		t.Errorf("%d notices came at a time, want 50", len(b.ids))
	}
	b.err = nil
	for _, not := range []func(bool){
		func(not bool) { h.Store.Own(map[bool]int{true: 1, false: 0}[not]) },
		func(not bool) { b.follows = not },
	} {
		not(true)
		if n.Look(t.Context()); len(b.took) > 0 {
			t.Error("a replica that does not lead tells")
		}
		not(false)
	}
	for range 4 {
		n.Look(t.Context())
	}
	if got := b.read(); len(got) != 120 || len(b.ids) != 120 {
		t.Errorf("%d were told under %d ids, want 120", len(got), len(b.ids))
	}
	if h.Logs.FilterMessageSnippet("takes no notices").Len() == 0 {
		t.Error("the log does not say so")
	}
}

// TestWhatCannotBeReadIsNotOver holds that a trouble which cannot be looked at goes on, that the others are told, and
// that the log says so.
func TestWhatCannotBeReadIsNotOver(t *testing.T) {
	h, b, n := newNotices(t)
	sub := h.Subscribe("s", 0)
	n.Letters = 1
	for range 2 {
		h.Store.DB.PutLetter(fsm.DeadLetter{Subscription: "s", Generation: sub.Generation, Stream: "/a"})
	}
	look := func(want ...string) {
		t.Helper()
		h.Pass(time.Minute)
		n.Look(t.Context())
		n.Look(t.Context())
		if got := b.read(); !slices.Equal(got, want) {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
	look("dead_letters.over dead_letters")
	h.Store.Fail(errors.New("the letters are broken"))
	b.lost["b"] = h.Clock()
	look("replica.lost b")
	b.unread = errors.New("the troubles are broken")
	look()
	if h.Logs.FilterMessageSnippet("could not be read").Len() == 0 {
		t.Error("the log does not say so")
	}
}

// TestOperatorsAreToldOfLostConsumers holds that consumers which were given up, or whose streams are gone, are told of
// together, the first at once, and the last at the stop.
func TestOperatorsAreToldOfLostConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, b, n := newNotices(t)
		h.Store.Own() // no need of it
		observe := n.Observer().Transition
		lose := func(sub string, cause fsm.RemovalCause, consumers int) {
			for i := range consumers {
				observe(fsm.Outcome{Removed: []fsm.Removal{{
					Subscription: sub, Primary: fmt.Sprint("/", i), Cause: cause,
				}}}, fsm.Sighting{})
			}
		}
		look := func(want ...string) {
			t.Helper()
			n.Look(t.Context())
			for i, took := range b.took {
				b.took[i].Subject = fmt.Sprint(took.Subject, " ", took.Data["stream"], " ", took.Data["consumers"])
			}
			if got := b.read(); !slices.Equal(got, want) {
				t.Errorf("told is %q, want %q", got, want)
			}
		}
		lose("s", fsm.RemovedStreamDeleted, 3)
		lose("s", fsm.RemovedSubscriptionDeleted, 3)
		lose("s", fsm.RemovedUnsubscribed, 3)
		look()
		lose("s", fsm.RemovedGivenUp, 3)
		lose("s", fsm.RemovedStreamGone, 1)
		lose("other", fsm.RemovedStreamGone, 1)
		look("consumers.given_up s /0 3", "stream.gone other /0 1", "stream.gone s /0 1")
		lose("s", fsm.RemovedGivenUp, 2)
		b.err = errors.New("it is away")
		look()
		h.Pass(noticeAfter)
		look()
		b.err = nil
		lose("s", fsm.RemovedGivenUp, 3)
		look("consumers.given_up s /0 2") // as it may have come before
		h.Pass(noticeAfter)
		look("consumers.given_up s /0 3")
		for i := range 1200 {
			lose(fmt.Sprint("x", i), fsm.RemovedGivenUp, 1)
		}
		n.Look(t.Context())
		lost := 0.
		for _, took := range b.took {
			consumers, _ := took.Data["consumers"].(float64)
			lost += consumers
		}
		if lost != 1200 || len(b.took) > 1000 {
			t.Errorf("%v are told by %d notices", lost, len(b.took))
		}
		b.took = nil
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		lose("s", fsm.RemovedGivenUp, 1)
		stop()
		if err := <-done; err != nil || !slices.Equal(b.read(), []string{"consumers.given_up s"}) {
			t.Error("the last one is not told", err)
		}
	})
}

// TestTheWebhookForNoticesHasASubscription holds that there is one for the stream. Another webhook gets it, with its
// secret, and with what the former webhook has not taken. That ends neither a pause nor what an answer 410 has stopped.
func TestTheWebhookForNoticesHasASubscription(t *testing.T) {
	h, _, n := newNotices(t)
	mine := h.Subscribe("notices", 0)
	const one, two = "https://one.example.com/", "https://two.example.com/"
	var was fsm.Subscription
	for _, c := range []struct {
		webhook, stream string
		same            bool
	}{
		{"", "/events", false},
		{one + h.Secret("T0-B1"), "/events", false},
		{two, "/events", true},
		{two, "/others", false},
		{"", "/others", false},
		{two, "/others", false},
		{"", "", false},
	} {
		n.Webhook, n.Stream = c.webhook, c.stream
		n.Look(t.Context())
		n.Look(t.Context())
		if err := h.Store.RefreshCatalog(t.Context()); err != nil {
			t.Fatal(err)
		}
		own := slices.DeleteFunc(slices.Clone(h.Store.Catalog().All()), func(sub fsm.Subscription) bool {
			return sub.ID == mine.ID
		})
		if len(own) != min(len(c.webhook), 1) {
			t.Fatalf("%q has %+v", c.webhook, own)
		}
		if len(own) == 0 {
			was = fsm.Subscription{}
			continue
		}
		sub := own[0]
		if !fsm.IsNoticeSubscription(sub.ID) || sub.Mode != fsm.ModePush || sub.Webhook != c.webhook ||
			sub.Pattern != c.stream || !slices.Equal(sub.Filter.Events, []string{"reveille.*"}) ||
			sub.Paused != c.same || sub.Retired != c.same ||
			(sub.Generation == was.Generation && sub.Secret == was.Secret) != c.same {
			t.Errorf("%q has %+v, and it was %+v", c.webhook, sub, was)
		}
		stop := func(sub fsm.Subscription) (fsm.Subscription, error) {
			sub.Paused, sub.Retired = true, true
			return sub, nil
		}
		var err error
		if was, err = h.Store.ChangeSubscription(t.Context(), sub.ID, stop); err != nil {
			t.Fatal(err)
		}
	}
	if logged := h.Logs.FilterMessageSnippet("still stopped").Len(); logged != 1 {
		t.Errorf("the log says %d times that the other webhook gets nothing yet", logged)
	}
	n.Webhook, n.Stream, h.Rec.Refuse = one, "/events", errors.New("webhook: a private address")
	n.Look(t.Context())
	if all := h.Store.Catalog().All(); len(all) > 1 || h.Logs.FilterMessageSnippet("could not be made").Len() != 1 {
		t.Errorf("%+v, and the log says %v", all, h.Logs.All())
	}
}

// TestNoNoticeIsAppendedBeforeTheWebhookHasASubscription holds that its webhook would miss it.
func TestNoNoticeIsAppendedBeforeTheWebhookHasASubscription(t *testing.T) {
	h, b, n := newNotices(t)
	n.Webhook, b.lost["b"] = "https://one.example.com/", h.Clock()
	h.Store.Fail(fsm.ErrUnavailable)
	for range 3 {
		n.Look(t.Context())
	}
	if got := b.read(); len(got) > 0 {
		t.Errorf("told is %q", got)
	}
	h.Store.Fail(nil)
	n.Look(t.Context())
	n.Look(t.Context())
	if got := b.read(); !slices.Equal(got, []string{"replica.lost b"}) {
		t.Errorf("told is %q", got)
	}
}
