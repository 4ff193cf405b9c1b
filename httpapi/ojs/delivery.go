package ojs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// letterSlack is how much older a dead letter may seem than the attempt that has left it. The clocks of the replicas
// and of the store may differ.
const letterSlack = 5 * time.Minute

// delivery is what is known of a delivery.
type delivery struct {
	sub fsm.Subscription
	// attempts are the attempts that the log has, the latest first.
	attempts []fsm.LoggedAttempt
	// consumer, unless it is nil, works on the delivery. If the delivery is dead, letter is what it has left.
	consumer *fsm.Consumer
	letter   *fsm.DeadLetter
}

func (d delivery) body() deliveryBody {
	var b deliveryBody
	if len(d.attempts) > 0 {
		b = bodyOfLogged(d.sub, d.attempts[0])
	}
	if d.letter != nil {
		dead := bodyOfLetter(*d.letter)
		dead.LastAttemptAt, dead.ResponseTimeMS = b.LastAttemptAt, b.ResponseTimeMS
		b = dead
	}
	if d.consumer != nil && !d.consumer.Sent {
		b.NextAttemptAt = web.Time(d.consumer.Deadline)
	}
	for _, a := range slices.Backward(d.attempts) {
		b.History = append(b.History, attemptOf(a))
	}
	return b
}

// findDelivery returns the delivery that a request names, by the ID that the endpoint got (5.3).
func (f *Face) findDelivery(c echo.Context) (d delivery, err error) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	query := c.QueryParams()
	for name := range query {
		if name != "subscription_id" {
			return d, refusal.New(fsm.CodeInvalidRequest, "%q is not a parameter of this request", name)
		}
	}
	id, _ := target(web.RawPath(c.Request()), Deliveries)
	if !fsm.ValidDeliveryID(id) {
		return d, refusal.New(fsm.CodeNotFound, "there is no delivery with this id")
	}
	named := query.Get("subscription_id")
	subs, err := f.deliverers(ctx, named)
	if err != nil {
		return d, err
	}
	whole := true
	for i := 0; i < len(subs) && len(d.attempts) == 0; i++ {
		d.sub = subs[i]
		left := maxLooks / len(subs)
		err := f.Control.ListAttempts(ctx, d.sub, "", left, func(a fsm.LoggedAttempt) bool {
			if a.DeliveryID == id {
				d.attempts = append(d.attempts, a)
			}
			left--
			return true
		})
		if err != nil {
			return d, err
		}
		whole = whole && left > 0
	}
	if len(d.attempts) > 0 {
		return d, f.whereItStands(ctx, &d)
	}
	all, err := f.findLetter(ctx, f.Control.LettersOf(named), id, &d)
	switch {
	case err != nil || d.letter != nil:
		return d, err
	case !all || !whole:
		return d, refusal.New(fsm.CodeNotFound,
			"no delivery with this id is among those that one request can look at; "+
				"?subscription_id=sub_… has it look at those of one subscription only")
	case !f.DeliveryLog.Takes(fsm.AttemptFailed):
		return d, refusal.New(fsm.CodeNotFound,
			"no delivery with this id is dead, and REVEILLE_DELIVERY_LOG is off: no "+
				"others are known")
	}
	return d, refusal.New(fsm.CodeNotFound, "there is no delivery with this id (any more)")
}

// whereItStands finds the consumer that works on a delivery with attempts in the log, or the delivery's dead letter. A
// delivery that was taken has neither.
func (f *Face) whereItStands(ctx context.Context, d *delivery) error {
	latest := d.attempts[0]
	if outcomeOf(latest.Result) == success {
		return nil
	}
	// The delivery has stepped aside since, or its consumer waits with it.
	for _, id := range []string{fsm.AsideID(latest.Consumer, latest.Epoch), latest.Consumer} {
		c, err := f.Control.View.Consumer(ctx, fsm.ConsumerRef{ID: id, Home: latest.Stream})
		if err != nil && !errors.Is(err, fsm.ErrNotFound) {
			return err
		}
		same := c.Generation == d.sub.Generation && (id != latest.Consumer || c.WakeID == latest.WakeID)
		if err == nil && same && c.State == fsm.Waking {
			d.consumer = &c
			return nil
		}
	}
	which := f.Control.InPartitionOf(f.Control.LettersOf(d.sub.ID), latest.Stream)
	if i := slices.IndexFunc(d.attempts, func(a fsm.LoggedAttempt) bool {
		return outcomeOf(a.Result) == dead
	}); i >= 0 {
		which.From = d.attempts[i].At.Add(d.attempts[i].Took - letterSlack).UnixMicro()
	}
	_, err := f.findLetter(ctx, which, latest.DeliveryID, d)
	return err
}

