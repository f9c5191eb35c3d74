// Package devrun is what `caravan dev` does: it starts a small cluster with
// simulated GPUs, the planner and its gateway, plays a scenario on it, watches
// the whole run through Nomad's event stream, and reports what it saw.
package devrun

import (
	"encoding/json"
	"io"
)

// Report is the result of a run. Its JSON form is what `caravan dev --json`
// prints.
type Report struct {
	// OK is set when the scenario came to its end and every check held.
	OK bool `json:"ok"`
	// Backend is devcluster.BackendDevNomad or BackendNomad, and NomadVersion
	// Nomad's, or that of Nomad which the stand-in follows.
	Backend      string    `json:"backend"`
	NomadVersion string    `json:"nomad_version"`
	Scenario     string    `json:"scenario"`
	Addresses    Addresses `json:"addresses"`
	Gangs        []Gang    `json:"gangs"`
	Checks       []Check   `json:"checks"`
	// Error says why the scenario did not come to its end.
	Error string `json:"error,omitempty"`
}

// Addresses are where the run's servers are, or were.
type Addresses struct {
	// Caravan is the gateway and Caravan's own API: what NOMAD_ADDR and
	// CARAVAN_ADDR are set to.
	Caravan string `json:"caravan"`
	// Nomad is Nomad's own API.
	Nomad string `json:"nomad"`
}

// Gang is one job as it ran.
type Gang struct {
	Job     string   `json:"job"`
	Members []Member `json:"members"`
	// QueuedMS is the time from the submission until the first member was
	// placed.
	QueuedMS int64 `json:"queued_ms"`
	// Reason is the decision's.
	Reason string `json:"reason"`
}

// Member is one member of a gang.
type Member struct {
	Rank int `json:"rank"`
	// Node is the Nomad node's ID.
	Node string `json:"node"`
	// GPUs are the UUIDs that Nomad gave to the member.
	GPUs []string `json:"gpus"`
	// Islands are the same UUIDs, those of one NVLink island in one list.
	Islands [][]string `json:"islands"`
}

// Check is one thing that must hold in the whole run.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// finish decides OK, and makes lists of what is missing.
func (r *Report) finish(err error) {
	if r.Gangs == nil {
		r.Gangs = []Gang{}
	}
	if r.Checks == nil {
		r.Checks = []Check{}
	}
	r.OK = err == nil && len(r.Checks) > 0
	if err != nil {
		r.Error = err.Error()
	}
	for _, c := range r.Checks {
		r.OK = r.OK && c.OK
	}
}

// writeJSON prints the report as one object.
func (r *Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
