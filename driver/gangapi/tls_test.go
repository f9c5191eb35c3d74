package gangapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTLS(t *testing.T) {
	p := &planner{status: 200, body: waiting, arrived: make(chan struct{}, 1)}
	p.Server = httptest.NewUnstartedServer(p)
	p.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	p.StartTLS()
	t.Cleanup(p.Close)

	dir := t.TempDir()
	file := func(name string, blocks ...*pem.Block) string {
		var text []byte
		for _, b := range blocks {
			text = append(text, pem.EncodeToMemory(b)...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	pair := p.TLS.Certificates[0]
	cert := &pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}
	key := keyBlock(t, pair.PrivateKey)
	config := func(c *Config) {
		c.CAFile, c.CertFile, c.KeyFile = file("ca.pem", cert), file("cert.pem", cert), file("key.pem", key)
		c.ServerName = "example.com"
	}
	c := newClient(t, config, p.URL)
	if _, err := c.Join(t.Context(), JoinRequest{}); err != nil {
		t.Errorf("with everything in place: %v", err)
	}

	// Files are read anew for each connection: broken ones are noticed, and
	// noticed to be right again.
	c.Close()
	file("ca.pem")
	if _, err := c.Join(t.Context(), JoinRequest{}); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "CA file") {
		t.Errorf("with an empty CA file: %v", err)
	}
	file("ca.pem", cert)
	if _, err := c.Join(t.Context(), JoinRequest{}); err != nil {
		t.Errorf("with the CA file back: %v", err)
	}

	stranger := newClient(t, func(c *Config) { config(c); c.ServerName = "other.test" }, p.URL)
	if _, err := stranger.Join(t.Context(), JoinRequest{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("with another name: %v", err)
	}
}

func keyBlock(t *testing.T, key any) *pem.Block {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &pem.Block{Type: "PRIVATE KEY", Bytes: der}
}
