package fields

import (
	"encoding/json"
	"time"

	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// setting applies one field of a PUT or PATCH to a subscription, or refuses it. It may be called more than once, and
// leaves the subscription's maps and lists as they are.
type setting func(*fsm.Subscription) error

// always is a setting that refuses nothing.
func always(set func(*fsm.Subscription)) setting {
	return func(sub *fsm.Subscription) error {
		set(sub)
		return nil
	}
}

// codec is what fsm.Fields does not say of a field.
type codec struct {
	// push is true for a field that only push subscriptions have.
	push bool
	// read reads the field from a body that has it. A null field stands for the default.
	read func(Reader, web.Object) (setting, error)
	// show returns what answers show of a value that is not empty.
	show func(value any) any
}

// codecs has one for each of fsm.Fields, by its name.
var codecs = map[string]codec{
	"webhook":       {false, Reader.readWebhook, asIs},
	"description":   {false, Reader.readDescription, asIs},
	"start":         {false, Reader.readStart, func(v any) any { return v.(fsm.Offset).Value() }},
	"mode":          {false, Reader.readMode, asIs},
	"signature":     {false, Reader.readSignature, asIs},
	"format":        {false, Reader.readFormat, asIs},
	"batch":         {true, Reader.readBatch, asIs},
	"events":        {true, Reader.readEvents, asIs},
	"type_path":     {true, Reader.readTypePath, asIs},
	"filter":        {true, Reader.readFilter, asIs},
	"ordering":      {true, Reader.readOrdering, asIs},
	"timeout":       {true, Reader.readTimeout, func(v any) any { return durationText(v.(time.Duration)) }},
	"retry":         {false, Reader.readRetry, showRetry},
	"disable_after": {false, Reader.readDisableAfter, func(v any) any { return durationText(v.(time.Duration)) }},
	"rate":          {false, Reader.readRate, asIs},
	"headers":       {false, Reader.readHeaders, showHeaders},
	"authorization": {false, Reader.readAuthorization, showAuthorization},
	"metadata":      {false, Reader.readMetadata, asIs},
}

func asIs(value any) any { return value }

// readFields reads the fields that a body has, by the order of fsm.Fields, and refuses others. A PUT (all) must
// have the webhook.
func (r Reader) readFields(o web.Object, all bool) (asked []setting, err error) {
	var known []string
	for _, f := range fsm.Fields {
		known = append(known, f.Name)
		raw, said := o[f.Name]
		if !said && !(all && f.Name == "webhook") {
			continue
		}
		c := codecs[f.Name]
		set, err := c.read(r, o)
		if err != nil {
			return nil, err
		}
		if c.push {
			set = forPush(f.Name, set, !web.IsNull(raw))
		}
		asked = append(asked, set)
	}
	return asked, o.Only(known...)
}

// forPush has subscriptions of another mode accept only the default, which is none.
func forPush(name string, set setting, named bool) setting {
	return func(sub *fsm.Subscription) error {
		was := *sub
		if err := set(sub); err != nil || sub.Mode == fsm.ModePush {
			return err
		}
		if *sub = was; named {
			return refusal.New(fsm.CodeInvalidRequest, `%s is only for "mode":"push"`, name)
		}
		return nil
	}
}

// Differences returns the fields that two subscriptions do not have in common, with the values of each, and the pattern
// of one that was made or deleted. It shows no secret: of a URL only its origin, of headers the names. It is empty for
// the zero subscription.
func Differences(was, is fsm.Subscription) (before, after json.RawMessage) {
	var differing [2]web.Members
	if was.Pattern != is.Pattern {
		for i, sub := range []fsm.Subscription{was, is} {
			if sub.Pattern != "" {
				differing[i] = differing[i].With("pattern", sub.Pattern)
			}
		}
	} else if was.Paused != is.Paused {
		differing[0], differing[1] = differing[0].With("paused", was.Paused), differing[1].With("paused", is.Paused)
	}
	for _, f := range fsm.Fields {
		if f.Same(&was, &is) {
			continue
		}
		for i, sub := range []*fsm.Subscription{&was, &is} {
			if f.Same(sub, &fsm.Subscription{}) {
				continue
			}
			shown := codecs[f.Name].show(f.Value(sub))
			if f.Name == "webhook" {
				shown = sub.Origin()
			}
			differing[i] = differing[i].With(f.Name, shown)
		}
	}
	if was.ID != "" {
		before, _ = json.Marshal(differing[0]) // these are values that answers show, too
	}
	if is.ID != "" {
		after, _ = json.Marshal(differing[1])
	}
	return before, after
}

// bareWake has the defaults of ModeWake.
var bareWake = fsm.Subscription{}.WithDefaults()

// Shown shows the fields that are not empty. The webhook spec knows only the first two, so a subscription of ModeWake
// shows only values that are not the default.
func Shown(sub fsm.Subscription) (shown web.Members) {
	bare := fsm.Subscription{}
	if sub.Mode == fsm.ModeWake {
		bare = bareWake
	}
	for _, f := range fsm.Fields {
		if !f.Same(&sub, &bare) {
			shown = shown.With(f.Name, codecs[f.Name].show(f.Value(&sub)))
		}
	}
	return shown
}
