package fault

import (
	"context"
	"io"
	"net"
	"net/http"
)

// How often a receiver answers with one of the brokenAnswers, and has a connection end in one of the two ways of its
// next request, whatever the scenario.
const (
	pushBroken  = 0.02
	pushCloses  = 0.01
	pushForgets = 0.002
)

// brokenAnswer is an answer that is wrong at the level of bytes.
type brokenAnswer struct {
	name string
	// text is sent, times over. Then the connection is closed, or kept until the client closes it.
	text   string
	times  int
	closes bool
	// status is what the answer comes to for the sender; 0 if it is a failure without a status.
	status int
}

// brokenAnswers end their attempt, or have it wait no longer than its timeout. A status counts also if its body breaks
// off: the proxy passes on what has come of the body, and with it the status.
var brokenAnswers = []brokenAnswer{
	{
		name: "a switch of protocols that is kept", times: 1,
		text: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
	},
	{name: "interim answers without end", times: 10_000, text: "HTTP/1.1 102 Processing\r\n\r\n"},
	{name: "a status line that is no HTTP", times: 1, text: "SSH-2.0-OpenSSH_9.6\r\n\r\n"},
	{
		name: "a body that is held before its length", times: 1, status: http.StatusOK,
		text: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all",
	},
	{
		name: "chunks that stop", times: 1, closes: true, status: http.StatusOK,
		text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nnot all",
	},
	{
		name: "a refusal whose chunks stop", times: 1, closes: true, status: http.StatusServiceUnavailable,
		text: "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nnot all",
	},
	{
		name: "a body after a 204", times: 1, status: http.StatusNoContent,
		text: "HTTP/1.1 204 No Content\r\n\r\nmore than there may be",
	},
}

// send answers a request. The connection ends with the world, if its client keeps it for so long.
func (a *brokenAnswer) send(w *world, rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		w.t.Errorf("%s: %v", a.name, err)
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(w.ctx, func() { _ = conn.Close() })()
	for range a.times {
		if _, err := io.WriteString(conn, a.text); err != nil {
			return
		}
	}
	if !a.closes {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// The ways in which a connection that was used ends with its next request. No byte of an answer comes.
const (
	connectionCloses  = "a used connection that is closed"
	connectionForgets = "a used connection that swallows a request"
)

// used is what a connection to a receiver ends with at its next request; empty if that is answered.
type used struct{ next string }

type usedKey struct{}

func withUsed(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, usedKey{}, &used{})
}

// ends ends the connection of a request if that is what has been drawn for it.
func (w *world) ends(req *http.Request) {
	u := req.Context().Value(usedKey{}).(*used)
	if u.next == "" {
		return
	}
	w.drew(u.next)
	if u.next == connectionForgets {
		swallow(w, req)
	}
	panic(http.ErrAbortHandler)
}

// drawEnd draws what the connection of a request that is answered ends with. It ends so more often by broken.
func (w *world) drawEnd(req *http.Request, broken float64) {
	u := req.Context().Value(usedKey{}).(*used)
	switch {
	case w.chance(pushCloses + broken):
		u.next = connectionCloses
	case w.chance(pushForgets + broken/10):
		u.next = connectionForgets
	}
}

// swallow takes a request and answers nothing until its client has gone.
func swallow(w *world, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	select {
	case <-req.Context().Done():
	case <-w.ctx.Done():
	}
}

// drew counts something that was drawn.
func (w *world) drew(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drawn[name]++
}

// drawable are all names that drew is called with in a long run.
func drawable() []string {
	names := []string{connectionCloses, connectionForgets}
	for _, a := range brokenAnswers {
		names = append(names, a.name)
	}
	for _, way := range []string{proxyPlain, proxyTunnel} {
		for _, kind := range []string{proxyRefuses, proxyCuts, proxySwallows} {
			names = append(names, way+", "+kind)
		}
	}
	return names
}
