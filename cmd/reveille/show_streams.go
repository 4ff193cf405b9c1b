package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const streamsPath = "/api/v1/streams"

// shownStream is a stream in the operator's API, with the fields that the commands show.
type shownStream struct {
	Path      string    `json:"path"`
	Since     time.Time `json:"known_since"`
	Awaited   bool      `json:"awaited"`
	Partition int       `json:"partition"`
	Tail      string    `json:"tail"`
}

func (c *cli) streams(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return c.nameStreams(ctx, args[0], args[1:])
	}
	var body struct {
		Streams []shownStream `json:"streams"`
		Next    string        `json:"next"`
	}
	path := c.list(streamsPath, [2]string{"watched", when(c.watched, "true")})
	if printed, err := c.ask(ctx, http.MethodGet, path, nil, &body); printed || err != nil {
		return err
	}
	rows := [][]string{{"STREAM", "KNOWN SINCE", ""}}
	if c.watched {
		rows = [][]string{{"STREAM", "TAIL", "PARTITION"}}
	}
	for _, s := range body.Streams {
		row := []string{s.Path, stamp(s.Since), ""}
		switch {
		case c.watched:
			row = []string{s.Path, s.Tail, fmt.Sprint(s.Partition)}
		case s.Awaited:
			row[2] = "awaited: the stream server did not have it yet"
		}
		rows = append(rows, row)
	}
	return c.rows(rows, "streams", body.Next)
}

func (c *cli) nameStreams(ctx context.Context, what string, paths []string) error {
	method := map[string]string{"name": http.MethodPost, "forget": http.MethodDelete}[what]
	if method == "" || len(paths) == 0 {
		return usageError{"usage: reveille streams [flags] [name|forget STREAM…]"}
	}
	var body struct {
		Streams int `json:"streams"`
	}
	if printed, err := c.ask(
		ctx, method, streamsPath, map[string][]string{"streams": paths}, &body,
	); printed || err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%d %s\n", body.Streams,
		map[string]string{"name": "named", "forget": "forgotten, with their consumers"}[what])
	return err
}
