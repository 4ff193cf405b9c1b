package dispatcher

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// consentStep is the least time before a delivery that waits for a consent is looked at again. On average, half of it
// comes on top. The consent releases the deliveries, so nothing waits for this unless the settings have changed.
const consentStep = 5 * time.Minute

// ConsentOf returns what the endpoint of a subscription has said about deliveries to its present webhook.
func (d *Dispatcher) ConsentOf(sub fsm.Subscription) fsm.Consent {
	return sub.Consent.About(sub.Webhook, d.cfg.Origin)
}

func (d *Dispatcher) granted(sub fsm.Subscription) bool {
	return d.cfg.Consent != fsm.ConsentOff && d.ConsentOf(sub).State == fsm.ConsentGranted
}

// mayDeliver says whether deliveries to the webhook of a subscription need no further consent.
func (d *Dispatcher) mayDeliver(sub fsm.Subscription) bool {
	return d.cfg.Consent != fsm.ConsentRequire || d.granted(sub)
}

// allowConsent holds a delivery back without a consent to it, if it needs one. That is no attempt. Test deliveries need
// it, too. Preparing may have taken a while, so the present consent counts, if it is about the webhook of the attempt.
func (d *Dispatcher) allowConsent(_ context.Context, a *attempt) bool {
	if d.cfg.Consent == fsm.ConsentOff {
		return true
	}
	now, ok := d.cfg.Store.Catalog().Get(a.sub.ID)
	if ok && now.Generation == a.sub.Generation {
		a.sub.Consent, a.sub.Revision = now.Consent, now.Revision
	}
	switch {
	case d.mayDeliver(a.sub):
		return true
	case a.test:
		return a.ends(format.Verdict{Reason: fsm.BlockedConsent.Rule().Says})
	}
	return a.blocked(fsm.BlockedConsent, consentStep+mrand.N(consentStep))
}

// consented says whether a delivery may be made by now, after the store was told to hold it back. A consent is stored
// before the deliveries are released. So either that release includes this one, or consented sees the consent.
func (d *Dispatcher) consented(ctx context.Context, w fsm.Delivery) (bool, error) {
	if err := d.cfg.Store.RefreshCatalog(ctx); err != nil {
		return false, err
	}
	sub, ok := subscriptionOf(d.cfg.Store.Catalog(), w)
	return ok && d.mayDeliver(sub), nil
}

// endpointLimits returns the limits that come from an endpoint and its consent. An endpoint gets one low rate for all
// that it has not agreed to. With a MaxRate, that is a tenth of it, but at least one request a minute. The rest is for
// what it has agreed to: so no delivery needs turns of both. A rate that it allows is for one URL: otherwise one path
// of a host could slow down others.
func (d *Dispatcher) endpointLimits(sub fsm.Subscription, origin string) (limits []fsm.Limit) {
	whole, low, c := d.cfg.MaxRate, 0, d.ConsentOf(sub)
	granted := d.cfg.Consent != fsm.ConsentOff && c.State == fsm.ConsentGranted
	if d.cfg.Consent == fsm.ConsentAsk && whole != 1 {
		if low = d.cfg.UnconsentedRate; whole > 0 {
			low = min(low, max(1, whole/10))
		}
	}
	if low > 0 && !granted {
		return []fsm.Limit{{Name: "unconsented " + origin, Rate: low}}
	}
	if granted && c.Rate > 0 {
		limits = append(limits, fsm.Limit{Name: fmt.Sprint("consent ", c.Webhook, " ", c.Rate), Rate: c.Rate})
	}
	if whole > 0 {
		limits = append(limits, fsm.Limit{Name: origin, Rate: whole - low})
	}
	return limits
}

// nameSender has a delivery name who sends it, once its endpoint has agreed to that name.
func (d *Dispatcher) nameSender(sub fsm.Subscription, header http.Header) {
	if d.granted(sub) {
		header.Set("Origin", d.cfg.Origin)
	}
}

