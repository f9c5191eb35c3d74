package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The queues' form in the file, and in a queues file of their own; the doc of
// each key is in docs/queues.md.

type fileQueues struct {
	Queue []fileQueue `hcl:"queue,block"`
}

type fileQueue struct {
	Path        string          `hcl:"path,label"`
	Guarantee   *fileQuota      `hcl:"guarantee,block"`
	Borrow      *fileQuota      `hcl:"borrow,block"`
	PerUser     *fileQuota      `hcl:"per_user,block"`
	Weight      *float64        `hcl:"weight,optional"`
	Priorities  *map[string]int `hcl:"priorities,optional"`
	Reclaim     *string         `hcl:"reclaim,optional"`
	ReclaimFrom *[]string       `hcl:"reclaim_from,optional"`
	MinRun      *string         `hcl:"min_run,optional"`
	Default     *bool           `hcl:"default,optional"`
	Burst       *string         `hcl:"burst,optional"`
	Budget      *float64        `hcl:"budget,optional"`

	MaxPreemptedPerHour *int `hcl:"max_preempted_per_hour,optional"`
}

type fileQuota struct {
	GPUs      *int            `hcl:"gpus,optional"`
	Models    *map[string]int `hcl:"models,optional"`
	CPUMHz    *int            `hcl:"cpu_mhz,optional"`
	MemoryMiB *int            `hcl:"memory_mib,optional"`
}

// quota is a quota as the core reads it; nil if the block is not there.
func (q *fileQuota) quota() map[string]int {
	if q == nil {
		return nil
	}
	out := map[string]int{}
	for name, value := range map[string]*int{model.ResourceGPU: q.GPUs, model.ResourceCPU: q.CPUMHz, model.ResourceMemory: q.MemoryMiB} {
		if value != nil {
			out[name] = *value
		}
	}
	if q.Models != nil {
		for name, value := range *q.Models {
			out[model.ResourceModel+name] = value
		}
	}
	return out
}

// hclNames are the names in the file of what is called otherwise in a snapshot.
var hclNames = strings.NewReplacer(
	`["`+model.ResourceGPU+`"]`, ".gpus", `["`+model.ResourceModel, `.models["`,
	`["`+model.ResourceCPU+`"]`, ".cpu_mhz", `["`+model.ResourceMemory+`"]`, ".memory_mib", "min_run_ns", "min_run")

// mergeQueues takes the queues of one file.
func (l *loader) mergeQueues(c *Config, list []fileQueue) {
	for i := range list {
		f := &list[i]
		key, place := "queue["+f.Path+"]", fmt.Sprintf("queue[#%d]", i)
		q := model.Queue{Path: f.Path, Guarantee: f.Guarantee.quota(), Borrow: f.Borrow.quota(), PerUser: f.PerUser.quota()}
		set(&q.Weight, f.Weight)
		if f.Weight != nil && *f.Weight == 0 {
			l.faultText(place+".weight", key+".weight is 0: want more than 0; to let a queue have nothing, give it no guarantee and borrow { gpus = 0 }")
		}
		set(&q.Priorities, f.Priorities)
		set(&q.Reclaim, f.Reclaim)
		set(&q.ReclaimFrom, f.ReclaimFrom)
		l.durationAt(&q.MinRun, f.MinRun, key+".min_run", place+".min_run")
		set(&q.Default, f.Default)
		set(&q.Burst, f.Burst)
		set(&q.Budget, f.Budget)
		set(&q.MaxPreemptedPerHour, f.MaxPreemptedPerHour)
		c.Queues = append(c.Queues, q)
	}
}

// loadQueues reads the queues file, if one is named, and checks all queues
// together.
func (l *loader) loadQueues(c *Config, read func(string) ([]byte, error)) {
	own, other := len(c.Queues), l
	if l.queuesFile != "" {
		file := l.beside("queues_file", l.queuesFile)
		src, err := read(file)
		if err != nil {
			l.fault("queues_file", l.queuesFile, "it cannot be read: "+err.Error())
			return
		}
		other = newLoader(file, src, l.faults)
		if !other.readQueues(c) {
			return
		}
	}
	for _, f := range model.CheckQueues(c.Queues) {
		from, at := l, f.Queue
		if f.Queue >= own {
			from, at = other, f.Queue-own
		}
		field, _, _ := strings.Cut(hclNames.Replace(f.Field), "[")
		from.faultText(fmt.Sprintf("queue[#%d].%s", at, field), fmt.Sprintf("queue %q: %s: %s", c.Queues[f.Queue].Path, hclNames.Replace(f.Field), hclNames.Replace(f.Text)))
	}
	slices.SortStableFunc(c.Queues, func(a, b model.Queue) int { return strings.Compare(a.Path, b.Path) })
}

// readQueues takes the queues of a file of their own, and reports whether it is one.
func (l *loader) readQueues(c *Config) bool {
	file, diags := hclsyntax.ParseConfig(l.src, l.path, hcl.InitialPos)
	body, ok := file.Body.(*hclsyntax.Body)
	if l.diags(diags); diags.HasErrors() || !ok {
		return false
	}
	var f fileQueues
	l.decode(body, &f)
	l.mergeQueues(c, f.Queue)
	return true
}

// maxHalfLife bounds policy.half_life.
const maxHalfLife = 366 * 24 * time.Hour
