package dispatcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"reveille/fsm"
)

// maxRebuilding bounds the requests that are built again at once. Each of them may read fsm.MaxDeliveryBytes.
const maxRebuilding = 4

// compose makes the request of an attempt, dated by a.content.At. The error is errTarget if the webhook is no target;
// any other says that no request can be made of the events.
func (d *Dispatcher) compose(ctx context.Context, a *attempt) error {
	a.content.Previous = a.sub.Previous.At(a.content.At)
	header, body, err := a.format.Request(a.content)
	if err != nil {
		return err
	}
	if a.request, err = http.NewRequestWithContext(
		ctx, http.MethodPost, requestURL(a.sub.Webhook), bytes.NewReader(body),
	); err != nil {
		return errTarget // the text of err holds the URL
	}
	header.Set("Accept-Encoding", "identity")
	for name, value := range a.sub.Headers {
		header.Set(name, value)
	}
	a.request.Header, a.body = header, body
	d.nameSender(a.sub, header)
	authorize(a.request, a.sub.Authorization)
	header.Set("User-Agent", strings.TrimSpace(header.Get("User-Agent")+" "+d.cfg.UserAgent))
	d.traces.send(ctx, header)
	return nil
}

// authorize adds the proof that a request is allowed (CloudEvents webhook spec, Authorization). If the URL then has a
// secret in it, caches must not keep it, unless the subscription's own headers say otherwise.
func authorize(r *http.Request, by fsm.Authorization) {
	switch {
	case by.Secret == "":
		return
	case by.Query == "":
		r.Header.Set("Authorization", by.Secret)
		return
	}
	if r.URL.RawQuery != "" {
		r.URL.RawQuery += "&"
	}
	r.URL.RawQuery += percentEncoded(by.Query) + "=" + percentEncoded(by.Secret)
	if r.Header.Get("Cache-Control") == "" {
		r.Header.Set("Cache-Control", "no-store")
	}
}

// percentEncoded encodes a space as "%20", which every reader of URLs decodes, not as the "+" of a form.
func percentEncoded(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// extent says what it takes to build the request of the attempt again (Rebuild).
func (a *attempt) extent() fsm.Extent {
	e := fsm.Extent{Shape: shapeOf(a.sub, a.content.PublicURL), Replay: a.delivery.Replay}
	if a.sub.Mode != fsm.ModePush {
		e.Streams = fsm.StreamsOf(a.delivery)
		return e
	}
	e.At, e.Span = a.delivery.At(a.delivery.Primary), a.content.Batch.Span()
	e.Sum = a.sum()
	if a.sub.Format == fsm.FormatOJS {
		e.WokeAt = a.delivery.WokeAt
	}
	return e
}

// sum is the CRC-32 of the request's body as an Extent has it.
func (a *attempt) sum() string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(a.body)) }

