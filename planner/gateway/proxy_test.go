package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/freeport"
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
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("http://127.0.0.1:", port)
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
