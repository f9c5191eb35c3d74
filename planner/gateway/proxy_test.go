package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
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

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// behind starts a gateway in front of an upstream, over real connections.
func behind(t *testing.T, upstream *httptest.Server, change ...func(*Config)) *httptest.Server {
	t.Helper()
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(&api.Config{Address: upstream.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	cfg := r.gateway.cfg
	cfg.Nomad, cfg.Client = u, client
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatalf("make gateway: %v", err)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return server
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// TestStreamIsNotBuffered passes lines through one by one: the second is not
// written before the client has read the first.
func TestStreamIsNotBuffered(t *testing.T) {
	for name, path := range map[string]string{
		"event stream": "/v1/event/stream?topic=Job", "logs": "/v1/client/fs/logs/a?follow=true", "monitor": "/v1/agent/monitor",
	} {
		t.Run(name, func(t *testing.T) {
			source, feed := io.Pipe()
			upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.(http.Flusher).Flush()
				lines := bufio.NewReader(source)
				for {
					line, err := lines.ReadBytes('\n')
					if err != nil {
						return
					}
					_, _ = w.Write(line)
					w.(http.Flusher).Flush()
				}
			})
			resp, err := http.Get(behind(t, upstream).URL + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for _, want := range []string{"one\n", "two\n", "three\n"} {
				if _, err := io.WriteString(feed, want); err != nil {
					t.Fatal(err)
				}
				if got, err := lines.ReadString('\n'); got != want || err != nil {
					t.Fatalf("line = %q, %v, want %q", got, err, want)
				}
			}
			_ = feed.Close()
			if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
				t.Errorf("rest = %q, %v, want the stream's end", rest, err)
			}
		})
	}
}

func TestHangUpReachesNomad(t *testing.T) {
	started, gone := make(chan struct{}), make(chan struct{})
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", behind(t, upstream).URL+"/v1/jobs?index=7&wait=600s", nil)
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	<-started
	cancel()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatal("Nomad still serves a blocking query whose client hung up")
	}
	if err := <-done; err == nil {
		t.Error("the client got an answer")
	}
}

func TestShutdownIsNoSuccess(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.nomad.fail = func(http.ResponseWriter, *http.Request, []byte) bool { cancel(); return true }
	w := httptest.NewRecorder()
	r.gateway.ServeHTTP(w, httptest.NewRequest("GET", "/v1/jobs", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("answer = %d %q, want 503", w.Code, w.Body)
	}
}

// TestClientThatHangsUpLeavesNothingHalf ends the request between the record
// and the registration.
func TestClientThatHangsUpLeavesNothingHalf(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.records.beforePut = func(*record.Record) error { cancel(); return nil }
	req := httptest.NewRequest("PUT", "/v1/jobs", bytes.NewReader(registration(t, gang()))).WithContext(ctx)
	r.gateway.ServeHTTP(httptest.NewRecorder(), req)
	if _, ok := r.records.data[key]; !ok || r.nomad.job(t, key) == nil {
		t.Errorf("record there: %v, job there: %v, want both", ok, r.nomad.job(t, key) != nil)
	}
}

func TestWebsocket(t *testing.T) {
	upgrader := websocket.Upgrader{}
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Nomad-Token") != "secret" || r.URL.Query().Get("command") != `["sh"]` {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			kind, data, err := c.ReadMessage()
			if err != nil {
				return
			}
			if err := c.WriteMessage(kind, append([]byte("echo "), data...)); err != nil {
				return
			}
		}
	})
	gateway := behind(t, upstream)
	target := "ws" + strings.TrimPrefix(gateway.URL, "http") + "/v1/client/allocation/a/exec?command=%5B%22sh%22%5D"
	// A browser sends the gateway's own origin, which Nomad compares with Host.
	c, _, err := websocket.DefaultDialer.Dial(target, http.Header{"X-Nomad-Token": {"secret"}, "Origin": {gateway.URL}})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer c.Close()
	for _, text := range []string{"a", strings.Repeat("b", 1<<20)} {
		if err := c.WriteMessage(websocket.BinaryMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.ReadMessage(); string(got) != "echo "+text || err != nil {
			t.Fatalf("message of %d bytes came back as %d, %v", len(text), len(got), err)
		}
	}
	if _, resp, err := websocket.DefaultDialer.Dial(target, nil); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("without the token: %v, want Nomad's 403", err)
	}
}

