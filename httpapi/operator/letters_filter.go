package operator

import (
	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// letterFields are the fields of a request that is about many dead letters.
var letterFields = []string{"subscription", "stream", "since", "until", "cursor"}

// whichLetters reads the filters of a request.
func (f *Face) whichLetters(get func(string) string) (w control.Letters, err error) {
	w = f.Control.LettersOf(get("subscription"))
	if w.Subscription != "" {
		if err := fsm.ValidateSubscriptionID(w.Subscription); err != nil {
			return w, refusal.New(fsm.CodeInvalidSubscriptionID, "subscription: %v", err)
		}
	}
	if stream := get("stream"); stream != "" {
		if w.Stream, err = fsm.CanonicalPath(stream); err != nil {
			return w, refusal.New(fsm.CodeInvalidPath, "stream: %v", err)
		}
		w = f.Control.InPartitionOf(w, w.Stream)
	}
	for _, bound := range []struct {
		name   string
		number *int64
		less   int64
	}{{"since", &w.From, 0}, {"until", &w.Through, 1}} {
		at, err := readTime(bound.name, get(bound.name))
		if err != nil {
			return w, err
		}
		if !at.IsZero() {
			*bound.number = at.UnixMicro() - bound.less
		}
	}
	return w, nil
}

// readWhichLetters reads the body of a request that changes dead letters. The body must name a subscription that
// exists, or that has left some.
func (f *Face) readWhichLetters(c echo.Context) (w control.Letters, err error) {
	o, err := f.Bodies.Fields(c, letterFields...)
	if err != nil {
		return w, err
	}
	said := map[string]string{}
	for _, name := range letterFields {
		if said[name], _, err = web.Optional[string](o, name, "a text"); err != nil {
			return w, err
		}
	}
	if _, err := web.Required[string](o, "subscription", "a subscription id"); err != nil {
		return w, err
	}
	if w, err = f.whichLetters(func(name string) string { return said[name] }); err != nil {
		return w, err
	}
	if cursor := said["cursor"]; cursor != "" {
		w.At, err = paging.ReadPlace(cursor, f.Store.Partitions())
	}
	w.At.Partition = max(w.At.Partition, w.First)
	return w, err
}
