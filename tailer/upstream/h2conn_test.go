package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestAnswersOverHTTP2 holds which answers count, and what each that breaks the rules costs.
func TestAnswersOverHTTP2(t *testing.T) {
	const protocol = http2.ErrCodeProtocol
	long := strings.Repeat("x", headerLimit)
	for name, c := range map[string]struct {
		// answer answers the first request. body and err are what the asker sees: parts of what it says.
		answer    func(p *h2Peer, id uint32)
		body, err string
		// code is what the server hears: of the stream, or of the connection if that ends. noCode if it hears nothing.
		code http2.ErrCode
		ends bool
	}{
		"in order": {answer: func(p *h2Peer, id uint32) { p.ok(id, "hello") }, body: "hello", code: noCode},
		"in pieces": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200", "content-length", "5")
			_ = p.WriteData(id, false, []byte("hel"))
			_ = p.WriteData(id, false, nil)
			_ = p.WriteData(id, false, []byte("lo"))
			_ = p.WriteData(id, true, nil)
		}, body: "hello", code: noCode},
		"without a body": {answer: func(p *h2Peer, id uint32) { p.header(id, true, ":status", "200") }, code: noCode},
		"with padding": {answer: func(p *h2Peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, BlockFragment: p.fields(":status", "200"), EndHeaders: true, PadLength: 200,
			})
			_ = p.WriteDataPadded(id, false, []byte("hello"), make([]byte, 255))
			_ = p.WriteDataPadded(id, true, nil, make([]byte, 10))
		}, body: "hello", code: noCode},
		"with more padding than may arrive at once": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200")
			for range aheadLimit >> 8 {
				_ = p.WriteDataPadded(id, false, nil, make([]byte, 255))
			}
			p.await(func(f http2.Frame) bool {
				return f.Header().Type == http2.FrameWindowUpdate && f.Header().StreamID == id
			})
			_ = p.WriteDataPadded(id, true, []byte("hello"), make([]byte, 255))
		}, body: "hello", code: noCode},
		"a header in several frames": {answer: func(p *h2Peer, id uint32) {
			block := p.fields(":status", "200", "x", "y")
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1]})
			_ = p.WriteContinuation(id, false, nil)
			_ = p.WriteContinuation(id, true, block[1:])
			_ = p.WriteData(id, true, []byte("hello"))
		}, body: "hello", code: noCode},
		"after informational ones": {answer: func(p *h2Peer, id uint32) {
			for range 100 {
				p.header(id, false, ":status", "102")
			}
			p.header(id, false, ":status", "103", "link", "x")
			p.ok(id, "hello")
		}, body: "hello", code: noCode},
		"with trailers": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200")
			_ = p.WriteData(id, false, []byte("hello"))
			p.header(id, true, "x", "y")
		}, body: "hello", code: noCode},
		"frames of other kinds between": {answer: func(p *h2Peer, id uint32) {
			_ = p.WriteRawFrame(0xfa, 0, id, []byte("x"))
			p.header(id, false, ":status", "200")
			_ = p.WritePriority(id, http2.PriorityParam{Weight: 1})
			_ = p.WriteWindowUpdate(id, h2LastID)
			_ = p.WriteWindowUpdate(id, h2LastID) // it matters to no request that has a body
			_ = p.WriteWindowUpdate(0, h2LastID)
			_ = p.WriteWindowUpdate(0, h2LastID)
			_ = p.WriteSettingsAck()
			_ = p.WriteData(id, true, []byte("hello"))
		}, body: "hello", code: noCode},
		"data for a request that was answered": {answer: func(p *h2Peer, id uint32) {
			p.ok(id, "hello")
			_ = p.WriteData(id, true, []byte("hello"))
			p.header(id, true, ":status", "200")
			_ = p.WriteRSTStream(id, http2.ErrCodeNo)
		}, body: "hello", code: noCode},

		"shorter than it says": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200", "content-length", "6")
			_ = p.WriteData(id, true, []byte("hello"))
		}, body: "hello", err: "unexpected EOF", code: noCode},
		"shorter than it says, with trailers": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200", "content-length", "8")
			_ = p.WriteData(id, false, []byte("hel"))
			p.header(id, true, "x", "y")
		}, body: "hel", err: "unexpected EOF", code: noCode},
		"nothing of what it says": {answer: func(p *h2Peer, id uint32) {
			p.header(id, true, ":status", "200", "content-length", "8")
		}, err: "unexpected EOF", code: noCode},
		"longer than it says": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200", "content-length", "4")
			_ = p.WriteData(id, true, []byte("hello"))
		}, err: "PROTOCOL_ERROR", code: protocol},
		"a header that is too long": {answer: func(p *h2Peer, id uint32) {
			block := p.fields(":status", "200", "x", long)
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:h2Frame]})
			for block = block[h2Frame:]; len(block) > h2Frame; block = block[h2Frame:] {
				_ = p.WriteContinuation(id, false, block[:h2Frame])
			}
			_ = p.WriteContinuation(id, true, block)
		}, err: "the header of the answer is longer than 65536 bytes", code: protocol},
		"no status": {
			answer: func(p *h2Peer, id uint32) { p.header(id, true, "x", "y") },
			err:    "no status", code: protocol,
		},
		"a status that is no number": {
			answer: func(p *h2Peer, id uint32) { p.header(id, true, ":status", "ok") },
			err:    "no status", code: protocol,
		},
		"another protocol": {
			answer: func(p *h2Peer, id uint32) { p.header(id, false, ":status", "101") },
			err:    "no status", code: protocol,
		},
		"informational ones without end": {answer: func(p *h2Peer, id uint32) {
			for range 1 << 10 {
				p.header(id, false, ":status", "103", "link", long[:100])
			}
		}, err: "informational", code: protocol},
		"an informational one at the end": {
			answer: func(p *h2Peer, id uint32) { p.header(id, true, ":status", "103") },
			err:    "informational", code: protocol,
		},
		"data before the header": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteData(id, true, []byte("hello")) },
			err:    "PROTOCOL_ERROR", code: protocol,
		},
		"a second header": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200")
			p.header(id, false, ":status", "200")
		}, err: "trailers", code: protocol},
		"a name in capitals": {
			answer: func(p *h2Peer, id uint32) { p.header(id, true, ":status", "200", "X", "y") },
			err:    "PROTOCOL_ERROR", code: protocol,
		},
		"a request as the answer": {
			answer: func(p *h2Peer, id uint32) { p.header(id, true, ":method", "GET", ":path", "/") },
			err:    "no status", code: protocol,
		},
		"a reset": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeEnhanceYourCalm) },
			err:    "upstream reset the stream: ENHANCE_YOUR_CALM", code: noCode,
		},
		"a reset within the body": {answer: func(p *h2Peer, id uint32) {
			p.header(id, false, ":status", "200")
			_ = p.WriteData(id, false, []byte("hello"))
			_ = p.WriteRSTStream(id, http2.ErrCodeInternal)
		}, body: "hello", err: "INTERNAL_ERROR", code: noCode},

		"a reset because of a mistake": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteRSTStream(id, protocol) },
			err:    "upstream reset the stream: PROTOCOL_ERROR", code: noCode, ends: true,
		},
		"for a request that was never made": {
			answer: func(p *h2Peer, id uint32) { p.header(id+2, true, ":status", "200") },
			err:    "PROTOCOL_ERROR", code: protocol, ends: true,
		},
		"data for a request that was never made": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteData(id+2, true, nil) },
			err:    "PROTOCOL_ERROR", code: protocol, ends: true,
		},
		"a reset of a request that was never made": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteRSTStream(id+2, http2.ErrCodeNo) },
			err:    "PROTOCOL_ERROR", code: protocol, ends: true,
		},
		"of the server's own accord": {
			answer: func(p *h2Peer, id uint32) { p.header(2, true, ":status", "200") },
			err:    "PROTOCOL_ERROR", code: protocol, ends: true,
		},
		"a push": {answer: func(p *h2Peer, id uint32) {
			_ = p.WritePushPromise(http2.PushPromiseParam{
				StreamID: id, PromiseID: 2, BlockFragment: p.fields(":method", "GET"), EndHeaders: true,
			})
		}, err: "PROTOCOL_ERROR", code: protocol, ends: true},
		"a header that is no HPACK": {answer: func(p *h2Peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{
				StreamID: id, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true,
			})
		}, err: "COMPRESSION_ERROR", code: http2.ErrCodeCompression, ends: true},
		"a header that does not end": {answer: func(p *h2Peer, id uint32) {
			block := p.fields(":status", "200", "x", long)
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block})
			for range 1 << 10 {
				if p.WriteContinuation(id, false, p.fields("x", long)) != nil {
					break
				}
			}
		}, err: "HTTP/2", code: noCode, ends: true},
		"another frame within a header": {answer: func(p *h2Peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(":status", "200")})
			_ = p.WriteData(id, true, nil)
		}, err: "expected CONTINUATION", code: protocol, ends: true},
		"a frame that is too long": {
			answer: func(p *h2Peer, id uint32) { _ = p.WriteData(id, true, make([]byte, h2Frame+1)) },
			err:    "frame too large", code: noCode, ends: true,
		},
		"a setting out of bounds": {answer: func(p *h2Peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
		}, err: "PROTOCOL_ERROR", code: protocol, ends: true},
		"padding beyond the frame": {
			answer: func(p *h2Peer, id uint32) {
				_ = p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, id, []byte{9})
			},
			err: "PROTOCOL_ERROR", code: protocol, ends: true,
		},
		"cut off in a frame": {answer: func(p *h2Peer, id uint32) {
			_, _ = p.conn.Write([]byte{0, 0, 9, 0, 0, 0, 0, 0, byte(id), 'x'})
			_ = p.conn.Close()
		}, err: "HTTP/2", code: noCode, ends: true},
		"not HTTP/2": {
			answer: func(p *h2Peer, _ uint32) { _, _ = io.WriteString(p.conn, "HTTP/1.1 400 Bad Request\r\n\r\n") },
			err:    "HTTP/2", code: noCode, ends: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan http2.ErrCode, 1)
			client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, n int) {
				if n == 1 {
					id := p.asked()
					c.answer(p, id)
					switch {
					case c.ends:
						heard <- p.end()
						return
					case c.code != noCode:
						heard <- p.end()
					}
				}
				p.rest()
			})
			status, body, err := h2Get(t.Context(), client)
			switch {
			case (err == nil) != (c.err == ""), err != nil && !strings.Contains(err.Error(), c.err):
				t.Errorf("got error %v, want %q", err, c.err)
			case err != nil && (errors.Is(err, io.EOF) || strings.Contains(err.Error(), "\n")):
				t.Errorf("got error %q", err)
			case c.err == "" && status != 200, body != c.body && c.code == noCode:
				t.Errorf("got %d %q, want %q", status, body, c.body)
			}
			if c.code != noCode { // before the next request: the server passes over requests until it hears
				if code := <-heard; code != c.code {
					t.Errorf("the server heard %s, want %s", code, c.code)
				}
			}
			// What concerns one answer concerns no other.
			if _, body, err := h2Get(t.Context(), client); body != "ok" {
				t.Errorf("the next request: %q, %v", body, err)
			}
			if n := connections(); n != 1 && !c.ends || n != 2 && c.ends {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestAServerOfHTTP2ThatBeginsWrong holds that such a server gets no request.
func TestAServerOfHTTP2ThatBeginsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		greet func(*h2Peer)
		err   string
	}{
		"it closes":       {func(p *h2Peer) { _ = p.conn.Close() }, "HTTP/2"},
		"it ends at once": {func(p *h2Peer) { _ = p.WriteGoAway(0, http2.ErrCodeNo, nil) }, "does not begin with"},
		"it acknowledges": {func(p *h2Peer) { _ = p.WriteSettingsAck() }, "does not begin with"},
		"it takes nothing": {
			h2Greeting(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}),
			"takes no requests",
		},
		"it allows what it cannot": {
			h2Greeting(http2.Setting{ID: http2.SettingEnablePush, Val: 2}),
			"PROTOCOL_ERROR",
		},
		"its window overflows": {
			h2Greeting(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}),
			"FLOW_CONTROL_ERROR",
		},
		"it is one of HTTP/1.1": {func(p *h2Peer) {
			_, _ = io.WriteString(p.conn, "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Length: 0\r\n\r\n")
		}, "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := h2Serve(t, c.greet, func(p *h2Peer, _ int) {
				if p.asked() != 0 {
					t.Error("it got a request")
				}
			})
			if _, _, err := h2Get(t.Context(), client); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}