func TestPassesAsItCame(t *testing.T) {
	var got *http.Request
	var body []byte
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, _ = zip.Write([]byte(`{"a":1}`))
	_ = zip.Close()
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("X-Nomad-Index", "42")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(compressed.Bytes())
	})
	gateway := behind(t, upstream)
	system := `{"Job": {"ID": "logs",  "Type":"system", "TaskGroups":[], "Unknown": 1e2}}` + "\n"
	tests := map[string]struct {
		method, path, body string
		want               string
	}{
		"a job without devices":  {"PUT", "/v1/jobs?region=eu&namespace=a&pretty", system, "/v1/jobs?region=eu&namespace=a&pretty"},
		"an update of such":      {"POST", "/v1/job/logs", system, "/v1/job/logs"},
		"its plan":               {"POST", "/v1/job/logs/plan", system, "/v1/job/logs/plan"},
		"scale with an odd ID":   {"PUT", "/v1/job/a%2Fb%252F/scale", "{}", "/v1/job/a%2Fb%252F/scale"},
		"a query with semicolon": {"GET", "/v1/jobs?filter=a;b&x=%zz", "", "/v1/jobs?filter=a;b&x=%zz"},
		"variables":              {"PUT", "/v1/var/nomad/jobs/x?cas=0", `{"Items":{}}`, "/v1/var/nomad/jobs/x?cas=0"},
		"parse":                  {"PUT", "/v1/jobs/parse", `{"JobHCL":"job \"x\" {}"}`, "/v1/jobs/parse"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(test.method, gateway.URL+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Nomad-Token", "secret")
			req.Header.Set("Authorization", "Bearer jwt")
			req.Header.Set("Accept-Encoding", "gzip")
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Nomad-Index") != "42" || !bytes.Equal(answer, compressed.Bytes()) {
				t.Errorf("answer = %d, %v, %q: not Nomad's own", resp.StatusCode, resp.Header, answer)
			}
			if got.Method != test.method || got.RequestURI != test.want || got.Host != strings.TrimPrefix(gateway.URL, "http://") {
				t.Errorf("Nomad got %s %s for host %s, want %s %s", got.Method, got.RequestURI, got.Host, test.method, test.want)
			}
			if diff := cmp.Diff(test.body, string(body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if got.Header.Get("X-Nomad-Token") != "secret" || got.Header.Get("Authorization") != "Bearer jwt" || got.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("headers = %v", got.Header)
			}
		})
	}
}

func TestBigBodies(t *testing.T) {
	const size = 100 << 20
	var received int64
	upstream := serve(t, func(w http.ResponseWriter, r *http.Request) {
		received, _ = io.Copy(io.Discard, r.Body)
	})
	gateway := behind(t, upstream)
	for name, test := range map[string]struct {
		path         string
		wantStatus   int
		wantReceived int64
	}{
		"a snapshot is streamed":        {"/v1/operator/snapshot", http.StatusOK, size},
		"a registration has its bounds": {"/v1/jobs", http.StatusRequestEntityTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			received = 0
			// Wrapped, so that its length is not known and it goes in chunks.
			req, _ := http.NewRequest("PUT", gateway.URL+test.path, struct{ io.Reader }{io.LimitReader(zeros{}, size)})
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				// The server may close before all of a refused body was sent.
				if test.wantStatus == http.StatusOK {
					t.Fatal(err)
				}
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != test.wantStatus || received != test.wantReceived {
				t.Errorf("status = %d, Nomad received %d bytes, want %d, %d", resp.StatusCode, received, test.wantStatus, test.wantReceived)
			}
		})
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestNomadUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	_ = listener.Close()
	gateway := behind(t, &httptest.Server{URL: address})
	client, err := api.NewClient(&api.Config{Address: gateway.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, _, listErr := client.Jobs().List(nil)
	_, _, runErr := client.Jobs().Register(gang(), nil)
	for what, err := range map[string]error{"list": listErr, "register": runErr} {
		if err == nil || !strings.Contains(err.Error(), "502") || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "Check that the Nomad agent there runs") {
			t.Errorf("%s: error = %v, want 502 with the address and what to do", what, err)
		}
	}
}

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
