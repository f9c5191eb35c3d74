package apply_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// trial is a version of a service that is tried with canaries, and says where
// it believes to be.
func (r *real) trial(id, gang string, count, gpus, canary int, v string) *api.Job {
	out := filepath.Join(r.dir(), "$VERSION-$NOMAD_ALLOC_ID")
	j := version(id, gang, count, gpus, v, "echo \"$NOMAD_GROUP_NAME $NOMAD_ALLOC_NAME $NOMAD_ALLOC_INDEX\" > "+out+"; exec sleep 600")
	j.Update.Canary = &canary
	j.TaskGroups[0].Services = []*api.Service{{Name: id, Provider: "nomad", Tags: []string{"live"}, CanaryTags: []string{"trial"}}}
	return j
}

// dir is where the members write.
func (r *real) dir() string { return filepath.Dir(r.plugin) }

// ids are the members' allocations, by index.
func ids(states []observe.MemberState) (out []string) {
	for _, s := range states {
		if s.Alloc != nil {
			out = append(out, s.Alloc.ID)
		}
	}
	return out
}

// trying holds when the canaries of a job are healthy, and checks at each look
// that the members are the ones of before.
func (r *real) trying(job string, before []string) func(*observe.View) bool {
	return func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		if !ok || m.Record == nil {
			return false
		}
		if got := ids(m.Members); !slices.Equal(got, before) {
			r.t.Errorf("members %v, were %v", got, before)
		}
		for _, s := range m.Members {
			if s.State != observe.AllocPlaced {
				r.t.Errorf("member %d is %s while there are canaries", s.Member.Index, s.State)
			}
		}
		ro := m.Record.Rollout
		return ro != nil && ro.Canary != nil && ro.Canary.Healthy
	}
}

// promote does what a person does by way of the gateway.
func (r *real) promote(job string) {
	r.t.Helper()
	rec, err := r.store.Get(r.t.Context(), "default", job)
	if err != nil {
		r.t.Fatal(err)
	}
	rec.Rollout.Canary.Promote = "a person"
	if err := r.store.Put(r.t.Context(), rec); err != nil {
		r.t.Fatal(err)
	}
}

// tagged waits until a job's services have these tags. The stand-in registers
// no services.
func (r *real) tagged(job string, want ...string) {
	r.t.Helper()
	var got []string
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		list, _, err := r.client.Services().Get(job, nil)
		var refused api.UnexpectedResponseError
		if errors.As(err, &refused) && refused.StatusCode() == http.StatusNotFound {
			return
		}
		if err != nil {
			r.t.Fatal(err)
		}
		got = nil
		for _, s := range list {
			got = append(got, s.Tags...)
		}
		if slices.Sort(got); slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Errorf("the services have the tags %v, want %v", got, want)
			return
		}
	}
}

func (r *real) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within 90 s: %s", what)
		}
	}
}

func (r *real) canaryReplica() {
	r.register(gatedFile(r.trial("trial", "none", 3, 4, 1, "1")))
	before := r.whole(r.until("running", r.running("trial", 3)), "trial", 3)
	r.update(r.trial("trial", "none", 3, 4, 1, "2"))
	v := r.until("the canary is healthy", r.trying("trial", ids(before.Members)))
	m, _ := v.Job("default", "trial")
	canary := m.Canaries[0]
	r.tagged("trial", "live", "live", "live", "trial")
	r.promote("trial")
	after := r.whole(r.rolled("trial", 3, 1, "the update is through"), "trial", 3)
	r.runs(after, "2")
	if after.Members[0].Alloc.ID != canary.Alloc.ID || after.Members[0].Member.Slot == 0 {
		r.t.Errorf("member 0 is %s, and the canary was %s", after.Members[0].Alloc.ID, canary.Alloc.ID)
	}
	for i := 1; i < 3; i++ {
		if after.Members[i].Member.Node != before.Members[i].Member.Node {
			r.t.Errorf("member %d moved", i)
		}
	}
	r.tagged("trial", "live", "live", "live")
	all, _, err := r.client.Jobs().Allocations("trial", true, nil)
	if err != nil || len(all) != 6 {
		r.t.Errorf("%d allocations, %v; want 6", len(all), err)
	}
	r.believes(canary.Alloc.ID, "2", "w trial.w[0] 0")
	r.purge("trial")
}

