package gangspec

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// MaxCount bounds a group's count and its elastic maximum, so that a slip of
// the keyboard does not ask for more members than any cluster has.
const MaxCount = 1 << 20

// levels are the standard levels, innermost first, as the contract lists them.
var levels = []string{
	model.LevelIsland, model.LevelNode, model.LevelDomain, model.LevelRack,
	model.LevelBlock, model.LevelZone, model.LevelRegion,
}

var queuePath = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

var priorityName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Parse reads a job's contract. custom names levels of the operator's beside
// the standard ones. The error is an *Error with every fault at once; the Spec
// then holds what could be read, and defaults for the rest.
func Parse(job *api.Job, custom ...string) (Spec, error) {
	if job == nil {
		return Spec{}, &Error{Faults: []Fault{{Where: "job", Key: "job", Allowed: "there is none"}}}
	}
	p := &parser{job: job, levels: slices.Clone(levels)}
	for _, level := range custom {
		if !slices.Contains(p.levels, level) {
			p.levels = append(p.levels, level)
		}
	}
	p.checkKeys()
	spec := Spec{
		Gang:     model.Gang(p.word(KeyGang, string(p.defaultGang()), gangs)),
		Queue:    p.queue(),
		Priority: p.priority(),
		Topology: p.topology(),
		Duration: p.duration(KeyDuration),
		Preempt:  p.word(KeyPreempt, PreemptCheckpoint, []string{PreemptCheckpoint, PreemptAlways, PreemptNever}),
		Move:     p.word(KeyMove, MoveAllow, []string{MoveAllow, MoveNever}),
		Burst:    p.word(KeyBurst, "", []string{BurstAllow, BurstNever, BurstOnly}),
		Budget:   p.amount(KeyBudget, `allowed is an amount above 0 in the operator's currency, such as "250" or "99.50"`),
		BurstMix: p.word(KeyBurstMix, "false", []string{"true", "false"}) == "true",
		OutputGB: p.amount(KeyOutputGB, `allowed is how many GB its results have, above 0, such as "120"`),
	}
	spec.Regions, spec.Data = p.regions()
	spec.Models, spec.Mix = p.models()
	spec.Collective = p.word(KeyCollective, model.CollectiveRing, []string{model.CollectiveRing, model.CollectiveAllToAll})
	spec.Speed = p.speed()
	spec.Share = p.share()
	spec.Checkpoint = p.duration(KeyCheckpoint)
	spec.CheckpointStorage = p.name(KeyCheckpointStorage, "the name of a storage")
	spec.CheckpointGiB = p.checkpointGiB()
	spec.Deadline, spec.DeadlineAfter = p.deadline()
	spec.Groups = p.bounds()
	p.checkSlices(spec)
	spec.OnFailure = p.onFailure(spec)
	spec.OnResize = p.word(KeyOnResize, ResizeNotify, []string{ResizeNotify, ResizeRestart})
	if len(p.faults) > 0 {
		return spec, &Error{Faults: p.faults}
	}
	return spec, nil
}

var gangs = []string{string(model.GangJob), string(model.GangGroup), string(model.GangNone)}

type parser struct {
	job    *api.Job
	levels []string
	faults []Fault
}

func (p *parser) fault(where, key, value, allowed string) {
	p.faults = append(p.faults, Fault{Where: where, Key: key, Value: value, Allowed: allowed})
}

func inGroup(g *api.TaskGroup) string { return fmt.Sprintf("group %q", deref(g.Name)) }

// checkKeys finds keys that nobody reads.
func (p *parser) checkKeys() {
	p.checkMeta("job", p.job.Meta)
	for _, g := range p.job.TaskGroups {
		if g == nil {
			continue
		}
		p.checkMeta(inGroup(g), g.Meta)
		for _, t := range g.Tasks {
			if t == nil {
				continue
			}
			where := fmt.Sprintf("task %q of %s", t.Name, inGroup(g))
			p.checkDevices(where, t)
			for _, key := range slices.Sorted(maps.Keys(t.Meta)) {
				if strings.HasPrefix(key, Prefix) {
					p.fault(where, key, t.Meta[key], "the meta of a task is not read; write it in the meta of the group or the job")
				}
			}
		}
	}
}

// checkDevices finds requests for nothing. Nomad takes them, and the task then
// gets no device.
func (p *parser) checkDevices(where string, t *api.Task) {
	if t.Resources == nil {
		return
	}
	for _, d := range t.Resources.Devices {
		if d != nil && d.Count != nil && *d.Count == 0 {
			p.fault(where, fmt.Sprintf("count of device %q", d.Name), "0", "allowed is 1 or more; for none leave the device block out")
		}
	}
}

func (p *parser) checkMeta(where string, meta map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if !strings.HasPrefix(key, Prefix) || slices.Contains(keys, key) {
			continue
		}
		switch key {
		case KeyGroup, KeyIndex, KeyCount, KeySlot:
		case Prefix + "gate":
			p.fault(where, key, meta[key], `the gate is a constraint, not meta; leave it out, or write constraint { attribute = "${meta.caravan_gate}", value = "open" }`)
		default:
			allowed := "there is no such setting"
			if guess := nearestKey(key); guess != "" {
				allowed += fmt.Sprintf(" (did you mean %q?)", guess)
			} else {
				allowed += "; there are " + strings.Join(keys, ", ")
			}
			p.fault(where, key, meta[key], allowed)
		}
	}
}

