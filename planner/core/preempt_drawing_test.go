package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// describe says more of the running jobs of a drawing, one per line: the ID, the
// priority, for how long it has run, and options: never, always, service, saves, told (of a checkpoint), gang:MODE,
// runs:DURATION, elastic:MIN (a member on each node), gave:JOB (it gave way to that one), again:COUNTxGPUS (what it would ask for).
func describe(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == fields[0] })
		ran, err := time.ParseDuration(fields[2])
		priority, err2 := strconv.Atoi(fields[1])
		if at < 0 || err != nil || err2 != nil {
			t.Fatalf("line %q: want JOB PRIORITY DURATION", line)
		}
		j := &s.Jobs[at]
		j.Priority, j.Started = priority, s.Now.Add(-ran)
		j.Submitted = j.Started
		for _, option := range fields[3:] {
			key, value, _ := strings.Cut(option, ":")
			switch key {
			case "never", "always":
				j.Preempt = key
			case "saves":
				j.Saves = true
			case "service":
				j.Type = key
			case "told": // of a checkpoint
				j.Members[0].SinceCheckpoint = new(int64)
			case "runs":
				j.Duration = duration(t, value)
			case "gang":
				j.Gang = model.Gang(value)
			case "gave":
				j.Preempted = append(j.Preempted, model.Preempted{At: j.Started, By: value})
			case "again":
				asked := &model.Snapshot{}
				submit(t, asked, "x "+value)
				j.Groups = asked.Jobs[0].Groups
			case "elastic":
				least, _ := strconv.Atoi(value)
				gangOnNodes(s, j, least)
			default:
				t.Fatalf("line %q: unknown option %q", line, option)
			}
		}
	}
}

// gangOnNodes makes a job a gang with one member on each of its nodes, that can
// do with fewer.
func gangOnNodes(s *model.Snapshot, j *model.Job, least int) {
	var allocs []model.Alloc
	for _, a := range s.Allocs {
		if n := len(j.Members); a.Job != j.ID {
			allocs = append(allocs, a)
		} else if n > 0 && j.Members[n-1].Node == a.Node {
			j.Members[n-1].GPUs = append(j.Members[n-1].GPUs, a.GPUs...)
		} else {
			j.Members = append(j.Members, model.Member{Group: "g0", Index: n, Rank: n, Node: a.Node, GPUs: a.GPUs})
		}
	}
	for _, m := range j.Members {
		allocs = append(allocs, model.Alloc{ID: "at " + m.Node, Job: j.ID, Group: "g0", Index: m.Index, Node: m.Node, GPUs: m.GPUs})
	}
	s.Allocs = allocs
	j.Groups = []model.TaskGroup{{Name: "g0", Count: len(j.Members), Min: least, Max: len(j.Members),
		Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: len(j.Members[0].GPUs)}}}}
}

// gaveWay lists who gives way to whom.
func gaveWay(plan *model.Plan) []string {
	out := []string{}
	for _, p := range plan.Preemptions {
		text := p.Job + " to " + p.For.ID
		if p.Action == model.ActionShrink {
			text = fmt.Sprintf("%s gives %d to %s", p.Job, len(p.Members), p.For.ID)
		}
		if p.Moves != "" {
			text += ", moves to " + p.Moves
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// stopping is what the cluster looks like when a plan has been carried out, and
// those that give way have been told to stop.
func stopping(s *model.Snapshot, plan *model.Plan) *model.Snapshot {
	next := *s
	next.Jobs, next.Allocs = slices.Clone(s.Jobs), slices.Clone(s.Allocs)
	for _, d := range plan.Decisions {
		at := slices.IndexFunc(next.Jobs, func(j model.Job) bool { return j.ID == d.Job && j.Namespace == d.Namespace })
		if j := &next.Jobs[at]; d.Action == model.ActionAdmit {
			j.State, j.Members, j.Moving = model.StateAdmitted, append(slices.Clone(j.Members), d.Members...), nil
		}
	}
	for _, p := range plan.Preemptions {
		nodes := map[string]bool{}
		for _, m := range p.Members {
			for _, gpu := range m.GPUs {
				nodes[gpu] = true
			}
		}
		for i := range next.Allocs {
			if a := &next.Allocs[i]; a.Job == p.Job && slices.ContainsFunc(a.GPUs, func(g string) bool { return nodes[g] }) {
				a.Stopping = true
			}
		}
		for i := range next.Jobs {
			j := &next.Jobs[i]
			if j.ID != p.Job || j.Namespace != p.Namespace {
				continue
			}
			gave := model.Preempted{At: s.Now, Namespace: p.For.Namespace, By: p.For.ID, ByGroup: p.ForGroup, Returned: p.Returned}
			if gangOf(j) != model.GangJob {
				gave.Group = p.Members[0].Group
			}
			if gangOf(j) == model.GangNone {
				gave.Index = p.Members[0].Index
			}
			if p.Action == model.ActionMove {
				gave.Moved = true
				j.Moving = append(slices.Clone(j.Moving), model.Moving{At: s.Now, Until: s.Now.Add(promiseTime), Namespace: gave.Namespace, For: gave.By, Group: gave.Group, Index: gave.Index, Members: p.To})
			}
			j.Preempted = append(slices.Clone(j.Preempted), gave)
			if p.Action == model.ActionShrink {
				j.Resized = append(slices.Clone(j.Resized), s.Now)
			}
			if gangOf(j) == model.GangJob && p.Action != model.ActionShrink {
				j.State, j.Members = model.StateStopping, nil
			}
			j.Members = slices.DeleteFunc(slices.Clone(j.Members), func(m model.Member) bool {
				return slices.ContainsFunc(p.Members, func(o model.Member) bool { return o.Group == m.Group && o.Index == m.Index })
			})
		}
	}
	return &next
}

// stopped is what it looks like when they have.
func stopped(s *model.Snapshot) *model.Snapshot {
	next := *s
	next.Jobs = slices.Clone(s.Jobs)
	next.Allocs = slices.DeleteFunc(slices.Clone(s.Allocs), func(a model.Alloc) bool { return a.Stopping })
	for i := range next.Jobs {
		if j := &next.Jobs[i]; j.State == model.StateStopping {
			j.State = model.StateQueued
		}
	}
	return &next
}