// TestARequestOverHTTP2IsSentAgainIfItWasNotProcessed holds that no other failure is: upstream may have acted on it.
func TestARequestOverHTTP2IsSentAgainIfItWasNotProcessed(t *testing.T) {
	tries := 1 + len(h2Pauses)
	for name, c := range map[string]struct {
		// refuse refuses a request; it does so on all connections if always is set.
		refuse func(p *h2Peer, id uint32)
		always bool
		// requests and connections are how many there are then.
		requests, connections int
		err                   string
	}{
		"refused": {
			refuse:   func(p *h2Peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
			requests: 2, connections: 1,
		},
		"refused again and again": {
			refuse: func(p *h2Peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
			always: true, requests: tries, connections: 1, err: "REFUSED_STREAM",
		},
		"too late": {
			refuse:   func(p *h2Peer, _ uint32) { _ = p.WriteGoAway(0, http2.ErrCodeNo, nil) },
			requests: 2, connections: 2,
		},
		"too late again and again": {
			refuse: func(p *h2Peer, _ uint32) { _ = p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
			always: true, requests: tries, connections: tries, err: "GOAWAY, ENHANCE_YOUR_CALM",
		},
		"in time for an end that comes": {refuse: func(p *h2Peer, id uint32) {
			_ = p.WriteGoAway(h2LastID, http2.ErrCodeNo, nil)
			_ = p.WriteGoAway(id, http2.ErrCodeNo, nil)
			p.ok(id, "ok")
		}, requests: 1, connections: 1},
		"an end, and then nothing": {refuse: func(p *h2Peer, id uint32) {
			_ = p.WriteGoAway(id, http2.ErrCodeInternal, nil)
			_ = p.conn.Close()
		}, requests: 1, connections: 1, err: "GOAWAY, INTERNAL_ERROR"},
		"just an end": {
			refuse:   func(p *h2Peer, id uint32) { _ = p.conn.(*net.TCPConn).CloseWrite() },
			requests: 1, connections: 1, err: "HTTP/2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := make(chan uint32, 10)
			client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, n int) {
				first := true
				for id := p.asked(); id != 0; id = p.asked() {
					if requests <- id; c.always || n == 1 && first {
						first = false
						c.refuse(p, id)
						continue
					}
					p.ok(id, "ok")
				}
			})
			_, body, err := h2Get(t.Context(), client)
			if c.err == "" && body != "ok" || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %q, %v, want %q", body, err, c.err)
			}
			if errors.Is(err, io.EOF) {
				t.Error("it is taken for the end of an answer")
			}
			if len(requests) != c.requests || connections() != c.connections {
				t.Errorf("%d requests by %d connections", len(requests), connections())
			}
		})
	}
}

