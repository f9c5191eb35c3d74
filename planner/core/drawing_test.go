package core

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A drawing is a cluster: one line per node, "block rack node gpus", "-" for a
// level that the node lacks. Each GPU is a character: "." is free, "x" is
// unhealthy, a letter is the running job that holds it (upper case: a service),
// "#" is held by something that nobody manages. "|" divides NVLink islands.
// "!" before the GPUs closes the node.
func draw(t testing.TB, text string) *model.Snapshot {
	t.Helper()
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	jobs := map[byte]int{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 4 {
			t.Fatalf("drawing line %q: want block, rack, node, GPUs", line)
		}
		n := model.Node{ID: fields[2], Levels: map[string]string{}, Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
		for i, level := range s.Levels {
			if fields[i] != "-" {
				n.Levels[level] = fields[i]
			}
		}
		gpus, closed := strings.CutPrefix(fields[3], "!")
		if closed {
			n.Unschedulable = "draining"
		}
		island := 0
		for _, c := range []byte(gpus) {
			if c == '|' {
				island++
				continue
			}
			g := model.GPU{UUID: fmt.Sprintf("%s.%d", n.ID, len(n.GPUs)), Vendor: "nvidia", Type: "gpu", Model: "H100", Island: island, NUMA: -1}
			switch c {
			case '.':
			case 'x':
				g.Unhealthy = "lost"
			default:
				if _, known := jobs[c]; !known && c != '#' {
					jobs[c] = len(s.Jobs)
					typ := "batch"
					if c >= 'A' && c <= 'Z' {
						typ = "service"
					}
					s.Jobs = append(s.Jobs, model.Job{ID: string(c), Type: typ, State: model.StateRunning, Gang: model.GangJob})
				}
				a := model.Alloc{ID: g.UUID + "!", Node: n.ID, GPUs: []string{g.UUID}}
				if c != '#' {
					a.Job = string(c)
				}
				s.Allocs = append(s.Allocs, a)
			}
			n.GPUs = append(n.GPUs, g)
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

var testNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// submit adds queued jobs, one per line in the order of submission: the ID,
// what it asks for, "2x4" for two members with four GPUs each (several with
// "+": groups), and options: require:LEVEL, prefer:LEVEL, gang:MODE,
// service, priority:N, runs:DURATION, min:N (of the first group); constraint words are added by the tests themselves.
func submit(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		j := model.Job{ID: fields[0], Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(time.Duration(len(s.Jobs)-100) * time.Minute)}
		for i, ask := range strings.Split(fields[1], "+") {
			count, gpus, ok := strings.Cut(ask, "x")
			n, err := strconv.Atoi(count)
			k, err2 := strconv.Atoi(gpus)
			if !ok || err != nil || err2 != nil {
				t.Fatalf("job line %q: want COUNTxGPUS", line)
			}
			g := model.TaskGroup{Name: "g" + strconv.Itoa(i), Count: n}
			if k > 0 {
				g.Devices = []model.DeviceAsk{{Name: "nvidia/gpu", Count: k}}
			}
			j.Groups = append(j.Groups, g)
		}
		for _, option := range fields[2:] {
			key, value, _ := strings.Cut(option, ":")
			switch key {
			case "require", "prefer":
				j.Topology = model.Topology{Mode: key, Level: value}
			case "gang":
				j.Gang = model.Gang(value)
			case "service":
				j.Type = "service"
			case "saves":
				j.Saves = true
			case "runs":
				j.Duration = duration(t, value)
			case "priority":
				j.Priority, _ = strconv.Atoi(value)
			case "min":
				j.Groups[0].Min, _ = strconv.Atoi(value)
				j.Groups[0].Max = j.Groups[0].Count
			default:
				t.Fatalf("job line %q: unknown option %q", line, option)
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// redraw draws the cluster with the plan's placements in it, by the first
// letter of each job's ID; "~" marks what is free on nodes kept for a waiting
// gang as a whole.
func redraw(s *model.Snapshot, plan *model.Plan) string {
	taken := map[string]byte{}
	for _, a := range s.Allocs {
		for _, uuid := range a.GPUs {
			taken[uuid] = '#'
			if a.Job != "" {
				taken[uuid] = a.Job[0]
			}
		}
	}
	for i := range s.Jobs {
		for _, m := range s.Jobs[i].Members {
			for _, uuid := range m.GPUs {
				taken[uuid] = s.Jobs[i].ID[0]
			}
		}
	}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, uuid := range m.GPUs {
				taken[uuid] = d.Job[0]
			}
		}
	}
	var b strings.Builder
	for _, n := range s.Nodes {
		for _, level := range s.Levels {
			if v := n.Levels[level]; v != "" {
				b.WriteString(v + " ")
			} else {
				b.WriteString("- ")
			}
		}
		b.WriteString(n.ID + " ")
		if n.Unschedulable != "" {
			b.WriteByte('!')
		}
		for i, g := range n.GPUs {
			if i > 0 && g.Island != n.GPUs[i-1].Island {
				b.WriteByte('|')
			}
			switch c := taken[g.UUID]; {
			case c != 0:
				b.WriteByte(c)
			case g.Unhealthy != "":
				b.WriteByte('x')
			default:
				b.WriteByte('.')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.String()
}
