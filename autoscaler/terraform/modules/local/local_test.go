package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devjoin"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// The test's binary is the client too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "dev-client" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := devjoin.Run(ctx, os.Args[2:], os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// backends are the clusters that clients can join here.
func backends(t *testing.T) map[string]devcluster.Cluster {
	t.Helper()
	out := map[string]devcluster.Cluster{}
	c, err := devnomad.StartWith(t.Context(), devcluster.Spec{}, devnomad.Options{LostAfter: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	out[devcluster.BackendDevNomad] = c
	if bin, ok := nomadproc.Find(); ok {
		real, err := nomadproc.Start(t.Context(), bin, devcluster.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		out[devcluster.BackendNomad] = real
	}
	for _, c := range out {
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	return out
}

// workDir is a copy of the module for a cluster.
func workDir(t *testing.T, j devcluster.Joining, more map[string]any) string {
	t.Helper()
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: the module cannot be applied")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	spec := filepath.Join(dir, "client.json")
	vars := map[string]any{"pool": "p", "directory": filepath.Join(dir, "nodes"), "client": []string{os.Args[0], "dev-client", spec}}
	for k, v := range more {
		vars[k] = v
	}
	for path, v := range map[string]any{spec: j, filepath.Join(dir, "terraform.tfvars.json"): vars} {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func apply(t *testing.T, d *terraform.Directory, want map[string]terraform.Value) (terraform.Change, error) {
	t.Helper()
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	return h.Apply(t.Context(), want)
}

func open(t *testing.T, dir string) *terraform.Directory {
	t.Helper()
	d, err := terraform.Open(terraform.Config{Dir: dir}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// byKey are the nodes of a pool that are ready, as NAME PURCHASE MARKET.
func byKey(t *testing.T, c *api.Client) map[string]string {
	t.Helper()
	all, _, err := c.Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, stub := range all {
		n, _, err := c.Nodes().Info(stub.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n.Meta["caravan_pool"] == "p" && n.Status == api.NodeStatusReady {
			out[n.Meta["caravan_node"]] = strings.Join([]string{n.Name, n.Meta["caravan_purchase"], n.Meta["caravan_market"]}, " ")
		}
	}
	return out
}

func awaitKeys(t *testing.T, c *api.Client, want map[string]string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := byKey(t, c)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nodes that are ready: %v, want %v", got, want)
		}
	}
}

// processes are those that know a directory.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		if raw, err := os.ReadFile(f); err == nil && strings.Contains(string(raw), dir+"/nodes/") {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			out = append(out, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return out
}

func TestNodesComeAndGo(t *testing.T) {
	for name, c := range backends(t) {
		t.Run(name, func(t *testing.T) {
			dir := workDir(t, c.Joining(), nil)
			d := open(t, dir)
			if _, err := apply(t, d, map[string]terraform.Value{"a": {Purchase: "p1", Market: "spot"}, "b": {Purchase: "p1", Market: "on_demand"}}); err != nil {
				t.Fatal(err)
			}
			awaitKeys(t, c.Client(), map[string]string{"a": "a p1 spot", "b": "b p1 on_demand"})
			if _, err := apply(t, d, map[string]terraform.Value{"b": {}}); err != nil {
				t.Fatal(err)
			}
			awaitKeys(t, c.Client(), map[string]string{"b": "b p1 on_demand"})
			if _, err := apply(t, d, nil); err != nil {
				t.Fatal(err)
			}
			if left := processes(t, dir); len(left) > 0 {
				t.Errorf("processes are left: %q", left)
			}
			awaitKeys(t, c.Client(), map[string]string{})
		})
	}
}

// What a cloud would say instead of making a node.
func TestNodesThatAreNotHad(t *testing.T) {
	c, err := devnomad.Start(t.Context(), devcluster.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	dir := workDir(t, c.Joining(), map[string]any{"fail": map[string]string{"b": "api error InsufficientInstanceCapacity: none left"}})
	d := open(t, dir)
	change, err := apply(t, d, map[string]terraform.Value{"a": {}, "b": {}})
	if terraform.ReasonOf(err) != terraform.ReasonCapacity || !change.After["b"].Tainted {
		t.Errorf("change %+v, error %v; want b not made for lack of capacity", change, err)
	}
	if _, err := apply(t, d, nil); err != nil {
		t.Fatal(err)
	}
	if left := processes(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}
