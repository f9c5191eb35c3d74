package core

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// TestPromisesCountPools: a deadline is promised only of GPUs of a model that the job
// takes, at its speed there, and within what its queue and its user may use. Jobs of
// one letter run and keep what they have.
func TestPromisesCountPools(t *testing.T) {
	models := func(list ...model.ModelSpeed) func(*model.Job) {
		return func(j *model.Job) { j.Models = list }
	}
	in := func(path string) func(*model.Job) { return func(j *model.Job) { j.Queue = path } }
	limited := []model.Queue{{Path: "a", Guarantee: map[string]int{"gpu": 2}, Borrow: map[string]int{"gpu": 1}, PerUser: map[string]int{"gpu": 2}}, {Path: "b"}}
	tests := map[string]struct {
		cluster, running, jobs string
		queues                 []model.Queue
		// set changes jobs by their names.
		set  map[string]func(*model.Job)
		want map[string]string
	}{
		"of another model there are enough": {
			cluster: "b1 r1 n1 .... H\nb1 r1 n2 .... A", jobs: "M 1x4 runs:1h\nN 1x4 runs:1h",
			set:  map[string]func(*model.Job){"M": models(model.ModelSpeed{Name: "H", Speed: 1}), "N": models(model.ModelSpeed{Name: "H", Speed: 1})},
			want: map[string]string{"M": "it can meet", "N": "it cannot meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: beside those that were promised theirs before it ends in 2h12m0s at the earliest"},
		},
		"the model by the device's name": {
			cluster: "b1 r1 n1 .... H\nb1 r1 n2 .... A", jobs: "M 1x4 runs:1h\nN 1x4 runs:1h",
			set: map[string]func(*model.Job){
				"M": func(j *model.Job) { j.Groups[0].Devices[0].Name = "nvidia/gpu/H" }, "N": func(j *model.Job) { j.Groups[0].Devices[0].Name = "nvidia/gpu/H" }},
			want: map[string]string{"M": "it can meet", "N": "counted among the 4 GPUs that it may have"},
		},
		"each has its own model": {
			cluster: "b1 r1 n1 .... H\nb1 r1 n2 .... A", jobs: "M 1x4 runs:1h\nN 1x4 runs:1h",
			set:  map[string]func(*model.Job){"M": models(model.ModelSpeed{Name: "H", Speed: 1}), "N": models(model.ModelSpeed{Name: "A", Speed: 1})},
			want: map[string]string{"M": "it can meet", "N": "it can meet"},
		},
		"too slow there": {
			cluster: "b1 r1 n1 .... H\nb1 r1 n2 .... A", jobs: "M 1x4 runs:1h",
			set:  map[string]func(*model.Job){"M": models(model.ModelSpeed{Name: "A", Speed: 0.5})},
			want: map[string]string{"M": "it cannot meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: it takes up to 2h12m0s even alone"},
		},
		"fast enough on one of two": {
			cluster: "b1 r1 n1 .... H\nb1 r1 n2 .... A", jobs: "M 1x4 runs:3h",
			set:  map[string]func(*model.Job){"M": models(model.ModelSpeed{Name: "A", Speed: 1}, model.ModelSpeed{Name: "H", Speed: 2})},
			want: map[string]string{"M": "it can meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: it takes up to 1h39m0s"},
		},
		"more than its queue may ever use": {
			cluster: "b1 r1 n1 ........", jobs: "M 1x4 runs:1h", queues: []model.Queue{{Path: "a", Guarantee: map[string]int{"gpu": 2}, Borrow: map[string]int{"gpu": 1}}},
			set:  map[string]func(*model.Job){"M": in("a")},
			want: map[string]string{"M": "as far as is known its 4 GPUs do not become free; fewer GPUs would help; counted among the 3 GPUs that queue a may use"},
		},
		"its queue has the rest in use": {
			cluster: "b1 r1 n1 aa......", running: "a 50 1m runs:5h", jobs: "M 1x2 runs:1h", queues: limited,
			set:  map[string]func(*model.Job){"a": in("a/x"), "M": in("a/y")},
			want: map[string]string{"M": "it cannot meet"},
		},
		"its user has": {
			cluster: "b1 r1 n1 a.......", running: "a 50 1m runs:5h", jobs: "M 1x2 runs:1h\nN 1x2 runs:1h", queues: limited,
			set:  map[string]func(*model.Job){"a": in("a/x"), "M": in("a/x"), "N": in("a/y")},
			want: map[string]string{"M": "it cannot meet", "N": "it can meet"},
		},
		"within it": {
			cluster: "b1 r1 n1 a.......", running: "a 50 1m runs:5h", jobs: "M 1x2 runs:1h", queues: limited,
			set:  map[string]func(*model.Job){"a": in("b"), "M": in("a")},
			want: map[string]string{"M": "it can meet"},
		},
		"what never gives way is within the guarantee": {
			cluster: "b1 r1 n1 ........", jobs: "M 1x3 runs:1h\nN 1x2 runs:1h", queues: []model.Queue{{Path: "a", Guarantee: map[string]int{"gpu": 2}}},
			set:  map[string]func(*model.Job){"M": func(j *model.Job) { j.Queue, j.Preempt = "a", model.PreemptNever }, "N": func(j *model.Job) { j.Queue, j.Preempt = "a", model.PreemptNever }},
			want: map[string]string{"M": "counted among the 2 GPUs guaranteed to queue a, for jobs that are never preempted", "N": "it can meet"},
		},
	}
	for name, tt := range tests {
		for _, order := range []string{queue.OrderDeadline, queue.OrderCaravan} {
			t.Run(name+", "+order, func(t *testing.T) {
				s := drawWithModels(t, tt.cluster)
				describe(t, s, tt.running)
				submit(t, s, tt.jobs)
				s.Queues = tt.queues
				for i := range s.Jobs {
					j := &s.Jobs[i]
					if j.State == model.StateQueued {
						j.Submitted, j.Deadline = s.Now, s.Now.Add(2*time.Hour)
					}
					if set := tt.set[j.ID]; set != nil {
						set(j)
					}
				}
				checkStandings(t, s, order, tt.want)
			})
		}
	}
}

// drawWithModels draws a cluster in which a line may end in the model of its node's GPUs.
func drawWithModels(t *testing.T, cluster string) *model.Snapshot {
	t.Helper()
	var lines, models []string
	for line := range strings.SplitSeq(cluster, "\n") {
		words := strings.Fields(line)
		name := "H100"
		if len(words) == 5 {
			name, words = words[4], words[:4]
		}
		lines, models = append(lines, strings.Join(words, " ")), append(models, name)
	}
	s := draw(t, strings.Join(lines, "\n"))
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			s.Nodes[i].GPUs[k].Model = models[i]
		}
	}
	return s
}
