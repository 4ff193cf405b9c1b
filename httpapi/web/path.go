package web

import (
	"net/http"
	"net/url"
	"strings"
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
