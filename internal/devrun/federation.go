package devrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// The two regions: jobs are submitted in the first.
const (
	homeRegion = "eu"
	awayRegion = "us"
)

// The gangs that the scenario submits. The members of the one that is sent meet at
// the planner's barrier, with identities that the other region's servers signed.
const (
	homeGang = "home-gang"
	farGang  = trainDriver
)

// farNodes are the other region's.
var farNodes = []string{"far-1", "far-2"}

// farRegion is the other region.
type farRegion struct {
	cluster devcluster.Member
	watch   *watcher
	// unwatch ends watch.
	unwatch context.CancelFunc
}

// federates sets the planner up for both regions. GPUs cost less where jobs are
// submitted.
func federates(c *config.Config) {
	const h100 = "NVIDIA H100 80GB HBM3"
	c.Nomad.Region, c.Federation = homeRegion, []string{homeRegion, awayRegion}
	c.Regions = []model.Region{
		{Name: homeRegion, Price: map[string]float64{h100: 2}}, {Name: awayRegion, Price: map[string]float64{h100: 2.5}},
	}
}

// startFar starts the other region, and joins the two.
func (r *run) startFar(ctx, watching context.Context, dir, port string) error {
	c, err := startRegion(ctx, r.opts, r.scenario, dir, port, awayRegion, farNodes)
	if err != nil {
		return err
	}
	far, ok := c.(devcluster.Member)
	home, both := r.cluster.(devcluster.Member)
	if !ok || !both {
		return errors.Join(fmt.Errorf("start region %s: the back end %s has no regions", awayRegion, c.Backend()), c.Stop())
	}
	watching, unwatch := context.WithCancel(watching)
	r.far = &farRegion{cluster: far, unwatch: unwatch}
	if err := home.Federate(ctx, far); err != nil {
		return err
	}
	if err := r.learnNodes(far.Client()); err != nil {
		return err
	}
	r.far.watch, err = watch(watching, far.Client(), r.began, r.saw)
	r.step("cluster", fmt.Sprintf("joined with region %s: %d nodes more at %s", awayRegion, len(farNodes), far.Address()))
	return err
}

func (r *run) playFederation(ctx context.Context) error {
	if err := r.startWhole(ctx, homeGang, trainGangFile); err != nil {
		return err
	}
	if err := os.MkdirAll(r.diaryDir(), 0o755); err != nil {
		return fmt.Errorf("make directory for the diary: %w", err)
	}
	resp, err := r.submit(trainDriverFile, r.driven)
	if err != nil {
		return err
	}
	r.job(farGang).far = true
	if err := r.waitFar(ctx); err != nil {
		return r.because(farGang, err)
	}
	if err := r.judgeFar(ctx, resp.Warnings); err != nil {
		return err
	}
	if err := r.playAway(ctx); err != nil {
		return err
	}
	return r.playBack(ctx)
}

// waitFar waits until the gang that was sent runs whole, and the planner knows.
func (r *run) waitFar(ctx context.Context) error {
	members := r.job(farGang).members
	_, err := r.far.watch.await(ctx, fmt.Sprintf("all %d members of %s run in region %s", members, farGang, awayRegion), func(t timeline) bool {
		return t.runningMembers(farGang) == members
	})
	if err != nil {
		return err
	}
	return poll(ctx, "the planner knows that "+farGang+" runs", func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, farGang)
		return err == nil && e.State == model.StateRunning, err
	})
}

// judgeFar judges the gang that was sent, while its region is watched.
func (r *run) judgeFar(ctx context.Context, answer string) error {
	seen, _, err := r.far.watch.now()
	if err != nil {
		return err
	}
	j := r.job(farGang)
	checks, err := r.judgeMembers(ctx, seen, j)
	if err != nil {
		return err
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, farGang)
	if err != nil {
		return fmt.Errorf("explain %s: %w", farGang, err)
	}
	home, _, err := r.watch.now()
	if err != nil {
		return err
	}
	d, err := r.awaitDiary(ctx, "all members have started", func(d diary) bool { return len(d.with(wordStart)) == trainDriverMembers })
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checks...)
	r.report.Checks = append(r.report.Checks, checkStartTogether(d, trainDriverMembers))
	r.report.Checks = append(r.report.Checks, checkGatedFirst(seen, farGang),
		checkNeverPartial(seen, farGang, j.members, j.members, partialWindow, time.Since(r.began)),
		checkSent(home, e, answer))
	return nil
}

