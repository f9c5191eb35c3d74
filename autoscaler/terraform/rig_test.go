package terraform_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// nodesVariable declares the map, and plainNodes makes a node of each.
const (
	nodesVariable = `
variable "nodes" {
  type = map(object({ purchase = optional(string, ""), market = optional(string, "on_demand") }))
}
`
	plainNodes = nodesVariable + `
resource "terraform_data" "node" {
  for_each = var.nodes
  input    = { name = each.key, purchase = each.value.purchase, market = each.value.market }
}
`
)

// needBinary skips a test where nothing can apply.
func needBinary(t *testing.T) {
	t.Helper()
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: a working directory cannot be applied")
	}
}

// workDir is a new working directory with a main.tf.
func workDir(t *testing.T, main string) string {
	t.Helper()
	needBinary(t)
	dir := t.TempDir()
	rewriteMain(t, dir, main)
	return dir
}

func rewriteMain(t *testing.T, dir, main string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, cfg terraform.Config) *terraform.Directory {
	t.Helper()
	d, err := terraform.Open(cfg, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// logger shows what is logged if the test fails, and keeps it.
func logger(t *testing.T) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testWriter{t}, DisableTime: true})
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// apply holds the directory and applies.
func apply(t *testing.T, d *terraform.Directory, names ...string) (terraform.Change, error) {
	t.Helper()
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}()
	return h.Apply(t.Context(), want(names...))
}

// want is a map of nodes without values.
func want(names ...string) map[string]terraform.Value {
	m := map[string]terraform.Value{}
	for _, n := range names {
		m[n] = terraform.Value{}
	}
	return m
}

func mustApply(t *testing.T, d *terraform.Directory, names ...string) terraform.Change {
	t.Helper()
	c, err := apply(t, d, names...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantNodes checks the state, and that nothing is left half-done.
func wantNodes(t *testing.T, d *terraform.Directory, names ...string) {
	t.Helper()
	s, err := d.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Names(), " "); got != strings.Join(names, " ") {
		t.Errorf("nodes are %q, want %q", got, names)
	}
	if j, err := d.Interrupted(); err != nil || j != nil {
		t.Errorf("a run is left half-done: %+v (%v)", j, err)
	}
}

// backend is a server of Terraform's http backend, with locks that stay until
// they are taken away.
type backend struct {
	*httptest.Server
	mu    sync.Mutex
	state []byte
	lock  []byte
}

func newBackend(t *testing.T) *backend {
	b := &backend{}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

// ServeHTTP implements http.Handler.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch r.Method {
	case "LOCK":
		if b.lock != nil {
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(b.lock)
			return
		}
		b.lock = body
	case "UNLOCK":
		b.lock = nil
	case http.MethodPost:
		b.state = body
	default:
		if b.state == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b.state)
	}
}

// lockID is the lock's, "" if nobody holds it.
func (b *backend) lockID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var l struct{ ID string }
	_ = json.Unmarshal(b.lock, &l)
	return l.ID
}

func (b *backend) unlock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lock = nil
}

// await polls until f holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
