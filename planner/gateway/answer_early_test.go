package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// lateEnd is a body whose reader comes late to see that it has ended.
type lateEnd struct {
	io.ReadCloser
	left   int64
	answer <-chan struct{}
	looked chan<- struct{}
}

func (b *lateEnd) Read(p []byte) (int, error) {
	if b.left > 0 {
		n, err := b.ReadCloser.Read(p)
		b.left -= int64(n)
		return n, err
	}
	<-b.answer
	n, err := b.ReadCloser.Read(p)
	if b.looked != nil {
		close(b.looked)
		b.looked = nil
	}
	return n, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Nomad answers as soon as it has read a request, and what passes the request on
// may see only then that its body has ended: the answer comes whole.
func TestAnswerBeforeBodyIsClosed(t *testing.T) {
	answered, looked := make(chan struct{}), make(chan struct{})
	want := bytes.Repeat([]byte("all of it "), 1<<20)
	nomad := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var job map[string]string
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-looked
		_, _ = w.Write(want) // it fails where the answer is not waited for
	})
	u, err := url.Parse(nomad.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := newTransport(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newProxy(u, roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Body = &lateEnd{r.Body, r.ContentLength, answered, looked}
		return transport.RoundTrip(r)
	}), hclog.NewNullLogger())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Pass(proxy, w, r) }))
	t.Cleanup(server.Close)

	resp, err := http.Post(server.URL+"/v1/jobs/parse", "application/json", bytes.NewReader([]byte(`{"JobHCL": "job \"x\" {}"}`+"\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(answered)
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
	}
}