// checkSent: the gang runs in the other region alone, and everybody was told so,
// and why.
func checkSent(home timeline, e httpapi.Explain, answer string) Check {
	var faults []string
	if n := len(home.members(farGang)); n > 0 {
		faults = append(faults, fmt.Sprintf("%d members of it were placed in region %s, too", n, homeRegion))
	}
	if e.Region != awayRegion || e.Home != homeRegion {
		faults = append(faults, fmt.Sprintf("it is said to be in region %q, from %q", e.Region, e.Home))
	}
	if why := "in region us, since eu has no room now"; !strings.Contains(e.Reason, why) {
		faults = append(faults, fmt.Sprintf("the reason is %q and does not say %q", e.Reason, why))
	}
	if !strings.Contains(answer, "admitted in region us") {
		faults = append(faults, fmt.Sprintf("the answer to the submission is %q", answer))
	}
	return result("sent:"+farGang, faults, "it runs in region us alone, and its user was told so, and why")
}

// playAway takes the other region away: the planner goes on here, and the gang is
// stopped where it was submitted, which nobody can do there now.
func (r *run) playAway(ctx context.Context) error {
	r.far.unwatch()
	r.step(awayRegion, "its servers go away")
	if err := r.far.cluster.Isolate(); err != nil {
		return err
	}
	held := ""
	err := poll(ctx, "the planner holds region "+awayRegion, func() (bool, error) {
		st, err := r.planner.api.Status(ctx)
		for _, region := range st.Regions {
			if region.Name == awayRegion {
				held = region.Held
			}
		}
		return held != "", err
	})
	if err != nil {
		return err
	}
	r.step("planner", held)
	if err := r.stopJob(farGang); err != nil {
		return err
	}
	if err := r.startWhole(ctx, "single-gpu", singleFile); err != nil {
		return err
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, farGang)
	var faults []string
	switch {
	case err != nil:
		faults = append(faults, err.Error())
	case e.Region != awayRegion || e.State != model.StateRunning || !strings.Contains(e.Reason, "cannot be seen"):
		faults = append(faults, fmt.Sprintf("%s is said to be %s in region %q: %s", farGang, e.State, e.Region, e.Reason))
	}
	r.report.Checks = append(r.report.Checks, result("held:"+awayRegion, faults,
		"while the region was away its gang was left as it was, and a job was placed in the other"))
	return nil
}

// playBack lets the region come back: what was stopped meanwhile ends there.
func (r *run) playBack(ctx context.Context) error {
	r.step(awayRegion, "its servers come back")
	if err := r.far.cluster.Rejoin(ctx); err != nil {
		return err
	}
	client := r.far.cluster.Client()
	err := poll(ctx, farGang+" has ended in region "+awayRegion, func() (bool, error) {
		job, _, err := client.Jobs().Info(farGang, nil)
		if err != nil || job.Stop == nil || !*job.Stop {
			return false, err
		}
		allocs, _, err := client.Jobs().Allocations(farGang, false, nil)
		for _, a := range allocs {
			if a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending {
				return false, fmt.Errorf("allocation %s is %s", a.Name, a.ClientStatus)
			}
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	err = poll(ctx, farGang+" is remembered nowhere", func() (bool, error) {
		jobs, err := r.planner.api.Jobs(ctx)
		for _, j := range jobs {
			if j.ID == farGang {
				return false, fmt.Errorf("the planner has it in region %s, %s", j.Region, j.State)
			}
		}
		return err == nil, err
	})
	if err == nil {
		r.report.Checks = append(r.report.Checks, result("ended-from-home:"+farGang, nil, "it was stopped where it was submitted while its region was away, and ended when that came back"))
	}
	return err
}
