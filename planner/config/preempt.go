package config

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// The bounds of policy.preempt.
const (
	// maxGap is the widest that Nomad's priorities, 1 to 32766, can be apart.
	maxGap      = 32765
	maxRunTime  = 30 * 24 * time.Hour
	maxRestart  = 24 * time.Hour
	maxGivesWay = 100000
	minRestart  = time.Second
)

// DefaultMinRunTime is for how long a gang runs at least.
const DefaultMinRunTime = 5 * time.Minute

// defaultPreempt stops those who save their work. That a job may be stopped which loses
// all of it is for an operator to say.
func defaultPreempt() preempt.Policy {
	return preempt.Policy{Enabled: true, SavedOnly: true, MinRunTime: DefaultMinRunTime}.WithDefaults()
}

func (l *loader) mergePreempt(p *preempt.Policy, f *filePreempt) {
	if f == nil {
		return
	}
	set(&p.Enabled, f.Enabled)
	if f.Unsaved != nil {
		p.SavedOnly = !*f.Unsaved
	}
	set(&p.MinPriorityGap, f.MinPriorityGap)
	l.duration(&p.MinRunTime, f.MinRunTime, "policy.preempt.min_run_time")
	set(&p.MaxAtOnce, f.MaxAtOnce)
	set(&p.MaxGPUsAtOnce, f.MaxGPUsAtOnce)
	set(&p.MaxGiBAtOnce, f.MaxGiBAtOnce)
	if len(f.Storages) > 0 {
		p.Storages = nil
	}
	for _, s := range f.Storages {
		out := preempt.Storage{Name: s.Name}
		set(&out.MaxAtOnce, s.MaxAtOnce)
		set(&out.MaxGPUsAtOnce, s.MaxGPUsAtOnce)
		set(&out.MaxGiBAtOnce, s.MaxGiBAtOnce)
		p.Storages = append(p.Storages, out)
	}
	set(&p.MaxPerHour, f.MaxPerHour)
	set(&p.MaxPerJob, f.MaxPerJob)
	l.duration(&p.RestartTime, f.RestartTime, "policy.preempt.restart_time")
}

func (l *loader) checkPreempt(p preempt.Policy) {
	for _, q := range []struct {
		key        string
		value, max int
	}{
		{"min_priority_gap", p.MinPriorityGap, maxGap}, {"max_at_once", p.MaxAtOnce, maxGivesWay},
		{"max_per_hour", p.MaxPerHour, maxGivesWay}, {"max_per_job", p.MaxPerJob, maxGivesWay},
	} {
		if q.value < 1 || q.value > q.max {
			l.fault("policy.preempt."+q.key, q.value, fmt.Sprintf("want 1 to %d; to stop nobody, set policy.preempt.enabled to false", q.max))
		}
	}
	if !p.Enabled && !p.SavedOnly {
		l.fault("policy.preempt.unsaved", true, "want policy.preempt.enabled beside it: without that nobody gives way, whether he saves his work or not", "policy.preempt.enabled")
	}
	l.atLeastNone("policy.preempt.max_gpus_at_once", p.MaxGPUsAtOnce, "no limit")
	l.atLeastNone("policy.preempt.max_gib_at_once", p.MaxGiBAtOnce, "no limit")
	seen := map[string]bool{}
	for i, s := range p.Storages {
		key, place := fmt.Sprintf("policy.preempt.storage[%s]", s.Name), fmt.Sprintf("policy.preempt.storage[#%d]", i)
		if s.Name == "" || seen[s.Name] {
			l.faultText(place, fmt.Sprintf("%s is %q: want a name, and each once: what jobs have as caravan_checkpoint_storage", key, s.Name))
		}
		seen[s.Name] = true
		for _, limit := range []struct {
			name  string
			value int
		}{{".max_at_once", s.MaxAtOnce}, {".max_gpus_at_once", s.MaxGPUsAtOnce}, {".max_gib_at_once", s.MaxGiBAtOnce}} {
			if limit.value < 0 || limit.value > maxGivesWay {
				l.faultText(place+limit.name, fmt.Sprintf("%s%s is %d: want 0 to %d; 0 is as policy.preempt says", key, limit.name, limit.value, maxGivesWay))
			}
		}
	}
	l.between("policy.preempt.min_run_time", p.MinRunTime, 0, maxRunTime)
	l.between("policy.preempt.restart_time", p.RestartTime, minRestart, maxRestart)
}

// atLeastNone checks a number of which 0 means something.
func (l *loader) atLeastNone(key string, value int, none string) {
	if value < 0 || value > maxGivesWay {
		l.fault(key, value, fmt.Sprintf("want 0 to %d; 0 is %s", maxGivesWay, none))
	}
}
