package driver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// thief shows its identity, which no trainer does.
const thief = `cp "$NOMAD_SECRETS_DIR/nomad_caravan.jwt" "$DIARY/identity-$NOMAD_JOB_ID-$NOMAD_ALLOC_INDEX"; ` + trainer

func (r *rig) identity(job string, index int) string {
	r.t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.diary, fmt.Sprintf("identity-%s-%d", job, index)))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// ask sends a member's request to the planner.
func (r *rig) ask(path, identity string, body any) (int, string) {
	r.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := r.deadline()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.planners[0].address+path, bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if identity != "" {
		req.Header.Set(gangapi.IdentityHeader, identity)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// forge changes an identity's claims and keeps its signature.
func forge(t *testing.T, identity string, change func(claims map[string]any)) string {
	t.Helper()
	parts := strings.Split(identity, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no JWT", identity)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	change(claims)
	if raw, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString(raw) + "." + parts[2]
}

// Nobody gets into a gang with another's identity, with one that was tampered
// with, or with none; and neither gang takes notice.
func TestOthersIdentity(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		// The gang waits for its third member, whose task has not begun.
		job, waiting := r.incomplete(false)
		other := r.named("other", group("w", 2, gpus(task("train", thief), 1)))
		r.submit(other)
		r.await("the other gang runs", func(d diary) bool { return len(d.with("start")) == 2 })
		others := r.read().with("start")
		token := r.identity(*other.ID, 0)
		mine := r.alloc(waiting[0])
		missing := ""
		for _, a := range r.allocs(job) {
			if strings.HasPrefix(a.TaskGroup, "late") {
				missing = a.ID
			}
		}
		join := gangapi.JoinRequest{Run: "stolen", Attempt: 1, Address: "127.0.0.1", Port: 1000, Processes: 1, WaitMS: 100}
		for _, d := range mine.AllocatedResources.Tasks["train"].Devices {
			join.GPUs = append(join.GPUs, d.DeviceIDs...)
		}
		report := gangapi.ReportRequest{Run: "stolen", State: gangapi.MemberExited, Epoch: others[0].values["epoch"], Generation: 1, Exit: &gangapi.Exit{Code: 9}}
		refused := []struct {
			name, identity string
			want           []string
		}{
			{"none", "", nil},
			{"nonsense", "a.b.c", nil},
			{"another allocation claimed", forge(t, token, func(c map[string]any) { c["nomad_allocation_id"] = missing; c["nomad_job_id"] = job }), nil},
			{"a longer life claimed", forge(t, token, func(c map[string]any) { c["exp"] = float64(time.Now().Add(1e4 * time.Hour).Unix()) }), nil},
		}
		for _, x := range refused {
			for path, body := range map[string]any{gangapi.JoinPath: join, gangapi.ReportPath: report} {
				code, text := r.ask(path, x.identity, body)
				if code != http.StatusUnauthorized && code != http.StatusForbidden || !strings.Contains(text, "identity") {
					t.Errorf("%s at %s is answered %d %s, want a refusal that says why", x.name, path, code, text)
				}
			}
		}
		// Its own identity says whose it is: with another's GPUs it is refused.
		code, text := r.ask(gangapi.JoinPath, token, join)
		if code != http.StatusOK || !strings.Contains(text, `"refused"`) || !strings.Contains(text, "it was to have") {
			t.Errorf("another's GPUs are answered %d %s, want a refusal that names them", code, text)
		}
		// A report of a run that is not in the epoch fails nobody.
		if code, text = r.ask(gangapi.ReportPath, token, report); code != http.StatusOK || strings.Contains(text, `"restart"`) {
			t.Errorf("a report of an unknown run is answered %d %s", code, text)
		}

		r.goOn(others[0].alloc, others[1].alloc)
		if d := r.read(); len(d.with("start")) != 2 || len(d.with("end"))+len(d.with("fail")) != 0 {
			t.Errorf("something started or ended:\n%s", d)
		}
		r.touch("go")
		d := r.await("the gang starts when its own third member is there", func(d diary) bool { return len(d.with("start")) == 5 })
		r.goOn(d.of(waiting[0])[0].alloc, others[0].alloc, others[1].alloc)
		if d := r.read(); len(d.with("start")) != 5 {
			t.Errorf("something started again:\n%s", d)
		}
	})
}

// A preflight finds a GPU ill on one node: that is told, the gang runs elsewhere,
// and it is no failure of the job.
func TestPreflightFindsIllGPU(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		faults := r.faults("gpu-1")
		if err := os.WriteFile(faults, []byte("3 fabric\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(faults) })
		k := gpus(task("train", trainer), 8).SetConfig("preflight", []map[string]any{{}})
		j := r.job(once(group("w", 2, k)))
		// In the rack with two nodes, of which that is one.
		j.Meta["caravan_topology"] = "prefer:rack"
		r.allFree()
		r.submit(j)
		d := r.await("the gang runs", func(d diary) bool { return len(d.with("start")) == 2 })
		r.together(d, 2)
		for _, a := range d.ids() {
			if name := r.alloc(a).NodeName; name == "gpu-1" {
				t.Errorf("a member runs on %s", name)
			}
		}
		told := ""
		for _, a := range r.allocs(*j.ID) {
			if a.NodeName == "gpu-1" {
				told += strings.Join(r.events(a.ID, "train"), "\n")
			}
		}
		if !strings.Contains(told, "not fit: gpu") || !strings.Contains(told, "abric") {
			t.Errorf("the events on gpu-1 do not say what was found: %s", told)
		}
		e, err := r.planners[0].api.Explain(t.Context(), "default", *j.ID)
		if err != nil {
			t.Fatal(err)
		}
		if e.Attempts != 0 {
			t.Errorf("%d attempts are counted: %+v", e.Attempts, e.History)
		}
		r.status(d.ids()[0], api.AllocClientStatusRunning)
	})
}
