package gateway

import (
	"reflect"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Unchanged says whether a submission whose user's version has that hash changes
// nothing: the live job is made from the same specification. A job that is held
// because it has failed too often is tried again.
func Unchanged(rec *record.Record, current *api.Job, hash string) bool {
	return rec != nil && live(current) && hash == rec.SpecHash && rec.Held == "" && !inVain(rec, current)
}

// MayStay says whether a version of a job asks for the same members on the same
// nodes as the one whose placement is in force. Nomad's own forecast then says
// whether it does restart nobody. levels names the operator's levels.
func MayStay(rec *record.Record, job *api.Job, spec gangspec.Spec, levels ...string) bool {
	placed := rec.Phase == record.PhaseAdmitted || rec.Phase == record.PhaseRunning
	if !placed || len(rec.Members) == 0 || rec.Original == nil || rec.PlacedHash != rec.SpecHash {
		return false
	}
	before, err := gangspec.Parse(rec.Original, levels...)
	if err != nil {
		return false
	}
	return reflect.DeepEqual(shapeOf(rec.Original, before), shapeOf(job, spec))
}

// MayResize says whether a version of a job differs from the one in force in
// counts only, and which members then stay where they run. Nomad's own forecast
// then says whether it does restart nobody.
func MayResize(rec *record.Record, current, job *api.Job, cluster *rewrite.Cluster, levels ...string) (kept []model.Member, anew []string, ok bool) {
	if !mayResize(rec, current) || rec.Rollout != nil {
		return nil, nil, false
	}
	kept, anew, ok = rewrite.Resize(current, rec.Original, job, rec.Members, cluster, levels...)
	return kept, anew, ok && (len(anew) == 0 || rec.Phase == record.PhaseRunning)
}

// mayResize says whether what runs of a job is such that its counts can change.
func mayResize(rec *record.Record, current *api.Job) bool {
	placed := rec.Phase == record.PhaseAdmitted || rec.Phase == record.PhaseRunning
	return placed && !rec.Unpinned && rec.PlacedHash == rec.SpecHash && rewrite.IsPinned(current) && !rewrite.GatedWhole(current)
}
