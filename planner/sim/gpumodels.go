package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Jobs that name the GPU models that they may run on. A gang runs on one of them
// throughout, as the planner has it; which is as good as any other. Where the models of a
// cluster are not known, as in one of equal nodes, it does not count what a job names.

// modelAttribute is what nodes tell of their model: where they have parts of GPUs, devices
// are called otherwise.
const modelAttribute = "meta.gpu_model"

// modelNames are the names that a model goes by: the driver's, and those of a cluster
// file.
func modelNames(driver string) []string {
	out := []string{driver}
	for _, short := range Models() {
		if models[short] == driver {
			out = append(out, short)
		}
	}
	return out
}

// folded is a name as it is compared: Slurm has nvidia_h100_80gb_hbm3 for the driver's
// NVIDIA H100 80GB HBM3.
func folded(name string) string { return folds.Replace(strings.ToLower(name)) }

var folds = strings.NewReplacer(" ", "_", "-", "_")

// ModelsOf are the names of a node's GPU model; nil: it is not known.
func (c *Cluster) ModelsOf(node int) []string {
	if !c.named || len(c.Nodes[node].GPUs) == 0 {
		return nil
	}
	return modelNames(c.Nodes[node].GPUs[0].Model)
}

// Fitting is what was made of the models that jobs name.
type Fitting struct {
	// Named counts the jobs that name models, Lacking those of them that name one that the
	// cluster has not, and Without those that name no other ones, and so can never run;
	// First is the first of these.
	Named   int    `json:"jobs_with_gpu_models"`
	Lacking int    `json:"jobs_with_models_that_it_lacks"`
	Without int    `json:"jobs_with_none_that_it_has"`
	First   string `json:"first_with_none,omitempty"`
	// Models are the names that it lacks.
	Models []string `json:"models_that_it_lacks,omitempty"`
	// Ignored: the models of the cluster are not known.
	Ignored bool `json:"ignored,omitempty"`
}

// FitModels leaves out the jobs that name no model of the cluster, or of the nodes that
// can be bought. Those that are left name the driver's names of those that there are, and
// nothing if these are all.
func (c *Cluster) FitModels(jobs []trace.Job) (out []trace.Job, f Fitting) {
	if f.Ignored = !c.named; !slices.ContainsFunc(jobs, func(j trace.Job) bool { return j.GPUModels != "" }) {
		return jobs, f
	}
	byName, all := map[string]string{}, map[string]bool{}
	for i := range c.Nodes {
		for _, name := range c.ModelsOf(i) {
			byName[folded(name)] = c.Nodes[i].GPUs[0].Model
			all[c.Nodes[i].GPUs[0].Model] = true
		}
	}
	lacks := map[string]bool{}
	for _, j := range jobs {
		if j.GPUModels != "" {
			f.Named++
			has, all := fitting(j.GPUModels, byName, all, lacks)
			switch {
			case f.Ignored:
				j.GPUModels = ""
			case !all:
				f.Lacking++
			}
			if !f.Ignored && has == "" {
				if f.Without++; f.Without == 1 {
					f.First = j.ID
				}
				continue
			}
			if j.GPUModels != "" {
				j.GPUModels = strings.TrimSuffix(has, anyModel)
			}
		}
		out = append(out, j)
	}
	if !f.Ignored {
		f.Models = slices.Sorted(maps.Keys(lacks))
	}
	return out, f
}

// anyModel stands for all that there are.
const anyModel = "*"

// fitting are the driver's names of those models that there are, anyModel if these are
// all; and whether there are all that are named.
func fitting(named string, byName map[string]string, models, lacks map[string]bool) (has string, all bool) {
	var list []string
	all = true
	for name := range strings.SplitSeq(named, "|") {
		driver, there := byName[folded(name)]
		if !there {
			lacks[name], all = true, false
		} else if !slices.Contains(list, driver) {
			list = append(list, driver)
		}
	}
	if len(list) == len(models) {
		return anyModel, all
	}
	slices.Sort(list)
	return strings.Join(list, "|"), all
}

// allowed are the driver's names of the models that a job may run on; nil: all.
func allowed(models string) []string {
	if models == "" {
		return nil
	}
	return strings.Split(models, "|")
}

// mayRunOn reports whether a node has one of them.
func (c *Cluster) mayRunOn(node int, models []string) bool {
	return models == nil || len(c.Nodes[node].GPUs) > 0 && slices.Contains(models, c.Nodes[node].GPUs[0].Model)
}

// largest is how many GPUs the largest nodes with one of these models have, by which
// gangs are cut into members.
func (c *Cluster) largest(models []string) int {
	if models == nil {
		return c.PerNode
	}
	most := 1
	for i := range c.Nodes {
		if c.mayRunOn(i, models) {
			most = max(most, c.wholes(i))
		}
	}
	return most
}

// only are the nodes with some models.
func (c *Cluster) only(models []string) *Cluster {
	out := *c
	out.Nodes, out.modes = nil, nil
	for i := range c.Nodes {
		if !c.mayRunOn(i, models) {
			continue
		}
		out.Nodes = append(out.Nodes, c.Nodes[i])
		if i < len(c.modes) && c.modes[i] != nil {
			out.modes = append(out.modes, make([][]gpuMode, len(out.Nodes)-len(out.modes))...)
			out.modes[len(out.Nodes)-1] = c.modes[i]
		}
	}
	return &out
}

// speeds are models as the planner has them: none is faster than another one.
func speeds(models []string) (out []model.ModelSpeed) {
	for _, name := range models {
		out = append(out, model.ModelSpeed{Name: name, Speed: 1})
	}
	return out
}
