package cli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/join"
)

// taskEnv is what Nomad gives to a task.
func taskEnv(t *testing.T, more map[string]string) map[string]string {
	t.Helper()
	secrets := filepath.Dir(writeFile(t, "nomad_caravan.jwt", "a.b.c"))
	env := map[string]string{
		"NOMAD_ALLOC_ID": "a1", "NOMAD_JOB_ID": "train", "NOMAD_GROUP_NAME": "g", "NOMAD_ALLOC_INDEX": "1", "NOMAD_NAMESPACE": "ml",
		"NOMAD_SECRETS_DIR": secrets, "NOMAD_ALLOC_DIR": t.TempDir(),
		"NOMAD_HOST_IP_rendezvous": "10.0.0.2", "NOMAD_HOST_PORT_rendezvous": "7002",
	}
	maps.Copy(env, more)
	return env
}

// joins is a planner that answers every join so, and keeps the last request.
func joins(t *testing.T, answer gangapi.JoinAnswer) (*fakePlanner, *gangapi.JoinRequest) {
	f, got := newFakePlanner(t), &gangapi.JoinRequest{}
	f.answers["POST "+gangapi.JoinPath] = func(body []byte) (any, error) {
		return answer, json.Unmarshal(body, got)
	}
	return f, got
}

func TestJoin(t *testing.T) {
	m := rendezvous.Membership{
		Epoch: "e", Generation: 1, Namespace: "ml", Job: "train", Min: 2, Max: 2, MasterAddr: "10.0.0.1", MasterPort: 7001,
		Members: []rendezvous.Member{
			{Group: "g", Index: 0, Alloc: "a0", Node: "n1", Address: "10.0.0.1", Processes: 8},
			{Group: "g", Index: 1, Alloc: "a1", Node: "n2", Address: "10.0.0.2", Processes: 8},
		},
	}
	f, got := joins(t, gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: &m})
	env := taskEnv(t, map[string]string{"CARAVAN_PROCESSES": "8", "CARAVAN_DIR_IN_TASK": "/alloc/caravan", "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
	c := f.call(env, "", "join", "--interface", "eth1", "--json")
	if c.code != CodeOK {
		t.Fatalf("exit code %d: %s", c.code, c.errOut)
	}
	want := gangapi.JoinRequest{Run: got.Run, Attempt: 1, WaitMS: 30_000, Address: "10.0.0.2", Port: 7002, Processes: 8, GPUs: []string{"GPU-1", "GPU-2"}}
	if diff := cmp.Diff(want, *got); diff != "" || got.Run == "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	var r join.Result
	if err := json.Unmarshal([]byte(c.out), &r); err != nil || r.Env["RANK"] != "8" || r.Env["CARAVAN_HOSTFILE"] != "/alloc/caravan/hostfile" || r.Env["NCCL_SOCKET_IFNAME"] != "eth1" {
		t.Errorf("output %s, %v", c.out, err)
	}
	if _, err := os.Stat(filepath.Join(env["NOMAD_ALLOC_DIR"], "caravan", join.EnvFile)); err != nil {
		t.Error(err)
	}
	env["CARAVAN_GPU_SLICE"], env["NVIDIA_VISIBLE_DEVICES"] = "GPU-1::2", "GPU-1"
	c = f.call(env, "", "join")
	if diff := cmp.Diff([]string{"GPU-1::2"}, got.GPUs); diff != "" {
		t.Errorf("a slice (-want +got):\n%s", diff)
	}
	if c.code != CodeOK || !strings.Contains(c.out, "rank 8 of 16, node 1 of 2: ") {
		t.Errorf("exit code %d, output %q", c.code, c.out)
	}
}

func TestJoinFails(t *testing.T) {
	refused := gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: "the allocation was replaced"}
	waits := gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: "waiting for gang: 1 of 2 joined, node-7 missing", Joined: 1, Size: 2}
	tests := map[string]struct {
		answer gangapi.JoinAnswer
		env    map[string]string
		args   []string
		code   int
		want   []string
	}{
		"refused":       {refused, nil, nil, CodeFailure, []string{"the allocation was replaced"}},
		"sidecar too":   {refused, nil, []string{"--sidecar"}, CodeFailure, []string{"the allocation was replaced"}},
		"too late":      {waits, nil, []string{"--timeout", "5s"}, CodeFailure, []string{"within 5s", "node-7 missing"}},
		"nobody there":  {waits, map[string]string{"CARAVAN_PLANNERS": "http://127.0.0.1:1,http://127.0.0.1:2"}, []string{"--timeout", "5s"}, CodeFailure, []string{"within 5s", "127.0.0.1:2"}},
		"not in Nomad":  {waits, map[string]string{"NOMAD_ALLOC_ID": "", "NOMAD_ALLOC_DIR": ""}, nil, CodeUsage, []string{"NOMAD_ALLOC_ID", "--dir"}},
		"bad values":    {waits, map[string]string{"CARAVAN_PROCESSES": "many"}, []string{"--timeout", "soon", "--port", "70000", "--member-address", "here"}, CodeUsage, []string{"many", "soon", "70000", "here"}},
		"bad addresses": {waits, nil, []string{"--planner", "ftp://x", "--cert", "/none"}, CodeUsage, []string{"ftp://x", "give both or none"}},
		"an argument":   {waits, nil, []string{"now"}, CodeUsage, []string{"no argument"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // two of them wait to be too late
			f, _ := joins(t, test.answer)
			c := f.call(taskEnv(t, test.env), "", append([]string{"join"}, test.args...)...)
			if c.code != test.code {
				t.Errorf("exit code %d, want %d", c.code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(c.errOut, want) {
					t.Errorf("it says %q, want %q in it", c.errOut, want)
				}
			}
		})
	}
}

// Without a port from Nomad it finds an address and a free port by itself.
func TestJoinFindsAnAddress(t *testing.T) {
	f, got := joins(t, gangapi.JoinAnswer{State: gangapi.JoinAlone})
	env := taskEnv(t, map[string]string{"NOMAD_HOST_IP_rendezvous": "", "NOMAD_HOST_PORT_rendezvous": ""})
	if c := f.call(env, "", "join"); c.code != CodeOK || got.Address != "127.0.0.1" || got.Port < 1 {
		t.Errorf("exit code %d %s, request %+v", c.code, c.errOut, got)
	}
}
