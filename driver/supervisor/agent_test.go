package supervisor

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serveTaskAPI is the agent's socket for a task, at a path that is too long for
// a socket's address.
func serveTaskAPI(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/api.sock", d.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return filepath.Join(dir, "api.sock")
}

func TestAgent(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answer := func(text string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/status/leader" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}
	}
	known := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer jwt" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`"10.0.0.1:4647"`))
	}
	tests := map[string]struct {
		socket, http http.HandlerFunc
		noToken      bool
		want         string
		is           error
	}{
		"by its socket":                        {socket: known},
		"the socket goes first":                {socket: answer("no", http.StatusInternalServerError), http: answer(`"a:1"`, 200), want: "it answered 500"},
		"an expired token":                     {socket: answer("", 403), http: answer(`"a:1"`, 200)},
		"an expired token, cut off":            {socket: answer("", 401), http: answer("No path to region", 500), want: "it answered 500"},
		"an expired token and no address":      {socket: answer("", 403), is: errDenied},
		"by its address":                       {http: answer(`"a:1"`, 200)},
		"without a token by its address":       {socket: known, noToken: true, http: answer(`"a:1"`, 200)},
		"no leader":                            {http: answer(`""`, 200), is: errNoLeader},
		"nonsense":                             {http: answer(`{`, 200), want: "ask local agent"},
		"cut off":                              {http: answer("No path to region", 500), want: "it answered 500"},
		"neither a socket nor an address":      {is: errNoAgent},
		"a socket without a token, no address": {socket: known, noToken: true, is: errNoAgent},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := Fence{Socket: filepath.Join(t.TempDir(), "none"), TokenFile: token}
			if test.noToken {
				f.TokenFile += ".none"
			}
			if test.socket != nil {
				f.Socket = serveTaskAPI(t, test.socket)
			}
			if test.http != nil {
				s := httptest.NewServer(test.http)
				t.Cleanup(s.Close)
				f.Nomad = s.URL
			}
			err := newNomadAgent(f).Attached(t.Context())
			switch {
			case test.want == "" && test.is == nil && err != nil:
				t.Error(err)
			case test.is != nil && !errors.Is(err, test.is), test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error = %v, want %q %v", err, test.want, test.is)
			}
		})
	}
}
