package dispatcher

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	mrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/bell"
)

const (
	// consentPause is the least time between two looks at who is to be asked for consent, consentLook the longest.
	consentPause = 200 * time.Millisecond
	consentLook  = 5 * time.Second
	// maxAsks bounds the requests for consent in flight, and maxAsksOf those to one endpoint. At most half of all go to
	// endpoints whose last answer was neither yes nor no, so that others need not wait for those.
	maxAsks, maxAsksOf = 128, 8
	// askTimeout bounds one request.
	askTimeout = 10 * time.Second
	// askTurn bounds how long a request waits for its turn at an endpoint.
	askTurn = 5 * time.Second
)

// asks are the requests for consent that are under way.
type asks struct {
	mu sync.Mutex
	// busy are the subscriptions that are asked for. Of these, as many as again says have failed before.
	busy  map[laneKey]bool
	again int
	gates map[string]askGate // by endpoint
	of    map[string]int     // by endpoint: how many are under way
	// ended has an item if a request has ended since the last look.
	ended chan struct{}
	// ahead is how much the store's clock is ahead of the one of this replica.
	ahead time.Duration
}

func newAsks() *asks {
	return &asks{
		busy: map[laneKey]bool{}, gates: map[string]askGate{}, of: map[string]int{}, ended: make(chan struct{}, 1),
	}
}

// clock notes the time of the store.
func (a *asks) clock(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ahead = time.Until(now)
}

// now is the time by the store's clock, as far as this replica knows it.
func (a *asks) now() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Add(a.ahead)
}

// askGate has the turns of an endpoint.
type askGate struct {
	// No turn is taken until opens. Free turns may be used until a time.
	opens, until time.Time
	free         int
}

// over says whether nothing is left to know of a gate.
func (g askGate) over(now time.Time) bool {
	return !now.Before(g.opens) && (g.free == 0 || !now.Before(g.until))
}

// runConsents asks for each consent that is due. Only the replica that owns the partition of a subscription's ID does.
func (d *Dispatcher) runConsents(ctx context.Context) {
	var under sync.WaitGroup
	defer under.Wait()
	var all time.Time
	for bell.Sleep(ctx, consentPause) {
		changed := d.cfg.Store.Catalog().Changed()
		whole := time.Since(all) >= consentLook
		if whole {
			all = time.Now()
		}
		next, full := d.askAll(ctx, &under, whole)
		if full { // until one ends
			changed = nil
		}
		timer := time.NewTimer(min(next, consentLook))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-d.asks.ended:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// askAll begins the requests that are due, those that have waited for longest first. It returns how long it takes until
// an endpoint that was left out has its turn, and whether as many requests as possible are under way. Only if it looks
// at all as a whole, it finds those that were asked by another origin.
func (d *Dispatcher) askAll(
	ctx context.Context, under *sync.WaitGroup, whole bool,
) (next time.Duration, full bool) {
	store, now := d.cfg.Store, d.asks.now()
	var due []fsm.Subscription
	for _, sub := range store.Catalog().All() {
		asked := sub.Consent.Until.After(now)
		if asked && whole {
			asked = d.ConsentOf(sub).Until.After(now)
		}
		if !asked && store.Ownership().Owns(store.PartitionOf(sub.ID)) {
			due = append(due, sub)
		}
	}
	// Who makes many subscriptions that were never asked for does not have them all go first.
	mrand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	slices.SortStableFunc(due, func(a, b fsm.Subscription) int { return a.Consent.Until.Compare(b.Consent.Until) })
	next = consentLook
	for _, sub := range due {
		if d.asks.full() {
			return next, true
		}
		ends, wait := d.asks.begin(sub, sub.Origin(), time.Now())
		if ends == nil {
			next = min(next, wait)
			continue
		}
		under.Go(func() {
			defer ends()
			_, err := d.askConsent(ctx, sub, false)
			if ctx.Err() == nil && !errors.Is(err, fsm.ErrNotFound) {
				d.noteStore(err)
			}
		})
	}
	return next, false
}

// full says whether no further request may be under way.
func (a *asks) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.busy) >= maxAsks
}