// TestWhatAnEndingConnectionStillProcessesGoesOn holds that GOAWAY ends no request before it, and that the connection
// closes after the last one.
func TestWhatAnEndingConnectionStillProcessesGoesOn(t *testing.T) {
	closed := make(chan struct{})
	begun := make(chan struct{})
	client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, n int) {
		if n > 1 {
			p.rest()
			return
		}
		first := p.asked()
		p.header(first, false, ":status", "200")
		_ = p.WriteData(first, false, []byte("a"))
		<-begun
		_ = p.WriteGoAway(first, http2.ErrCodeNo, nil)
		_ = p.WriteData(first, false, []byte("b"))
		if id := p.asked(); id != 0 { // it may have been sent before
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}
		close(closed)
	})
	res, err := client.h2.do(t.Context(), "/root/a")
	if err != nil {
		t.Fatal(err)
	}
	read := func(want string) {
		t.Helper()
		got := make([]byte, 1)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	read("a")
	close(begun)
	read("b")
	if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != 2 {
		t.Errorf("another request: %q, %v, by %d connections", body, err, connections())
	}
	began := time.Now()
	_ = res.Body.Close()
	if <-closed; time.Since(began) > pingAfter {
		t.Error("the connection stays")
	}
}

// TestAServerOfHTTP2ThatEndsEachConnectionAtOnce holds that a request does not make one connection after the other.
func TestAServerOfHTTP2ThatEndsEachConnectionAtOnce(t *testing.T) {
	for reason, ends := range map[string]func(p *h2Peer){
		"ENHANCE_YOUR_CALM": func(p *h2Peer) { _ = p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
		"REFUSED_STREAM": func(p *h2Peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			client, connections := h2Serve(t, func(p *h2Peer) {
				_ = p.WriteSettings()
				ends(p)
			}, func(p *h2Peer, _ int) {
				for id := p.asked(); id != 0; id = p.asked() {
					_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				}
			})
			_, _, err := h2Get(t.Context(), client)
			if tries := 1 + len(h2Pauses); err == nil || connections() > tries ||
				!strings.Contains(err.Error(), reason) && !strings.Contains(err.Error(), errRetired.Error()) {
				t.Errorf("got %v, by %d connections", err, connections())
			}
		})
	}
}

