package control

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
)

// The types of notices.
const (
	noticeFailing   = "reveille.endpoint.failing"
	noticeRecovered = "reveille.endpoint.recovered"
	noticeGone      = "reveille.endpoint.gone"
	noticePaused    = "reveille.subscription.paused"
	noticeRefused   = "reveille.consent.refused"
	noticeGranted   = "reveille.consent.granted"
	noticeLetters   = "reveille.dead_letters.over"
	noticeFewer     = "reveille.dead_letters.under"
	noticeLost      = "reveille.replica.lost"
	noticeBack      = "reveille.replica.back"
	noticeGivenUp   = "reveille.consumers.given_up"
	noticeNoStream  = "reveille.stream.gone"
)

// forgetReplica is how long a lost replica is noted that does not come back: it mostly has another name then.
const forgetReplica = 7 * 24 * time.Hour

// lettersEvery is the time between two counts of the dead letters.
const lettersEvery = 30 * time.Second

// findings are the troubles that there are now, by key, and those of which it is known that they are over.
type findings struct{ wrong, well map[string]trouble }

// trouble is something that is wrong, or that is well again.
type trouble struct {
	kind, subject string
	// since is when it began; zero if that is not known.
	since time.Time
	// after is how long it lasts before operators are told.
	after time.Duration
	data  noticeData
	// unclear is true if it cannot be known whether it goes on.
	unclear bool
	// first is true if it is told before the troubles of subscriptions.
	first bool
}

// inOrder returns the keys of what is wrong, in the order in which they are told.
func (f findings) inOrder() []string {
	return slices.SortedFunc(maps.Keys(f.wrong), func(a, b string) int {
		if f.wrong[a].first != f.wrong[b].first {
			return map[bool]int{true: -1, false: 1}[f.wrong[a].first]
		}
		return strings.Compare(a, b)
	})
}

// keyOf names a trouble of a kind. The part behind the subject tells it from others of the same subject.
func keyOf(kind, subject, which string) string {
	return strings.Join([]string{kind, subject, which}, " ")
}

// find looks for what is wrong now.
func (n *Notices) find(ctx context.Context, noted map[string]fsm.Trouble) findings {
	f := findings{map[string]trouble{}, map[string]trouble{}}
	subs, _ := n.Control.View.Subscriptions(ctx)
	for _, sub := range subs {
		n.ofEndpoint(f, sub, noted)
		n.ofConsent(f, sub, noted)
	}
	n.ofLetters(ctx, f, noted)
	n.ofReplicas(f, noted)
	return f
}

// ofEndpoint says whether an endpoint fails, and whether its subscription is stopped for that or for an answer 410.
// While it is stopped, its endpoint cannot show that it is well.
func (n *Notices) ofEndpoint(f findings, sub fsm.Subscription, noted map[string]fsm.Trouble) {
	t := trouble{subject: sub.ID, data: noticeData{Subscription: sub.ID, Endpoint: sub.Origin()}}
	if sub.Retired {
		gone := t
		gone.kind, gone.data.Condition = noticeGone, fsm.ConditionRetired
		f.wrong[keyOf(noticeGone, sub.ID, sub.Generation)] = gone
	}
	if sub.Disabled {
		paused := t
		paused.kind, paused.since = noticePaused, sub.PausedAt
		f.wrong[keyOf(noticePaused, sub.ID, sub.Generation)] = paused
	}
	key, e := keyOf(noticeFailing, sub.ID, sub.Generation), n.Control.View.Endpoints().Of(sub)
	_, was := noted[key]
	switch t.kind = noticeFailing; {
	case sub.Stopped() && was:
		t.unclear = true
		f.wrong[key] = t
	case sub.Stopped():
	case !e.Since.IsZero():
		if t.since = e.Since; sub.OpenedAt.After(t.since) {
			t.since = sub.OpenedAt
		}
		t.after, t.data.Condition, t.data.Reason = n.After, e.Condition(), e.Reason
		f.wrong[key] = t
	case was:
		t.kind = noticeRecovered
		f.well[key] = t
	}
}

// ofConsent says whether an endpoint that is asked for its consent refuses it.
func (n *Notices) ofConsent(f findings, sub fsm.Subscription, noted map[string]fsm.Trouble) {
	c, asked := n.Control.Consent(sub)
	if !asked {
		return
	}
	key := keyOf(noticeRefused, sub.ID, sub.Generation)
	t := trouble{
		kind: noticeRefused, subject: sub.ID,
		data: noticeData{Subscription: sub.ID, Endpoint: sub.Origin(), Reason: c.Reason},
	}
	_, was := noted[key]
	switch {
	case c.State == fsm.ConsentGranted:
		t.kind = noticeGranted
		f.well[key] = t
	case c.State == fsm.ConsentRefused:
		f.wrong[key] = t
	case was:
		t.unclear = true
		f.wrong[key] = t
	}
}

// ofLetters says whether there are too many dead letters, until there are half as many.
func (n *Notices) ofLetters(ctx context.Context, f findings, noted map[string]fsm.Trouble) {
	if n.Letters == 0 {
		return
	}
	t, key := trouble{kind: noticeLetters, subject: "dead_letters", first: true}, keyOf(noticeLetters, "", "")
	if err := n.countLetters(ctx); err != nil {
		n.noteUnseen(err)
		t.unclear = true
		f.wrong[key] = t
		return
	}
	letters := n.letters
	t.data = noticeData{Letters: &letters, Limit: n.Letters}
	if letters > n.Letters || noted[key].Told && letters > n.Letters/2 {
		f.wrong[key] = t
		return
	}
	t.kind = noticeFewer
	f.well[key] = t
}

// countLetters counts the dead letters, unless they were counted a short while ago.
func (n *Notices) countLetters(ctx context.Context) error {
	now := n.Control.Clock()
	if now.Sub(n.countedAt) < lettersEvery {
		return nil
	}
	counts, err := n.Control.View.store.LettersOf(ctx, nil)
	if err != nil {
		return err
	}
	n.letters, n.countedAt = 0, now
	for _, c := range counts {
		n.letters += c.All
	}
	return nil
}

// ofReplicas says which replicas are lost. Those that are noted stay so for a time, although no replica may remember
// them any more.
func (n *Notices) ofReplicas(f findings, noted map[string]fsm.Trouble) {
	live, lost := n.Store.OtherReplicas()
	for key, t := range noted {
		id, is := strings.CutPrefix(key, noticeLost+" ")
		if is && n.Control.Clock().Sub(t.Since) < forgetReplica {
			lost[strings.TrimSpace(id)] = t.Since
		}
	}
	for id, since := range lost {
		t, key := trouble{
			kind: noticeLost, subject: id, since: since, data: noticeData{Replica: id}, first: true,
		}, keyOf(noticeLost, id, "")
		if slices.Contains(live, id) {
			t.kind = noticeBack
			f.well[key] = t
		} else {
			f.wrong[key] = t
		}
	}
}