// begin returns the function that ends a request. It returns nil if the request has to wait, and how long at most
// unless another one ends.
func (a *asks) begin(sub fsm.Subscription, endpoint string, now time.Time) (ends func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, again := laneKey{sub.ID, sub.Generation}, 0
	if sub.Consent.Failures > 0 {
		again = 1
	}
	if a.busy[key] || a.of[endpoint] >= maxAsksOf || a.again+again > maxAsks/2 {
		return nil, consentLook
	}
	if opens := a.gates[endpoint].opens; now.Before(opens) {
		return nil, opens.Sub(now)
	}
	maps.DeleteFunc(a.gates, func(_ string, g askGate) bool { return g.over(now) })
	g := a.gates[endpoint]
	g.opens = now.Add(askTurn) // until its turn is known, so that no other one is taken meanwhile
	a.gates[endpoint] = g
	a.busy[key] = true
	a.of[endpoint]++
	a.again += again
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.busy, key)
		if a.of[endpoint]--; a.of[endpoint] == 0 {
			delete(a.of, endpoint)
		}
		a.again -= again
		select {
		case a.ended <- struct{}{}:
		default:
		}
	}, 0
}

// uses takes a free turn at an endpoint. It returns false if there is none.
func (a *asks) uses(endpoint string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.gates[endpoint]
	if g.free == 0 || !now.Before(g.until) {
		return false
	}
	g.opens = now
	g.free--
	a.gates[endpoint] = g
	return true
}

// taken notes the turns that the store has given at an endpoint, of which so many are used. The others are kept for the
// next requests: turns that are given back to nobody would be lost, and with them the time that they take.
func (a *asks) taken(endpoint string, turns fsm.Turns, used int, limit fsm.Limit, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	opens := now.Add(turns.Wait)
	a.gates[endpoint] = askGate{opens: opens, until: opens.Add(limit.Keep()), free: turns.N - used}
}

// AskConsent asks the endpoint of a subscription for its consent now, and returns the subscription with what came of
// it.
func (d *Dispatcher) AskConsent(ctx context.Context, sub fsm.Subscription) (fsm.Subscription, error) {
	return d.askConsent(ctx, sub, true)
}

// askConsent asks for a consent, if it is due or if that is said. It takes a turn at the endpoint: nobody is flooded by
// requests for consent either. The key of the callback is stored before the endpoint can use it.
func (d *Dispatcher) askConsent(ctx context.Context, sub fsm.Subscription, anyway bool) (fsm.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, askTurn+askTimeout+2*reportTimeout)
	defer cancel()
	switch ok, err := d.takeAskTurn(ctx, sub, anyway); {
	case err != nil:
		return sub, err
	case !ok && anyway:
		return sub, fsm.ErrNoTurn
	case !ok:
		return sub, nil
	}
	due, key := false, rand.Text()+rand.Text()
	asked, err := d.cfg.Store.ChangeConsent(ctx, sub, func(c fsm.Consent, now time.Time) (fsm.Consent, error) {
		d.asks.clock(now)
		if due = anyway || !c.About(sub.Webhook, d.cfg.Origin).Until.After(now); !due {
			return c, nil // another replica has asked
		}
		return c.Asked(sub.Webhook, d.cfg.Origin, key, now, nextAsk(sub, now)), nil
	})
	if err != nil || !due {
		return asked, err
	}
	answer := d.handshake(ctx, asked)
	if d.requests.Err() != nil {
		return asked, nil
	}
	d.metrics.asked(answer)
	was := asked
	answered, err := d.cfg.Store.ChangeConsent(ctx, asked, func(c fsm.Consent, _ time.Time) (fsm.Consent, error) {
		was.Consent = c // a callback may have come meanwhile
		return c.Answered(asked.Consent, answer, nextAsk(sub, c.AskedAt)), nil
	})
	if err == nil {
		d.noteConsent(was, answered)
	}
	return answered, err
}

