package product

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tools that people drive Nomad with, where they are installed: Terraform's
// provider for Nomad as a binary of its own, and nomad-pack.
const (
	envProvider = "CARAVAN_TEST_TERRAFORM_PROVIDER" // terraform-provider-nomad
	envPack     = "CARAVAN_TEST_NOMAD_PACK"         // nomad-pack
)

// tool returns a binary that the environment names.
func tool(t *testing.T, env string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		t.Skipf("set %s to the binary", env)
	}
	return path
}

// call runs a command in a directory and returns its output and exit code.
func call(t *testing.T, dir string, env []string, name string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", name, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serviceFile is a service of replicas, to be changed.
func serviceFile(count, memory int) string {
	return fmt.Sprintf(`job "replicas" {
  type = "service"
  update {
    max_parallel     = 1
    min_healthy_time = "1s"
  }
  group "api" {
    count = %d
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      resources {
        cpu    = 50
        memory = %d
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
`, count, memory)
}

// TestTerraform: Terraform applies jobs through the gateway, and then sees no
// difference between what it applied and what runs: not in gate, pins and split
// groups, not in counts.
func TestTerraform(t *testing.T) {
	provider := tool(t, envProvider)
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("needs terraform on the PATH")
	}
	onEach(t, func(t *testing.T, p *product) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "rc"), fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"hashicorp/nomad\" = %q\n  }\n  direct {}\n}\n", filepath.Dir(provider)))
		work := filepath.Join(dir, "work")
		write(t, filepath.Join(work, "main.tf"), fmt.Sprintf(`terraform {
  required_providers {
    nomad = { source = "hashicorp/nomad" }
  }
}
provider "nomad" {
  address = %q
}
resource "nomad_job" "gang" {
  jobspec = file("gang.hcl")
}
resource "nomad_job" "replicas" {
  jobspec = file("replicas.hcl")
  detach  = false
}
`, p.address))
		gang, err := os.ReadFile("../../jobspecs/island-4gpu.hcl")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(work, "gang.hcl"), string(gang))
		write(t, filepath.Join(work, "replicas.hcl"), serviceFile(2, 32))
		terraform := func(want int, args ...string) string {
			t.Helper()
			out, code := call(t, work, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "rc"), "TF_IN_AUTOMATION=1"}, "terraform", append(args, "-no-color")...)
			if code != want {
				t.Fatalf("terraform %v ended with %d, want %d:\n%s", args, code, want, out)
			}
			return out
		}
		noDrift := func() { t.Helper(); terraform(0, "plan", "-detailed-exitcode") }
		terraform(0, "apply", "-auto-approve")
		p.placed("island-4gpu")
		p.placed("replicas")
		noDrift()
		for _, text := range []string{serviceFile(3, 32), serviceFile(3, 48)} {
			write(t, filepath.Join(work, "replicas.hcl"), text)
			terraform(2, "plan", "-detailed-exitcode")
			terraform(0, "apply", "-auto-approve")
			p.until("three replicas", func() (bool, any) { n := len(p.allocs("replicas")); return n == 3, n })
			noDrift()
		}
		terraform(0, "destroy", "-auto-approve")
		p.until("nothing left", func() (bool, any) {
			n := len(p.allocs("replicas")) + len(p.allocs("island-4gpu"))
			return n == 0, n
		})
	})
}

// TestNomadPack: a pack that is run again changes nothing.
func TestNomadPack(t *testing.T) {
	pack := tool(t, envPack)
	onEach(t, func(t *testing.T, p *product) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "train", "metadata.hcl"), "app {\n  url = \"https://example.com\"\n}\npack {\n  name = \"train\"\n  description = \"a gang\"\n  version = \"0.0.1\"\n}\n")
		write(t, filepath.Join(dir, "train", "variables.hcl"), "variable \"count\" {\n  type = number\n  default = 2\n}\n")
		write(t, filepath.Join(dir, "train", "templates", "train.nomad.tpl"),
			strings.Replace(serviceFile(2, 32), "count = 2", "count = [[ var \"count\" . ]]", 1))
		nomadPack := func(args ...string) string {
			t.Helper()
			out, code := call(t, dir, []string{"NOMAD_ADDR=" + p.address, "HOME=" + dir}, pack, args...)
			if code != 0 {
				t.Fatalf("nomad-pack %v ended with %d:\n%s", args, code, out)
			}
			return out
		}
		nomadPack("run", "./train")
		p.placed("replicas")
		before := ids(p.allocs("replicas"))
		nomadPack("plan", "./train")
		nomadPack("run", "./train")
		if after := ids(p.allocs("replicas")); strings.Join(before, " ") != strings.Join(after, " ") {
			t.Errorf("allocations %v became %v", before, after)
		}
		nomadPack("destroy", "./train")
		p.until("nothing left", func() (bool, any) { n := len(p.allocs("replicas")); return n == 0, n })
	})
}
