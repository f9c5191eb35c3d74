package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// insistValue, of the parameter rawParameter in a registration's query, takes a
// version in that can never start in the place of one that runs.
const insistValue = "insist"

// hopelessCodes are those of decisions that no waiting changes: more is asked
// for than the nodes have with nothing else on them.
var hopelessCodes = []string{"too_large", "no_node", "invalid"}

// mayReplace refuses a new version of a running job that can never start: to
// queue it would end what runs, for nothing.
func (g *Gateway) mayReplace(r *http.Request, s *submission, rec *record.Record, current *api.Job) *problem {
	if g.cfg.Preview == nil || rec == nil || !live(current) || len(rec.Members) == 0 ||
		rec.Phase != record.PhaseRunning && rec.Phase != record.PhaseAdmitted || r.URL.Query().Get(rawParameter) == insistValue {
		return nil
	}
	result, err := g.cfg.Preview(r.Context(), s.original)
	if err != nil {
		// Whoever cannot tell does not stand in the way.
		g.log.Warn("look whether a new version can start", "namespace", s.namespace, "job", s.id, "error", err)
		return nil
	}
	why := strings.Join(result.Faults, "; ")
	if slices.Contains(hopelessCodes, result.Decision.Detail.Code) {
		why = result.Decision.Reason
	}
	if !result.Managed || why == "" {
		return nil
	}
	stop := "nomad job stop " + s.id
	if s.namespace != api.DefaultNamespace {
		stop = "nomad job stop -namespace " + s.namespace + " " + s.id
	}
	return problemf(http.StatusConflict,
		"Job %q runs, and this version of it cannot start on the nodes that there are: %s. Nothing was registered, and what runs is not disturbed. "+
			"Correct the job; or, if nodes are to come and the running version is to end now, stop it first (%s) and submit this one again, or register it with ?%s=%s.",
		s.id, why, stop, rawParameter, insistValue)
}
