package barrier

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
)

// ErrRequest: a member's request says something that cannot be.
var ErrRequest = errors.New("the request cannot be used")

// The bounds of what a member says.
const (
	maxRun   = 128
	maxText  = 4 << 10
	maxGPUs  = 1024
	maxEpoch = 128
)

// checkJoin finds everything in a request that would spoil the start of the
// others, so that it never gets to the barrier.
func checkJoin(who identity.Claims, req gangapi.JoinRequest) error {
	var faults []string
	fault := func(key, value, allowed string) {
		faults = append(faults, fmt.Sprintf("%s = %q: %s", key, value[:min(len(value), 200)], allowed))
	}
	if !plain(req.Run, maxRun) || req.Run == "" {
		fault("run", req.Run, fmt.Sprintf("want 1 to %d printable characters", maxRun))
	}
	if req.Attempt < 1 {
		fault("attempt", strconv.Itoa(req.Attempt), "want 1 or more")
	}
	if len(req.GPUs) > maxGPUs {
		fault("gpus", strconv.Itoa(len(req.GPUs)), fmt.Sprintf("want at most %d", maxGPUs))
	}
	if f := req.Fault; f != nil && len(f.Check)+len(f.GPU)+len(f.Detail) > maxText {
		fault("fault", f.Check, fmt.Sprintf("want at most %d bytes", maxText))
	}
	if !req.Follow && len(faults) == 0 {
		faults = memberFaults(who, req)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrRequest, strings.Join(faults, "; "))
	}
	return nil
}

// memberFaults are those that a membership with this member would have.
func memberFaults(who identity.Claims, req gangapi.JoinRequest) []string {
	processes := req.Processes
	if processes == 0 {
		processes = max(len(req.GPUs), 1)
	}
	err := rendezvous.Validate(rendezvous.Membership{
		Epoch: "1", Generation: 1, Namespace: who.Namespace, Job: who.Job, Min: 1, Max: 1,
		MasterAddr: req.Address, MasterPort: req.Port,
		Members: []rendezvous.Member{{
			Group: "group", Alloc: who.Alloc, Node: "node", NodeName: "node",
			Address: req.Address, GPUs: req.GPUs, Processes: processes,
		}},
	})
	var e *rendezvous.Error
	if !errors.As(err, &e) {
		return nil
	}
	names := map[string]string{"master_addr": "", "master_port": "port"}
	var out []string
	for _, f := range e.Faults {
		key := f.Key
		if name, ok := names[key]; ok {
			key = name
		}
		if key != "" {
			out = append(out, fmt.Sprintf("%s = %q: %s", key, f.Value, f.Allowed))
		}
	}
	return out
}

// checkReport finds what cannot be in a report.
func checkReport(req gangapi.ReportRequest) error {
	switch req.State {
	case gangapi.MemberRunning, gangapi.MemberSuspended, gangapi.MemberStopping, gangapi.MemberExited:
	default:
		return fmt.Errorf("%w: state = %q: want %s, %s, %s or %s", ErrRequest, req.State,
			gangapi.MemberRunning, gangapi.MemberSuspended, gangapi.MemberStopping, gangapi.MemberExited)
	}
	if !plain(req.Run, maxRun) || !plain(req.Epoch, maxEpoch) {
		return fmt.Errorf("%w: run or epoch is longer than %d printable characters", ErrRequest, maxRun)
	}
	if p := req.Progress; p != nil && p.Checkpoint != nil {
		if len(p.Checkpoint.Path) > maxText || p.Checkpoint.AgeMS < 0 {
			return fmt.Errorf("%w: a checkpoint with age_ms = %d and a path of %d bytes", ErrRequest, p.Checkpoint.AgeMS, len(p.Checkpoint.Path))
		}
	}
	return nil
}

func plain(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
