package native

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// callbackTimeout bounds the work on one callback after its body has arrived.
const callbackTimeout = 20 * time.Second

// callbackBody is the answer to a callback (webhook spec, Success Response and Error Responses).
type callbackBody struct {
	OK    bool           `json:"ok"`
	Error *web.ErrorBody `json:"error,omitempty"`
	Token string         `json:"token,omitempty"`
	// Streams is nil in an error, and never in a success.
	Streams []streamBody `json:"streams,omitzero"`
}

type streamBody struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// bearer is a callback's token and what it says.
type bearer struct {
	token.Token
	text string
}

// callback answers POST /callback/{consumer_id} (webhook spec, Callback API). The checks have a fixed order, and the
// first failure answers: token, body, consumer gone, token expired, epoch, wake ID, offsets. The store makes the last
// five checks, in one step with their effects.
func (f *Face) callback(c echo.Context) error {
	began, id := time.Now(), strings.TrimPrefix(web.RawPath(c.Request()), callbackPrefix)
	b, primary, err := f.authorize(c.Request(), id)
	if err != nil {
		return f.refuseCallback(c, began, id, bearer{}, err)
	}
	req, err := f.readCallback(c)
	if err != nil {
		return f.refuseCallback(c, began, id, bearer{}, err)
	}
	// A callback that has arrived is processed, even if its sender hangs up: its wakes must be delivered.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), callbackTimeout)
	defer cancel()
	reply, err := f.process(ctx, b, primary, req)
	if err != nil {
		defer f.traces.answered(c, began, b, req, reply, err)
		return f.refuseCallback(c, began, id, b, err)
	}
	if e := f.Control.Log.Check(zap.DebugLevel, "callback processed"); e != nil {
		e.Write(zap.String("consumer", id), zap.Int64("epoch", req.epoch), zap.String("wake_id", req.wakeID),
			zap.Bool("done", req.done))
	}
	f.traces.answered(c, began, b, req, reply, nil) // before its wake is over, so that the wake's span holds it
	f.Control.Outcomes.Follow(reply.Outcome, fsm.Sighting{})
	if linked := req.linked(); len(linked) > 0 {
		f.Streams.Watch(primary, linked)
	}
	streams := make([]streamBody, 0, len(reply.Streams))
	for _, st := range reply.Streams {
		streams = append(streams, streamBody{Path: st.Path, Offset: st.Acked.Value()})
	}
	f.metrics.calledBack(began, codeOK)
	return web.Answer(c, http.StatusOK, callbackBody{OK: true, Token: f.nextToken(b), Streams: streams}, nil)
}

// authorize reads the bearer token and checks that it belongs to the consumer of the path.
func (f *Face) authorize(r *http.Request, id string) (b bearer, primary string, err error) {
	header := r.Header.Values("Authorization")
	if len(header) != 1 {
		return b, "", refusal.New(fsm.CodeTokenInvalid,
			"one Authorization header is needed, with the bearer token of the last answer")
	}
	scheme, text, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return b, "", refusal.New(fsm.CodeTokenInvalid, "the Authorization header has no bearer token")
	}
	b.text = strings.TrimSpace(text)
	if b.Token, err = f.Tokens.Parse(b.text); err != nil {
		return b, "", refusal.New(fsm.CodeTokenInvalid, "%v", token.ErrInvalid)
	}
	_, primary, ok := fsm.ParseConsumerID(id)
	if !ok || subtle.ConstantTimeCompare([]byte(b.Consumer), []byte(id)) != 1 {
		return b, "", refusal.New(fsm.CodeTokenInvalid, "the token is not for the consumer in the path")
	}
	return b, primary, nil
}

