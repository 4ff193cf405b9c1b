// Command floor is the least that turns an append into a webhook. It long-polls each stream that is created through it,
// and POSTs at once. It keeps no state, signs nothing and repeats nothing. So the time that Reveille takes beyond it is
// the price of durability. It knows one webhook, from the latest subscription, and takes every stream for a stream of
// that subscription.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const offsetHeader = "Stream-Next-Offset"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	upstream := flag.String("upstream", "http://127.0.0.1:4437", "root of the stream server")
	flag.Parse()
	root, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", ln.Addr())
	log.Fatal(http.Serve(ln, newFloor(root)))
}

type floor struct {
	root    string
	client  *http.Client
	proxy   *httputil.ReverseProxy
	webhook atomic.Pointer[string]
}

func newFloor(root *url.URL) *floor {
	const unlimited = 1 << 16
	f := &floor{
		root:   strings.TrimSuffix(root.String(), "/"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConns: unlimited, MaxIdleConnsPerHost: unlimited}},
		proxy:  httputil.NewSingleHostReverseProxy(root),
	}
	f.webhook.Store(new(string))
	// A stream is watched from its tail at the creation, so no append after it is missed.
	f.proxy.ModifyResponse = func(res *http.Response) error {
		if res.Request.Method == http.MethodPut && res.StatusCode == http.StatusCreated {
			go f.watch(res.Request.URL.Path, res.Header.Get(offsetHeader))
		}
		return nil
	}
	return f
}

// ServeHTTP takes subscriptions and passes everything else on.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("subscription") {
		f.proxy.ServeHTTP(w, r)
		return
	}
	var body struct{ Webhook string }
	if r.Method == http.MethodPut && json.NewDecoder(r.Body).Decode(&body) == nil {
		f.webhook.Store(&body.Webhook)
	}
	w.WriteHeader(http.StatusCreated)
}

// watch POSTs each time a stream has grown, until the stream is gone.
func (f *floor) watch(path, offset string) {
	wake, err := json.Marshal(map[string]string{"primary_stream": path})
	if err != nil {
		return
	}
	for {
		res, err := f.client.Get(f.root + path + "?live=long-poll&offset=" + url.QueryEscape(offset))
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		drain(res)
		if next := res.Header.Get(offsetHeader); next != "" {
			offset = next
		}
		switch {
		case res.StatusCode == http.StatusOK:
			if res, err := f.client.Post(*f.webhook.Load(), "application/json",
				strings.NewReader(string(wake))); err == nil {
				drain(res)
			}
		case res.StatusCode/100 != 2:
			return
		}
	}
}

func drain(res *http.Response) {
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}
