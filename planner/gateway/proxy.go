package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
)

const (
	// dialTimeout bounds the connection to Nomad alone. Answers have no time
	// limit: a blocking query may wait ten minutes, a stream for ever.
	dialTimeout = 10 * time.Second
	// idleConns is how many connections to Nomad are kept for reuse.
	idleConns = 64
)

// newTransport is the way to Nomad. It stays with HTTP/1.1, on which websockets
// and streams are upgraded, and leaves compression to client and server.
func newTransport(nomad *url.URL, tlsConfig *api.TLSConfig) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	if nomad.Scheme == "unix" {
		socket := nomad.Path
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	if tlsConfig != nil {
		if err := api.ConfigureTLS(&http.Client{Transport: t}, tlsConfig); err != nil {
			return nil, fmt.Errorf("configure TLS to Nomad: %w", err)
		}
	}
	return t, nil
}

// Pass has a proxy serve a request. Nomad may answer before the proxy has noticed
// that it has sent the whole body. By default the server closes the body when the
// answer's header is written; the proxy then fails to read its end, gives up the
// connection to Nomad, and cuts off the answer.
func Pass(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		// Not every writer can, and none has to: HTTP/2 leaves bodies open anyway.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	proxy.ServeHTTP(w, r)
}

// newProxy passes requests on as they are.
func newProxy(nomad *url.URL, transport http.RoundTripper, logger hclog.Logger) *httputil.ReverseProxy {
	base := baseURL(nomad)
	return &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(base)
			// Nomad compares a websocket's Origin with the Host, and browsers
			// send the gateway's.
			pr.Out.Host = pr.In.Host
			// Nomad reads the query with the same rules as this program, so that
			// nothing in it needs to be cleaned away.
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
			pr.SetXForwarded()
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(logger.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}), "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				// The client hung up, which is how streams end, or the gateway is
				// shut down; an empty answer would read as a success.
				refuse(w, http.StatusServiceUnavailable, "Caravan's gateway ended this request before Nomad answered. Try again.")
				return
			}
			logger.Warn("pass request to Nomad", "method", r.Method, "path", r.URL.Path, "error", err)
			p := unreachable(nomad, err)
			refuse(w, p.status, "%s", p.text)
		},
	}
}

// baseURL is where HTTP requests to Nomad go; a unix socket needs a host in
// name only.
func baseURL(nomad *url.URL) *url.URL {
	if nomad.Scheme == "unix" {
		return &url.URL{Scheme: "http", Host: "localhost"}
	}
	return &url.URL{Scheme: nomad.Scheme, Host: nomad.Host, Path: nomad.Path}
}

// unreachable tells a user what to do when Nomad does not answer.
func unreachable(nomad *url.URL, err error) *problem {
	var certificate *tls.CertificateVerificationError
	advice := "Check that the Nomad agent there runs and that Caravan's nomad address is right; running work is not affected. Nomad can also be reached directly, past the gateway."
	if errors.As(err, &certificate) {
		advice = "Check the CA certificate and the server name in Caravan's nomad TLS settings."
	}
	return problemf(http.StatusBadGateway, "Caravan's gateway cannot reach Nomad at %s: %v. %s", nomad.Redacted(), err, advice)
}
