package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatAStopMayTakeIsLessThanThirtySeconds holds that the parts, which stop one after the other, take no more in all
// than the program promises, and than an orchestrator is told to wait for.
func TestWhatAStopMayTakeIsLessThanThirtySeconds(t *testing.T) {
	t.Parallel()
	// reports is what the dispatcher takes for the results of deliveries that were in flight (its tests hold that).
	const reports = 5 * time.Second
	if all := resignTime + deliveryGrace + reports + portGrace + flushTime; all >= 30*time.Second {
		t.Errorf("they may take %s", all)
	}
}

func TestAPortInUseIsSaidToBe(t *testing.T) {
	ln, err := listen(t.Context(), "LISTEN_ADDR", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	addr := ln.Addr().String()
	_, err = listen(t.Context(), "LISTEN_ADDR", addr)
	if want := "REVEILLE_LISTEN_ADDR=\"" + addr + "\": the address is in use by another program"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAPortClosesAfterItsGraceWhateverItsClientsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests sync.WaitGroup
		server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				defer requests.Done()
				<-r.Context().Done()
			})}
		client, conn := net.Pipe()
		ln := &oneConn{conns: make(chan net.Conn, 1)}
		ln.conns <- conn
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- servePort(ctx, server, ln) }()
		// It reads an event stream, which has no end of its own.
		if _, err := client.Write([]byte("GET /a?offset=now&live=sse HTTP/1.1\r\nHost: reveille\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		stop()
		if err, took := <-ended, time.Since(began); err != nil || took != portGrace {
			t.Errorf("it ended with %v after %s, want %s", err, took, portGrace)
		}
		requests.Wait()
		_ = client.Close()
	})
}

// oneConn is a listener for a connection that is there already.
type oneConn struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (*oneConn) Addr() net.Addr { return &net.TCPAddr{} }
