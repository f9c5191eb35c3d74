package rendezvous

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gang is three members on two nodes with 2, 4 and 4 processes.
func gang() Membership {
	return Membership{
		Epoch: "e1", Generation: 1, Namespace: "default", Job: "train", Min: 3, Max: 3,
		MasterAddr: "10.0.0.1", MasterPort: 29500,
		Members: []Member{
			{Group: "a", Index: 0, Alloc: "a0", Node: "n1", NodeName: "gpu-1", Address: "10.0.0.1", GPUs: []string{"GPU-1", "GPU-2"}, Processes: 2},
			{Group: "b", Index: 0, Alloc: "b0", Node: "n2", NodeName: "gpu-2", Address: "10.0.0.2", GPUs: []string{"GPU-3"}, Processes: 4},
			{Group: "b", Index: 1, Alloc: "b1", Node: "n2", NodeName: "gpu-2", Address: "10.0.0.2", Processes: 4},
		},
	}
}

func elastic() Membership {
	m := gang()
	m.Min, m.Max = 1, 4
	return m
}

func TestEnv(t *testing.T) {
	fixed := map[string]string{
		"RANK": "2", "LOCAL_RANKS": "0,1,2,3", "WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1", "GROUP_RANK": "1",
		"NNODES": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
		"CARAVAN_EPOCH": "e1", "CARAVAN_GENERATION": "1", "CARAVAN_RANKS": "2,3,4,5",
		"PET_NNODES": "3", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "29500",
		"PET_RDZV_ID": "e1", "PET_LOCAL_ADDR": "10.0.0.2",
	}
	with := func(more map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range []map[string]string{fixed, more} {
			for k, v := range m {
				out[k] = v
			}
		}
		return out
	}
	v6 := elastic()
	v6.MasterAddr = "fd00::1"
	one := gang()
	one.Members[1].Processes = 1
	tests := map[string]struct {
		m     Membership
		local Local
		want  map[string]string
	}{
		"fixed size": {gang(), Local{}, fixed},
		"elastic": {v6, Local{}, with(map[string]string{
			"PET_NNODES": "1:4", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "[fd00::1]:29500", "PET_RDZV_CONF": "is_host=false",
			"MASTER_ADDR": "fd00::1", "PET_MASTER_ADDR": "fd00::1",
		})},
		"one process": {one, Local{}, with(map[string]string{
			"LOCAL_RANK": "0", "LOCAL_RANKS": "0", "LOCAL_WORLD_SIZE": "1", "PET_NPROC_PER_NODE": "1", "CARAVAN_RANKS": "2", "WORLD_SIZE": "7",
		})},
		"surroundings": {gang(), Local{Interface: "eth1", MembershipFile: "/m", HostFile: "/h", DeepSpeedHostFile: "/d", Socket: "/s", HTTP: "http://127.0.0.1:1"}, with(map[string]string{
			"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1",
			"CARAVAN_MEMBERSHIP": "/m", "CARAVAN_HOSTFILE": "/h", "CARAVAN_HOSTFILE_DEEPSPEED": "/d", "CARAVAN_SOCKET": "/s", "CARAVAN_HTTP": "http://127.0.0.1:1",
			"OMPI_MCA_orte_default_hostfile": "/h", "PRTE_MCA_prte_default_hostfile": "/h",
			"OMPI_MCA_btl_tcp_if_include": "eth1", "OMPI_MCA_oob_tcp_if_include": "eth1",
		})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Env(test.m, "b0", test.local)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvOfRankZeroHostsTheStore(t *testing.T) {
	got, err := Env(elastic(), "a0", Local{})
	if err != nil || got["PET_RDZV_CONF"] != "is_host=true" || got["RANK"] != "0" {
		t.Errorf("rank 0 has %v, %v", got, err)
	}
}

func TestEnvRefuses(t *testing.T) {
	if _, err := Env(gang(), "other", Local{}); !errors.Is(err, ErrNotMember) {
		t.Errorf("a stranger: %v", err)
	}
	var e *Error
	if _, err := Env(Membership{}, "a0", Local{}); !errors.As(err, &e) {
		t.Errorf("no membership: %v", err)
	}
}

func TestHostFiles(t *testing.T) {
	if diff := cmp.Diff("10.0.0.1 slots=2\n10.0.0.2 slots=8\n", HostFile(gang())); diff != "" {
		t.Errorf("Open MPI (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("10.0.0.1 slots=2\n10.0.0.2 slots=5\n", DeepSpeedHostFile(gang())); diff != "" {
		t.Errorf("DeepSpeed (-want +got):\n%s", diff)
	}
}

func TestEnvFile(t *testing.T) {
	env := map[string]string{"B": "it's $HOME", "A": "10.0.0.1:1", "C": "", "D": "[fd00::1]:2"}
	want := "A=10.0.0.1:1\nB='it'\\''s $HOME'\nC=''\nD='[fd00::1]:2'\n"
	got := EnvFile(env)
	if got != want {
		t.Errorf("environment file %q, want %q", got, want)
	}
	out, err := exec.Command("/bin/sh", "-c", got+`printf %s "$A|$B|$C|$D"`).Output()
	if err != nil || string(out) != "10.0.0.1:1|it's $HOME||[fd00::1]:2" {
		t.Errorf("a shell reads %q, %v", out, err)
	}
}

func TestJSONComesBack(t *testing.T) {
	b, err := JSON(gang())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(gang(), got); diff != "" {
		t.Errorf("membership (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*Membership)
		want   []string
	}{
		"sound":   {func(*Membership) {}, nil},
		"IPv6":    {func(m *Membership) { m.MasterAddr, m.Members[0].Address = "fd00::1", "fd00::1" }, nil},
		"elastic": {func(m *Membership) { m.Min, m.Max = 1, 8 }, nil},
		"nothing": {func(m *Membership) { *m = Membership{} }, []string{
			"membership: epoch", "membership: generation", "membership: namespace", "membership: job", "membership: master_addr",
			"membership: master_port", "membership: min", "membership: max", "membership: members",
		}},
		"bounds":              {func(m *Membership) { m.Min, m.Max = 4, 8 }, []string{"membership: members"}},
		"bounds crossed":      {func(m *Membership) { m.Min, m.Max = 3, 2 }, []string{"membership: members"}},
		"host name":           {func(m *Membership) { m.MasterAddr = "gpu-1" }, []string{"membership: master_addr"}},
		"any address":         {func(m *Membership) { m.Members[1].Address = "0.0.0.0" }, []string{"member 1: address"}},
		"zone":                {func(m *Membership) { m.Members[1].Address = "fe80::1%eth0" }, []string{"member 1: address"}},
		"port":                {func(m *Membership) { m.MasterPort = 65536 }, []string{"membership: master_port"}},
		"no processes":        {func(m *Membership) { m.Members[2].Processes = 0 }, []string{"member 2: processes"}},
		"too many processes":  {func(m *Membership) { m.Members[2].Processes = 1 << 30 }, []string{"member 2: processes"}},
		"line in a name":      {func(m *Membership) { m.Epoch = "a\nRANK=0" }, []string{"membership: epoch"}},
		"comma in a UUID":     {func(m *Membership) { m.Members[0].GPUs[0] = "a,b" }, []string{"member 0: gpus"}},
		"twice one alloc":     {func(m *Membership) { m.Members[2].Alloc = "a0" }, []string{"member 2: alloc"}},
		"twice one place":     {func(m *Membership) { m.Members[2].Index = 0 }, []string{"member 2: index"}},
		"twice one GPU":       {func(m *Membership) { m.Members[1].GPUs[0] = "GPU-1" }, []string{"member 1: gpus"}},
		"node with two names": {func(m *Membership) { m.Members[2].NodeName = "gpu-9" }, []string{"member 2: node_name"}},
		"nameless":            {func(m *Membership) { m.Members[0].Group, m.Members[0].Alloc, m.Members[0].Node = "", "", "" }, []string{"member 0: group", "member 0: alloc", "member 0: node"}},
		"negative index":      {func(m *Membership) { m.Members[0].Index = -1 }, []string{"member 0: index"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := gang()
			test.change(&m)
			var got []string
			var e *Error
			if err := Validate(m); errors.As(err, &e) {
				for _, f := range e.Faults {
					got = append(got, f.Where+": "+f.Key)
				}
			} else if err != nil {
				t.Fatalf("error %v holds no faults", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateBoundsTheWorldAndTheMessage(t *testing.T) {
	m := gang()
	m.Min, m.Max, m.Members = 1, MaxMembers, nil
	for i := range MaxWorld/MaxProcesses + 1 {
		id := fmt.Sprint(i)
		m.Members = append(m.Members, Member{Group: "g", Index: i, Alloc: id, Node: id, Address: "10.0.0.1", Processes: MaxProcesses})
	}
	if err := Validate(m); err == nil || !strings.Contains(err.Error(), "processes in all") {
		t.Errorf("a world that is too large: %v", err)
	}
	for i := range m.Members {
		m.Members[i].Address = strings.Repeat("x", 500)
	}
	if err := Validate(m); err == nil || len(err.Error()) > 10_000 || !strings.Contains(err.Error(), "and 238 more") {
		t.Errorf("a membership that is wrong throughout: %.200s…", err)
	}
}

// Whatever a membership file holds, reading it never panics, and what is let
// through can be turned into everything that a member needs.
func FuzzDecode(f *testing.F) {
	for _, m := range []Membership{gang(), elastic(), {}} {
		b, err := JSON(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range []string{"", "null", "[]", `{"members":null}`, `{"epoch":7}`, `{"generation":1e99}`, "{} {}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		lines := strings.Count(HostFile(m), "\n")
		if lines < 1 || lines > len(m.Members) {
			t.Errorf("%d lines for %d members", lines, len(m.Members))
		}
		for _, member := range m.Members[:min(len(m.Members), 3)] {
			env, err := Env(m, member.Alloc, Local{})
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range Pairs(env) {
				if strings.ContainsAny(pair, "\n\x00") {
					t.Errorf("variable %q", pair)
				}
			}
		}
	})
}
