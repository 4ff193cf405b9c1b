package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// defaultListenPort is the port of a listener.
	defaultListenPort = 3000
	// maxReceived bounds what a listener reads of one request, and of one answer, in bytes.
	maxReceived = 8 << 20
	// maxAtOnce bounds the requests that a listener works on at the same time. Others wait.
	maxAtOnce = 16
	// listenTimeout bounds each request of a listener, stopListening the wait for those that it works on as it ends.
	listenTimeout, stopListening = 30 * time.Second, time.Second
)

var listenCommand = command{
	name: "listen", does: "receive wakes and pushes on this machine, verify and print them",
	about: "It is an endpoint for trying out. Give a subscription the URL that it prints. Reveille calls it only " +
		"with\nREVEILLE_ALLOW_INSECURE_WEBHOOKS=true. --output json prints one line for each request.\n" +
		"A wake is worked on as by a worker: it is claimed, its events are read and printed (10 of each stream), " +
		"then acked. They\nare read through the gateway of Reveille, or from --upstream. A push is printed and " +
		"answered with 204. With a secret, a\nrequest that is not signed by it is answered with 401.\n" +
		"A secret on a command line can be seen by everybody on the machine (ps): " + listenSecretName + " is not.",
	flags: func(c *cli, f *flag.FlagSet) {
		f.IntVar(&c.listen.port, "port", defaultListenPort, "the `port` to listen on; 0 for one that is free")
		f.StringVar(&c.listen.host, "host", "127.0.0.1", "the `address` to listen on")
		f.Func("secret", "the `secret` of a subscription, may be repeated; "+listenSecretName+
			" by default, with commas", func(text string) error {
			c.listen.secrets = append(c.listen.secrets, text)
			return nil
		})
		f.StringVar(&c.listen.forward, "forward", "",
			"pass each request on to this `URL`, and answer what it answers; wakes are left to it, too")
		f.StringVar(&c.listen.upstream, "upstream", "",
			"the `URL` of the stream server, where Reveille runs without its gateway")
		outputs(c, f)
	},
	run: (*cli).listenHere,
}

// listenFlags are the flags of reveille listen.
type listenFlags struct {
	port                    int
	host, forward, upstream string
	secrets                 []string
}

// listener is an endpoint that shows what it receives.
type listener struct {
	*cli
	// forward is where requests are passed on; nil to answer them here.
	forward *url.URL
	client  *http.Client
	colour  bool
	// slots has room for as many as are worked on at once.
	slots chan struct{}
	mu    sync.Mutex // of out
}

// listenHere serves until the context ends.
func (c *cli) listenHere(ctx context.Context, _ []string) error {
	l := &listener{
		cli: c, colour: isTerminal(c.out) && !noColour(), slots: make(chan struct{}, maxAtOnce),
		client: &http.Client{
			Timeout:       listenTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if len(c.listen.secrets) == 0 {
		c.listen.secrets = listenSecrets()
	}
	for name, text := range map[string]string{"--forward": c.listen.forward, "--upstream": c.listen.upstream} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return usageError{fmt.Sprintf(
				"listen: %s %q: expected a URL such as http://localhost:4000/hook", name, redact(text))}
		}
		if name == "--forward" && text != "" {
			l.forward = u
		}
	}
	// A wake has this program make requests. From another machine, only who knows the secret may send one.
	if ip := net.ParseIP(c.listen.host); len(c.listen.secrets) == 0 && c.listen.host != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return usageError{fmt.Sprintf("listen: --host %s lets other machines send requests: give --secret or %s",
			c.listen.host, listenSecretName)}
	}
	at := net.JoinHostPort(c.listen.host, strconv.Itoa(c.listen.port))
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use: choose another with --port, or 0 for one that is free", at)
	case err != nil:
		return fmt.Errorf("cannot listen on %s (--host and --port): %w", at, err)
	}
	if err := l.begins(socket.Addr()); err != nil {
		_ = socket.Close()
		return err
	}
	server := &http.Server{Handler: l, ReadHeaderTimeout: listenTimeout, ReadTimeout: listenTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	select {
	case err = <-served:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopListening)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close()
		}
		err = <-served
	}
	l.client.CloseIdleConnections()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// begins says where it listens.
func (l *listener) begins(addr net.Addr) error {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	at := "http://" + net.JoinHostPort(host, port)
	if l.output == outputJSON {
		return json.NewEncoder(l.out).Encode(map[string]string{"listens_on": at})
	}
	text := "Listening on " + at + " (Ctrl-C ends it).\n"
	if len(l.listen.secrets) == 0 {
		text += "Signatures are not verified: that needs --secret or " + listenSecretName + ".\n"
	}
	_, err = io.WriteString(l.out, text)
	return err
}

// ServeHTTP shows a request and answers it.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "reveille listen takes webhooks: requests by POST", http.StatusMethodNotAllowed)
		return
	case r.Header.Get("Origin") != "": // a wake has this program make requests: not for a page in a browser
		http.Error(w, "reveille listen takes no requests of web pages", http.StatusForbidden)
		return
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-r.Context().Done():
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceived))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("the body is longer than %d bytes", maxReceived), http.StatusRequestEntityTooLarge)
		return
	} else if err != nil {
		return // the sender is gone
	}
	got := read(r.Header, body)
	got.At = l.now().UTC()
	l.verify(got, r.Header, body)
	var answer []byte
	switch {
	case got.Verified != nil && !*got.Verified:
		got.Status = http.StatusUnauthorized
		answer = []byte("reveille listen: " + got.NotVerified + "\n")
	case l.forward != nil:
		answer = l.pass(r, got, body, w.Header())
	case got.Kind == kindWake:
		l.work(r.Context(), got)
	case got.Kind == kindOther:
		got.Status = http.StatusBadRequest
		answer = []byte("reveille listen: it is neither a wake nor a push\n")
	default:
		got.Status = http.StatusNoContent
	}
	l.show(got)
	w.WriteHeader(got.Status)
	_, _ = w.Write(answer)
}

// pass passes a request on, and returns the body of the answer. Its header is added to the one that is given.
func (l *listener) pass(r *http.Request, got *received, body []byte, header http.Header) []byte {
	to := *l.forward
	to.RawQuery = strings.Trim(to.RawQuery+"&"+r.URL.RawQuery, "&")
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to.String(), bytes.NewReader(body))
	if err == nil {
		out.Header = r.Header.Clone()
		for _, name := range hopByHop {
			out.Header.Del(name)
		}
		var res *http.Response
		if res, err = l.client.Do(out); err == nil {
			defer res.Body.Close()
			var answer []byte
			if answer, err = io.ReadAll(io.LimitReader(res.Body, maxReceived)); err == nil {
				for name, values := range res.Header {
					header[name] = values
				}
				for _, name := range append(hopByHop, "Content-Length") {
					header.Del(name)
				}
				got.Status, got.By = res.StatusCode, redact(l.forward.String())
				return answer
			}
		}
	}
	got.Status = http.StatusBadGateway
	got.Failed = fmt.Sprintf("no answer from %s (--forward): %v", redact(l.forward.String()), withoutURL(err))
	return []byte("reveille listen: " + got.Failed + "\n")
}

// hopByHop are the headers that are of one connection alone (RFC 9110, 7.6.1).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}
