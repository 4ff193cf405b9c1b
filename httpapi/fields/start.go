package fields

import (
	"reveille/fsm"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// startNow is the text of the default: streams that were there before the subscription begin at their end.
const startNow = "now"

// readStart reads where streams begin that were there before the subscription.
func (r Reader) readStart(o web.Object) (setting, error) {
	const want = `"now", "-1" or an offset of the stream`
	text, named, err := web.Optional[string](o, "start", want)
	if err != nil {
		return nil, err
	}
	start := fsm.Offset("")
	if named && text != startNow {
		if start, err = r.Offsets.ParseOffset(text); err != nil {
			return nil, refusal.New(fsm.CodeInvalidRequest, "start must be %s: %v", want, err)
		}
	}
	return func(sub *fsm.Subscription) error {
		pattern, _ := fsm.ParsePattern(sub.Pattern)
		switch {
		case sub.Generation != "" && sub.Start != start:
			return refusal.New(fsm.CodeInvalidRequest,
				"start cannot be changed from %q, for consumers have begun there: "+
					"delete the subscription and create it anew", startText(*sub))
		case start != "" && start != fsm.Start && !pattern.Literal():
			return refusal.New(fsm.CodeInvalidRequest, `start must be "now" or "-1" for a pattern with a wildcard: `+
				"an offset is a position in one stream")
		}
		sub.Start = start
		return nil
	}, nil
}

// startText is the start of a subscription as a client would write it.
func startText(sub fsm.Subscription) string {
	if sub.Start == "" {
		return startNow
	}
	return sub.Start.Value()
}
