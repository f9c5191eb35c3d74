package sim

import "slices"

// maxQuiet is how long nothing may happen where nodes can be bought, in seconds: by
// then each queue has had the budget of a new month.
const maxQuiet = 62 * 24 * 3600

// watchQuiet notes whether jobs wait for nodes that are not bought, for ever.
func (r *run) watchQuiet(actions int) {
	if r.cloud == nil || actions > 0 || r.allocated > 0 || len(r.cloud.at) > 0 || slices.Contains(r.down[:r.Cluster.homes()], true) || r.unborn() > 0 {
		r.quiet = never
		return
	}
	r.quiet = min(r.quiet, r.now)
	r.stuck = r.now-r.quiet > maxQuiet
}

// unfinished are the jobs that wait for ever, and why.
func (r *run) unfinished() (out []Unfinished) {
	for i := range r.jobs {
		if j := &r.jobs[i]; j.phase != done {
			u := Unfinished{Job: j.ID}
			if s, ok := r.Scheduler.(buyer); ok {
				u.Why = s.Why(i)
			}
			out = append(out, u)
		}
	}
	return out
}
