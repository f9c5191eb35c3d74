package core

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Why a job does not fit on a pool's nodes names the keys that would help.
func TestMisfitsNameTheirKeys(t *testing.T) {
	tests := map[string]struct {
		set  func(*model.BuyPool, *model.Job)
		want string
	}{
		"memory": {func(_ *model.BuyPool, j *model.Job) { j.Groups[0].Resources.MemoryMiB = 9000 }, "memory_mib = 9000 or more, and not 8000"},
		"CPU and disk": {func(_ *model.BuyPool, j *model.Job) {
			j.Groups[0].Resources = model.Resources{CPUMHz: 9000, DiskMiB: 10}
		},
			"cpu_mhz = 9000 or more, and not 8000, disk_mib = 10 or more, and not 0"},
		"GPUs": {func(_ *model.BuyPool, j *model.Job) { j.Groups[0].Devices[0].Count = 5 }, "gpus = 5 or more, and not 4"},
		"an attribute": {func(_ *model.BuyPool, j *model.Job) {
			j.Constraints = []model.Constraint{{Left: "${attr.driver.caravan}", Operand: "=", Right: "1"}}
		}, `attributes = { "driver.caravan" = "1" }`},
		"a meta value by a pattern": {func(_ *model.BuyPool, j *model.Job) {
			j.Groups[0].Constraints = []model.Constraint{{Left: "${meta.tier}", Operand: "regexp", Right: "^c"}}
		}, `meta with "tier", for ${meta.tier} regexp ^c`},
		"a class": {func(_ *model.BuyPool, j *model.Job) {
			j.Constraints = []model.Constraint{{Left: "${node.class}", Operand: "=", Right: "burst"}}
		}, `class = "burst"`},
		"a datacenter":  {func(p *model.BuyPool, j *model.Job) { p.Node.Datacenter, j.Datacenters = "dc1", []string{"dc2"} }, `datacenter "dc1" is none of the job's (dc2)`},
		"a node pool":   {func(p *model.BuyPool, j *model.Job) { p.Node.Pool, j.Pool = "default", "gpu" }, `node_pool = "gpu", as the job's, and not "default"`},
		"another model": {func(_ *model.BuyPool, j *model.Job) { j.Models = []model.ModelSpeed{{Name: "A100", Speed: 1}} }, `model "H100" is none of those that the job's caravan_models names`},
		"the quota":     {func(_ *model.BuyPool, j *model.Job) { j.Groups[0].Count = 9 }, "the quota is 4 (quota in the pools file)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa")
			submit(t, s, "m 1x4 runs:2h")
			pool := buyPool("eu", 4)
			bursts(s, "m", func(j *model.Job) { j.Deadline = testNow.Add(4 * time.Hour); test.set(&pool, j) })
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{pool}}
			d := decisionOn(plan(t, s, Policy{}), "m")
			if !strings.Contains(d.Reason, test.want) {
				t.Errorf("reason is %q, want %q in it", d.Reason, test.want)
			}
		})
	}
}

// Of a gang that nodes were bought for it is not said that it cannot meet its deadline
// since others do not become free.
func TestDeadlinesOfThoseThatAreBoughtFor(t *testing.T) {
	for _, order := range []string{"caravan", "deadline"} {
		s := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 aaaa")
		submit(t, s, "m 2x4 runs:2h")
		s.Jobs[0].Duration = 9 * time.Hour
		s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
		bursts(s, "m", func(j *model.Job) { j.Deadline, j.Checkpoint = testNow.Add(4*time.Hour), time.Hour })
		first := plan(t, s, Policy{Order: order})
		record(s, first)
		if c := decisionOn(first, "m").Detail.Burst.Currency; c != "EUR" {
			t.Errorf("the currency is %q", c)
		}
		p := &s.Burst.Bought[0]
		for _, there := range []bool{false, true} {
			if there {
				arrive(s, p, p.Names...)
			}
			d := decisionOn(plan(t, s, Policy{Order: order}), "m")
			if there != (d.Action == model.ActionAdmit) || strings.Contains(d.Reason, "cannot meet") || !strings.Contains(d.Detail.Standing, "is for the 2 nodes of pool eu that were bought for it (purchase "+p.ID+")") {
				t.Errorf("%s, there %v: %s: %s", order, there, d.Action, d.Reason)
			}
		}
	}
}
