package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devrun"
	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const repository = "../../../../.."

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	jobLine = regexp.MustCompile(`(?m)^job "([^"]+)"`)
	link    = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// Every example of the users' guide works: the jobs are valid and managed, and
// the files that it points at are there.
func TestUsersGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(repository, "docs/users.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(repository)
	jobs, commands := 0, 0
	for _, m := range fence.FindAllStringSubmatch(string(guide), -1) {
		switch kind, text := m[1], m[2]; kind {
		case "hcl":
			jobs++
			guideJob(t, text)
		case "console":
			commands += strings.Count(text, "\n")
		default:
			t.Errorf("a block of kind %q is not run by this test", kind)
		}
	}
	if jobs < 3 || commands < 10 {
		t.Errorf("only %d jobs and %d commands found", jobs, commands)
	}
	for _, m := range link.FindAllStringSubmatch(string(guide), -1) {
		if _, err := os.Stat(filepath.Join("docs", m[1])); err != nil {
			t.Errorf("link: %v", err)
		}
	}
	examples, err := filepath.Glob("jobspecs/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		if !strings.Contains(string(guide), "(../"+e+")") {
			t.Errorf("%s is not in the guide", e)
		}
	}
}

// The guide's commands, one after the other, do on a development cluster what
// the guide says: none fails, and none waits for ever.
func TestUsersGuideOnACluster(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(repository, "docs/users.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(repository)
	address := devCluster(t, dir)
	for _, m := range fence.FindAllStringSubmatch(string(guide), -1) {
		if m[1] == "hcl" {
			name := jobLine.FindStringSubmatch(m[2])[1]
			if err := os.WriteFile(filepath.Join(dir, name+".hcl"), []byte(m[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for line := range strings.Lines(m[2]) {
			argv := guideArgs(t, dir, strings.TrimSpace(line))
			var out, errOut bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			code := Run(ctx, argv, Env{
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut, Now: time.Now, Environ: os.Environ,
				LookupEnv: func(key string) (string, bool) {
					if key == httpapi.AddressEnv {
						return address, true
					}
					return "", false
				},
				Sleep: func(ctx context.Context, d time.Duration) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(d):
						return nil
					}
				},
			})
			cancel()
			waits := code == CodeQueued && (argv[0] == "run" || argv[0] == "plan")
			if code != CodeOK && !waits || strings.Contains(errOut.String(), "Error:") {
				t.Errorf("%v: exit code %d\n%s%s", argv, code, out.String(), errOut.String())
			}
		}
	}
}

// devCluster starts a development cluster for as long as the test, and returns
// the planner's address.
func devCluster(t *testing.T, dir string) string {
	t.Helper()
	plugin := filepath.Join(dir, "nomad-device-caravan")
	if out, err := exec.Command("go", "build", "-o", plugin, "./devicegpu/cmd/nomad-device-caravan").CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	report, w := io.Pipe()
	go func() {
		_, err := devrun.Run(ctx, devrun.Options{Backend: devcluster.BackendDevNomad, Plugin: plugin, JSON: true, Out: w})
		w.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var r devrun.Report
	if err := json.NewDecoder(report).Decode(&r); err != nil || !r.OK {
		t.Fatalf("development cluster: %v, %+v", err, r)
	}
	return r.Addresses.Caravan
}

func guideJob(t *testing.T, text string) {
	t.Helper()
	job, err := jobhcl.Parse([]byte(text), "users.md", nil)
	if err != nil {
		t.Errorf("%v in\n%s", err, text)
		return
	}
	if _, err := gangspec.Parse(job); err != nil {
		t.Error(err)
	}
	if !gangspec.Managed(job, gangspec.DefaultDevices) {
		t.Errorf("job %q is not managed", *job.ID)
	}
}

// guideArgs takes a line of the guide apart. Job files that the guide shows are
// those in dir.
func guideArgs(t *testing.T, dir, line string) []string {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "$" || words[1] != "caravan" {
		if line != "$ caravan queue" && line != "$ caravan topology" {
			t.Fatalf("%q is no caravan command", line)
		}
	}
	argv := words[2:]
	for i, w := range argv {
		if strings.HasSuffix(w, ".hcl") && !strings.Contains(w, "/") {
			argv[i] = filepath.Join(dir, w)
		}
	}
	return argv
}

// The settings in the guide's table are those that the planner reads.
func TestUsersGuideHasEverySetting(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(repository, "docs/users.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		gangspec.KeyGang, gangspec.KeyQueue, gangspec.KeyTopology, gangspec.KeyMin, gangspec.KeyMax, gangspec.KeyDuration,
		gangspec.KeyDeadline, gangspec.KeyPreempt, gangspec.KeyCheckpoint, gangspec.KeyCheckpointStorage, gangspec.KeyCheckpointGiB, gangspec.KeyBurst, gangspec.KeyBudget,
		gangspec.KeyOnFailure, gangspec.KeyOnResize, gangspec.KeyRegions, gangspec.KeyData, gangspec.KeyCollective, gangspec.KeySlice, gangspec.KeyModels, gangspec.KeyMix, gangspec.KeySpeed, gangspec.KeyShare,
	} {
		if !regexp.MustCompile(`(?m)^\|.*` + "`" + key + "`").Match(guide) {
			t.Errorf("%s is not in the table", key)
		}
	}
}
