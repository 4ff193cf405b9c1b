package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"reveille/test/harness"
)

// The 201 of a PUT says that the stream is another one than before, although it is longer, and whoever ended the first.
func TestAStreamThatIsMadeAnewThroughTheGatewayIsWokenForFromItsStart(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	for how, end := range map[string]struct {
		header []string
		end    func(path string)
	}{
		"its time to live ended": {[]string{"Stream-TTL", "1"}, func(string) {}},
		"it was deleted past the gateway": {
			nil, func(path string) { e.streams.DeleteStream(path) },
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			root := "/" + name(t)
			path := root + "/x"
			put := func(body string, header ...string) (at string) {
				t.Helper()
				header = append(header, "Content-Type", "application/json")
				res := e.gateway.Do(http.MethodPut, path, body, header...)
				if res.Status != http.StatusCreated {
					t.Fatalf("PUT: %d %s", res.Status, res.Body)
				}
				return res.Header.Get("Stream-Next-Offset")
			}
			f := e.subscriber(root + "/*")
			f.awaitIdle(path, put(`[{"n":1},{"n":2}]`, end.header...))
			before := len(f.wakes(path))
			end.end(path)
			harness.Eventually(t, soon, "the stream server has it no more", func() error {
				if res := e.streams.Do(http.MethodHead, path, ""); res.Status != http.StatusNotFound {
					return fmt.Errorf("status %d", res.Status)
				}
				return nil
			})
			at := put(`[{"m":1},{"m":2},{"m":3}]`)
			harness.Eventually(t, soon, "a wake for all of it", func() error {
				for _, w := range f.wakes(path)[before:] {
					if w.Offset(path) == "-1" {
						return nil
					}
				}
				return errors.New("no such wake")
			})
			f.awaitIdle(path, at)
			f.wakesOnAppend(path, at)
		})
	}
}
