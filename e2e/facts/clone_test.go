package facts

import (
	"encoding/json"

	"github.com/hashicorp/nomad/api"
)

// clone is a deep copy: the client library fills in defaults in place.
func clone(j *api.Job) *api.Job {
	raw, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	var out api.Job
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return &out
}
