package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

func noEnv(string) (string, bool) { return "", false }

func envOf(m map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := m[k]; return v, ok }
}

func noRead(string) ([]byte, error) { return nil, errors.New("no such file") }

const full = `
nomad {
  address    = "https://10.0.0.1:4646"
  region     = "global"
  token_file = "/etc/caravan/token"
  ca_file    = "/etc/caravan/ca.pem"
}
listen {
  address   = "0.0.0.0:4656"
  advertise = "https://10.0.0.5:4656"
  tls {
    cert_file = "/etc/caravan/tls.pem"
    key_file  = "/etc/caravan/tls.key"
  }
}
managed {
  devices           = ["nvidia/gpu"]
  namespaces        = ["*"]
  exempt_namespaces = ["system-*"]
  exempt_node_pools = ["interactive"]
}
policy {
  order     = "fifo"
  strict    = true
  max_holds = 3
  preempt {
    enabled          = true
    unsaved          = true
    min_priority_gap = 5
    min_run_time     = "10m"
    max_at_once      = 2
    max_gpus_at_once = 64
    max_gib_at_once = 500
    storage "lustre" {
      max_at_once     = 4
      max_gib_at_once = 200
    }
    max_per_hour     = 20
    max_per_job      = 1
    restart_time     = "90s"
  }
  elastic {
    enabled      = false
    min_interval = "20m"
    max_per_hour = 7
    min_gain     = 0.2
  }
  defrag {
    enabled           = true
    min_benefit_ratio = 1.5
    max_per_hour      = 6
    max_per_gang      = 2
    max_per_job       = 1
    min_run_time      = "1h"
    again             = "2h"
  }
  replace {
    keep_for = "30m"
  }
  spares {
    per   = "row"
    nodes = 2
  }
  half_life = "6h"
  forecasts = 10
  backfill {
    mode             = "conservative"
    depth            = 5
    default_duration = "2h"
    reclaim          = true
  }
  las {
    thresholds_gpu_hours = [0.5, 2]
    starve               = 3.5
  }
  timeslice { quantum = "2h" }
  caravan {
    patience       = 2.5
    short          = "90m"
    stuck_after    = "36h"
    size_delay     = "3h"
    deadlines_only = true
  }
  interactive {
    classes  = ["now"]
    queues   = ["dev"]
    max_gpus = 2
    max_run  = "3h"
    reserve  = "2.5%"
    lend     = true
  }
  deadline {
    margin = "90s"
    safety = 1.25
  }
  ftf {
    fairness = 0.5
    lease    = "11m"
  }
  maxmin { round = "7m" }
}
admission {
  deadline = "90s"
  retry {
    initial = "2s"
    max     = "1m"
  }
}
trouble {
  sick_gpu    = "1m"
  missing_gpu = "10m"
}
levels = ["zone", "row", "rack"]
level "rack" { meta = "rack_name" }
topology_file = "topology.hcl"
state { namespace = "ops" }
gateway { wait = "5s" }
barrier {
  max_waiting = 100
  avoid_for   = "10m"
}
observe_only = true
log_level    = "debug"
`

