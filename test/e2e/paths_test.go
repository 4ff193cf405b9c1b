package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// However a client spells the path of a stream, it is one stream, at the server and here: each event comes once.
func TestAllSpellingsOfAPathAreOneStream(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	p := e.pushes(t, nil)
	for name, c := range map[string]struct{ canonical, created, spelled string }{
		"an encoding that is none":      {"/~bob", "/%7Ebob", "/%7ebob"},
		"another encoding":              {"/%C3%BC", "/%c3%bc", "/%C3%bc"},
		"an encoded slash":              {"/a%2Fb", "/a%2fb", "/%61%2Fb"},
		"dot segments":                  {"/z", "/d/../z", "/./z"},
		"encoded dot segments":          {"/y", "/d/%2e%2E/y", "/%2e/y"},
		"a dot segment at a stream":     {"/x", "/x", "/w/v/../../x"},
		"an encoded letter in a folder": {"/w", "/w", "/%2E/%77"},
	} {
		t.Run(name, func(t *testing.T) {
			path := p.folder + c.canonical
			for _, request := range []struct {
				method, path, body string
				status             int
			}{
				{http.MethodPut, p.folder + c.created, "", http.StatusCreated},
				{http.MethodPost, p.folder + c.spelled, `{"n":1}`, http.StatusNoContent},
				{http.MethodPost, path, `{"n":2}`, http.StatusNoContent},
				{http.MethodHead, p.folder + c.spelled, "", http.StatusOK},
			} {
				a := p.gateway.Do(request.method, request.path, request.body, "Content-Type", "application/json")
				if a.Status != request.status {
					t.Fatalf("%s %s: %d %s", request.method, request.path, a.Status, a.Body)
				}
			}
			want := []string{`{"n":1}`, `{"n":2}`}
			if ids, events := p.receiver.Await(path, len(want)); !slices.Equal(events, want) || ids[0] == ids[1] {
				t.Errorf("pushed %s with the ids %s, want %s", events, ids, want)
			}
			for _, other := range []string{c.created, c.spelled} {
				if _, err := p.consumerOf(p.folder + other); other != c.canonical && err == nil {
					t.Errorf("%s has a consumer of its own", other)
				}
			}
			var there []map[string]int
			p.streams.Do(http.MethodGet, path+"?offset=-1", "").Decode(t, &there)
			if fmt.Sprint(there) != "[map[n:1] map[n:2]]" {
				t.Errorf("at the stream server it is %v", there)
			}
		})
	}
}
