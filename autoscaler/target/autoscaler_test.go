package target_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad-autoscaler/plugins"

	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// TestTheRealAutoscaler lets the real agent load the plugin and follow a policy file.
func TestTheRealAutoscaler(t *testing.T) {
	t.Parallel()
	agent, err := exec.LookPath("nomad-autoscaler")
	if err != nil {
		t.Skip("no nomad-autoscaler on the PATH: make tools builds it into bin/tools")
	}
	r := newRig(t, rigOptions{})
	dir := t.TempDir()
	pluginDir, policyDir := filepath.Join(dir, "plugins"), filepath.Join(dir, "policies")
	for _, d := range []string{pluginDir, policyDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(pluginDir, target.Name)); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, key := range []string{target.KeyPools, target.KeyPlanner, "planner_token", target.KeySettle} {
		lines = append(lines, fmt.Sprintf("    %s = %q", key, r.config[key]))
	}
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
log_level  = "DEBUG"
plugin_dir = %q
http {
  bind_address = "127.0.0.1"
  bind_port    = %d
}
nomad {
  address = %q
}
policy {
  dir                         = %q
  default_evaluation_interval = "2s"
  default_cooldown            = "1s"
}
strategy "fixed-value" {
  driver = "fixed-value"
}
target "caravan-terraform" {
  driver = "caravan-terraform"
  config = {
%s
  }
}
`, pluginDir, port, r.cluster.Address(), policyDir, strings.Join(lines, "\n"))
	if err := os.WriteFile(filepath.Join(dir, "agent.hcl"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := func(value int) {
		text := fmt.Sprintf(`
scaling "burst" {
  enabled = true
  min     = 0
  max     = 4
  policy {
    check "fixed" {
      strategy "fixed-value" {
        value = "%d"
      }
    }
    target "caravan-terraform" {
      pool                = "p"
      node_drain_deadline = "10s"
    }
  }
}
`, value)
		if err := os.WriteFile(filepath.Join(policyDir, "burst.hcl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy(2)
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
	log := &logText{t: t}
	// run starts an agent and returns what ends it.
	run := func() func() {
		cmd := exec.Command(agent, "agent", "-config", filepath.Join(dir, "agent.hcl"))
		// Our binary is to know that it is the plugin only when the agent starts it.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, plugins.Handshake.MagicCookieKey+"=") })
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := sync.OnceFunc(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait() // it was told to end
		})
		t.Cleanup(end)
		return end
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	end := run()
	await := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(90 * time.Second); !done(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain for %s: nodes %v, reports %q", what, r.nodes(), r.planner.told())
			}
		}
	}
	await("two nodes", func() bool { return len(r.nodes()) == 2 && slices.Contains(r.planner.told(), "present p1") })
	r.planner.want(nil)
	end()
	policy(0)
	run()
	await("none", func() bool { return len(r.state()) == 0 && len(r.processes()) == 0 })
	r.nothingLeft()
	if strings.Contains(log.String(), "planner-secret-token") {
		t.Error("the log holds the planner's token")
	}
}
