package random

import (
	"encoding/json"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// clone is a deep copy of a job.
func clone(job *api.Job) *api.Job {
	raw, err := json.Marshal(job)
	out := new(api.Job)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		panic(fmt.Sprintf("copy a job of the test's own: %v", err))
	}
	return out
}
