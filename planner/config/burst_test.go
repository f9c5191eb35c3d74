package config

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

const somePools = `
currency = "EUR"
data_set "laion" { gb = 240 }
pool "eu" {
  provider      = "aws"
  region        = "eu-west-1"
  instance_type = "p5.48xlarge"
  quota         = 4
  boot_time     = "6m"
  near          = "block"
  levels        = { rack = "r9" }
  node {
    gpus       = 4
    model      = "H100"
    island_size = 2
    numa_nodes = 2
    cpu_mhz    = 1000
    memory_mib = 2000
    disk_mib   = 3000
    attributes = { "kernel.name" = "linux" }
    meta       = { fast = "yes" }
  }
  price { on_demand = 10 }
  terraform { working_directory = "tf" }
}
`

func reads(files map[string]string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	}
}

func TestBurst(t *testing.T) {
	src := `
queue "org" {
  burst  = "allow"
  budget = 1000
}
burst {
  pools              = "pools.hcl"
  default            = "allow"
  margin             = "20m"
  safety             = 1.5
  hope               = 0.75
  max_nodes          = 7
  max_price_per_hour = 300
  carbon_price       = 0.1
  come_home          = false
  wait {
    over  = "2h"
    gpus  = 8
    price = 0.5
  }
}
`
	c, err := parse([]byte(src), "/etc/c.hcl", noEnv, reads(map[string]string{"/etc/pools.hcl": somePools}))
	if err != nil {
		t.Fatal(err)
	}
	want := burst.Policy{Default: "allow", Margin: 20 * time.Minute, Safety: 1.5, Hope: 0.75, MaxNodes: 7, MaxPricePerHour: 300, CarbonPrice: 0.1, StayAway: true, WaitOver: 2 * time.Hour, WaitGPUs: 8, WaitPrice: 0.5}.WithDefaults()
	if diff := cmp.Diff(want, c.Policy.Burst); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if q := c.Queues[0]; q.Burst != "allow" || q.Budget != 1000 {
		t.Errorf("queue = %+v", q)
	}
	b := c.Burst.BuyPools(c.LevelNames())
	gpu := func(uuid string, at int) model.GPU {
		return model.GPU{UUID: uuid, Vendor: "nvidia", Type: "gpu", Model: "H100", Island: at, NUMA: at}
	}
	wantPools := model.Burst{Currency: "EUR", DataSets: []model.DataSet{{Name: "laion", GB: 240}}, Pools: []model.BuyPool{{
		Name: "eu", Near: "block", Quota: 4, OnDemand: 10, SpotLifetime: 24 * time.Hour, Boot: 6 * time.Minute, Join: 12 * time.Minute, Period: time.Second,
		Node: model.Node{
			ID: "eu", Datacenter: "dc1", Pool: "default", Levels: map[string]string{"rack": "r9", "region": "eu-west-1"}, Capacity: model.Resources{CPUMHz: 1000, MemoryMiB: 2000, DiskMiB: 3000},
			Attributes: map[string]string{"node.datacenter": "dc1", "node.class": "", "node.pool": "default", "attr.kernel.name": "linux", "meta.fast": "yes", "meta.caravan_pool": "eu"},
			GPUs:       []model.GPU{gpu("0", 0), gpu("1", 0), gpu("2", 1), gpu("3", 1)},
		},
	}}}
	if diff := cmp.Diff(wantPools, b); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if got := (&Burst{}).BuyPools(nil); len(got.Pools) != 0 {
		t.Errorf("pools without a file: %+v", got)
	}
}

func TestBurstFaults(t *testing.T) {
	tests := map[string]struct {
		src   string
		pools string
		want  []string
	}{
		"no pools":         {"burst {}", somePools, []string{`burst.pools is ""`}},
		"no such file":     {"burst {\n pools = \"x.hcl\"\n}", somePools, []string{"c.hcl:2: burst.pools", "it cannot be read: no such file"}},
		"a faulty file":    {"burst { pools = \"p.hcl\" }", strings.Replace(somePools, "on_demand = 10", "on_demand = 0", 1), []string{"p.hcl:23: pool[eu].price.on_demand is 0"}},
		"another level":    {"burst { pools = \"p.hcl\" }", strings.Replace(somePools, `"block"`, `"blok"`, 1), []string{`p.hcl:10: pool[eu].near is "blok": did you mean "block"?`}},
		"every pool's":     {"burst { pools = \"p.hcl\" }", strings.NewReplacer(`"block"`, `"blok"`, "rack =", "rak =", "quota         = 4", "quota = 0").Replace(somePools), []string{`p.hcl:10: pool[eu].near is "blok"`, `p.hcl:11: pool[eu].levels is "rak": did you mean "rack"?`, "pool[eu].quota is 0"}},
		"a rule of none":   {"burst {\n pools = \"p.hcl\"\n wait { gpus = 2 }\n}", somePools, []string{"burst.wait.over"}},
		"every fault":      {"burst {\n pools = \"p.hcl\"\n default = \"only\"\n safety = 0.5\n hope = 2\n idle = \"soon\"\n carbon_price = -1\n}", somePools, []string{`c.hcl:3: burst.default "only": want "allow" or "never"`, "c.hcl:4: burst.safety 0.5: want 1 to 10", "c.hcl:5: burst.hope 2: want 0.01 to 1", "burst.idle", "c.hcl:7: burst.carbon_price -1"}},
		"only the wrong":   {"burst {\n pools = \"p.hcl\"\n max_nodes = -1\n}", somePools, []string{"c.hcl:3: burst.max_nodes -1: want 0 or more"}},
		"a queue's faults": {"queue \"a\" {\n burst = \"maybe\"\n budget = -1\n}", somePools, []string{`c.hcl:2: queue "a": burst: "maybe"`, `c.hcl:3: queue "a": budget: -1`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(test.src), "c.hcl", noEnv, reads(map[string]string{"p.hcl": test.pools}))
			if err == nil {
				t.Fatal("no fault")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v\nwant %q", err, want)
				}
			}
		})
	}
}

// The document's examples are what it says.
func TestBurstDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/burst.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```hcl (\\w+)\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		examples[m[1]] = m[2]
	}
	c, err := parse([]byte(examples["config"]), "c.hcl", noEnv, reads(map[string]string{"pools.hcl": examples["pools"]}))
	if err != nil {
		t.Fatal(err)
	}
	shown, plain := c.Policy.Burst, Default().Policy.Burst
	shown.WaitOver, shown.WaitGPUs, shown.WaitPrice, shown.MaxNodes, shown.MaxPricePerHour, shown.CarbonPrice = 0, 0, 0, 0, 0, 0
	if diff := cmp.Diff(plain, shown); diff != "" {
		t.Errorf("it does not show the defaults (-default +shown):\n%s", diff)
	}
	if p := c.Burst.Pools.Pools; len(p) != 1 || p[0].JoinTimeout != 15*time.Minute {
		t.Errorf("pools = %+v", p)
	}
}
