package autoscaler_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2/hclsimple"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/jobspecs/autoscaler"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

func policies(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(autoscaler.Files, "policies/*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	return files
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := autoscaler.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestPoliciesNameTheirPools(t *testing.T) {
	pools, err := pool.Parse(read(t, "pools.hcl"), "/etc/caravan/pools.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range policies(t) {
		var doc sdk.FileDecodeScalingPolicies
		if err := hclsimple.Decode(file, read(t, file), nil, &doc); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, p := range doc.ScalingPolicies {
			if want := strings.TrimSuffix(path.Base(file), ".hcl"); p.Name != want {
				t.Errorf("%s holds policy %q, want %q", file, p.Name, want)
			}
			name := p.Doc.Target.Config["pool"]
			if pools.Find(name) == nil {
				t.Errorf("%s is about pool %q, which pools.hcl has not", file, name)
			}
			for _, c := range p.Doc.Checks {
				if named := c.Strategy.Config["pool"]; named != "" && named != name {
					t.Errorf("%s: check %s is about pool %q, its target about %q", file, c.Name, named, name)
				}
			}
		}
	}
}

// planner answers as one with a gang that waits for two bought nodes.
func planner(t *testing.T) string {
	mux := http.NewServeMux()
	answer := func(path string, v any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
	}
	answer(httpapi.Prefix+"/status", httpapi.Status{Counts: httpapi.Counts{GPUs: 16, UsedGPUs: 16}})
	answer(httpapi.Prefix+"/queue", []httpapi.Job{{ID: "late", GPUs: 16, Submitted: time.Now().Add(-time.Hour)}})
	answer(httpapi.Prefix+"/queues", []model.QueueUse{})
	answer(burstapi.PathBurst, burstapi.Answer{Leader: true, Now: time.Now(), Pools: []burstapi.Pool{
		{Name: "cloud", Wanted: 2, Currency: "USD", Purchases: []burstapi.Purchase{{
			ID: "p1", Gang: "default/late", Nodes: 2, Names: []string{"p1-0", "p1-1"}, Market: burstapi.Spot, PricePerNodeHour: 24.5,
			State: burstapi.Wanted, Why: "due in 2h, here in 9h"}}},
		{Name: "counted"},
	}})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// The real autoscaler, with the plugins as programs of their own, comes to a
// decision by each of the policies.
func TestAutoscalerDecidesByEachPolicy(t *testing.T) {
	program, err := exec.LookPath("nomad-autoscaler")
	if err != nil {
		t.Skip("no nomad-autoscaler on the PATH: make tools builds one")
	}
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: make tools builds one")
	}
	cluster, err := devnomad.Start(t.Context(), devcluster.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := setUp(t, cluster.Address(), planner(t))
	// The drain's deadline tells the policies apart in the log.
	want := map[string]string{
		"burst":           "drain_deadline:15m pool:cloud.* from=0 to=2 .*buy 2 nodes .*for default/late: due in 2h, here in 9h",
		"burst-capped":    "drain_deadline:10m pool:cloud.* from=0 to=2 .*buy 2 nodes",
		"queue-wait":      "drain_deadline:15m pool:counted.* from=0 to=1 .*within bounds",
		"gpu-utilisation": "drain_deadline:15m pool:counted.* from=0 to=2 .*factor is 1.17",
		"office-hours":    "drain_deadline:30m pool:counted.* from=0 to=[02] ",
	}
	if len(want) != len(policies(t)) {
		t.Errorf("%d policies are expected to decide something, and there are %d", len(want), len(policies(t)))
	}
	lines := run(t, program, config)
	var seen []string
	for line := range lines {
		seen = append(seen, line)
		// A busy machine may take longer than the autoscaler gives a target.
		if strings.Contains(line, "[ERROR]") && !strings.Contains(line, "DeadlineExceeded") || strings.Contains(line, "failed to run check") {
			t.Errorf("the autoscaler says: %s", line)
		}
		for name, text := range want {
			if regexp.MustCompile(text).MatchString(line) {
				t.Logf("%s: %s", name, line)
				delete(want, name)
			}
		}
		if len(want) == 0 {
			return
		}
	}
	t.Errorf("nothing was decided by %v; the autoscaler says:\n%s", want, strings.Join(seen, "\n"))
}

// setUp writes configuration and policies with this machine's addresses and paths,
// and with everything dry: nothing is made.
func setUp(t *testing.T, nomad, planner string) string {
	dir := t.TempDir()
	plugins := filepath.Join(dir, "plugins")
	for _, name := range []string{"caravan-apm", "caravan-strategy", "caravan-terraform"} {
		out, err := exec.Command("go", "build", "-o", filepath.Join(plugins, name), "../../autoscaler/cmd/"+name).CombinedOutput()
		if err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	for _, module := range []string{"cloud", "counted"} {
		to := filepath.Join(dir, "terraform", module)
		if err := os.CopyFS(to, os.DirFS("../../autoscaler/terraform/modules/local")); err != nil {
			t.Fatal(err)
		}
		vars := fmt.Sprintf("pool = %q\ndirectory = %q\nclient = [\"true\"]\n", module, to)
		if err := os.WriteFile(filepath.Join(to, "terraform.tfvars"), []byte(vars), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace := strings.NewReplacer(
		"http://127.0.0.1:4646", nomad, "http://127.0.0.1:4656", planner,
		"/opt/nomad-autoscaler/plugins", plugins, "/etc/nomad-autoscaler/policies", filepath.Join(dir, "policies"),
		"/etc/caravan", dir,
		"driver = \"caravan-apm\"\n  config = {", "driver = \"caravan-apm\"\n  config = {\n    sample_interval = \"500ms\"",
		"driver = \"caravan-terraform\"\n  config = {", "driver = \"caravan-terraform\"\n  config = {\n    terraform_init = \"true\"",
	).Replace
	interval := regexp.MustCompile(`evaluation_interval( *)= "[^"]*"`)
	target := regexp.MustCompile(`(?m)^( *target "[^"]*" \{)$`)
	for _, file := range append(policies(t), "agent.hcl", "pools.hcl") {
		text := replace(string(read(t, file)))
		text = interval.ReplaceAllString(text, `evaluation_interval$1= "4s"`)
		if strings.HasPrefix(file, "policies/") {
			text = target.ReplaceAllString(text, "$1\n      dry-run = \"true\"")
		}
		if file == "agent.hcl" {
			text += fmt.Sprintf("\nlog_level = \"DEBUG\"\nhttp {\n  bind_port = %d\n}\n", freePort(t))
		}
		to := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "agent.hcl")
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run starts the autoscaler and gives its log, until a minute is over.
func run(t *testing.T, program, config string) func(yield func(string) bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, program, "agent", "-config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NOMAD_") }), "CHECKPOINT_DISABLE=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is stopped by a signal
		_ = w.Close()
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, r)
		<-ended
	})
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	return func(yield func(string) bool) {
		for lines.Scan() {
			if !yield(lines.Text()) {
				return
			}
		}
	}
}
