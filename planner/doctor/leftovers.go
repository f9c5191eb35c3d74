package doctor

import (
	"fmt"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// LeaderPath is the Variable whose lock makes a planner the leader.
const LeaderPath = "caravan/leader"

// leader looks at who leads: the planner that asks knows, and otherwise the
// lock tells. One that ran out leaves its Variable without it.
func (x *examination) leader() {
	const name, do = "leader", "start a planner: caravan agent -config FILE, and look into the log of those that run"
	if x.Config.ObserveOnly {
		x.warn(name, "set observe_only = false when decisions are to be carried out", "this planner only observes: it decides and changes nothing")
		return
	}
	if x.Leads != nil {
		if address, ok := x.Leads(); ok {
			x.ok(name, "the planner at %s leads", address)
			return
		}
	}
	v, _, err := x.Client.Variables().Peek(LeaderPath, x.query(x.Config.State.Namespace))
	switch {
	case err != nil:
		x.fail(name, do, "who leads cannot be read: %v", err)
	case v == nil:
		x.fail(name, do, "no planner has ever led here: the Variable %s is not there", LeaderPath)
	case v.Lock != nil:
		x.ok(name, "the planner at %s leads", v.Items["address"])
	case x.Leads == nil && !x.seesLocks:
		x.warn(name, "look again with a management token, or ask a planner", "whether a planner leads cannot be told: Nomad shows locks to management tokens alone; the last to take it was %s", v.Items["address"])
	default:
		x.fail(name, do, "no planner leads: the lock of %s has run out or was given up; the last holder was %s", LeaderPath, v.Items["address"])
	}
}

// leftovers is what earlier planners, versions or hands have left.
func (x *examination) leftovers() {
	const restart = "the planner clears these away by itself; if they stay, look into its log"
	var orphans []string
	for _, r := range x.View.Orphans {
		orphans = append(orphans, jobName(r.Namespace, r.JobID))
	}
	x.remains("records-without-jobs", orphans, restart, "remembered and gone from Nomad")

	var strays []string
	for _, s := range x.View.Strays {
		what := " (pinned)"
		if s.Gated {
			what = " (gated: it waits for ever)"
		}
		strays = append(strays, jobName(s.Namespace, s.ID)+what)
	}
	x.remains("unmanaged-jobs", strays, "submit them again as their users wrote them", "with gate or pins, and not managed by Caravan: exempt, or without a managed device")

	var forgotten, gone []string
	for i := range x.View.Managed {
		m := &x.View.Managed[i]
		if m.Record == nil && rewrite.IsPinned(m.Current) {
			forgotten = append(forgotten, jobName(m.Namespace, m.ID))
		}
		if node := x.missing(m); node != "" {
			gone = append(gone, fmt.Sprintf("%s (node %s)", jobName(m.Namespace, m.ID), node))
		}
	}
	x.remains("pins-without-record", forgotten, "submit them again, or caravan release JOB", "pinned and not remembered")
	x.remains("pins-to-gone-nodes", gone, "the planner moves a gang whose node is gone; if it does not, stop and submit the job again", "pinned to a node that Nomad does not know any more")
}

func (x *examination) remains(name string, jobs []string, do, what string) {
	if len(jobs) == 0 {
		x.ok(name, "none")
		return
	}
	x.warn(name, do, "%s %s: %s", count(len(jobs), "job"), what, list(jobs))
}

// missing is a node that a placement in force names and Nomad does not know.
func (x *examination) missing(m *observe.Managed) string {
	if m.Record == nil || m.Record.Phase != record.PhaseAdmitted && m.Record.Phase != record.PhaseRunning {
		return ""
	}
	for _, member := range m.Members {
		if member.State != observe.AllocComplete && !x.has(member.Member.Node) {
			return member.Member.Node
		}
	}
	return ""
}

func jobName(namespace, id string) string { return namespace + "/" + id }
