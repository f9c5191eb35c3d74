package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/health"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
)

// preflightExam is the check of the node before the barrier: the health of the
// GPUs, and a command of the user's.
type preflightExam struct {
	spec Preflight
	gpus []string
	// look reads the GPUs.
	look func(ctx context.Context) (nvml.Inventory, error)
	// command runs the check's command as the user's code would be.
	command func(ctx context.Context) (exec.Exit, error)
}

// maxFault bounds each text of a fault: a planner takes no long ones.
const maxFault = 1000

// Examine implements examiner.
func (p *preflightExam) Examine(ctx context.Context) *gangapi.NodeFault {
	fault := p.examine(ctx)
	if fault != nil {
		for _, text := range []*string{&fault.Check, &fault.Detail} {
			if len(*text) > maxFault {
				*text = strings.ToValidUTF8((*text)[:maxFault], "") + "…"
			}
		}
	}
	return fault
}

func (p *preflightExam) examine(ctx context.Context) *gangapi.NodeFault {
	if p.spec.GPUSource != "" && len(p.gpus) > 0 {
		if fault := p.examineGPUs(ctx); fault != nil {
			return fault
		}
	}
	if p.spec.Command == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.spec.Timeout)
	defer cancel()
	exit, err := p.command(ctx)
	fault := &gangapi.NodeFault{Check: p.spec.Command}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fault.Detail = fmt.Sprintf("it was not done after %s", p.spec.Timeout)
	case err != nil:
		fault.Detail = err.Error()
	case exit.Signal != 0:
		fault.Detail = fmt.Sprintf("it was ended by signal %d", exit.Signal)
	case exit.Code != 0:
		fault.Detail = fmt.Sprintf("it exited with code %d", exit.Code)
	default:
		return nil
	}
	return fault
}

func (p *preflightExam) examineGPUs(ctx context.Context) *gangapi.NodeFault {
	ctx, cancel := context.WithTimeout(ctx, p.spec.Timeout)
	defer cancel()
	type looked struct {
		inv nvml.Inventory
		err error
	}
	done := make(chan looked, 1)
	go func() { // a driver that hangs does not look at contexts
		inv, err := p.look(ctx)
		done <- looked{inv, err}
	}()
	select {
	case l := <-done:
		if l.err != nil {
			return &gangapi.NodeFault{Check: "gpu", Detail: l.err.Error()}
		}
		return sickGPU(l.inv, p.gpus)
	case <-ctx.Done():
		return &gangapi.NodeFault{Check: "gpu", Detail: fmt.Sprintf("the driver did not answer within %s", p.spec.Timeout)}
	}
}

// sickGPU finds the first of the granted GPUs that is not well.
func sickGPU(inv nvml.Inventory, granted []string) *gangapi.NodeFault {
	tracker := health.New(nil, nil)
	tracker.Look(inv)
	owner := map[string]string{}
	for i, gpu := range inv.GPUs {
		uuid := inv.Matrix.GPUs[i].UUID
		owner[uuid] = uuid
		for _, instance := range gpu.Instances {
			owner[instance.UUID] = uuid
		}
	}
	var lost []string
	for _, uuid := range granted {
		of, ok := owner[uuid]
		if !ok {
			lost = append(lost, uuid)
			continue
		}
		if reason := tracker.Reason(of); reason != "" {
			return &gangapi.NodeFault{Check: "gpu", GPU: uuid, Detail: reason}
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return &gangapi.NodeFault{Check: "gpu", GPU: lost[0], Detail: "not found on this node: " + strings.Join(lost, ", ")}
	}
	return nil
}
