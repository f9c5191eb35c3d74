package server

import (
	"math"

	"github.com/hashicorp/nomad/api"
)

// maxCount is Nomad's default of job_max_count: how many members all groups of
// a job may have together.
const maxCount = 50_000

// limits are those that an operator sets for all jobs; Nomad looks at them
// last.
func (f *faults) limits(j *api.Job) {
	if p := deref(j.Priority); p < 1 || p > 100 {
		f.addf("job priority must be between [1, 100]")
	}
	if n := totalCount(j); n > maxCount {
		f.addf("total count was greater than configured job_max_count: %d > %d", n, maxCount)
	}
}

// totalCount counts the members of all groups.
func totalCount(j *api.Job) int {
	n := 0
	for _, tg := range j.TaskGroups {
		c := max(0, deref(tg.Count))
		if c > math.MaxInt-n {
			return math.MaxInt
		}
		n += c
	}
	return n
}
