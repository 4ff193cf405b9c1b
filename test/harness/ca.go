package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority of a test's own, with a certificate for servers.
type CA struct {
	// File holds the authority's certificate, as REVEILLE_REDIS_CA_FILE takes it. Pool holds the same certificate.
	File string
	Pool *x509.CertPool

	cert, key string
	server    tls.Certificate
	root      *x509.Certificate
	rootKey   *ecdsa.PrivateKey
}

// NewCA makes an authority. Its servers are on 127.0.0.1, and at the caller's addresses.
func NewCA(t testing.TB, also ...net.IP) *CA {
	t.Helper()
	dir := t.TempDir()
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority for a test"},
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := server(root, also...)
	rootKey, leafKey := newKey(t), newKey(t)
	ca := &CA{Pool: x509.NewCertPool(), root: root, rootKey: rootKey}
	sign := func(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) string {
		return writePEM(t, filepath.Join(dir, name), "CERTIFICATE", ca.sign(t, cert, key))
	}
	ca.File, ca.cert = sign("ca.crt", root, rootKey), sign("server.crt", leaf, leafKey)
	der, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	ca.key = writePEM(t, filepath.Join(dir, "server.key"), "EC PRIVATE KEY", der)
	text, err := os.ReadFile(ca.File)
	if err != nil || !ca.Pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	if ca.server, err = tls.LoadX509KeyPair(ca.cert, ca.key); err != nil {
		t.Fatal(err)
	}
	return ca
}

// ServerTLS returns the TLS settings of a server with the certificate.
func (ca *CA) ServerTLS() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{ca.server}} }

// Certificate makes another certificate for a server on 127.0.0.1, with a change.
func (ca *CA) Certificate(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	cert, key := server(ca.root), newKey(t)
	change(cert)
	return tls.Certificate{Certificate: [][]byte{ca.sign(t, cert, key)}, PrivateKey: key}
}

func (ca *CA) sign(t testing.TB, cert *x509.Certificate, key *ecdsa.PrivateKey) (der []byte) {
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.root, key.Public(), ca.rootKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// server returns what is to be signed for a server.
func server(root *x509.Certificate, also ...net.IP) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a server of a test"}, NotBefore: root.NotBefore,
		NotAfter: root.NotAfter, IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, also...),
		KeyUsage: x509.KeyUsageDigitalSignature,
		// nodes are each other's clients
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t testing.TB, file, kind string, der []byte) string {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// RedisArgs returns the arguments that make a redis-server, a cluster or sentinels speak TLS, also among each other.
func (ca *CA) RedisArgs() []string {
	return []string{
		"--tls-cert-file", ca.cert, "--tls-key-file", ca.key, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no",
		"--tls-replication", "yes", "--tls-cluster", "yes",
	}
}
