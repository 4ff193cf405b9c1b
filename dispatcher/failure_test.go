package dispatcher

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

func TestAnswersWithoutStatus(t *testing.T) {
	noFile := os.NewSyscallError("socket", syscall.EMFILE)
	for _, tc := range []struct {
		name   string
		err    error
		class  format.Class
		reason string
	}{
		{"the request timeout failed", context.DeadlineExceeded, format.ClassTimeout, "no answer in time"},
		{
			"a refused connection failed", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			format.ClassConnection, "connection refused",
		},
		{
			"a connection that timed out failed", &net.OpError{Op: "read", Err: syscall.ETIMEDOUT},
			format.ClassTimeout, "connection timed out",
		},
		{"a cut connection failed", io.EOF, format.ClassConnection, "the connection was closed without an answer"},
		{
			"a name that does not resolve failed", &net.DNSError{Err: "no such host", Name: "x.invalid"},
			format.ClassDNS, "the host name does not resolve",
		},
		{
			"no file for a connection failed", &net.OpError{Op: "dial", Err: noFile},
			format.ClassFiles, "too many open files",
		},
		{
			"no file to look a name up failed",
			&net.DNSError{Err: (&net.OpError{Op: "dial", Net: "udp", Err: noFile}).Error(), Name: "x.test"},
			format.ClassFiles, "too many open files",
		},
		{
			"a prohibited address failed", &net.OpError{Op: "dial", Err: errProhibited},
			format.ClassProhibited, "the host leads to a prohibited address",
		},
		{
			"what the endpoint sent is not repeated", fmt.Errorf("malformed HTTP response %q", "eyJ.token"),
			format.ClassOther, "the request failed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := format.Verdict{Result: fsm.AttemptFailed, Class: tc.class, Reason: tc.reason}
			if got := judgeError(tc.err); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestTheReasonOfATLSFailureSaysWhich makes real handshakes fail in each of these ways.
func TestTheReasonOfATLSFailureSaysWhich(t *testing.T) {
	now := time.Now()
	issuer, roots := authority(t), x509.NewCertPool()
	roots.AddCert(issuer.Leaf)
	valid := func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-time.Hour), now.Add(time.Hour) }
	for _, tc := range []struct {
		name   string
		issuer tls.Certificate
		change func(*x509.Certificate)
		server func(*tls.Config)
		plain  bool
		reason string
	}{
		{
			name: "expired", reason: "the TLS certificate has expired",
			change: func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) },
		},
		{
			name: "not valid yet", reason: "the TLS certificate is not valid yet",
			change: func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) },
		},
		{
			name: "of another name", reason: "the TLS certificate is not for this host name",
			change: func(c *x509.Certificate) { c.DNSNames = []string{"other.test"} },
		},
		{
			name: "without a name", reason: "the TLS certificate is not for this host name",
			change: func(c *x509.Certificate) { c.DNSNames = nil },
		},
		{
			name: "of an unknown authority", issuer: authority(t),
			reason: "the TLS certificate is signed by an unknown authority",
		},
		{
			name: "not for servers", reason: "the TLS certificate is not valid",
			change: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
		},
		{
			name:   "a client certificate is wanted",
			server: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
			reason: "the endpoint asks for a client certificate, which Reveille does not have",
		},
		{
			name: "a client certificate is wanted by TLS 1.2, which has no alert of its own for it",
			server: func(c *tls.Config) {
				c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
			},
			reason: "the TLS handshake failed",
		},
		{
			name: "no common version", server: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 },
			reason: "the TLS handshake failed",
		},
		{name: "no TLS", plain: true, reason: "the TLS handshake failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"hook.test"}}
			if valid(leaf); tc.change != nil {
				tc.change(leaf)
			}
			if tc.issuer.Leaf == nil {
				tc.issuer = issuer
			}
			cfg := &tls.Config{Certificates: []tls.Certificate{certificate(t, leaf, tc.issuer)}}
			if tc.server != nil {
				tc.server(cfg)
			}
			hook, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hook.Close() }()
			var server sync.WaitGroup
			defer server.Wait()
			ours, err := net.Dial("tcp", hook.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ours.Close() }()
			server.Go(func() {
				theirs, err := hook.Accept()
				if err != nil {
					return
				}
				defer func() { _ = theirs.Close() }()
				if tc.plain {
					_, _ = io.WriteString(theirs, "HTTP/1.1 400 Bad Request\r\n\r\n")
				} else {
					_ = tls.Server(theirs, cfg).Handshake()
				}
				_, _ = io.Copy(io.Discard, theirs) // what is not read when it is closed would cut off the answer
			})
			client := tls.Client(ours, &tls.Config{
				RootCAs: roots, ServerName: "hook.test", MinVersion: tls.VersionTLS12,
			})
			_, err = client.Read(make([]byte, 1)) // TLS 1.3 refuses after the handshake of the client
			want := format.Verdict{Result: fsm.AttemptFailed, Class: format.ClassTLS, Reason: tc.reason}
			if got := judgeError(err); got != want {
				t.Errorf("of %v: got %+v, want %+v", err, got, want)
			}
		})
	}
}

// authority returns a certificate authority of its own.
func authority(t *testing.T) tls.Certificate {
	t.Helper()
	return certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, tls.Certificate{})
}

// certificate returns a certificate, signed by an issuer or by itself.
func certificate(t *testing.T, cert *x509.Certificate, issuer tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if issuer.Leaf == nil {
		issuer = tls.Certificate{Leaf: cert, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, issuer.Leaf, key.Public(), issuer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestAnswersAreReadUpToALimit(t *testing.T) {
	const body = `{"done":true}`
	padded := body + strings.Repeat(" ", maxAnswer-len(body))
	answer := func(r io.Reader) *http.Response { return &http.Response{Body: io.NopCloser(r)} }
	if string(readAnswer(answer(strings.NewReader(padded)))) != padded {
		t.Error("an answer of exactly the limit was not read")
	}
	if readAnswer(answer(strings.NewReader(padded+" "))) != nil {
		t.Error("an answer beyond the limit was looked at")
	}
	if readAnswer(answer(io.MultiReader(strings.NewReader(body), cut{}))) != nil {
		t.Error("an answer that was cut was looked at")
	}
	for name, read := range map[string]func(*http.Response){
		"that may be done":     func(r *http.Response) { readAnswer(r) },
		"that decides nothing": func(r *http.Response) { drain(r, func() {}) },
	} {
		beyond := strings.NewReader(padded)
		if read(answer(io.MultiReader(strings.NewReader(padded+" "), beyond))); beyond.Len() < len(padded) {
			t.Errorf("of an answer %s, more was read than the limit", name)
		}
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
