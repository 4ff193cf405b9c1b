package chart

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// tlsFailures are endpoints whose TLS fails, each in its way, by names. The program trusts the authority: but for one
// that asks for too much, each lacks one thing alone.
func tlsFailures(t *testing.T, trusted authority) map[string]failing {
	t.Helper()
	all := map[string]failing{
		"authority": {
			webhook: endpointOf(t, newAuthority(t).sign(t, func(*x509.Certificate) {})),
			reason:  "the TLS certificate is signed by an unknown authority",
		},
		"expired": {
			webhook: endpointOf(t, trusted.sign(t, func(c *x509.Certificate) {
				c.NotAfter = time.Now().Add(-time.Minute)
			})),
			reason: "the TLS certificate has expired",
		},
		"name": {
			webhook: endpointOf(t, trusted.sign(t, func(c *x509.Certificate) {
				c.IPAddresses, c.DNSNames = nil, []string{"other.example"}
			})),
			reason: "the TLS certificate is not for this host name",
		},
		"client": {
			webhook: clientsOnly(t, trusted.sign(t, func(*x509.Certificate) {})),
			reason:  "the endpoint asks for a client certificate, which Reveille does not have",
		},
	}
	for name, e := range all {
		e.alert = "ReveilleEndpointFailing"
		all[name] = e
	}
	return all
}

// endpointOf returns the URL of an endpoint with a certificate.
func endpointOf(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	return serve(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail, as they are to
		s.StartTLS()
		return s
	}, func(http.ResponseWriter, *http.Request) {})
}

// clientsOnly returns the URL of an endpoint that asks for a client certificate. It reads on once it has said so: what
// is not read when a connection is closed may cut off the answer.
func clientsOnly(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_ = tls.Server(conn, cfg).Handshake()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return "https://" + ln.Addr().String()
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	signed := authority{cert: cert}.issue(t, cert)
	key, _ := signed.PrivateKey.(*ecdsa.PrivateKey)
	return authority{signed.Leaf, key}
}

// sign makes the certificate of a server on this machine, with a change.
func (a authority) sign(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	change(cert)
	return a.issue(t, cert)
}

// issue signs a certificate; an authority without a key signs its own.
func (a authority) issue(t *testing.T, cert *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