// TestAConnectionOfHTTP2IsReplacedBeforeItsNumbersEnd holds that no number is used twice, nor one that is too large.
func TestAConnectionOfHTTP2IsReplacedBeforeItsNumbersEnd(t *testing.T) {
	client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) { p.rest() })
	for n, want := range []int{1, 1, 1, 2} {
		if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != want {
			t.Errorf("request %d: %q, %v, by %d connections", n+1, body, err, connections())
		}
		if n == 0 {
			c := client.h2.conns[0]
			c.mu.Lock()
			c.nextID = h2LastID - 2
			c.mu.Unlock()
		}
	}
}

// TestAConnectionOfHTTP2WithoutRequestsClosesIfTheServerEndsIt holds that it does not stay until it is idle for long.
func TestAConnectionOfHTTP2WithoutRequestsClosesIfTheServerEndsIt(t *testing.T) {
	for how, ends := range map[string]func(p *h2Peer){
		"it says so": func(p *h2Peer) { _ = p.WriteGoAway(h2LastID, http2.ErrCodeNo, nil) },
		"it takes no further requests": func(p *h2Peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		},
	} {
		t.Run(how, func(t *testing.T) {
			ended, closed := make(chan struct{}), make(chan struct{})
			client, _ := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
				p.ok(p.asked(), "ok")
				<-ended
				ends(p)
				p.await(func(http2.Frame) bool { return false })
				close(closed)
			})
			if _, body, err := h2Get(t.Context(), client); body != "ok" {
				t.Errorf("got %q, %v", body, err)
			}
			began := time.Now()
			close(ended)
			if <-closed; time.Since(began) > pingAfter {
				t.Error("it stays")
			}
		})
	}
}

