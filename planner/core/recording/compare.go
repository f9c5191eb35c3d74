package recording

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Difference is a job, or a running gang, about which two plans differ.
type Difference struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// What differs: "action", "members", "reason", "detail", "order" of a decision;
	// "preemption", "resize" of a gang that runs; "repartition" of a GPU, made for the
	// job; "reservation" and "demand" (nodes that are bought and given back), by their
	// names in Job.
	What string `json:"what"`
	Then string `json:"then,omitempty"`
	Now  string `json:"now,omitempty"`
}

// Compare lists what differs between two plans on one snapshot, by the order of
// the first.
func Compare(then, now *model.Plan) []Difference {
	var out []Difference
	after := make(map[model.JobName]*model.Decision, len(now.Decisions))
	for i := range now.Decisions {
		d := &now.Decisions[i]
		after[model.JobName{Namespace: d.Namespace, ID: d.Job}] = d
	}
	for i := range then.Decisions {
		a := &then.Decisions[i]
		name := model.JobName{Namespace: a.Namespace, ID: a.Job}
		b := after[name]
		delete(after, name)
		out = append(out, compareDecision(a, b)...)
		if b != nil && at(now.Decisions, i) != name && a.Action == b.Action && sameJSON(a, b) {
			out = append(out, Difference{Namespace: a.Namespace, Job: a.Job, What: "order"})
		}
	}
	for i := range now.Decisions {
		d := &now.Decisions[i]
		if after[model.JobName{Namespace: d.Namespace, ID: d.Job}] != nil {
			out = append(out, Difference{Namespace: d.Namespace, Job: d.Job, What: "action", Now: string(d.Action)})
		}
	}
	return append(out, compareRest(then, now)...)
}

// at names whom the decision is on that stands there.
func at(list []model.Decision, i int) model.JobName {
	d := &list[min(i, len(list)-1)]
	return model.JobName{Namespace: d.Namespace, ID: d.Job}
}

func compareDecision(a, b *model.Decision) []Difference {
	diff := func(what, then, now string) []Difference {
		return []Difference{{Namespace: a.Namespace, Job: a.Job, What: what, Then: then, Now: now}}
	}
	switch {
	case b == nil:
		return diff("action", string(a.Action), "")
	case a.Action != b.Action:
		return diff("action", string(a.Action), string(b.Action))
	case !sameJSON(a.Members, b.Members):
		return diff("members", text(a.Members), text(b.Members))
	case a.Reason != b.Reason:
		return diff("reason", a.Reason, b.Reason)
	case !sameJSON(a.Detail, b.Detail):
		return diff("detail", text(a.Detail), text(b.Detail))
	}
	return nil
}

// compareRest compares what is not decided on jobs that wait.
func compareRest(then, now *model.Plan) []Difference {
	out := compareParts("preemption", then.Preemptions, now.Preemptions, func(p *model.Preemption) part {
		return part{p.Namespace, p.Job, p.Job, p.Reason}
	})
	out = append(out, compareParts("resize", then.Resizes, now.Resizes, func(r *model.Resize) part {
		return part{r.Namespace, r.Job, r.Job + "/" + r.Group, r.Reason}
	})...)
	out = append(out, compareParts("repartition", then.Repartitions, now.Repartitions, func(r *model.Repartition) part {
		return part{r.For.Namespace, r.For.ID, r.GPU, r.Reason}
	})...)
	out = append(out, compareParts("reservation", then.Reservations, now.Reservations, func(r *model.ReservationUse) part {
		return part{"", r.Name, r.Name, r.State + ": " + r.Reason}
	})...)
	a, b := demandOf(then), demandOf(now)
	out = append(out, compareParts("demand", a.Buy, b.Buy, func(p *model.Purchase) part {
		return part{p.For.Namespace, p.For.ID, p.ID, fmt.Sprintf("buys %d of %s: %s", p.Nodes, p.Pool, p.Why)}
	})...)
	return append(out, compareParts("demand", a.GiveBack, b.GiveBack, func(g *model.GiveBack) part {
		return part{"", g.Name, g.Pool + "/" + g.Name, "gives it back: " + g.Why}
	})...)
}

func demandOf(p *model.Plan) model.Demand {
	if p.Demand == nil {
		return model.Demand{}
	}
	return *p.Demand
}

// part is a part of a plan: whom it is about, what tells it from others, and what
// is said of it.
type part struct{ namespace, job, key, text string }

// compareParts compares lists of parts of plans. Parts with the same key, such as the
// gangs of one job, are compared in their order, so that one more changes no other.
func compareParts[T any](what string, then, now []T, of func(*T) part) []Difference {
	type key struct {
		namespace, key string
		nth            int
	}
	index := func(list []T) ([]key, map[key]*T) {
		keys, at, seen := make([]key, len(list)), make(map[key]*T, len(list)), map[key]int{}
		for i := range list {
			p := of(&list[i])
			k := key{namespace: p.namespace, key: p.key}
			seen[k]++
			keys[i] = key{p.namespace, p.key, seen[k]}
			at[keys[i]] = &list[i]
		}
		return keys, at
	}
	before, a := index(then)
	after, b := index(now)
	var out []Difference
	for _, k := range before {
		p := of(a[k])
		d := Difference{Namespace: p.namespace, Job: p.job, What: what, Then: p.text}
		if x := b[k]; x == nil {
			out = append(out, d)
		} else if !sameJSON(a[k], x) {
			d.Now = of(x).text
			out = append(out, d)
		}
	}
	for _, k := range after {
		if a[k] == nil {
			p := of(b[k])
			out = append(out, Difference{Namespace: p.namespace, Job: p.job, What: what, Now: p.text})
		}
	}
	return out
}

func sameJSON(a, b any) bool { return slices.Equal(encode(a), encode(b)) }

func text(v any) string { return string(encode(v)) }

// encode is a value's JSON; the plan's types always have one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
