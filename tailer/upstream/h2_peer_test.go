package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2Peer is the server's side of a connection, which a test plays frame by frame.
type h2Peer struct {
	*http2.Framer
	t     *testing.T
	conn  net.Conn
	block bytes.Buffer
	enc   *hpack.Encoder
}

// h2Script plays the server on the nth connection, from 1. Afterwards, the connection closes.
type h2Script func(p *h2Peer, n int)

// h2Greeting begins a connection with these settings.
func h2Greeting(settings ...http2.Setting) func(*h2Peer) {
	return func(p *h2Peer) { _ = p.WriteSettings(settings...) }
}

// h2Serve returns a client of a server that a script plays, and a function that returns how many connections there
// were.
func h2Serve(t *testing.T, greet func(*h2Peer), script h2Script) (c *Client, connections func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = New(Config{URL: &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/root"}, H2C: true})
	var mu sync.Mutex
	var playing sync.WaitGroup
	var conns []net.Conn
	playing.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			n := len(conns)
			mu.Unlock()
			playing.Go(func() {
				defer func() { _ = conn.Close() }()
				if p := newH2Peer(t, conn); p != nil {
					greet(p)
					script(p, n)
				}
			})
		}
	})
	t.Cleanup(func() {
		c.Close()
		_ = ln.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		playing.Wait()
	})
	return c, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	}
}

// newH2Peer reads the preface. It returns nil if there is none.
func newH2Peer(t *testing.T, conn net.Conn) *h2Peer {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || string(preface) != http2.ClientPreface {
		return nil
	}
	p := &h2Peer{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
	p.AllowIllegalWrites = true
	p.enc = hpack.NewEncoder(&p.block)
	p.ReadMetaHeaders = hpack.NewDecoder(h2Table, nil)
	return p
}

// await reads frames up to one that is wanted. It returns nil if the connection ends before.
func (p *h2Peer) await(wanted func(http2.Frame) bool) http2.Frame {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return nil
		}
		if wanted(f) {
			return f
		}
	}
}

// request reads up to the next request, and returns it; nil at the end of the connection.
func (p *h2Peer) request() *http2.MetaHeadersFrame {
	f, _ := p.await(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders }).(*http2.MetaHeadersFrame)
	return f
}

// asked returns the stream of the next request; 0 at the end of the connection.
func (p *h2Peer) asked() uint32 {
	if f := p.request(); f != nil {
		return f.StreamID
	}
	return 0
}

// end reads up to what ends a stream or the connection: its code is the result. A connection that just ends has
// noCode.
func (p *h2Peer) end() http2.ErrCode {
	f := p.await(func(f http2.Frame) bool {
		t := f.Header().Type
		return t == http2.FrameRSTStream || t == http2.FrameGoAway
	})
	switch f := f.(type) {
	case *http2.RSTStreamFrame:
		return f.ErrCode
	case *http2.GoAwayFrame:
		return f.ErrCode
	}
	return noCode
}

const noCode = http2.ErrCode(99)

func (p *h2Peer) fields(pairs ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// header sends the header of an answer.
func (p *h2Peer) header(id uint32, ends bool, pairs ...string) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: p.fields(pairs...), EndStream: ends, EndHeaders: true,
	})
}

// ok answers in good order.
func (p *h2Peer) ok(id uint32, body string) {
	p.header(id, false, ":status", "200")
	_ = p.WriteData(id, true, []byte(body))
}

// rest answers all further requests, until the connection ends.
func (p *h2Peer) rest() {
	for id := p.asked(); id != 0; id = p.asked() {
		p.ok(id, "ok")
	}
}

// h2Get makes a live request and reads its answer.
func h2Get(ctx context.Context, c *Client) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	res, err := c.h2.do(ctx, "/root/a?offset=1")
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), errors.Join(err, res.Body.Close())
}

// h2Real is a client of net/http's server by HTTP/2 without TLS.
func h2Real(t *testing.T, h http.HandlerFunc, change ...func(*http.Server)) *Client {
	t.Helper()
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	for _, f := range change {
		f(srv)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	c := New(Config{URL: &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/root"}, H2C: true})
	t.Cleanup(func() {
		c.Close()
		_ = srv.Close()
		serving.Wait()
	})
	return c
}