// TestARequestSaysWhatEndedItsConnectionOverHTTP2 holds that it is not that the connection took no further ones.
func TestARequestSaysWhatEndedItsConnectionOverHTTP2(t *testing.T) {
	ends := make(chan struct{})
	client, _ := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
		p.header(p.asked(), false, ":status", "200")
		<-ends
	})
	res, err := client.h2.do(t.Context(), "/root/a")
	if err != nil {
		t.Fatal(err)
	}
	client.h2.close()
	close(ends)
	if _, err := io.ReadAll(res.Body); err == nil || errors.Is(err, errRetired) {
		t.Errorf("got %v", err)
	}
	_ = res.Body.Close()
}

// TestARequestOverHTTP2SaysWhatOneOverHTTP11Says holds its method, path and headers, also if they need several frames.
func TestARequestOverHTTP2SaysWhatOneOverHTTP11Says(t *testing.T) {
	got := make(chan *http.Request, 1)
	client := h2Real(t, func(_ http.ResponseWriter, r *http.Request) { got <- r },
		func(srv *http.Server) { srv.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: h2Frame} })
	long := strings.Repeat("x", 3*h2Frame)
	client.cfg.Headers = http.Header{
		"Host": {"other"}, "Connection": {"close"}, "Authorization": {"Bearer x"},
		"X-Long": {long}, "X-Twice": {"a", "b"},
	}
	for target, path := range map[string]string{
		"/root/a%2Fb|c?offset=1":             "/root/a%2Fb|c?offset=1",
		"//" + client.cfg.URL.Host + "//a?b": "//a?b",
	} {
		res, err := client.h2.do(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		r := <-got
		if r.Method != http.MethodGet || r.RequestURI != path || r.Host != "other" || r.ContentLength != 0 {
			t.Errorf("%s %s at %s, want %s", r.Method, r.RequestURI, r.Host, path)
		}
		if r.Header.Get("X-Long") != long || !slices.Equal(r.Header["X-Twice"], []string{"a", "b"}) ||
			r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("Connection") != "" ||
			r.Header.Get("User-Agent") == "" {
			t.Errorf("%.500v", r.Header)
		}
	}
}