// believes checks what a member's task was told of its place.
func (r *real) believes(alloc, version, want string) {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.dir(), version+"-"+alloc))
	if err != nil {
		r.t.Error(err)
		return
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || string(bytes.TrimSpace(got)) != want {
		r.t.Errorf("allocation %s is told %q, %v; want %q", alloc, got, err, want)
	}
}

// canaryGang tries a gang beside the gang: with the group's own form, and with
// task groups of one member.
func (r *real) canaryGang(members, gpus int) {
	two := func(v string) *api.Job {
		j := r.trial("pair", "job", members, gpus, 1, v)
		j.Update.AutoPromote = ptr(true)
		return j
	}
	r.register(gatedFile(two("1")))
	before := r.whole(r.until("running", r.running("pair", members)), "pair", members)
	r.update(two("2"))
	var beside []string
	v := r.until("the update is through", func(v *observe.View) bool {
		m, ok := v.Job("default", "pair")
		if !ok || m.Record == nil {
			return false
		}
		if now := ids(m.Canaries); len(now) > 0 {
			beside = now
		}
		return m.Record.Rollout == nil && strings.Contains(m.Record.Reason, "the update is through") && r.running("pair", members)(v)
	})
	after := r.whole(v, "pair", members)
	if got := ids(after.Members); !slices.Equal(got, beside) || slices.Equal(got, ids(before.Members)) {
		r.t.Errorf("the gang is %v, the canaries were %v, the members before %v", got, beside, ids(before.Members))
	}
	// The members know their place though Nomad calls their group otherwise.
	for i, s := range after.Members {
		r.believes(s.Alloc.ID, "2", fmt.Sprintf("w pair.w[%d] %[1]d", i))
	}
	r.purge("pair")
}

func (r *real) canaryFails() {
	r.register(gatedFile(version("doubt", "none", 2, 4, "1", "sleep 600")))
	before := r.whole(r.until("running", r.running("doubt", 2)), "doubt", 2)
	bad := version("doubt", "none", 2, 4, "2", "exit 4")
	bad.Update.Canary, bad.Update.AutoRevert = ptr(1), ptr(true)
	r.update(bad)
	after := r.whole(r.rolled("doubt", 2, 0, "taken back"), "doubt", 2)
	if !slices.Equal(ids(before.Members), ids(after.Members)) || after.Record.SpecHash != before.Record.SpecHash {
		r.t.Errorf("members %v, were %v", ids(after.Members), ids(before.Members))
	}
	r.told("doubt", "the update has failed before its canaries were promoted")
	r.await("nothing of the canary is left", func() bool {
		list, _, err := r.client.Jobs().Allocations("doubt", false, nil)
		return err == nil && !slices.ContainsFunc(list, func(a *api.AllocationListStub) bool {
			return !slices.Contains(ids(before.Members), a.ID) && a.DesiredStatus == "run" && (a.ClientStatus == "running" || a.ClientStatus == "pending")
		})
	})
	// The same again is tried again: it is in another slot.
	good := version("doubt", "none", 2, 4, "3", "sleep 601")
	good.Update.Canary, good.Update.AutoPromote = ptr(1), ptr(true)
	r.update(good)
	r.runs(r.whole(r.rolled("doubt", 2, 1, "the update is through"), "doubt", 2), "3")
	rec, err := r.store.Get(r.t.Context(), "default", "doubt")
	if err != nil || rec.Phase != record.PhaseRunning {
		r.t.Errorf("record %+v, %v", rec, err)
	}
	r.purge("doubt")
}
