package preempt

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Storage is where gangs save their checkpoints, by the name that their jobs give
// it, and what it takes at once. Zeros are as for all storages.
type Storage struct {
	Name          string `json:"name"`
	MaxAtOnce     int    `json:"max_at_once,omitempty"`
	MaxGPUsAtOnce int    `json:"max_gpus_at_once,omitempty"`
	MaxGiBAtOnce  int    `json:"max_gib_at_once,omitempty"`
}

func (p Policy) validateStorages() (faults []error) {
	seen := map[string]bool{}
	for i, s := range p.Storages {
		if s.Name == "" || seen[s.Name] {
			faults = append(faults, fmt.Errorf("%w: storages[%d].name %q: want each name once", ErrPolicy, i, s.Name))
		}
		seen[s.Name] = true
		if min(s.MaxAtOnce, s.MaxGPUsAtOnce, s.MaxGiBAtOnce) < 0 {
			faults = append(faults, fmt.Errorf("%w: storages[%d] (%s): max_at_once %d, max_gpus_at_once %d, max_gib_at_once %d: want 0 or more", ErrPolicy, i, s.Name, s.MaxAtOnce, s.MaxGPUsAtOnce, s.MaxGiBAtOnce))
		}
	}
	return faults
}

// Storage is what a storage takes at once.
func (p Policy) Storage(name string) Storage {
	out := Storage{Name: name, MaxAtOnce: p.MaxAtOnce, MaxGPUsAtOnce: p.MaxGPUsAtOnce, MaxGiBAtOnce: p.MaxGiBAtOnce}
	if out.MaxAtOnce == 0 {
		out.MaxAtOnce = DefaultMaxAtOnce
	}
	at := slices.IndexFunc(p.Storages, func(s Storage) bool { return s.Name == name })
	if at < 0 || name == "" {
		return out
	}
	for _, q := range []struct{ to, own *int }{
		{&out.MaxAtOnce, &p.Storages[at].MaxAtOnce}, {&out.MaxGPUsAtOnce, &p.Storages[at].MaxGPUsAtOnce}, {&out.MaxGiBAtOnce, &p.Storages[at].MaxGiBAtOnce},
	} {
		if *q.own > 0 {
			*q.to = *q.own
		}
	}
	return out
}

// String says what it takes at once.
func (s Storage) String() string {
	text := fmt.Sprintf("at most %d may at once", s.MaxAtOnce)
	for _, q := range []struct {
		n    int
		what string
	}{{s.MaxGPUsAtOnce, "%d GPUs together"}, {s.MaxGiBAtOnce, "%d GiB of checkpoints"}} {
		if q.n > 0 {
			text += ", with " + fmt.Sprintf(q.what, q.n)
		}
	}
	if s.Name != "" {
		text += " that save to storage " + s.Name
	}
	return text
}

// Loads are what gangs save to each storage at present.
type Loads map[string]Load

// Load counts gangs, their GPUs, and the sizes of their checkpoints.
type Load struct{ Gangs, GPUs, GiB int }

// Add notes that a gang of a job, with so many GPUs, saves its checkpoint.
func (l Loads) Add(j *model.Job, gpus int) {
	name, gib := "", 0
	if j != nil {
		name, gib = j.CheckpointStorage, j.CheckpointGiB
	}
	n := l[name]
	l[name] = Load{n.Gangs + 1, n.GPUs + gpus, n.GiB + gib}
}

// Allow reports whether a gang of a job may save its checkpoint besides. What is
// larger than the limits by itself may if nobody else saves.
func (l Loads) Allow(p Policy, j *model.Job, gpus int) bool {
	has, s := l[j.CheckpointStorage], p.Storage(j.CheckpointStorage)
	over := func(most, has, more int) bool { return most > 0 && has > 0 && has+more > most }
	return has.Gangs < s.MaxAtOnce && !over(s.MaxGPUsAtOnce, has.GPUs, gpus) && !over(s.MaxGiBAtOnce, has.GiB, j.CheckpointGiB)
}
