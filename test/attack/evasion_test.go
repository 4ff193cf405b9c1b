package attack

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// arrivals is an endpoint on this machine that notes when the requests of each path came.
type arrivals struct {
	port string

	mu   sync.Mutex
	came map[string][]time.Time
}

func newArrivals(t *testing.T) *arrivals {
	t.Helper()
	a := &arrivals{came: map[string][]time.Time{}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.came[r.URL.Path] = append(a.came[r.URL.Path], time.Now())
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"done":true}`))
	}))
	t.Cleanup(srv.Close)
	_, a.port, _ = net.SplitHostPort(srv.Listener.Addr().String())
	return a
}

// at returns when requests came to a path.
func (a *arrivals) at(path string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.came[path])
}

// most returns the largest number of times that are within a minute.
func most(times []time.Time) (n int) {
	for i := range times {
		end, _ := slices.BinarySearchFunc(times, times[i].Add(time.Minute), time.Time.Compare)
		n = max(n, end-i)
	}
	return n
}

// hosts are ways to write one host, by its path. PORT stands for the port. Other names than localhost need a resolver.
var hosts = map[string][]string{
	"/address": {
		"http://127.0.0.1:PORT", "HTTP://127.0.0.1:0PORT", "http://[::ffff:127.0.0.1]:PORT",
		"http://[::FFFF:7f00:1]:PORT", "http://[0:0:0:0:0:ffff:7f00:0001]:00PORT",
		"http://[0000:0000:0000:0000:0000:ffff:127.0.0.1]:PORT",
	},
	"/name": {
		"http://localhost:PORT", "hTTp://LocalHost:PORT", "http://LOCALHOST:0PORT", "http://ｌｏｃａｌｈｏｓｔ:PORT",
		"http://local\u00adhost:PORT",
	},
}

// disguised are webhooks that are refused: no resolver or client gets to read them in another way.
var disguised = []string{
	"http://2130706433:PORT/", "http://0x7f000001:PORT/", "http://0X7F.1:PORT/", "http://017700000001:PORT/",
	"http://0177.0.0.1:PORT/", "http://127.1:PORT/", "http://127.0.1:PORT/", "http://127.0.0.1.:PORT/",
	"http://127.0.0.01:PORT/", "http://127.0.0.256:PORT/", "http://127。0。0。1:PORT/", "http://①②⑦.⓪.⓪.①:PORT/",
	"http://%31%32%37.0.0.1:PORT/", "http://0/", "http://[127.0.0.1]:PORT/", "http://[::1%25lo]:PORT/",
	"http://[::ffff:127.0.0.1%25lo]:PORT/", "http://[::127.0.0.1]:PORT/", "http://[2002:7f00:1::]:PORT/",
	"http://user@127.0.0.1:PORT/", "http://user:secret@localhost:PORT/", "http://@localhost:PORT/",
	"http://other.example@127.0.0.1:PORT/", "http://localhost..:PORT/", "http://localhost%00.example:PORT/",
	"http://localhost%2e:PORT/", "http://localhost :PORT/", "http://localhost\\\\@other.example:PORT/",
	"http://localhost:PORT#@other.example/", "http:localhost:PORT/", "//localhost:PORT/", "http:///localhost:PORT/",
	"http://localhost:+PORT/", "http://localhost:0/", "http://localhost:65536/",
	"http://loc\\tal\\nhost:PORT/",
}

// TestEvasionOfARate has subscriptions write one endpoint in many ways. Together they get its rate, as the endpoint
// itself sees it. What could be read as another host than it says is refused.
func TestEvasionOfARate(t *testing.T) {
	limit := fsm.Limit{Rate: 240}
	streams := inShort(3, size(10, 50))
	r := newRig(t, map[string]string{"REVEILLE_MAX_RATE": fmt.Sprint(limit.Rate)})
	hook := newArrivals(t)
	of := func(form string) string { return strings.ReplaceAll(form, "PORT", hook.port) }

	for _, form := range disguised {
		res := r.gateway.PutSubscription("/disguised/*", "disguised", `{"webhook":"`+of(form)+`"}`)
		if res.Status != http.StatusBadRequest || !strings.Contains(res.Body, "webhook") ||
			strings.Contains(res.Body, "user:secret") {
			t.Errorf("%s: %d %s, want 400 that names the field", of(form), res.Status, res.Body)
		}
	}
	if _, there := r.gateway.Subscription("disguised"); there {
		t.Error("a refused request has made a subscription")
	}

	began := time.Now()
	var paths []string
	for path, forms := range hosts {
		for i, form := range forms {
			id := fmt.Sprintf("%s-%d", path[1:], i)
			r.gateway.SubscribeURL("/"+id+"/*", id, of(form)+path+"?"+url.QueryEscape(form))
			for n := range streams {
				paths = append(paths, fmt.Sprintf("/%s/%d", id, n))
			}
		}
	}
	together(len(paths), func(i int) { r.must(http.MethodPut, paths[i], "") })
	for path, forms := range hosts {
		all := len(forms) * streams
		within := harness.Wait + 2*time.Duration(all)*limit.Interval()
		harness.Eventually(t, within, "all wakes have come to "+path, func() error {
			if n := len(hook.at(path)); n < all {
				return fmt.Errorf("%d of %d", n, all)
			}
			return nil
		})
		came := hook.at(path)
		slices.SortFunc(came, time.Time.Compare)
		for i, at := range came {
			if least := time.Duration(i+1-limit.Burst()) * limit.Interval(); at.Sub(began) < least {
				t.Errorf("%d wakes came to %s within %s: that is less than %s", i+1, path, at.Sub(began), least)
				break
			}
		}
		// A slow machine can bring two bursts together.
		if n := most(came); n > limit.Rate+2*limit.Burst() {
			t.Errorf("%d wakes came to %s within a minute", n, path)
		}
	}
}