// GrantConsent notes the consent that came with a key, and sends what waits for it. The key is used up. The error is
// fsm.ErrNotFound if no subscription of this ID has that key now.
func (d *Dispatcher) GrantConsent(ctx context.Context, id, key string, rate int) (fsm.Subscription, error) {
	catalog := d.cfg.Store.Catalog()
	sub, _ := catalog.Get(id)
	// The store judges the time. This replica may not have heard of the latest key.
	if !sub.Consent.Opens(key, sub.Consent.AskedAt) {
		if err := d.cfg.Store.RefreshCatalog(ctx); err != nil {
			return sub, err
		}
		sub, _ = catalog.Get(id)
		if !sub.Consent.Opens(key, sub.Consent.AskedAt) {
			return fsm.Subscription{}, fsm.ErrNotFound
		}
	}
	if d.ConsentOf(sub).Webhook == "" { // the key is for another webhook or origin
		return fsm.Subscription{}, fsm.ErrNotFound
	}
	was, by := sub, rand.Text()
	grant := func(c fsm.Consent, now time.Time) (fsm.Consent, error) {
		if !c.Opens(key, now) || c.Webhook != sub.Consent.Webhook || c.Origin != sub.Consent.Origin {
			return c, fsm.ErrNotFound
		}
		was.Consent = c
		return c.ByKey(rate, by, nextAsk(sub, now)), nil
	}
	stored, err := d.cfg.Store.ChangeConsent(ctx, sub, grant)
	if err == nil {
		d.noteConsent(was, stored)
	}
	return stored, err
}

// noteConsent logs what has become of a consent, and sends what waits for it.
func (d *Dispatcher) noteConsent(was, now fsm.Subscription) {
	before, c := d.ConsentOf(was), d.ConsentOf(now)
	if c.State == before.State && c.Rate == before.Rate {
		return
	}
	if c.State == fsm.ConsentGranted && d.cfg.Consent == fsm.ConsentRequire {
		d.releaseConsented(now)
	}
	fields := []zap.Field{
		zap.String("subscription", now.ID), zap.String("host", hostOf(now.Webhook)),
		zap.String("state", string(c.State)), zap.String("reason", c.Reason),
	}
	switch {
	case c.State == fsm.ConsentGranted:
		d.log.Info("an endpoint agrees to deliveries", append(fields, zap.Int("rate", c.Rate))...)
	case before.State == fsm.ConsentGranted:
		d.log.Warn("an endpoint does not agree to deliveries any more", fields...)
	default:
		d.log.Info("an endpoint does not agree to deliveries", fields...)
	}
}

// releaseConsented sends what has waited for a consent. Once this program stops, other replicas send it.
func (d *Dispatcher) releaseConsented(sub fsm.Subscription) {
	d.mu.Lock()
	stopped := d.stopped
	if !stopped {
		d.attempts.Add(1) // a stop waits for it
	}
	d.mu.Unlock()
	if stopped {
		ctx, cancel := context.WithTimeout(d.reports, reportGrace)
		defer cancel()
		d.releaseHeld(ctx, sub, fsm.BlockedConsent)
		return
	}
	d.do(func() bool {
		defer d.attempts.Done()
		d.releaseHeld(d.reports, sub, fsm.BlockedConsent)
		return true
	})
}

// consentGauge counts the subscriptions by their consents, of those that this replica asks for.
type consentGauge struct{ d *Dispatcher }

var consentDesc = prometheus.NewDesc("reveille_subscriptions_by_consent",
	"Subscriptions by what their endpoints have said about deliveries (dispatcher/CONSENT.md): pending, granted, "+
		"refused or unsupported. Each replica counts those that it asks for; none if REVEILLE_CONSENT is off.",
	[]string{"state"}, nil)

func (g consentGauge) Describe(descs chan<- *prometheus.Desc) { descs <- consentDesc }

func (g consentGauge) Collect(metrics chan<- prometheus.Metric) {
	store, counts := g.d.cfg.Store, map[fsm.ConsentState]int{}
	if g.d.cfg.Consent == fsm.ConsentOff {
		return
	}
	for _, sub := range store.Catalog().All() {
		if store.Ownership().Owns(store.PartitionOf(sub.ID)) {
			counts[g.d.ConsentOf(sub).State]++
		}
	}
	for _, state := range fsm.ConsentStates {
		n := float64(counts[state])
		metrics <- prometheus.MustNewConstMetric(consentDesc, prometheus.GaugeValue, n, string(state))
	}
}
