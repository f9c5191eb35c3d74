package differ

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"
)

// step is one thing that somebody does. Its fields mean what its kind makes of
// them.
type step struct {
	Do    string `json:"do"`
	Job   string `json:"job,omitempty"`
	Node  int    `json:"node,omitempty"`
	N     int    `json:"n,omitempty"`
	Flag  bool   `json:"flag,omitempty"`
	Shape *shape `json:"shape,omitempty"`
}

func (s step) String() string {
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// shape is what a job looks like.
type shape struct {
	Type   string       `json:"type"`
	Groups []groupShape `json:"groups"`
	// Gate and Pin are the planner's ways to write a job: a gate, or pins to
	// nodes and GPUs, beginning with that node; 0 is no pin.
	Gate bool `json:"gate,omitempty"`
	Pin  int  `json:"pin,omitempty"`
	// Version is in the tasks' environment: another one restarts them.
	Version  int `json:"version,omitempty"`
	Priority int `json:"priority,omitempty"`
	// Rule is a constraint by its name in rules.
	Rule string `json:"rule,omitempty"`
	// Parallel, Revert and Canary are the update block; 0 is none.
	Parallel int  `json:"parallel,omitempty"`
	Revert   bool `json:"revert,omitempty"`
	Canary   int  `json:"canary,omitempty"`
	// Lost is the disconnect block: "", "replace" or "keep".
	Lost string `json:"lost,omitempty"`
	// Again reschedules what failed, once.
	Again bool `json:"again,omitempty"`
	Param bool `json:"param,omitempty"`
}

type groupShape struct {
	Count int `json:"count"`
	GPUs  int `json:"gpus,omitempty"`
	// Ends is how a task ends by itself, "" not at all.
	Ends string `json:"ends,omitempty"`
}

const (
	endsWell  = "well"
	endsBadly = "badly"
)

// types are the jobs that there are, and what each is; Nomad refuses another
// type for a job that it has, which is one of the things to be compared.
var types = map[string]string{
	"a": api.JobTypeService, "b": api.JobTypeService, "c": api.JobTypeBatch, "d": api.JobTypeBatch,
	"s": api.JobTypeSystem, "y": api.JobTypeSysbatch, "p": api.JobTypeBatch,
}

var jobKeys = []string{"a", "a", "b", "c", "c", "d", "s", "y", "p"}

var kinds = []string{
	"register", "register", "register", "register", "register", "change", "change", "plan", "scale", "scale",
	"stop", "purge", "start", "revert", "evaluate", "force", "dispatch",
	"alloc stop", "alloc stop", "alloc restart", "finish", "finish", "fail", "fail",
	"drain", "drain", "drain off", "drain force", "ineligible", "eligible", "eligible", "evaluate node",
	"stop node", "stop node", "start node", "start node", "gc",
	"fail deployment", "pause deployment", "resume deployment", "promote",
}

// scriptOf draws a sequence; the same seed draws the same one.
func scriptOf(seed int) []step {
	return rapid.Custom(drawScript).Example(seed)
}

const longest = 10

func drawScript(rt *rapid.T) []step {
	// Which GPUs Nomad picks is its own choice. So that the jobs of a sequence
	// find the same GPUs free on both back ends, either all name their GPUs or
	// none does.
	exact := rapid.Bool().Draw(rt, "exact")
	n := rapid.IntRange(3, longest).Draw(rt, "steps")
	script := make([]step, n)
	for i := range script {
		script[i] = drawStep(rt, exact, i == 0)
	}
	return script
}

func drawStep(rt *rapid.T, exact, first bool) step {
	s := step{Do: "register", Job: rapid.SampledFrom(jobKeys).Draw(rt, "job")}
	if !first {
		s.Do = rapid.SampledFrom(kinds).Draw(rt, "do")
	}
	switch s.Do {
	case "register", "plan":
		s.Shape = drawShape(rt, s.Job, exact)
	case "drain", "drain off", "drain force", "ineligible", "eligible", "evaluate node", "stop node", "start node":
		s.Job = ""
		s.Node = rapid.IntRange(0, nodeCount-1).Draw(rt, "node")
	case "gc":
		s.Job = ""
	case "change", "scale", "revert", "alloc stop", "alloc restart", "finish", "fail", "dispatch":
		s.N = rapid.IntRange(0, 7).Draw(rt, "n")
		s.Flag = rapid.Bool().Draw(rt, "flag")
	}
	return s
}

func drawShape(rt *rapid.T, job string, exact bool) *shape {
	s := &shape{
		Type: types[job], Version: rapid.IntRange(0, 1).Draw(rt, "version"),
		Priority: rapid.SampledFrom([]int{50, 50, 70}).Draw(rt, "priority"),
		Rule:     rapid.SampledFrom([]string{"", "", "", "", "", "class", "other class", "distinct", "memory", "model", "nobody", "rack", "invalid"}).Draw(rt, "rule"),
		Param:    job == "p",
	}
	if rapid.IntRange(0, 25).Draw(rt, "other type") == 25 {
		s.Type = rapid.SampledFrom([]string{api.JobTypeService, api.JobTypeBatch, api.JobTypeSystem, "nonsense"}).Draw(rt, "type")
	}
	each := s.Type == api.JobTypeSystem || s.Type == api.JobTypeSysbatch
	for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(rt, "groups") {
		g := groupShape{
			Count: rapid.SampledFrom([]int{1, 2, 3, 4, 2, 3, 0, 6}).Draw(rt, "count"),
			GPUs:  rapid.SampledFrom([]int{0, 0, 1, 2, 4, 8}).Draw(rt, "gpus"),
			Ends:  rapid.SampledFrom([]string{"", "", "", "", "", "", endsWell, endsBadly}).Draw(rt, "ends"),
		}
		if each {
			g.Count = rapid.SampledFrom([]int{1, 1, 1, 1, 1, 2, 0}).Draw(rt, "count")
		}
		s.Groups = append(s.Groups, g)
	}
	if s.Type == api.JobTypeService { // the stand-in has no deployments of system jobs
		s.Parallel = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(rt, "parallel")
		s.Revert = rapid.Bool().Draw(rt, "revert")
		if s.Parallel > 0 {
			s.Canary = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(rt, "canary")
		}
	}
	if s.fails() {
		// Of several that fail at once, the first ends the deployment, and the
		// others may or may not be stopped by that before they fail.
		s.Parallel, s.Canary = min(s.Parallel, 1), min(s.Canary, 1)
	}
	if !each {
		s.Lost = rapid.SampledFrom([]string{"", "", "", "replace", "keep"}).Draw(rt, "lost")
		// Several that fail at the same time may be replaced by one evaluation or
		// by several, and the places differ.
		s.Again = rapid.IntRange(0, 3).Draw(rt, "again") == 3 && !s.fails()
		s.Gate = rapid.IntRange(0, 4).Draw(rt, "gate") == 4
		if exact && !s.Gate {
			s.Pin = rapid.IntRange(1, nodeCount).Draw(rt, "pin")
			if s.Rule == "distinct" || s.Rule == "rack" {
				// The groups of a job are placed in random order: where some of them
				// keep others out, chance decides.
				s.Rule = ""
			}
		}
	}
	for i := range s.Groups[1:] {
		if !exact {
			s.Groups[1+i].GPUs = 0 // the same: they would compete
		}
	}
	if exact && (each || s.Param) {
		for i := range s.Groups {
			s.Groups[i].GPUs = 0
		}
	}
	return s
}

// groupName names the i-th group.
func groupName(i int) string { return fmt.Sprintf("g%d", i) }

// fails says whether members end by themselves.
func (s *shape) fails() bool {
	return slices.ContainsFunc(s.Groups, func(g groupShape) bool { return g.Ends != "" })
}
