package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

// mostListed is how many streams the audit names of one request.
const mostListed = 20

// MaxNamed bounds how many streams one operator's request may name.
const MaxNamed = 10_000

// knownStream is a stream that discovery has found.
type knownStream struct {
	Path  string    `json:"path"`
	Since time.Time `json:"known_since"`
	// Awaited is true if upstream did not have it when last asked.
	Awaited bool `json:"awaited,omitempty"`
}

// watchedStream is a stream that consumers of a partition are subscribed to. A stream that concerns several partitions
// is shown for each.
type watchedStream struct {
	Path      string `json:"path"`
	Partition int    `json:"partition"`
	Tail      string `json:"tail,omitempty"`
}

type streamsBody[T any] struct {
	Streams []T `json:"streams"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next,omitempty"`
}

// showStreams lists the known streams or, with watched=true, the streams that consumers are subscribed to. The order is
// Redis's own.
func (f *Face) showStreams(ctx context.Context, c echo.Context, p paging.Page) (any, error) {
	watched, err := strconv.ParseBool(cmp.Or(c.QueryParam("watched"), "false"))
	if err != nil {
		return nil, refusal.New(fsm.CodeInvalidRequest, "watched must be true or false")
	}
	if watched {
		return fillPage(ctx, f, p, f.someWatched)
	}
	return fillPage(ctx, f, p, f.someKnown)
}

// fillPage fills a page, partition by partition. The function some adds the result of one call of the store, and
// says whether the partition has more.
func fillPage[T any](
	ctx context.Context, f *Face, p paging.Page, some func(context.Context, *paging.Place, *[]T, int) (bool, error),
) (any, error) {
	body := streamsBody[T]{Streams: []T{}}
	at := p.From
	for calls := 0; at.Partition < f.Control.View.Partitions(); calls++ {
		if len(body.Streams) >= p.Limit || calls >= paging.MaxCalls {
			body.Next = at.String()
			break
		}
		more, err := some(ctx, &at, &body.Streams, p.Limit)
		if err != nil {
			return nil, err
		}
		if !more {
			at = paging.Place{Partition: at.Partition + 1, Scan: "0"}
		}
	}
	return body, nil
}

func (f *Face) someKnown(
	ctx context.Context, at *paging.Place, list *[]knownStream, limit int,
) (more bool, err error) {
	known, next, err := f.Control.View.ScanStreams(ctx, at.Partition, at.Scan)
	if err != nil {
		return false, err
	}
	slices.SortFunc(known, func(a, b fsm.Stream) int { return cmp.Compare(a.Path, b.Path) })
	for _, k := range known {
		if k.Path <= at.After {
			continue
		}
		if len(*list) == limit {
			return true, nil
		}
		at.After = k.Path
		*list = append(*list, knownStream{Path: k.Path, Since: k.First.UTC(), Awaited: !k.Present()})
	}
	at.Scan, at.After = next, ""
	return next != "0", nil
}

func (f *Face) someWatched(
	ctx context.Context, at *paging.Place, list *[]watchedStream, limit int,
) (more bool, err error) {
	watched, err := f.Control.View.WatchedSince(ctx, at.Partition, at.Seq)
	if err != nil {
		return false, err
	}
	for _, w := range watched {
		if len(*list) == limit {
			return true, nil
		}
		at.Seq = w.Seq
		*list = append(*list, watchedStream{Path: w.Path, Partition: at.Partition, Tail: w.Tail.Value()})
	}
	return len(watched) > 0, nil
}

// nameStreams reads {"streams":["/a",…]} and does the same to all of these streams. If one of them is wrong, it does
// nothing. The argument done is the text of the log line.
func (f *Face) nameStreams(done string, do func(context.Context, []string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		o, err := f.Bodies.Fields(c, "streams")
		if err != nil {
			return err
		}
		list, err := web.Required[[]json.RawMessage](o, "streams", "an array of stream paths")
		if err != nil {
			return err
		}
		if len(list) > MaxNamed {
			return refusal.New(fsm.CodeInvalidRequest, "streams: at most %d can be named in one request", MaxNamed)
		}
		paths, err := web.Paths(o, "streams", fsm.CanonicalPath, math.MaxInt, "")
		if err != nil {
			return err
		}
		change := fsm.Change{What: done, About: strings.Join(paths[:min(len(paths), mostListed)], ", ")}
		if err := do(c.Request().Context(), paths); err != nil {
			if errors.Is(err, fsm.ErrUnavailable) {
				f.Control.Note(c.Request().Context(), control.InPart(change))
			}
			return err
		}
		if change.Count = len(paths); len(paths) > 0 {
			f.Control.Did(c.Request().Context(), change,
				zap.Int("streams", len(paths)), zap.String("first", paths[0]))
		}
		return web.Answer(c, http.StatusOK, map[string]int{"streams": len(paths)}, nil)
	}
}