// TestTheEndOfTheContextEndsARequestOverHTTP2 holds that upstream hears of it, and that it costs the connection
// nothing.
func TestTheEndOfTheContextEndsARequestOverHTTP2(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(p *h2Peer, id uint32)
		ends   func(cancel func(), body io.Closer)
	}{
		"before the answer": {func(*h2Peer, uint32) {}, func(cancel func(), _ io.Closer) { cancel() }},
		"in the answer": {
			func(p *h2Peer, id uint32) { p.header(id, false, ":status", "200") },
			func(cancel func(), _ io.Closer) { cancel() },
		},
		"closed": {
			func(p *h2Peer, id uint32) { p.header(id, false, ":status", "200") },
			func(_ func(), body io.Closer) { _ = body.Close() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			heard := make(chan http2.ErrCode, 1)
			client, connections := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
				id := p.asked()
				c.answer(p, id)
				asked <- struct{}{}
				heard <- p.end()
				_ = p.WriteData(id, true, []byte("late"))
				p.rest()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "before the answer" {
				go func() {
					<-asked
					cancel()
				}()
			}
			res, err := client.h2.do(ctx, "/root/a")
			if err == nil {
				go c.ends(cancel, res.Body)
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			if !errors.Is(err, context.Canceled) && !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("got %v", err)
			}
			if code := <-heard; code != http2.ErrCodeCancel {
				t.Errorf("the server heard %s", code)
			}
			if _, body, err := h2Get(t.Context(), client); body != "ok" || connections() != 1 {
				t.Errorf("the next request: %q, %v, by %d connections", body, err, connections())
			}
		})
	}
}

// TestACancelledAnswerIsNotTakenForAWholeOne holds that data that is dropped does not end in good order.
func TestACancelledAnswerIsNotTakenForAWholeOne(t *testing.T) {
	client, _ := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) { p.rest() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := client.h2.do(ctx, "/root/a")
	if err != nil {
		t.Fatal(err)
	}
	s := res.Body.(*h2Stream)
	for end := time.Now().Add(time.Minute); s.reason() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the answer does not end")
		}
	}
	s.end(context.Canceled, http2.ErrCodeCancel) // as the end of the context does
	if text, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v", text, err)
	}
	_ = res.Body.Close()
}

// reason returns why nothing more arrives.
func (s *h2Stream) reason() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.err
}