// shapeOf stands for what of a subscription its requests depend on, and for the address in them. It depends on no
// secret but the webhook. Another way to make it hides the requests of all attempts of before.
func shapeOf(sub fsm.Subscription, publicURL string) string {
	text := fmt.Appendf(nil, "%q %q %q %q %q %d %q %q %q %t %q %q",
		sub.Generation, publicURL, sub.Mode, sub.Format, sub.Signature, sub.Batch, sub.Webhook, sub.Filter.Events,
		sub.Filter.TypePath, sub.Authorization.Secret != "", sub.Authorization.Query,
		slices.Sorted(maps.Keys(sub.Headers)))
	for _, path := range slices.Sorted(maps.Keys(sub.Filter.Values)) {
		text = fmt.Appendf(text, " %q %q", path, sub.Filter.Values[path])
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}

// Rebuild builds the request of a logged attempt again, as the attempt did, and sends nothing. It reads the events of a
// push from their stream, and changes nothing. born is the Born of the consumer that the subscription now has for the
// stream. The error is an *fsm.NotRebuiltError, or that of the context.
func (d *Dispatcher) Rebuild(
	ctx context.Context, sub fsm.Subscription, born int64, e fsm.LoggedAttempt,
) (r fsm.SentRequest, err error) {
	select {
	case d.rebuilding <- struct{}{}:
		defer func() { <-d.rebuilding }()
	default:
		return r, notRebuilt(fsm.CodeTooManyRequests, "this replica builds many requests again; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer context.AfterFunc(d.requests, cancel)()
	a := &attempt{sub: sub, delivery: fsm.Delivery{
		Consumer: e.Consumer, Subscription: sub.ID, Generation: sub.Generation, Primary: e.Stream, Epoch: e.Epoch,
		WakeID: e.WakeID, WokeAt: e.Extent.WokeAt, Attempt: e.Attempt, Born: born, Replay: e.Extent.Replay,
		Span: e.Extent.Span, Streams: e.Extent.Tails(),
	}}
	switch {
	case e.Bytes == 0, sub.Mode == fsm.ModePush && e.Events == 0:
		return r, notRebuilt(fsm.CodeRequestUnknown, "nothing was sent in this attempt")
	case e.Extent.Shape != shapeOf(sub, d.cfg.PublicURL):
		return r, notRebuilt(fsm.CodeSubscriptionChanged, "since this attempt, the subscription has got another "+
			"webhook, format, signature scheme, batch, filter or header, or the program another public URL")
	case !d.prepare(ctx, a):
		return r, notRebuilt(fsm.CodeSubscriptionChanged, a.verdict.Reason)
	case sub.Mode == fsm.ModePush:
		err = d.readAgain(ctx, a, e)
	case len(e.Extent.Streams) == 0:
		err = notRebuilt(fsm.CodeRequestUnknown, "this wake had more streams than an entry of the log holds")
	default:
		a.content.ID, a.content.Token = e.WakeID, masked
	}
	if err != nil {
		return r, err
	}
	a.content.At = e.Sent()
	switch err := d.compose(ctx, a); {
	case err != nil:
		return r, notRebuilt(fsm.CodeSubscriptionChanged, "no such request can be made any more")
	case sub.Mode == fsm.ModePush && (len(a.body) != e.Bytes || a.sum() != e.Extent.Sum):
		return r, otherEvents()
	}
	return a.shown(e), nil
}

func notRebuilt(code fsm.Code, why string) error { return &fsm.NotRebuiltError{Code: code, Why: why} }

// otherEvents says that other events are where those of a delivery were.
func otherEvents() error {
	return notRebuilt(fsm.CodeEventsChanged, "the stream has other events now where those of this delivery were")
}

// readAgain reads the events of a push that was made. The delivery must come out with the id that it had.
func (d *Dispatcher) readAgain(ctx context.Context, a *attempt, e fsm.LoggedAttempt) error {
	handedOver := a.sub.Format == fsm.FormatOutbox
	if first := fsm.EventID(a.delivery, e.From); !handedOver && e.DeliveryID != first &&
		!strings.HasPrefix(e.DeliveryID, first+"-") {
		return notRebuilt(fsm.CodeEventsChanged,
			"the stream, or its consumer, was made anew since: other events may have this place now")
	}
	matches, err := a.matches()
	if err != nil {
		return notRebuilt(fsm.CodeSubscriptionChanged, "this version does not know the filter of the subscription")
	}
	// No end: the span says where the events end. All such reads have one name, so they keep one answer open at most.
	batch, err := d.cfg.ReadBatch(
		ctx, "requests built again", e.Stream, e.Extent.At, "", e.Events, e.Extent.Span, matches,
	)
	switch {
	case d.requests.Err() != nil:
		return notRebuilt(fsm.CodeUnavailable, reasonStopping)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fsm.ErrNoStream):
		return notRebuilt(fsm.CodeEventsGone, "the stream server has no such stream any more, or not these events")
	case errors.Is(err, fsm.ErrNotKept), batch.NotKept, batch.Lost > 0:
		return notRebuilt(fsm.CodeEventsGone, "the stream server does not keep the events any more")
	case err != nil:
		return notRebuilt(fsm.CodeUpstreamUnavailable, "the stream server cannot be read now; try again")
	case len(batch.Events) == 0 && batch.From.After(e.From):
		return notRebuilt(fsm.CodeEventsGone, "the stream server does not keep the events any more")
	case len(batch.Events) != e.Events:
		return otherEvents()
	}
	a.content.Batch, a.content.ID = batch, batch.DeliveryID(a.delivery)
	if handedOver {
		event, ok := a.handedOver()
		if !ok {
			return otherEvents()
		}
		a.brings(event, d.cfg.Store.Catalog().OutboxConfig())
	}
	if a.content.ID != e.DeliveryID {
		return otherEvents()
	}
	return nil
}

// shown returns the request of an attempt without its secrets. In the body, and in values that are not secret as a
// whole, only long secrets are masked: short ones stand there by chance.
func (a *attempt) shown(e fsm.LoggedAttempt) fsm.SentRequest {
	long := slices.DeleteFunc(secretsOf(a.sub, a.carried()), func(s string) bool { return len(s) < leastPart })
	r := fsm.SentRequest{
		Method: a.request.Method, URL: a.request.URL.Scheme + "://" + a.request.URL.Host + "/" + masked,
		At: e.Sent(), Header: http.Header{}, Size: e.Bytes,
	}
	secret := map[string]bool{"Authorization": true}
	for name := range a.sub.Headers {
		secret[http.CanonicalHeaderKey(name)] = true
	}
	for name, values := range a.request.Header {
		if secret[name] || strings.Contains(strings.ToLower(name), "signature") {
			r.Header[name] = []string{masked}
			continue
		}
		for _, value := range values {
			r.Header[name] = append(r.Header[name], hide(value, long))
		}
	}
	r.Header["Content-Length"] = []string{strconv.Itoa(e.Bytes)}
	body := a.body
	if r.Cut = len(body) > fsm.MaxShownBody; r.Cut {
		end := fsm.MaxShownBody
		for end > fsm.MaxShownBody-utf8.UTFMax && !utf8.RuneStart(body[end]) {
			end--
		}
		body = body[:end]
	}
	r.Body = []byte(hide(string(body), long))
	return r
}
