package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// Every example of the users' guide works: the jobs are valid and managed, the
// commands run, and the files that it points at are there.
func TestUsersGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(repository, "docs/users.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(repository)
	f := newFakePlanner(t)
	jobs, commands := 0, 0
	dir := t.TempDir()
	for _, m := range fence.FindAllStringSubmatch(string(guide), -1) {
		switch kind, text := m[1], m[2]; kind {
		case "hcl":
			jobs++
			name := guideJob(t, text)
			f.answers["GET /caravan/v1/explain/default/"+name] = httpapi.Explain{Job: httpapi.Job{Namespace: "default", ID: name}}
			if err := os.WriteFile(filepath.Join(dir, name+".hcl"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "console":
			for line := range strings.Lines(text) {
				commands++
				guideCommand(t, f, dir, strings.TrimSpace(line))
			}
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

func guideJob(t *testing.T, text string) string {
	t.Helper()
	job, err := jobhcl.Parse([]byte(text), "users.md", nil)
	if err != nil {
		t.Errorf("%v in\n%s", err, text)
		return jobLine.FindStringSubmatch(text)[1]
	}
	if _, err := gangspec.Parse(job); err != nil {
		t.Error(err)
	}
	if !gangspec.Managed(job, gangspec.DefaultDevices) {
		t.Errorf("job %q is not managed", *job.ID)
	}
	return *job.ID
}

// guideCommand runs a line of the guide. Job files that the guide shows are
// those in dir.
func guideCommand(t *testing.T, f *fakePlanner, dir, line string) {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "$" || words[1] != "caravan" {
		if line != "$ caravan queue" && line != "$ caravan topology" {
			t.Errorf("%q is no caravan command", line)
			return
		}
	}
	argv := words[2:]
	for i, w := range argv {
		if strings.HasSuffix(w, ".hcl") && !strings.Contains(w, "/") {
			argv[i] = filepath.Join(dir, w)
		}
	}
	if got := f.call(nil, "", argv...); got.code != CodeOK {
		t.Errorf("%s: exit code %d\n%s%s", line, got.code, got.out, got.errOut)
	}
}

// The settings in the guide's table are those that the planner reads.
func TestUsersGuideHasEverySetting(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(repository, "docs/users.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		gangspec.KeyGang, gangspec.KeyQueue, gangspec.KeyTopology, gangspec.KeyMin, gangspec.KeyMax, gangspec.KeyDuration,
		gangspec.KeyDeadline, gangspec.KeyPreempt, gangspec.KeyCheckpoint, gangspec.KeyBurst, gangspec.KeyBudget,
	} {
		if !regexp.MustCompile(`(?m)^\|.*` + "`" + key + "`").Match(guide) {
			t.Errorf("%s is not in the table", key)
		}
	}
}
