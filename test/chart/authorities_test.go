package chart

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestTheProgramTrustsTheAuthoritiesOfTheBundle starts the program as it is rendered, with the bundle where a cluster
// mounts it, and asks a stream server through it whose certificate a private authority signed.
func TestTheProgramTrustsTheAuthoritiesOfTheBundle(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	for values, want := range map[string]int{
		`{}`: http.StatusBadGateway,
		`{caBundle: {existingConfigMap: authorities}}`: http.StatusOK,
		`{caBundle: {existingSecret: authorities}}`:    http.StatusOK,
	} {
		m := render(t, chartDir, newest, required, `{replicaCount: 1, redis: {url: embedded}}`, onFreePorts(t),
			`{upstream: {url: "`+upstream.URL+`"}}`, values)
		m.mountAuthorities(t, upstream.Certificate())
		r := startAsRendered(t, m)
		r.await(t, "/readyz")
		if status, body, err := r.get(t, "api", "/a"); status != want {
			t.Errorf("%s: the stream server answers %d %s %v, want %d", values, status, body, err, want)
		}
		r.stop(t)
	}
}

// mountAuthorities mounts the bundle "authorities", with one certificate, where the program looks for it if the chart
// says so.
func (m *manifest) mountAuthorities(t *testing.T, certificate *x509.Certificate) {
	t.Helper()
	c, p := m.program(t)
	dir := filepath.Join(t.TempDir(), "ca-bundle")
	for i, e := range c.Env {
		if e.Name != "SSL_CERT_DIR" {
			continue
		}
		for _, v := range p.spec.Volumes {
			if v.Name == "reveille-ca-bundle" && (v.ConfigMap != nil && v.ConfigMap.Name == "authorities" ||
				v.Secret != nil && v.Secret.SecretName == "authorities") {
				mountBundle(t, dir, certificate.Raw)
			}
		}
		c.Env[i].Value = dir
	}
}

// mountBundle makes a folder as a cluster does for a ConfigMap or a Secret, with one certificate: its files are links
// through a link to a folder that is replaced as a whole.
func mountBundle(t *testing.T, dir string, certificate []byte) {
	t.Helper()
	data := filepath.Join(dir, "..2026_01_02")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	if err := os.WriteFile(filepath.Join(data, "ca.crt"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"..data": "..2026_01_02", "ca.crt": "..data/ca.crt"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
}
