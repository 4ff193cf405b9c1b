// Package fields reads, checks and shows the fields of a subscription, and of what changes it, as JSON has them.
package fields

import (
	"cmp"
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const (
	maxDescription = 4096
	maxWebhook     = 2048
)

// Reader reads the fields of a subscription.
type Reader struct {
	Targets Targets
	Offsets Offsets
}

// Asked holds the fields in the body of a PUT or PATCH.
type Asked struct {
	// random makes the new secret of a subscription whose signature scheme changes.
	random   []byte
	settings []setting
}

// Of returns a subscription with these fields; the error refuses them.
func (asked Asked) Of(was fsm.Subscription) (fsm.Subscription, error) {
	sub, err := asked.appliedTo(was)
	if err == nil {
		err = cmp.Or(checkAuthorization(sub), checkBatch(sub), checkFilter(sub))
	}
	if err != nil {
		return sub, err
	}
	bare := was
	bare.Headers, bare.Authorization = nil, fsm.Authorization{}
	if bare, err = asked.appliedTo(bare); err != nil {
		return sub, err
	}
	return sub, checkMove(was, bare, sub)
}

func (asked Asked) appliedTo(sub fsm.Subscription) (fsm.Subscription, error) {
	was := sub.Signature
	for _, set := range asked.settings {
		if err := set(&sub); err != nil {
			return sub, err
		}
	}
	sub = sub.WithDefaults()
	if was != "" && sub.Signature != was {
		// A previous secret belongs to the other scheme.
		sub.Secret, sub.Previous = sub.Signature.NewSecret(asked.random), fsm.PreviousSecret{}
	}
	return sub, nil
}

// Read reads the fields of a PUT (all), or of a PATCH, which may lack any of them.
func (r Reader) Read(ctx context.Context, o web.Object, all bool) (asked Asked, err error) {
	asked.random = control.Random(32)
	if asked.settings, err = r.readFields(o, all); err != nil {
		return asked, err
	}
	if webhook, said, _ := web.Optional[string](o, "webhook", "a URL"); said {
		if err := r.Targets.CheckTarget(ctx, webhook); err != nil {
			return asked, refusal.New(fsm.CodeInvalidWebhook, "%v", err) // it names the field
		}
	}
	return asked, nil
}

// readWebhook leaves the check of the target to Read: it is slow, so it comes after all others.
func (Reader) readWebhook(o web.Object) (setting, error) {
	webhook, err := web.Required[string](o, "webhook", "a URL")
	switch {
	case err != nil:
	case webhook == "":
		err = refusal.New(fsm.CodeInvalidRequest, "webhook is empty: it must be a URL")
	case len(webhook) > maxWebhook:
		err = refusal.New(fsm.CodeInvalidRequest, "webhook is longer than %d bytes", maxWebhook)
	}
	return always(func(sub *fsm.Subscription) { sub.Webhook = webhook }), err
}

func (Reader) readDescription(o web.Object) (setting, error) {
	description, _, err := web.Optional[string](o, "description", "a string")
	if len(description) > maxDescription {
		err = refusal.New(fsm.CodeInvalidRequest, "description is longer than %d bytes", maxDescription)
	}
	return always(func(sub *fsm.Subscription) { sub.Description = description }), err
}

// MadeSecret says whether the secret of a stored subscription comes from this request.
func (asked Asked) MadeSecret(stored fsm.Subscription) bool {
	return stored.Secret == stored.Signature.NewSecret(asked.random)
}

// Add asks for one more thing.
func (asked *Asked) Add(set setting) { asked.settings = append(asked.settings, set) }

// Offsets reads what clients and the stream server call an offset.
type Offsets interface {
	// ParseOffset makes an Offset of what a client or the server calls one; the error wraps fsm.ErrOffset.
	ParseOffset(s string) (fsm.Offset, error)
}

// Targets judges webhook URLs.
type Targets interface {
	// CheckTarget returns an error that says why wakes may not be sent to a URL. Its text is a sentence that begins
	// with "webhook" (webhook spec, SSRF Prevention).
	CheckTarget(ctx context.Context, url string) error
}

// Backfill shows how many streams a backfill has dealt with.
type Backfill struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

// maxOverlap is the longest time that the previous secret goes on signing after a rotation.
const maxOverlap = 7 * 24 * time.Hour

// ReadRotation reads how a secret is rotated, from a body that may be missing.
func ReadRotation(c echo.Context, b web.Bodies) (r fsm.Rotation, err error) {
	r = fsm.Rotation{Random: control.Random(32), Overlap: fsm.RotationOverlap}
	o, err := b.Maybe(c)
	if err != nil {
		return r, err
	}
	overlap, named, err := readDuration(o, "overlap", 0, maxOverlap)
	if err != nil {
		return r, err
	}
	if named {
		r.Overlap = overlap
	}
	if r.KeepPrevious, _, err = web.Optional[bool](o, "keep_previous", "true or false"); err != nil {
		return r, err
	}
	return r, o.Only("overlap", "keep_previous")
}
