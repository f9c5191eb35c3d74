package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

const (
	// lookAgain is the least time between two looks for the same node in doubt.
	lookAgain = 5 * time.Minute
	// giveUpAfter is after what time a node counts as never made for which nothing
	// can look, and which has not joined Nomad.
	giveUpAfter = 24 * time.Hour
)

// stray is the machine that lives in Nomad as a node in doubt: of its name and
// purchase, and not in the state.
func (s sight) stray(name string) (machine, bool) {
	m, d := s.nodes[name], s.doubts[name]
	_, known := s.state[name]
	return m, !known && m.Lives && m.Purchase == d.Purchase
}

// due are the nodes in doubt to be looked for now: at once; again when they have
// joined Nomad or the look failed; and last when one that was made would have joined.
func (s sight) due(now time.Time, timeout time.Duration) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.doubts)) {
		d, last := s.doubts[name], s.doubts[name].Since.Add(timeout)
		_, lives := s.stray(name)
		switch _, known := s.state[name]; {
		case known:
		case d.Looked.IsZero(),
			!now.Before(d.Looked.Add(lookAgain)) && (lives || d.Looks == 0),
			!now.Before(last) && d.Looked.Before(last) && d.Looks > 0:
			out = append(out, name)
		}
	}
	return out
}

// resolved are the nodes that are in doubt no more: found are in the state, and never
// were not made.
func (s sight) resolved(now time.Time, timeout time.Duration) (found, never []string) {
	for _, name := range slices.Sorted(maps.Keys(s.doubts)) {
		d := s.doubts[name]
		if _, known := s.state[name]; known {
			found = append(found, name)
			continue
		}
		if _, lives := s.stray(name); lives {
			continue
		}
		if d.Looks > 0 && !d.Looked.Before(d.Since.Add(timeout)) || !now.Before(d.Since.Add(giveUpAfter)) {
			never = append(never, name)
		}
	}
	return found, never
}

// doubtful says whether a pass would find something to do about nodes in doubt.
func (s sight) doubtful(now time.Time, timeout time.Duration) bool {
	found, never := s.resolved(now, timeout)
	return len(found)+len(never)+len(s.due(now, timeout)) > 0
}

// settleDoubts looks for nodes that an apply which was cut short may have made. Those
// that are there are in the state then, and the pass decides on them as on all
// others. One that lives in Nomad and is not found is drained: nobody could end it
// for whoever ran there.
func (j *job) settleDoubts(ctx context.Context, now func() time.Time, held Held) error {
	if doubts, err := j.dir.Doubts(); err == nil && len(doubts) == 0 && len(j.worker.doubted) == 0 {
		return nil
	}
	see, err := j.look(ctx, held.Nodes)
	if err != nil {
		return err
	}
	if due := see.due(now(), j.pool.JoinTimeout); len(due) > 0 {
		change, err := held.Look(ctx, due)
		switch {
		case errors.Is(err, terraform.ErrBlind):
			j.log.Warn("nodes that an apply which was cut short may have made cannot be looked for", "nodes", due, "why", err)
		case err != nil:
			j.log.Warn("nodes that an apply which was cut short may have made were not found out", "nodes", due, "error", err)
		default:
			j.log.Info("looked for nodes that an apply which was cut short may have made", "nodes", due, "found", change.Made)
		}
		if see, err = j.look(ctx, held.Nodes); err != nil {
			return err
		}
	}
	found, never := see.resolved(now(), j.pool.JoinTimeout)
	left := maps.Clone(see.doubts)
	for _, name := range slices.Concat(found, never) {
		delete(left, name)
	}
	j.drainStrays(ctx, see, left)
	if !j.tellDoubts(ctx, see.doubts, left, never) {
		return nil // they stay on the list until the planner knows
	}
	if len(found)+len(never) == 0 {
		return nil
	}
	for _, name := range found {
		if _, noted := see.notes[name]; !noted {
			see.notes[name] = note{Purchase: see.doubts[name].Purchase, Ordered: now(), JoinBy: now().Add(j.pool.JoinTimeout), Made: see.doubts[name].Since}
		}
	}
	if err := j.dir.WriteNote(notesName, see.notes); err != nil {
		return err
	}
	return held.Resolve(slices.Concat(found, never)...)
}

// drainStrays drains nodes in doubt that live in Nomad, so that no gang counts on
// them, and says which machine it is about.
func (j *job) drainStrays(ctx context.Context, see sight, left map[string]terraform.Doubt) {
	for _, name := range slices.Sorted(maps.Keys(left)) {
		m, lives := see.stray(name)
		if !lives {
			continue
		}
		j.log.Warn("a node lives that Terraform's state does not know since an apply was cut short: import it into the state, or end the machine",
			"node", name, "nomad", m.ID, "purchase", left[name].Purchase, "since", left[name].Since)
		if m.Draining {
			continue
		}
		if err := j.nomad.Drain(ctx, m.ID, j.drain, j.ignoreSystem); err != nil {
			j.log.Warn("it could not be drained", "node", name, "error", err)
		}
	}
}

// tellDoubts tells the planner which nodes are in doubt, where that has changed, and
// says whether it knows all of it.
func (j *job) tellDoubts(ctx context.Context, before, left map[string]terraform.Doubt, never []string) bool {
	names := map[string][]string{}
	for id := range j.worker.doubted {
		names[id] = nil
	}
	for name := range before {
		names[before[name].Purchase] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		names[left[name].Purchase] = append(names[left[name].Purchase], name)
	}
	all := true
	for _, id := range slices.Sorted(maps.Keys(names)) {
		text, told := strings.Join(names[id], ", "), j.worker.doubted[id]
		if id == "" || text == told && text != "" {
			continue
		}
		r := burstapi.Report{Purchase: id, Kind: burstapi.ReportInDoubt, Nodes: names[id]}
		if text != "" {
			r.Message = fmt.Sprintf("an apply that was cut short at %s may have made %s, and Terraform's state does not know it: look for machines with this name and the tag %s = %s",
				left[names[id][0]].Since.UTC().Format(time.RFC3339), text, burstapi.MetaPurchase, id)
		}
		gone := slices.DeleteFunc(slices.Clone(never), func(name string) bool { return before[name].Purchase != id })
		ok := j.report(ctx, r)
		if ok && len(gone) > 0 {
			lived := map[string]float64{}
			for _, name := range gone {
				lived[name] = 0
			}
			ok = j.report(ctx, burstapi.Report{Purchase: id, Kind: burstapi.ReportGone, Nodes: gone, Lived: lived, Message: "an apply that was cut short has not made it"})
		}
		if !ok {
			all = false
			continue
		}
		if j.worker.doubted[id] = text; text == "" {
			delete(j.worker.doubted, id)
		}
	}
	return all
}
