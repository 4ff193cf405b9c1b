package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// noteTimeout bounds how long a request waits until the audit has its change.
	noteTimeout = 2 * time.Second
	// ChangesAtATime bounds the changes that one call of the store returns.
	ChangesAtATime = 200
)

// AuditStore keeps who has changed what.
type AuditStore interface {
	// NoteChange keeps a change. It keeps the latest fsm.MaxChanges, at times a hundred more.
	NoteChange(ctx context.Context, c fsm.Change) error
	// Changes returns the latest changes before the one with an ID, the latest first. Without an ID, it begins with the
	// latest of all.
	Changes(ctx context.Context, before string, most int) ([]fsm.Change, error)
}

// The bounds of a change, in bytes: of a field, of the fields before it and of those after it, and of what it is about.
const (
	maxField = 1024
	maxNoted = 2048
	maxAbout = 1024
)

// Did logs a change that was made, and notes it.
func (s *Service) Did(ctx context.Context, c fsm.Change, logged ...zap.Field) {
	s.Log.Info(c.What, logged...)
	s.Note(ctx, c)
}

// Note keeps a change for the audit, unless this program has made it by itself. The change stands, whether or not it
// can be kept.
func (s *Service) Note(ctx context.Context, c fsm.Change) {
	r := requesterOf(ctx)
	if r.itself {
		return
	}
	c.By, c.From = r.principal.Name, r.from
	if len(c.About) > maxAbout {
		c.About = strings.ToValidUTF8(c.About[:maxAbout], "") + "…"
	}
	c.Before, c.After = bounded(c.Before), bounded(c.After)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	if err := s.View.store.NoteChange(ctx, c); err != nil {
		s.unaudited.Log(s.Log, s.Clock()).Warn("a change may be missing from the audit: redis did not take it in time",
			zap.String("what", c.What), zap.String("subscription", c.Subscription), zap.String("by", c.By),
			zap.String("from", c.From), zap.Error(err))
	}
}

// bounded leaves out the values of long fields, and of all if they are too long together.
func bounded(fields json.RawMessage) json.RawMessage {
	if len(fields) <= maxField {
		return fields
	}
	if fields = shortened(fields, maxField); len(fields) > maxNoted {
		fields = shortened(fields, 0)
	}
	return fields
}

// shortened leaves out the values of fields that are longer than some bytes.
func shortened(fields json.RawMessage, most int) json.RawMessage {
	values := fieldsOf(fields)
	for name, value := range values {
		if len(value) > most {
			values[name] = json.RawMessage(`"(long)"`)
		}
	}
	text, _ := json.Marshal(values) // as they were read
	return text
}

// InPart returns a change that may have been made only in part, or not at all.
func InPart(c fsm.Change) fsm.Change {
	c.What += ", perhaps in part"
	return c
}

// noteSubscription notes a subscription that was changed, made or deleted: one of both may be the zero subscription. It
// says no if they are the same, and then notes nothing.
func (s *Service) noteSubscription(ctx context.Context, what string, was, is fsm.Subscription) bool {
	c := fsm.Change{What: what, Subscription: cmp.Or(is.ID, was.ID)}
	if c.Before, c.After = s.Differences(was, is); string(c.Before) == string(c.After) && len(c.After) <= len("{}") {
		return false
	}
	s.Note(ctx, c)
	return true
}

// Differing returns the fields that two structs do not have in common, as JSON.
func Differing(was, is any) (before, after json.RawMessage) {
	fieldsWas, fieldsIs := fieldsOf(was), fieldsOf(is)
	for name, value := range fieldsWas {
		if bytes.Equal(value, fieldsIs[name]) {
			delete(fieldsWas, name)
			delete(fieldsIs, name)
		}
	}
	before, _ = json.Marshal(fieldsWas) // as they were read
	after, _ = json.Marshal(fieldsIs)
	return before, after
}

func fieldsOf(value any) (fields map[string]json.RawMessage) {
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	return fields
}

// ListChanges calls a function with the changes before the one with an ID, the latest first, until it returns false.
func (s *Service) ListChanges(ctx context.Context, before string, f func(fsm.Change) bool) error {
	for {
		list, err := s.View.store.Changes(ctx, before, ChangesAtATime)
		if err != nil {
			return err
		}
		for _, c := range list {
			if before = c.ID; !f(c) {
				return nil
			}
		}
		if len(list) < ChangesAtATime {
			return nil
		}
	}
}
