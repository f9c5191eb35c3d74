package gangspec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// models reads the GPU models that a job takes: "NAME=SPEED, NAME=SPEED".
func (p *parser) models() ([]model.ModelSpeed, bool) {
	where, v := p.setting(KeyModels)
	var out []model.ModelSpeed
	if where != "" {
		out = p.modelList(where, v)
	}
	mix := p.word(KeyMix, "false", []string{"true", "false"}) == "true"
	if at, v := p.setting(KeyMix); mix && where == "" {
		p.fault(at, KeyMix, v, "it says whether one gang may have several of the models in "+KeyModels+"; list them there, or leave it out")
	}
	if len(out) > 0 {
		p.checkModelAsks(where, v)
	}
	return out, mix
}

func (p *parser) modelList(where, v string) []model.ModelSpeed {
	var out []model.ModelSpeed
	for entry := range strings.SplitSeq(v, ",") {
		m, problem := readModel(strings.TrimSpace(entry))
		switch {
		case problem != "":
		case slices.ContainsFunc(out, func(o model.ModelSpeed) bool { return o.Name == m.Name }):
			problem = fmt.Sprintf("%q is listed twice", m.Name)
		case len(out) == model.MaxModels:
			p.fault(where, KeyModels, v, fmt.Sprintf("allowed are at most %d models", model.MaxModels))
			return nil
		}
		if problem != "" {
			p.fault(where, KeyModels, v, problem+`; allowed are names as caravan topology shows them, each with its speed beside the others, such as "NVIDIA H100 80GB HBM3 = 1, NVIDIA A100-SXM4-80GB = 0.5"`)
			return nil
		}
		out = append(out, m)
	}
	return out
}

// readModel reads "NAME=SPEED" or "NAME", whose speed is 1.
func readModel(entry string) (m model.ModelSpeed, problem string) {
	m = model.ModelSpeed{Name: entry, Speed: 1}
	if at := strings.LastIndexByte(entry, '='); at >= 0 {
		text := strings.TrimSpace(entry[at+1:])
		speed, err := strconv.ParseFloat(text, 64)
		if err != nil || !(speed > 0 && speed <= math.MaxFloat32) {
			return m, fmt.Sprintf("the speed %q is no number above 0", text)
		}
		m = model.ModelSpeed{Name: strings.TrimSpace(entry[:at]), Speed: speed}
	}
	switch {
	case m.Name == "":
		return m, "a name is missing"
	case strings.ContainsFunc(m.Name, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.ContainsAny(m.Name, "=/"):
		return m, fmt.Sprintf("%q is no name of a model", m.Name)
	}
	return m, ""
}

// checkModelAsks finds device requests that the list of models cannot be for.
func (p *parser) checkModelAsks(where, v string) {
	asked := false
	for _, g := range p.job.TaskGroups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if t == nil || t.Resources == nil {
				continue
			}
			for _, d := range t.Resources.Devices {
				if d == nil {
					continue
				}
				asked = true
				if parts := strings.SplitN(d.Name, "/", 3); len(parts) == 3 && parts[2] != "" {
					p.fault(fmt.Sprintf("task %q of %s", t.Name, inGroup(g)), fmt.Sprintf("device %q", d.Name), "",
						fmt.Sprintf("it names its model, and %s = %q names those that the job takes; ask for %q, or leave %s out", KeyModels, v, parts[0]+"/"+parts[1], KeyModels))
				}
			}
		}
	}
	if !asked {
		p.fault(where, KeyModels, v, "no task asks for a device; add a device block, or leave it out")
	}
}