// findLetter finds the dead letter of a delivery, among as many letters as one request may look at. The result all says
// whether it looked at all letters.
func (f *Face) findLetter(
	ctx context.Context, which control.Letters, id string, d *delivery,
) (all bool, err error) {
	next, err := f.Control.ListLetters(ctx, which, paging.Place{Partition: which.First}, func(l fsm.DeadLetter) bool {
		if l.DeliveryID == id && f.leftByOurs(ctx, l) {
			d.letter = &l
		}
		return d.letter == nil
	})
	return next == "", err
}

// getDelivery answers GET …/deliveries/{id} (10).
func (f *Face) getDelivery(c echo.Context) error {
	d, err := f.findDelivery(c)
	return web.Answer(c, http.StatusOK, d.body(), err)
}

// retry answers POST …/deliveries/{id}/retry (10). A dead delivery is replayed, and a delivery that waits for its
// next attempt is tried now.
func (f *Face) retry(c echo.Context) error {
	if err := f.Bodies.Nothing(c); err != nil {
		return err
	}
	d, err := f.findDelivery(c)
	if err != nil {
		return err
	}
	if err := f.retryDelivery(c.Request().Context(), d); err != nil {
		return err
	}
	b := d.body()
	b.NextAttemptAt, b.History = nil, nil
	f.Control.Log.Info("a delivery is retried", zap.String("subscription", b.Subscription),
		zap.String("delivery", b.ID), zap.Bool("dead", d.letter != nil))
	return web.Answer(c, http.StatusAccepted, b, nil)
}

func (f *Face) retryDelivery(ctx context.Context, d delivery) error {
	refused := func(why string) error {
		return refusal.New(fsm.CodeRetryRefused, "the delivery cannot be retried: %s", why)
	}
	w := d.consumer
	switch {
	case d.letter != nil:
		return f.Control.ReplayLetter(ctx, *d.letter)
	case w == nil && outcomeOf(d.attempts[0].Result) == success:
		return refused("it was taken")
	case w == nil:
		return refused("it is over, and has left no dead letter, or none that is still kept")
	case w.Retired, d.sub.Retired:
		return refused("its endpoint has answered 410; a PATCH with \"active\":true delivers to it again")
	case f.Control.Paused(ctx, *w):
		return refused("its subscription is not active")
	case w.Sent: // it is being tried
		return nil
	}
	switch away, err := f.away(ctx, *w); {
	case err != nil:
		return err
	case away:
		return refused("the stream server does not have its stream now")
	}
	// If the delivery does not wait any more, an attempt was made since.
	ref := fsm.DeliveryRef{Consumer: w.Ref(), Epoch: w.Epoch, WakeID: w.WakeID}
	_, err := f.Control.View.RetryDelivery(ctx, d.sub, ref)
	return err
}

// away says whether a consumer is hidden. An aside is hidden while its consumer is (spec.Env.Away).
func (f *Face) away(ctx context.Context, c fsm.Consumer) (bool, error) {
	if of, aside := fsm.AsideOf(c.ID); aside {
		var err error
		c, err = f.Control.View.Consumer(ctx, fsm.ConsumerRef{ID: of, Home: c.Primary})
		if err != nil && !errors.Is(err, fsm.ErrNotFound) {
			return false, err
		}
	}
	return !c.HiddenAt.IsZero(), nil
}
