package native

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// beyondAny stands for an ack that is not an offset. It sorts after every offset. So the store refuses it like an ack
// beyond the tail, in the same place of the order of checks.
const beyondAny fsm.Offset = "\x7f"

// tooManyStreams names the bound and its setting.
const tooManyStreams = "subscribe: a consumer can be subscribed to at most %d streams " +
	"(REVEILLE_MAX_STREAMS_PER_CONSUMER)"

// callbackRequest is the well-formed body of a callback (webhook spec, Fields). Paths are canonical. The paths of acks
// and unsubscribe are also there as they were spelled.
type callbackRequest struct {
	epoch  int64
	wakeID string
	acks   []ack
	// subscribe names no stream twice.
	subscribe   []string
	unsubscribe []string
	done        bool
}

// ack is one of "acks". If its offset is malformed, err says why, and offset is beyondAny.
type ack struct {
	path   string
	offset fsm.Offset
	err    error
}

// malformed returns why the offset of an ack for a stream is malformed, or nil.
func (req callbackRequest) malformed(path string) error {
	for _, a := range req.acks {
		if a.path == path && a.err != nil {
			return a.err
		}
	}
	return nil
}

// linked returns the streams that the consumer is subscribed to afterwards because of this callback.
func (req callbackRequest) linked() []string {
	dropped := make(map[string]bool, len(req.unsubscribe))
	for _, p := range req.unsubscribe {
		dropped[p] = true
	}
	return slices.DeleteFunc(slices.Clone(req.subscribe), func(p string) bool { return dropped[p] })
}

// readCallback reads a callback's body. Its error is CodeBodyTooLarge or CodeInvalidRequest and names the field.
func (f *Face) readCallback(c echo.Context) (req callbackRequest, err error) {
	o, err := f.Bodies.Object(c)
	if err != nil {
		return req, err
	}
	if req.epoch, err = web.Required[int64](o, "epoch", "an integer"); err != nil {
		return req, err
	}
	var claims bool
	if req.wakeID, claims, err = web.Optional[string](o, "wake_id", "a string"); err != nil {
		return req, err
	}
	if claims && req.wakeID == "" {
		return req, refusal.New(fsm.CodeInvalidRequest, "wake_id is empty: omit it or send the wake's")
	}
	if req.acks, err = f.readAcks(o); err != nil {
		return req, err
	}
	most := f.MaxStreams
	if req.subscribe, err = web.Paths(o, "subscribe", anyPath, most, tooManyStreams); err != nil {
		return req, err
	}
	if req.unsubscribe, err = web.Paths(o, "unsubscribe", anyPath, math.MaxInt, ""); err != nil {
		return req, err
	}
	req.done, _, err = web.Optional[bool](o, "done", "true or false")
	return req, err
}

func (f *Face) readAcks(o web.Object) ([]ack, error) {
	list, _, err := web.Optional[[]json.RawMessage](o, "acks", "an array")
	if err != nil {
		return nil, err
	}
	acks := make([]ack, 0, len(list))
	for i, raw := range list {
		name := fmt.Sprintf("acks[%d]", i)
		fields, err := web.Value[web.Object](raw, name, `an object with "path" and "offset"`)
		if err != nil {
			return nil, err
		}
		path, err := web.StreamPath(fields["path"], name+".path", anyPath)
		if err != nil {
			return nil, err
		}
		text, err := web.Value[string](fields["offset"], name+".offset", "a string")
		if err != nil {
			return nil, err
		}
		a := ack{path: path}
		if a.offset, a.err = f.Upstream.ParseOffset(text); a.err != nil {
			a.offset = beyondAny
		}
		acks = append(acks, a)
	}
	return acks, nil
}

var notInPath = strings.NewReplacer("?", "%3F", "#", "%23", "\x00", "%00")

// anyPath takes a text for a stream path (webhook spec, Dynamic Subscribe: "No validation of stream paths"). It
// percent-encodes what has no place in a path, and refuses only what cannot be a stream's path.
func anyPath(text string) (string, error) {
	return fsm.CanonicalPath("/" + notInPath.Replace(strings.TrimPrefix(text, "/")))
}