// setting returns the one value of a key that holds for the whole job. It may
// stand in the job's meta or, as authors with one group like it, in a group's;
// but everywhere with the same value.
func (p *parser) setting(key string) (where, value string) {
	if v, ok := p.job.Meta[key]; ok {
		where, value = "job", v
	}
	for _, g := range p.job.TaskGroups {
		if g == nil {
			continue
		}
		v, ok := g.Meta[key]
		switch {
		case !ok:
		case where == "":
			where, value = inGroup(g), v
		case v != value:
			p.fault(inGroup(g), key, v, fmt.Sprintf("%s has %q, and it holds for the whole job; leave one", where, value))
		}
	}
	return where, strings.TrimSpace(value)
}

func (p *parser) word(key, fallback string, allowed []string) string {
	where, v := p.setting(key)
	if where == "" {
		return fallback
	}
	if !slices.Contains(allowed, v) {
		p.fault(where, key, v, oneOf(v, allowed))
		return fallback
	}
	return v
}

func (p *parser) defaultGang() model.Gang {
	members, own := 0, false
	for _, g := range p.job.TaskGroups {
		if g == nil {
			continue
		}
		members += max(0, Count(g))
		for _, t := range g.Tasks {
			own = own || t != nil && t.Driver == DriverName
		}
	}
	if own && members > 1 {
		return model.GangJob
	}
	return model.GangNone
}

// onFailure reads what the rest of a gang does when a member fails. It can go
// on only where a gang of fewer members is allowed.
func (p *parser) onFailure(spec Spec) string {
	out := p.word(KeyOnFailure, FailureRestart, []string{FailureRestart, FailureContinue, FailureFail})
	if out != FailureContinue {
		return out
	}
	for _, b := range spec.Groups {
		if b.Min < b.Count {
			return out
		}
	}
	where, v := p.setting(KeyOnFailure)
	p.fault(where, KeyOnFailure, v, "the others can only go on where fewer members than count are allowed; set "+KeyMin+" below it, or write \"restart\" or \"fail\"")
	return FailureRestart
}

func (p *parser) queue() string {
	fallback := deref(p.job.Namespace)
	if fallback == "" {
		fallback = api.DefaultNamespace
	}
	where, v := p.setting(KeyQueue)
	if where == "" {
		return fallback
	}
	if !queuePath.MatchString(v) {
		p.fault(where, KeyQueue, v, `allowed is a path such as "org/team", of letters, digits, ".", "_" and "-"`)
		return fallback
	}
	return v
}

func (p *parser) priority() string {
	return p.name(KeyPriority, "a name that the queue gives a number")
}

// name reads a short name.
func (p *parser) name(key, what string) string {
	where, v := p.setting(key)
	if where != "" && !priorityName.MatchString(v) {
		p.fault(where, key, v, "allowed is "+what+`, of letters, digits, ".", "_" and "-"`)
		return ""
	}
	return v
}

// maxCheckpointGiB is a pebibyte.
const maxCheckpointGiB = 1 << 20

func (p *parser) checkpointGiB() int {
	where, v := p.setting(KeyCheckpointGiB)
	if where == "" {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil || n < 1 || n > maxCheckpointGiB {
		p.fault(where, KeyCheckpointGiB, v, fmt.Sprintf("allowed is a whole number of GiB, 1 to %d, such as \"40\"", maxCheckpointGiB))
		return 0
	}
	return n
}

func (p *parser) topology() model.Topology {
	where, v := p.setting(KeyTopology)
	if where == "" {
		return model.Topology{Mode: model.TopologyPrefer}
	}
	mode, level, ok := strings.Cut(v, ":")
	fallback := model.Topology{Mode: model.TopologyPrefer}
	switch {
	case mode != model.TopologyRequire && mode != model.TopologyPrefer:
		allowed := `allowed is "require:LEVEL" or "prefer:LEVEL", LEVEL one of ` + orList(p.levels)
		if guess := nearest(mode, []string{model.TopologyRequire, model.TopologyPrefer}); guess != "" {
			allowed += fmt.Sprintf(" (did you mean %q?)", guess+":"+level)
		} else if !ok && slices.Contains(p.levels, v) {
			allowed += fmt.Sprintf(" (did you mean %q?)", model.TopologyRequire+":"+v)
		}
		p.fault(where, KeyTopology, v, allowed)
		return fallback
	case !slices.Contains(p.levels, level):
		p.fault(where, KeyTopology, v, "the level "+oneOf(level, p.levels))
		return fallback
	}
	return model.Topology{Mode: mode, Level: level}
}

func (p *parser) duration(key string) time.Duration {
	where, v := p.setting(key)
	if where == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		p.fault(where, key, v, `allowed is a duration above 0 such as "90m" or "36h"`)
		return 0
	}
	return d
}

func (p *parser) deadline() (time.Time, time.Duration) {
	where, v := p.setting(KeyDeadline)
	if where == "" {
		return time.Time{}, 0
	}
	if d, err := time.ParseDuration(v); err == nil && d > 0 {
		return time.Time{}, d
	}
	if at, err := time.Parse(time.RFC3339, v); err == nil {
		return at, 0
	}
	p.fault(where, KeyDeadline, v, `allowed is a time such as "2031-05-17T18:00:00Z" (RFC 3339), or a duration above 0 after the submission such as "36h"`)
	return time.Time{}, 0
}

// amount reads a number above 0; 0 if there is none.
func (p *parser) amount(key, allowed string) float64 {
	where, v := p.setting(key)
	if where == "" {
		return 0
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || f <= 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		p.fault(where, key, v, allowed)
		return 0
	}
	return f
}