// process adds what upstream says to the callback and lets the store judge it. It follows the outcomes of a refused
// callback, too.
func (f *Face) process(
	ctx context.Context, b bearer, primary string, req callbackRequest,
) (fsm.CallbackReply, error) {
	cb := fsm.Callback{
		Consumer: fsm.ConsumerRef{ID: b.Consumer, Home: primary}, Primary: primary,
		Generation: b.Generation, TokenEpoch: b.Epoch, TokenExpired: !f.Control.Clock().Before(b.Expires),
		Epoch: req.epoch, WakeID: req.wakeID, Unsubscribe: req.unsubscribe, Done: req.done,
		Tails: map[string]fsm.Offset{}, MaxStreams: f.MaxStreams,
	}
	for _, a := range req.acks {
		cb.Acks = append(cb.Acks, fsm.Ack{Path: a.path, Offset: a.offset})
	}
	if err := f.lookAtPrimary(ctx, &cb); err != nil {
		return fsm.CallbackReply{}, err
	}
	f.lookAtSubscribed(ctx, &cb, req)

	asked := map[string]time.Time{}
	for {
		reply, err := f.Store.Callback(ctx, cb)
		if err == nil && reply.Code == "" {
			return reply, nil
		}
		// The store may have begun wakes before it judged, for example for a stream that was made anew.
		f.Control.Outcomes.Follow(reply.Outcome, fsm.Sighting{})
		switch {
		case err != nil:
			return reply, err
		case reply.Code != fsm.CodeInvalidOffset || req.malformed(reply.Path) != nil || f.young(asked[reply.Path]):
			return reply, f.refusalOf(cb, req, reply)
		}
		asked[reply.Path] = f.Control.Clock()
		if err := f.lookAgain(ctx, &cb, reply.Path); err != nil {
			return reply, err
		}
	}
}

// young says whether a HEAD that was sent at a time still tells where a stream ends. If more time has passed than the
// HEAD and the store may take, the stream may well have grown. That happens if the process was frozen meanwhile.
func (f *Face) young(asked time.Time) bool { return f.Control.Clock().Sub(asked) <= 2*f.HeadTimeout }

// refusalOf puts the store's judgement into words.
func (f *Face) refusalOf(cb fsm.Callback, req callbackRequest, reply fsm.CallbackReply) error {
	switch reply.Code {
	case fsm.CodeConsumerGone:
		return gone(cb.Consumer.ID)
	case fsm.CodeTokenExpired:
		return refusal.New(reply.Code, "the token has expired: repeat the callback with the token in this answer")
	case fsm.CodeStaleEpoch:
		return refusal.New(reply.Code, "epoch %d is not the consumer's current epoch: stop, another wake has begun",
			cb.Epoch)
	case fsm.CodeAlreadyClaimed:
		return refusal.New(reply.Code, "wake_id %q does not belong to the consumer's current wake: stop", cb.WakeID)
	case fsm.CodeInvalidRequest:
		return refusal.New(reply.Code, tooManyStreams, cb.MaxStreams)
	case fsm.CodeInvalidOffset:
		if err := req.malformed(reply.Path); err != nil {
			return refusal.New(reply.Code, "acks: the offset for %q: %v", reply.Path, err)
		}
		tail, ok := cb.Tails[reply.Path]
		if !ok {
			return refusal.New(reply.Code, "acks: the offset for %q lies beyond its end: there is no such stream",
				reply.Path)
		}
		return refusal.New(reply.Code,
			"acks: the offset for %q lies beyond the stream's tail %q", reply.Path, tail.Value())
	}
	return refusal.New(reply.Code, "the callback was refused")
}

func gone(consumer string) error {
	return refusal.New(fsm.CodeConsumerGone, "consumer %q no longer exists", consumer)
}

// nextToken is the presented token, or a fresh one for the same wake if its time is nearly up (webhook spec, Callback
// Tokens). It is never for a newer epoch, so a worker of an earlier wake cannot trade up.
func (f *Face) nextToken(b bearer) string {
	if now := f.Control.Clock(); b.Expires.Sub(now) < token.Refresh {
		return f.Tokens.Mint(b.Consumer, b.Generation, b.Epoch, now)
	}
	return b.text
}

// refuseCallback answers a callback that failed. If the token is the consumer's own, the refusals after which a worker
// can go on carry a fresh token.
func (f *Face) refuseCallback(c echo.Context, began time.Time, consumer string, b bearer, err error) error {
	r := f.Refusal(err)
	body := callbackBody{Error: &web.ErrorBody{Code: r.Code, Message: r.Message}}
	switch r.Code {
	case fsm.CodeTokenExpired, fsm.CodeStaleEpoch, fsm.CodeAlreadyClaimed, fsm.CodeInvalidOffset:
		body.Token = f.nextToken(b)
	}
	f.Control.Log.Debug("callback refused", zap.String("consumer", consumer), zap.Int64("epoch", b.Epoch),
		zap.String("code", string(r.Code)))
	f.metrics.calledBack(began, r.Code)
	web.MarkRefused(c.Response(), r.Code)
	return web.Answer(c, web.Status(r.Code), body, nil)
}