// nextAsk is when an endpoint is asked again after a yes or a no. Subscriptions that were asked for together are not
// asked for together again.
func nextAsk(sub fsm.Subscription, asked time.Time) time.Time {
	sum, _ := hex.DecodeString(fsm.HashOf(sub.ID))
	spread := time.Duration(binary.BigEndian.Uint64(sum) % uint64(fsm.ConsentSpread))
	return asked.Add(fsm.ConsentFor + spread.Truncate(time.Millisecond))
}

// takeAskTurn waits for the turn of a request at its endpoint. It returns false if that takes too long, or if the
// endpoint has asked to wait. Who asks anyway does not wait behind those that are due.
func (d *Dispatcher) takeAskTurn(ctx context.Context, sub fsm.Subscription, anyway bool) (bool, error) {
	endpoint := sub.Origin()
	if wait, _ := d.cfg.Store.Endpoints().Paused(sub); wait > 0 {
		return false, nil
	}
	if !anyway && d.asks.uses(endpoint, time.Now()) {
		return true, nil
	}
	limit := fsm.Limit{Name: "handshake " + endpoint, Rate: d.cfg.UnconsentedRate}
	if d.cfg.MaxRate > 0 {
		limit.Rate = min(limit.Rate, d.cfg.MaxRate)
	}
	turns, err := d.cfg.Store.TakeTurns(ctx, []fsm.Limit{limit}, limit.Share())
	if err != nil {
		return false, err
	}
	if turns.Wait > askTurn {
		d.asks.taken(endpoint, turns, 0, limit, time.Now())
		return false, nil
	}
	d.asks.taken(endpoint, turns, 1, limit, time.Now())
	return turns.Wait == 0 || bell.Sleep(ctx, turns.Wait), nil
}

// handshake asks an endpoint. The request goes to the exact URL, and carries nothing that belongs to deliveries.
func (d *Dispatcher) handshake(ctx context.Context, sub fsm.Subscription) fsm.ConsentAnswer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(d.requests, cancel)()
	if _, err := d.guard.parseTarget(sub.Webhook); err != nil {
		return lost(errTarget)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, requestURL(sub.Webhook), bytes.NewReader(nil))
	if err != nil {
		return lost(errTarget) // the text of err holds the URL
	}
	rate := sub.Rate
	if rate == 0 || d.cfg.MaxRate > 0 && d.cfg.MaxRate < rate {
		rate = d.cfg.MaxRate
	}
	callback := ""
	if sub.ID != "." && sub.ID != ".." { // a browser takes these out of a path
		callback = d.cfg.PublicURL + "/consent/" + url.PathEscape(sub.ID) + "?key=" + sub.Consent.Key
	}
	format.AskConsent(req.Header, d.cfg.Origin, callback, rate)
	req.Header.Set("User-Agent", d.cfg.UserAgent)
	got := make(chan fsm.ConsentAnswer, 2)
	e, req := newExchange(req, func() { got <- lost(context.DeadlineExceeded) })
	e.begin(req.Context())
	go func() { // it stays behind if net/http does not return
		answer := d.answerOf(ctx, e, req, cancel)
		if e.end() {
			got <- answer
		}
	}()
	return <-got
}

func (d *Dispatcher) answerOf(
	ctx context.Context, e *exchange, req *http.Request, cancel func(),
) fsm.ConsentAnswer {
	res, err := d.sender.send(ctx, e, req)
	if err != nil {
		return lost(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer := format.JudgeConsent(d.cfg.Origin, res.StatusCode, res.Header, d.cfg.Clock())
	drain(res, cancel)
	return answer
}

func lost(err error) fsm.ConsentAnswer {
	_, reason := classify(err)
	return fsm.ConsentAnswer{Lost: true, Reason: reason}
}
