package ojs

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

func deliveryBodyOf(d control.Delivery) deliveryBody {
	var b deliveryBody
	if len(d.Attempts) > 0 {
		b = bodyOfLogged(d.Attempts[0])
	}
	if d.Letter != nil {
		dead := bodyOfLetter(*d.Letter)
		dead.LastAttemptAt, dead.ResponseTimeMS = b.LastAttemptAt, b.ResponseTimeMS
		b = dead
	}
	if d.Consumer != nil && !d.Consumer.Sent {
		b.NextAttemptAt = web.Time(d.Consumer.Deadline)
	}
	for _, a := range slices.Backward(d.Attempts) {
		b.History = append(b.History, attemptOf(a))
	}
	return b
}

// findDelivery returns the delivery that a request names, by the ID that the endpoint got (5.3).
func (f *Face) findDelivery(c echo.Context) (d control.Delivery, err error) {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	if err := web.OnlyParams(c, "subscription_id"); err != nil {
		return d, err
	}
	id, _ := target(web.RawPath(c.Request()), Deliveries)
	if !fsm.ValidDeliveryID(id) {
		return d, refusal.New(fsm.CodeNotFound, "there is no delivery with this id")
	}
	named := c.QueryParam("subscription_id")
	subs, err := f.deliverers(ctx, named)
	if err != nil {
		return d, err
	}
	d, whole, err := f.Control.FindDelivery(ctx, subs, id, maxLooks)
	switch {
	case err != nil || d.Known():
		return d, err
	case !whole:
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

// getDelivery answers GET …/deliveries/{id} (10).
func (f *Face) getDelivery(c echo.Context) error {
	d, err := f.findDelivery(c)
	return web.Answer(c, http.StatusOK, deliveryBodyOf(d), err)
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
	b := deliveryBodyOf(d)
	b.NextAttemptAt, b.History = nil, nil
	f.Control.Log.Info("a delivery is retried", zap.String("subscription", b.Subscription),
		zap.String("delivery", b.ID), zap.Bool("dead", d.Letter != nil))
	return web.Answer(c, http.StatusAccepted, b, nil)
}

func (f *Face) retryDelivery(ctx context.Context, d control.Delivery) error {
	refused := func(why string) error {
		return refusal.New(fsm.CodeRetryRefused, "the delivery cannot be retried: %s", why)
	}
	w := d.Consumer
	switch {
	case d.Letter != nil:
		return f.Control.ReplayLetter(ctx, *d.Letter)
	case w == nil && d.Taken():
		return refused("it was taken")
	case w == nil:
		return refused("it is over, and has left no dead letter, or none that is still kept")
	case w.Retired, d.Subscription.Retired:
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
	waited, err := f.Control.View.RetryDelivery(ctx, d.Subscription, ref)
	if waited {
		f.Control.Note(ctx, fsm.Change{
			What: "a delivery is retried", Subscription: d.Subscription.ID, About: d.Attempts[0].DeliveryID,
		})
	}
	return err
}

// away says whether a consumer is hidden. An aside is hidden while its owner is (spec.Env.Away).
func (f *Face) away(ctx context.Context, c fsm.Consumer) (bool, error) {
	if c.IsAside() {
		var err error
		c, err = f.Control.View.Consumer(ctx, fsm.ConsumerRef{ID: c.Owner, Home: c.Primary})
		if err != nil && !errors.Is(err, fsm.ErrNotFound) {
			return false, err
		}
	}
	return !c.HiddenAt.IsZero(), nil
}
