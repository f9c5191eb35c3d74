package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

func TestTLSToNomad(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := certificate(t, dir, "ca", nil, nil, nil)
	serverCert, _ := certificate(t, dir, "server", ca, caKey, []string{"server.global.nomad"})
	certificate(t, dir, "client", ca, caKey, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	_ = serverCert
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	upstream.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	path := func(name string) string { return filepath.Join(dir, name) }
	good := api.TLSConfig{CACert: path("ca.pem"), ClientCert: path("client.pem"), ClientKey: path("client.key"), TLSServerName: "server.global.nomad"}
	tests := map[string]struct {
		change     func(*api.TLSConfig)
		wantStatus int
		want       string
	}{
		"mutual TLS":                 {func(*api.TLSConfig) {}, http.StatusOK, "client"},
		"no CA":                      {func(c *api.TLSConfig) { c.CACert = "" }, http.StatusBadGateway, "CA certificate"},
		"another server's name":      {func(c *api.TLSConfig) { c.TLSServerName = "client.global.nomad" }, http.StatusBadGateway, "server name"},
		"no client certificate":      {func(c *api.TLSConfig) { c.ClientCert, c.ClientKey = "", "" }, http.StatusBadGateway, "cannot reach Nomad"},
		"the operator insists on it": {func(c *api.TLSConfig) { c.CACert, c.TLSServerName, c.Insecure = "", "", true }, http.StatusOK, "client"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			test.change(&cfg)
			resp, err := http.Get(behind(t, upstream, func(c *Config) { c.TLS = &cfg }).URL + "/v1/agent/self")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != test.wantStatus || !strings.Contains(string(body), test.want) {
				t.Errorf("answer = %d %s, want %d with %q", resp.StatusCode, body, test.wantStatus, test.want)
			}
		})
	}
	cfg := good
	cfg.CACert = path("missing.pem")
	r := newRig(t)
	with := r.gateway.cfg
	with.TLS = &cfg
	if _, err := New(with); err == nil || !strings.Contains(err.Error(), "missing.pem") {
		t.Errorf("New with a CA file that is missing: %v, want an error that names it", err)
	}
}

// certificate writes NAME.pem and NAME.key, signed by the authority or by
// itself.
func certificate(t *testing.T, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, hosts []string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        ca == nil, BasicConstraintsValid: true,
	}
	parent, signer := ca, caKey
	if ca == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out, key
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	upstream := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	})}}
	upstream.Start()
	t.Cleanup(upstream.Close)
	gateway := behind(t, upstream, func(c *Config) { c.Nomad = &url.URL{Scheme: "unix", Path: filepath.Join(dir, "api.sock")} })
	resp, err := http.Get(gateway.URL + "/v1/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "/v1/nodes" {
		t.Errorf("answer over the socket = %d %q", resp.StatusCode, body)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Config{Nomad: &url.URL{Scheme: "ftp", Host: "x"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"ftp://x"`, "no client", "no managed", "no records", "no cluster", "no waiter"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}
