package devrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// parts is a gang whose members want a part of a GPU each.
const (
	parts       = "parts"
	partProfile = "3g.40gb"
	partDevice  = "nvidia/gpu/NVIDIA H100 80GB HBM3 MIG " + partProfile
)

// inParts makes a job a gang of members that want an instance of partProfile.
func inParts(members int) edit {
	return func(j *api.Job) {
		j.SetMeta("caravan_gang", "job")
		for _, g := range j.TaskGroups {
			g.Count = new(members)
			for _, t := range g.Tasks {
				for _, d := range t.Resources.Devices {
					d.Name, d.Count = partDevice, new(uint64(1))
				}
			}
		}
	}
}

// playMIG leaves one GPU idle on each of two nodes, where a gang waits for two
// halves of one. The driver of the first refuses to divide its GPU; the other one
// is divided, and nothing else is disturbed.
func (r *run) playMIG(ctx context.Context) error {
	var refused strings.Builder
	for gpu := range gpusPerNode {
		fmt.Fprintf(&refused, "%d mig_refused\n", gpu)
	}
	if err := os.WriteFile(faultsFile(r.dir, "gpu-2"), []byte(refused.String()), 0o644); err != nil {
		return fmt.Errorf("have the driver refuse: %w", err)
	}
	busy := []string{"all", "most", "more"}
	for i, name := range busy {
		gpus := []int{8, 7, 7}[i]
		if err := r.startWhole(ctx, name, singleFile, with(50, gpus, nil), onNode(nodeNames[i])); err != nil {
			return err
		}
	}
	if err := r.startWhole(ctx, parts, singleFile, inParts(2)); err != nil {
		return err
	}
	snap, err := r.planner.api.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkDivided(snap, seen), checkNotDivided(snap))
	for _, name := range busy {
		r.report.Checks = append(r.report.Checks, checkUndisturbed(seen, name))
	}
	return nil
}

// onNode limits a job to a node.
func onNode(name string) edit {
	return func(j *api.Job) {
		j.Constraints = append(j.Constraints, api.NewConstraint("${node.unique.name}", "=", name))
	}
}

// nodeNamed is a node of a snapshot.
func nodeNamed(s *model.Snapshot, name string) (*model.Node, error) {
	at := slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.Name == name })
	if at < 0 {
		return nil, errors.New("there is no node " + name)
	}
	return &s.Nodes[at], nil
}

// checkDivided: one GPU of the third node is divided into two, both are the gang's,
// and the other seven are whole.
func checkDivided(s *model.Snapshot, t timeline) Check {
	var faults []string
	n, err := nodeNamed(s, "gpu-3")
	if err != nil {
		return result("divided", []string{err.Error()}, "")
	}
	halves, whole := map[string]bool{}, 0
	for _, g := range n.GPUs {
		switch {
		case g.Parent == "":
			whole++
		case g.Unhealthy != "" || !strings.HasSuffix(g.Model, partProfile):
			faults = append(faults, fmt.Sprintf("instance %s of %s: %s", g.UUID, g.Model, g.Unhealthy))
		default:
			halves[g.UUID] = true
		}
	}
	if whole != gpusPerNode-1 || len(halves) != 2 {
		faults = append(faults, fmt.Sprintf("%d GPUs are whole, and there are %d instances; want %d and 2", whole, len(halves), gpusPerNode-1))
	}
	for _, a := range t.members(parts) {
		if len(a.gpus) != 1 || !halves[a.gpus[0]] {
			faults = append(faults, fmt.Sprintf("%s has %v", a.name, a.gpus))
		}
	}
	if len(n.Divisions) != 1 || n.Divisions[0].State != model.DivisionDone {
		faults = append(faults, fmt.Sprintf("the node tells of %+v", n.Divisions))
	}
	return result("divided", faults, "the idle GPU of gpu-3 was divided into 2 × "+partProfile+", which the gang has")
}

// checkNotDivided: the GPU whose driver refused is whole and well, and that is told.
func checkNotDivided(s *model.Snapshot) Check {
	var faults []string
	n, err := nodeNamed(s, "gpu-2")
	if err != nil {
		return result("refused", []string{err.Error()}, "")
	}
	if len(n.GPUs) != gpusPerNode || slices.ContainsFunc(n.GPUs, func(g model.GPU) bool { return g.Parent != "" || g.Unhealthy != "" }) {
		faults = append(faults, fmt.Sprintf("its GPUs are %+v", n.GPUs))
	}
	if len(n.Divisions) != 1 || n.Divisions[0].State != model.DivisionRefused || !strings.Contains(n.Divisions[0].Why, "NVML error 999") {
		faults = append(faults, fmt.Sprintf("the node tells of %+v", n.Divisions))
	}
	return result("refused", faults, "the driver of gpu-2 refused, its GPU is as it was, and the planner took another")
}
