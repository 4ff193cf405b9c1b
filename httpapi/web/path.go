package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

// RawPath is the path as the client wrote it. The type url.URL cannot give it: if one byte should have been encoded, it
// encodes the whole path anew. A "%2F" elsewhere then becomes a slash.
func RawPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath() // the client named the host as well, as it would for a proxy
}

// QueryHas says whether a query has a key, with any value.
func QueryHas(query, key string) bool {
	return len(QueryValues(query, key)) > 0
}

// QueryValues returns the values of a key, not decoded. A pair that url.ParseQuery would drop as malformed also counts.
// Otherwise a request with a misspelt subscription would go to the stream server.
func QueryValues(query, key string) []string {
	var values []string
	for pair := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(k); err == nil && decoded == key {
			values = append(values, v)
		}
	}
	return values
}

// Paths reads an array of stream paths, each path once. It refuses more paths than most says, in the words of tooMany.
// The function canonical brings a path to the form in which it is compared.
func Paths(
	o Object, name string, canonical func(string) (string, error), most int, tooMany string,
) ([]string, error) {
	list, _, err := Optional[[]json.RawMessage](o, name, "an array of stream paths")
	if err != nil {
		return nil, err
	}
	paths, seen := make([]string, 0, min(len(list), most)), make(map[string]bool, min(len(list), most))
	for i, raw := range list {
		path, err := StreamPath(raw, fmt.Sprintf("%s[%d]", name, i), canonical)
		if err != nil {
			return nil, err
		}
		if !seen[path] {
			if len(paths) == most {
				return nil, refusal.New(fsm.CodeInvalidRequest, tooMany, most)
			}
			seen[path] = true
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// StreamPath reads a stream path.
func StreamPath(raw json.RawMessage, name string, canonical func(string) (string, error)) (string, error) {
	text, err := Value[string](raw, name, "a stream path")
	if err != nil {
		return "", err
	}
	path, err := canonical(text)
	if err != nil {
		return "", refusal.New(fsm.CodeInvalidRequest, "%s: %v", name, err)
	}
	return path, nil
}

// OnlyParams refuses a request whose query has other parameters than the known ones.
func OnlyParams(c echo.Context, known ...string) error {
	for name := range c.QueryParams() {
		if !slices.Contains(known, name) {
			return refusal.New(fsm.CodeInvalidRequest, "%q is not a parameter of this request", name)
		}
	}
	return nil
}