func TestParseFull(t *testing.T) {
	read := func(path string) ([]byte, error) {
		if path != "/etc/caravan/topology.hcl" {
			return nil, errors.New("asked for " + path)
		}
		return []byte(`rack "r1" { nodes = ["n1"] }`), nil
	}
	got, err := parse([]byte(full), "/etc/caravan/caravan.hcl", noEnv, read)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Nomad:  Nomad{Address: "https://10.0.0.1:4646", Region: "global", TokenFile: "/etc/caravan/token", CAFile: "/etc/caravan/ca.pem"},
		Listen: Listen{Address: "0.0.0.0:4656", Advertise: "https://10.0.0.5:4656", CertFile: "/etc/caravan/tls.pem", KeyFile: "/etc/caravan/tls.key"},
		Managed: Managed{Devices: []string{"nvidia/gpu"}, Namespaces: []string{"*"},
			ExemptNamespaces: []string{"system-*"}, ExemptNodePools: []string{"interactive"}},
		Policy: Policy{HalfLife: 6 * time.Hour, Policy: queue.Policy{Order: "fifo", Strict: true, MaxHolds: 3, Preempt: preempt.Policy{
			Enabled: true, MinPriorityGap: 5, MinRunTime: 10 * time.Minute, MaxAtOnce: 2, MaxGPUsAtOnce: 64, MaxGiBAtOnce: 500, Storages: []preempt.Storage{{Name: "lustre", MaxAtOnce: 4, MaxGiBAtOnce: 200}}, MaxPerHour: 20, MaxPerJob: 1, RestartTime: 90 * time.Second,
		}, Elastic: queue.Elastic{Disabled: true, MinInterval: 20 * time.Minute, MaxPerHour: 7, MinGain: 0.2}, Replace: queue.Replace{KeepFor: 30 * time.Minute, SparesPer: "row", Spares: 2},
			Defrag: preempt.Defrag{Enabled: true, MinBenefitRatio: 1.5, MaxPerHour: 6, MaxPerGang: 2, MaxPerJob: 1, MinRunTime: time.Hour, Again: 2 * time.Hour},
			LAS:    queue.LAS{Thresholds: []float64{1800, 7200}, Starve: 3.5}, Timeslice: queue.Timeslice{Quantum: 2 * time.Hour}, Caravan: queue.Caravan{Patience: 2.5, Short: 90 * time.Minute, StuckAfter: 36 * time.Hour, SizeDelay: 3 * time.Hour, DeadlinesOnly: true},
			Interactive: queue.Interactive{Classes: []string{"now"}, Queues: []string{"dev"}, MaxGPUs: 2, MaxRun: 3 * time.Hour, ReserveShare: 0.025, Lend: true}, Deadline: queue.Deadline{Margin: 90 * time.Second, Safety: 1.25},
			FTF: queue.FTF{Fairness: 0.5, Lease: 11 * time.Minute}, MaxMin: queue.MaxMin{Round: 7 * time.Minute}, Burst: burst.Policy{}.WithDefaults()}},
		Admission: Admission{Deadline: 90 * time.Second, RetryInitial: 2 * time.Second, RetryMax: time.Minute},
		Trouble:   Trouble{SickGPU: time.Minute, MissingGPU: 10 * time.Minute},
		Levels:    []Level{{"zone", "caravan_zone"}, {"row", "caravan_row"}, {"rack", "rack_name"}},
		Topology: &Topology{Path: "/etc/caravan/topology.hcl",
			Places: map[string]Place{"n1": {Levels: map[string]string{"rack": "r1"}, Line: 1}}},
		State: State{Namespace: "ops"}, Gateway: Gateway{Wait: 5 * time.Second},
		Barrier:     Barrier{MaxWaiting: 100, AvoidFor: 10 * time.Minute},
		ObserveOnly: true, LogLevel: "debug",
	}
	want.Policy.Forecasts = 10
	want.Policy.Backfill = queue.Backfill{Mode: queue.BackfillConservative, Depth: 5, DefaultDuration: 2 * time.Hour, MaxWait: queue.DefaultMaxWait, Reclaim: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestParseNothingIsDefault(t *testing.T) {
	got, err := Load("", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestParseFaults(t *testing.T) {
	tests := map[string]struct {
		src  string
		env  map[string]string
		want []string // each must be in the error
	}{
		"unknown key, with a suggestion":   {src: "observe_onyl = true", want: []string{`c.hcl:1: observe_onyl is not known here: did you mean "observe_only"?`}},
		"unknown block, with a suggestion": {src: "admision {}", want: []string{`c.hcl:1: admision is not known here: did you mean "admission"?`}},
		"unknown key in a block":           {src: "nomad {\n  adress = \"x\"\n}", want: []string{`c.hcl:2: nomad.adress is not known here: did you mean "address"?`}},
		"wrong type":                       {src: "observe_only = [1]", want: []string{"c.hcl:1: observe_only is [1]: want true or false"}},
		"broken file":                      {src: "nomad {", want: []string{"c.hcl:1:"}},
		"every fault at once": {
			src: "log_level = \"loud\"\npolicy {\n  order = \"fifa\"\n}\nadmission {\n  deadline = \"soon\"\n  retry {\n    initial = \"2h\"\n    max = \"1h\"\n  }\n}\ngateway { wait = \"-1s\" }\n",
			want: []string{
				`c.hcl:1: log_level is "loud": allowed are trace, debug, info, warn, error`,
				`c.hcl:3: policy.order is "fifa": did you mean "fifo"?`,
				`c.hcl:6: admission.deadline is "soon": want a duration`,
				`c.hcl:8: admission.retry.initial is "2h0m0s": it must not be greater`,
				`c.hcl:12: gateway.wait is "-1s": want 0s to 5m0s`,
			}},
		"no holds": {src: "policy { max_holds = 0 }", want: []string{`c.hcl:1: policy.max_holds is 0: want 1 to 10000`, "besteffort"}},
		"spares of nothing": {src: "policy {\n replace {\n keep_for = \"0s\"\n }\n spares {\n per = \"blok\"\n nodes = -1\n }\n}", want: []string{
			`policy.replace.keep_for`, `c.hcl:6: policy.spares.per is "blok": did you mean "block"?`, `c.hcl:7: policy.spares.nodes is -1: want 0 to 1000 idle nodes`}},
		"growth that never is": {src: "policy {\n elastic {\n min_interval = \"0s\"\n max_per_hour = 0\n min_gain = 0\n }\n}", want: []string{
			`policy.elastic.min_interval`, `c.hcl:4: policy.elastic.max_per_hour is 0: want 1 to 100000; to let no gang grow, set policy.elastic.enabled to false`, `c.hcl:5: policy.elastic.min_gain is 0: want more than 0`}},
		"growth that hardly ever is": {src: "policy {\n elastic {\n min_gain = 7\n }\n}", want: []string{
			`c.hcl:3: policy.elastic.min_gain is 7: want more than 0, at most 1: 0.05 is 5 % faster; to let no gang grow, set policy.elastic.enabled to false`}},
		"reclaim where nobody gives way":              {src: "policy {\n backfill {\n reclaim = true\n }\n preempt {\n enabled = false\n }\n}", want: []string{`c.hcl:3: policy.backfill.reclaim is true: want policy.preempt.enabled beside it`}},
		"reclaim where nobody is backfilled":          {src: "policy {\n order = \"fifo\"\n backfill {\n reclaim = true\n }\n}", want: []string{`c.hcl:4: policy.backfill.reclaim is true: want policy.backfill.mode easy or conservative beside it`}},
		"stopping what saves nothing where nobody is": {src: "policy {\n preempt {\n enabled = false\n unsaved = true\n }\n}", want: []string{`c.hcl:4: policy.preempt.unsaved is true: want policy.preempt.enabled beside it`}},
		"preemption that never is": {src: "policy {\n preempt {\n enabled = true\n min_priority_gap = 0\n max_at_once = 0\n max_per_hour = 200000\n max_per_job = -1\n min_run_time = \"-1s\"\n restart_time = \"0s\"\n }\n}", want: []string{
			`c.hcl:4: policy.preempt.min_priority_gap is 0: want 1 to 32765`, `c.hcl:5: policy.preempt.max_at_once is 0`, `c.hcl:6: policy.preempt.max_per_hour is 200000: want 1 to 100000`,
			`c.hcl:7: policy.preempt.max_per_job is -1`, `policy.preempt.min_run_time`, `policy.preempt.restart_time`}},
		"moves that never are": {src: "policy {\n defrag {\n enabled = true\n min_benefit_ratio = 0.5\n max_per_hour = 0\n max_per_gang = -1\n max_per_job = 200000\n min_run_time = \"0s\"\n again = \"999h\"\n }\n}", want: []string{
			`c.hcl:4: policy.defrag.min_benefit_ratio is 0.5: want 1 to 1000`, `c.hcl:5: policy.defrag.max_per_hour is 0: want 1 to 100000; to move nobody`, `c.hcl:6: policy.defrag.max_per_gang is -1`,
			`c.hcl:7: policy.defrag.max_per_job is 200000`, `policy.defrag.min_run_time is "0s"`, `policy.defrag.again is "999h0m0s"`}},
		"part of a hold":            {src: "policy { max_holds = 1.5 }", want: []string{"c.hcl:1: policy.max_holds is 1.5: want a whole number"}},
		"a sick GPU for no time":    {src: "trouble {\n  sick_gpu = \"0s\"\n  missing_gpu = \"25h\"\n}", want: []string{`trouble.sick_gpu is "0s": want 1s to 24h0m0s`, `trouble.missing_gpu is "25h0m0s": want 1s`}},
		"deadline of zero":          {src: "admission { deadline = \"0s\" }", want: []string{`admission.deadline is "0s": want 1s to 24h0m0s`}},
		"empty address":             {src: "nomad { address = \"\" }", want: []string{`nomad.address is ""`}},
		"address without scheme":    {src: "nomad { address = \"10.0.0.1:4646\" }", want: []string{`c.hcl:1: nomad.address`, "want a URL"}},
		"two tokens":                {src: "nomad {\n token = \"a\"\n token_file = \"b\"\n}", want: []string{"c.hcl:3: nomad.token_file", "keep one"}},
		"certificate without key":   {src: "nomad { cert_file = \"a\" }", want: []string{"cert_file and key_file go together"}},
		"tls without files":         {src: "listen {\n tls {}\n}", want: []string{"listen.tls.cert_file", "listen.tls.key_file"}},
		"listen everywhere":         {src: "listen { address = \"0.0.0.0:4656\" }", want: []string{"listen.advertise", "http://10.0.0.5:4656"}},
		"listen without port":       {src: "listen { address = \"localhost\" }", want: []string{"listen.address", "HOST:PORT"}},
		"device with an empty part": {src: "managed { devices = [\"nvidia//x\"] }", want: []string{"managed.devices", "VENDOR/TYPE"}},
		"no devices":                {src: "managed { devices = [] }", want: []string{"want at least one device"}},
		"malformed glob":            {src: "managed { exempt_namespaces = [\"[\"] }", want: []string{"managed.exempt_namespaces", "pattern"}},
		"level of the core":         {src: "levels = [\"rack\", \"node\"]", want: []string{`levels is "node"`, "always there"}},
		"level twice":               {src: "levels = [\"rack\", \"rack\"]", want: []string{"there twice"}},
		"backfill that cannot be": {src: "policy {\n forecasts = 0\n backfill {\n mode = \"lazy\"\n depth = -1\n default_duration = \"-1s\"\n }\n}", want: []string{
			`c.hcl:2: policy.forecasts is 0: want 1 to 10000`, `c.hcl:4: policy.backfill.mode is "lazy": want one of off, easy, conservative; leave it out`,
			`c.hcl:5: policy.backfill.depth is -1`, `policy.backfill.default_duration is "-1s": want 0s to 8784h0m0s`}},
		"orders that cannot be": {src: "policy {\n las {\n thresholds_gpu_hours = [2, 2, -1]\n starve = 0\n }\n}", want: []string{
			`c.hcl:3: policy.las.thresholds_gpu_hours is 2: want more than 0 and than the one before`, `c.hcl:3: policy.las.thresholds_gpu_hours is -1`, `c.hcl:4: policy.las.starve is 0`}},
		"deadlines that cannot be": {src: "policy {\n deadline {\n margin = \"0s\"\n safety = 0.9\n }\n}", want: []string{
			`c.hcl:3: policy.deadline.margin is "0s": want 1m0s to 720h0m0s`, `c.hcl:4: policy.deadline.safety is 0.9: want 1 to 10`}},
		"turns that cannot be": {src: "policy {\n ftf {\n fairness = 1\n lease = \"1s\"\n }\n maxmin { round = \"9s\" }\n}", want: []string{
			`c.hcl:3: policy.ftf.fairness is 1: want more than 0 and less than 1`, `c.hcl:4: policy.ftf.lease is "1s": want 10s to 720h0m0s`, `c.hcl:6: policy.maxmin.round is "9s": want 10s to 720h0m0s`}},
		"turns too short":  {src: "policy {\n timeslice {\n quantum = \"1s\"\n }\n}", want: []string{`c.hcl:3: policy.timeslice.quantum is "1s": want 1m0s to`}},
		"always stuck":     {src: "policy {\n caravan {\n stuck_after = \"5m\"\n }\n}", want: []string{`c.hcl:3: policy.caravan.stuck_after is`, "1h0m0s"}},
		"no delay":         {src: "policy {\n caravan {\n size_delay = \"0s\"\n }\n}", want: []string{`c.hcl:3: policy.caravan.size_delay is "0s": want 1s to 720h0m0s`}},
		"nothing is short": {src: "policy {\n caravan {\n short = \"1s\"\n }\n}", want: []string{`c.hcl:3: policy.caravan.short is`, "1m0s"}},
		"no patience":      {src: "policy {\n caravan {\n patience = 0\n }\n}", want: []string{`c.hcl:3: policy.caravan.patience is 0: want more than 0, at most 1000`}},
		"interactive too much": {src: "policy {\n interactive {\n classes = [\"\"]\n queues = [\"a//b\"]\n max_gpus = 0\n max_run = \"0s\"\n }\n}", want: []string{
			`c.hcl:3: policy.interactive.classes is ""`, `c.hcl:4: policy.interactive.queues is "a//b"`, `c.hcl:5: policy.interactive.max_gpus is 0: want 1 to 64`, `c.hcl:6: policy.interactive.max_run is "0s"`}},
		"a reserve for nobody":       {src: "policy {\n interactive {\n reserve = 4\n lend = true\n }\n preempt {\n enabled = false\n }\n}", want: []string{`c.hcl:3: policy.interactive.reserve is 4: say by policy.interactive.classes or queues`, `c.hcl:4: policy.interactive.lend is true: want policy.preempt.enabled`}},
		"a reserve of too much":      {src: "policy {\n interactive {\n reserve = \"101%\"\n }\n}", want: []string{`c.hcl:3: policy.interactive.reserve is "101%": want a number of GPUs, 0 to 1048576, or a part of all like "5%"`}},
		"no queues of service":       {src: "policy {\n las {\n thresholds_gpu_hours = []\n }\n}", want: []string{`policy.las.thresholds_gpu_hours is 0: want 1 to 16 numbers`}},
		"no levels":                  {src: "levels = []", want: []string{"want 1 to 16"}},
		"level block of no level":    {src: "level \"rak\" {}", want: []string{"c.hcl:1: level[rak]", `did you mean "rack"?`}},
		"level block twice":          {src: "level \"rack\" {}\nlevel \"rack\" {}", want: []string{"there twice"}},
		"two levels of one meta key": {src: "level \"rack\" { meta = \"caravan_block\" }", want: []string{"each needs its own"}},
		"unreadable topology file":   {src: "topology_file = \"t.hcl\"", want: []string{"c.hcl:1: topology_file", "no such file"}},
		"environment":                {env: map[string]string{"CARAVAN_OBSERVE_ONLY": "maybe", "CARAVAN_LISTEN": "x"}, want: []string{"environment variable CARAVAN_OBSERVE_ONLY: observe_only", "environment variable CARAVAN_LISTEN: listen.address"}},
		"state namespace":            {src: "state { namespace = \"a/b\" }", want: []string{"state.namespace"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(test.src), "c.hcl", envOf(test.env), noRead)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if line != strings.TrimRight(line, "; ") {
					t.Errorf("a fault ends in the middle: %q", line)
				}
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{
		"NOMAD_ADDR": "https://n:1", "NOMAD_TOKEN": "secret", "NOMAD_CACERT": "ca", "NOMAD_SKIP_VERIFY": "true",
		"NOMAD_REGION": "eu", "CARAVAN_LISTEN": "127.0.0.1:1", "CARAVAN_OBSERVE_ONLY": "1",
	}
	tests := map[string]struct {
		src  string
		want func(*Config)
	}{
		"fills what the file leaves out": {"", func(c *Config) {
			c.Nomad = Nomad{Address: "https://n:1", Token: "secret", CAFile: "ca", TLSSkipVerify: true, Region: "eu"}
		}},
		"the file wins over Nomad's variables": {`nomad { address = "http://f:2" }`, func(c *Config) {
			c.Nomad = Nomad{Address: "http://f:2", Token: "secret", CAFile: "ca", TLSSkipVerify: true, Region: "eu"}
		}},
		"a token file in the file wins over NOMAD_TOKEN": {`nomad { token_file = "f" }`, func(c *Config) {
			c.Nomad = Nomad{Address: "https://n:1", TokenFile: "f", CAFile: "ca", TLSSkipVerify: true, Region: "eu"}
		}},
		"Caravan's variables win over the file": {`listen { address = "127.0.0.1:2" }`, func(c *Config) {
			c.Nomad = Nomad{Address: "https://n:1", Token: "secret", CAFile: "ca", TLSSkipVerify: true, Region: "eu"}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse([]byte(test.src), "c.hcl", envOf(env), noRead)
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			want.Listen = Listen{Address: "127.0.0.1:1", Advertise: "http://127.0.0.1:1"}
			want.ObserveOnly = true
			test.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExempt(t *testing.T) {
	m := Managed{Namespaces: []string{"*"}, ExemptNamespaces: []string{"sys-*"}, ExemptNodePools: []string{"inter"}}
	tests := map[string]struct {
		namespace, pool string
		want            bool
	}{
		"managed":             {"default", "default", false},
		"exempt by namespace": {"sys-net", "default", true},
		"exempt by pool":      {"default", "inter", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := m.Exempt(test.namespace, test.pool); (got != "") != test.want {
				t.Errorf("exempt = %q, want any: %v", got, test.want)
			}
		})
	}
	if (Managed{Namespaces: []string{"a"}}).Exempt("b", "") == "" {
		t.Error("a namespace that is not listed is managed")
	}
}

func TestReadToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	n := Nomad{Address: "http://x:1", TokenFile: path}
	if _, err := n.ReadToken(); err == nil {
		t.Error("a token file that is not there is no error")
	}
	for content, want := range map[string]string{"first\n": "first", " second": "second", "\n": ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := n.ReadToken()
		if got != want || (err != nil) != (want == "") {
			t.Errorf("token of %q = %q, %v; want %q", content, got, err, want)
		}
	}
}
