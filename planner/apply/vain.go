package apply

import (
	"fmt"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// inVain says why what Nomad has placed of a job can never start: it waits at the
// barrier without the identity that members join with. "" if it can. Only a
// version that Caravan has rewritten has it, and what runs cannot be given it.
func (j *job) inVain() string {
	group, task := rewrite.Unidentified(j.cur)
	if task == "" {
		return ""
	}
	return fmt.Sprintf("task %q of group %q waits for its gang in vain: it has no identity block named %q, because the job was registered past Caravan's gateway; the job is stopped whole, and placed anew with it",
		task, group, gangspec.IdentityName)
}
