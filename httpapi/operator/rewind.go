package operator

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/httpapi/web"
)

// rewoundBody says where a consumer has gone back to.
type rewoundBody struct {
	Subscription string `json:"subscription_id"`
	Consumer     string `json:"consumer_id"`
	Stream       string `json:"stream"`
	// From is the offset that was acknowledged before.
	From string `json:"from"`
	To   string `json:"to"`
}

// rewind has a consumer read a stream again, from an offset.
func (f *Face) rewind(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), paging.Timeout)
	defer cancel()
	get, err := f.texts(c, false, "stream", "consumer_of", "to")
	if err != nil {
		return err
	}
	r, err := f.Rewind(ctx, c.Param("id"), get)
	return web.Answer(c, http.StatusOK, rewoundBody{
		Subscription: r.Subscription, Consumer: r.Consumer, Stream: r.Stream, From: r.From.Value(), To: r.To.Value(),
	}, err)
}

// Rewind is control.Service.Rewind by the fields of a request. Without consumer_of, it is the consumer of the stream.
func (f *Face) Rewind(ctx context.Context, id string, get func(string) string) (r control.Rewound, err error) {
	path, err := streamIn(get, "stream")
	if err != nil {
		return r, err
	}
	primary := path
	if get("consumer_of") != "" {
		if primary, err = streamIn(get, "consumer_of"); err != nil {
			return r, err
		}
	}
	to, err := f.offsetIn(get, "to")
	if err != nil {
		return r, err
	}
	return f.Control.Rewind(ctx, id, primary, path, to)
}
