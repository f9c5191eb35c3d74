package rewrite_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// ganged is a job whose tasks, some of them, are of Caravan's driver.
func ganged(t *rapid.T) drawn {
	d := draw(t)
	for _, g := range d.job.TaskGroups {
		for _, task := range g.Tasks {
			task.Driver = rapid.SampledFrom([]string{"caravan", "docker"}).Draw(t, "driver")
			switch rapid.IntRange(0, 4).Draw(t, "identities") {
			case 0:
				task.Identities = []*api.WorkloadIdentity{{Name: "caravan", Audience: []string{"caravan", "mine"}, File: true}}
			case 1:
				task.Identities = []*api.WorkloadIdentity{gangspec.MemberIdentity()}
				if rapid.Bool().Draw(t, "for ever") {
					task.Identities[0].TTL = 0
				}
			case 2:
				task.Identities = []*api.WorkloadIdentity{{Name: "vault_default", Audience: []string{"vault.io"}}}
			}
		}
	}
	return d
}

func tasksOf(job *api.Job) map[string]string {
	out := map[string]string{}
	for _, g := range job.TaskGroups {
		tasks, _ := json.Marshal(g.Tasks)
		out[*g.Name] = string(tasks)
	}
	return out
}

func identities(job *api.Job) (with, without int) {
	for _, g := range job.TaskGroups {
		for _, task := range g.Tasks {
			if task.Driver != "caravan" {
				continue
			}
			n := 0
			for _, id := range task.Identities {
				if id.Name == "caravan" {
					n++
				}
			}
			if n == 1 {
				with++
			} else {
				without++
			}
		}
	}
	return with, without
}

// Whoever waits or is placed has the identity, its user sees nothing of it, and
// it restarts nobody: what runs without it, what runs with the one that does not
// expire, and what runs with it after it was released, stays as it is.
func TestIdentitiesRestartNobody(t *testing.T) {
	c := cluster(64)
	rapid.Check(t, func(t *rapid.T) {
		d := ganged(t)
		gated, pinned := must(rewrite.Gate(d.job)), must(rewrite.Pin(d.job, d.members, c))
		for name, job := range map[string]*api.Job{"gated": gated, "pinned": pinned} {
			if _, without := identities(job); without > 0 {
				t.Fatalf("%s: %d tasks lack the identity, or have it twice", name, without)
			}
			own := must(rewrite.Strip(job, d.job))
			if gangspec.Hash(own) != gangspec.Hash(d.job) || gangspec.Hash(own) != gangspec.Hash(must(rewrite.Strip(d.job, nil))) {
				t.Fatalf("%s: the user would see a change", name)
			}
		}
		// From before there were identities.
		old := must(gangspec.Copy(pinned))
		for _, g := range old.TaskGroups {
			for _, task := range g.Tasks {
				task.Identities = slices.DeleteFunc(task.Identities, func(id *api.WorkloadIdentity) bool { return gangspec.IsMemberIdentity(task, id) })
				if len(task.Identities) == 0 {
					task.Identities = nil
				}
			}
		}
		// From when they did not expire.
		forever := must(gangspec.Copy(pinned))
		for _, g := range forever.TaskGroups {
			for _, task := range g.Tasks {
				for _, id := range task.Identities {
					if gangspec.IsMemberIdentity(task, id) {
						id.TTL = 0
					}
				}
			}
		}
		if gangspec.Hash(must(rewrite.Strip(forever, d.job))) != gangspec.Hash(d.job) {
			t.Fatal("the user would see a change where identities do not expire")
		}
		for name, cur := range map[string]*api.Job{"with": pinned, "without": old, "for ever": forever} {
			again := must(rewrite.Repin(cur, d.job, d.members, c))
			if diff := cmp.Diff(tasksOf(cur), tasksOf(must(gangspec.Copy(again)))); diff != "" {
				t.Fatalf("%s: pinned again (-before +after):\n%s", name, diff)
			}
			released, _, err := rewrite.Release(cur, d.job)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tasksOf(cur), tasksOf(released)); diff != "" {
				t.Fatalf("%s: released (-before +after):\n%s", name, diff)
			}
			twice, _, err := rewrite.Release(must(rewrite.GateCurrent(released)), d.job)
			if err != nil {
				t.Fatal(err)
			}
			// Split groups are put together by the second one.
			with, without := identities(cur)
			if w, wo := identities(twice); len(twice.TaskGroups) == len(cur.TaskGroups) && (w != with || wo != without) {
				t.Fatalf("%s: released twice, %d and %d tasks with and without, want %d and %d", name, w, wo, with, without)
			}
		}
	})
}
