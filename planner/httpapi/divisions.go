package httpapi

import (
	"net/http"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Division is how an idle GPU is to be divided, in the answer to GET /divisions.
type Division struct {
	GPU string `json:"gpu"`
	// Profiles are those of its MIG instances; none: it is to be whole.
	Profiles []string `json:"profiles"`
}

// Divider says how GPUs are to be divided.
type Divider interface {
	// Divisions are those of the GPUs named that are to be changed. An error says
	// that this planner does not lead.
	Divisions(gpus []string) ([]Division, error)
}

// divisions answers the device plugins, which have no token: they name GPUs that
// they have, and are told of no others.
func (s *server) divisions(r *http.Request) (any, error) {
	gpus := r.URL.Query()["gpu"]
	if len(gpus) > model.MaxGPUsPerNode {
		return nil, &Error{Status: http.StatusBadRequest, Message: "too many GPUs for one node", Do: "name at most 64"}
	}
	return s.b.Divisions(gpus)
}
