package devrun

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// The job of jobspecs/train-driver.hcl: two members with eight GPUs each, run by
// the task driver "caravan".
const (
	trainDriver        = "train-driver"
	trainDriverFile    = "train-driver.hcl"
	trainDriverMembers = 2
)

// startTogether is how far apart the members of a gang may start: milliseconds,
// and more on a machine that has much else to do.
const startTogether = 30 * time.Second

// fenceAfter is how long a member may run on cut off.
const fenceAfter = 10 * time.Second

//go:embed trainer.sh
var trainer string

// diaryDir is where the members write down what they do.
func (r *run) diaryDir() string { return filepath.Join(r.dir, "diary") }

// driven makes the job run the scenarios' trainer.
func (r *run) driven(j *api.Job) {
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			if t.Driver != "caravan" {
				continue
			}
			if t.Env == nil {
				t.Env = map[string]string{}
			}
			t.Env["DIARY"] = r.diaryDir()
			t.KillTimeout = new(20 * time.Second)
			t.Config["command"], t.Config["args"] = "/bin/sh", []string{"-c", trainer}
			t.Config["resize_signal"], t.Config["fence_after"] = "SIGUSR2", fenceAfter.String()
			t.Config["checkpoint"] = []map[string]any{{
				"signal": "SIGUSR1", "grace": "10s", "paths": []string{r.diaryDir() + "/checkpoints-${NOMAD_ALLOC_INDEX}/*"},
			}}
		}
		if g.RestartPolicy != nil {
			g.RestartPolicy.Delay = new(time.Second)
		}
	}
}

// late keeps each member from its task for a while that depends on its index.
func late(j *api.Job) {
	for _, g := range j.TaskGroups {
		wait := api.NewTask("fetch-data", "raw_exec").SetConfig("command", "/bin/sh").
			SetConfig("args", []string{"-c", "sleep $((NOMAD_ALLOC_INDEX * 3))"}).
			Require(&api.Resources{CPU: new(20), MemoryMB: new(16)})
		wait.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart}
		g.Tasks = append([]*api.Task{wait}, g.Tasks...)
	}
}

// elastic lets the gang have one to three members.
func elastic(members int) edit {
	return func(j *api.Job) {
		for _, g := range j.TaskGroups {
			g.Count = &members
			g.Meta = map[string]string{"caravan_min": "1", "caravan_max": "3"}
		}
	}
}

// startDriven submits the gang and waits until its members' code runs.
func (r *run) startDriven(ctx context.Context, edits ...edit) (diary, error) {
	if err := os.MkdirAll(r.diaryDir(), 0o755); err != nil {
		return nil, fmt.Errorf("make directory for the diary: %w", err)
	}
	if _, err := r.submit(trainDriverFile, append([]edit{r.driven}, edits...)...); err != nil {
		return nil, err
	}
	d, err := r.awaitDiary(ctx, "all members have started", func(d diary) bool { return len(d.with(wordStart)) >= trainDriverMembers })
	return d.firstStarts(trainDriverMembers), err
}

// firstStarts is the diary up to the start of so many members: an elastic gang may
// have grown before anybody looks.
func (d diary) firstStarts(members int) diary {
	for i, e := range d {
		if e.word == wordStart {
			members--
		}
		if members == 0 {
			return d[:i+1]
		}
	}
	return d
}

// awaitDiary waits until the diary is as it should be.
func (r *run) awaitDiary(ctx context.Context, what string, condition func(diary) bool) (diary, error) {
	var d diary
	err := poll(ctx, what, func() (bool, error) {
		var err error
		if d, err = readDiary(r.diaryDir()); err != nil {
			return false, err
		}
		if !condition(d) {
			return false, fmt.Errorf("the members have written: %s", d)
		}
		return true, nil
	})
	if err != nil {
		return nil, r.because(trainDriver, err)
	}
	return d, nil
}

// String lists what was written but for the ticks.
func (d diary) String() string {
	var lines []string
	for _, e := range d {
		if e.word != wordTick {
			lines = append(lines, fmt.Sprintf("%s %s %v", e.alloc[:min(8, len(e.alloc))], e.word, e.values))
		}
	}
	return strings.Join(lines, "; ")
}

// playBarrier starts a gang one of whose members is late.
func (r *run) playBarrier(ctx context.Context) error {
	d, err := r.startDriven(ctx, late)
	if err != nil {
		return err
	}
	r.step(trainDriver, fmt.Sprintf("started within %v", round(d.launches()[0].spread())))
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	var waited, told []string
	for _, a := range seen.members(trainDriver) {
		events, err := r.events(ctx, a.id)
		if err != nil {
			return err
		}
		told = append(told, events...)
		for _, e := range events {
			if strings.Contains(e, "waiting for gang: 1 of 2 joined") {
				waited = append(waited, e)
			}
		}
	}
	var faults []string
	if len(waited) == 0 {
		faults = append(faults, "no member's events say that it waited for the other: "+strings.Join(told, "; "))
	}
	r.report.Checks = append(r.report.Checks, checkStartTogether(d, trainDriverMembers), result("waiting-shown:"+trainDriver, faults, strings.Join(waited, "; ")))
	return nil
}

// events are the messages of an allocation's task.
func (r *run) events(ctx context.Context, alloc string) ([]string, error) {
	a, _, err := r.cluster.Client().Allocations().Info(alloc, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("read allocation: %w", err)
	}
	var out []string
	if state := a.TaskStates["train"]; state != nil {
		for _, e := range state.Events {
			out = append(out, e.DisplayMessage)
		}
	}
	return out, nil
}

// playPreempt takes the GPUs from a gang, which starts again later.
func (r *run) playPreempt(ctx context.Context) error {
	if _, err := r.startDriven(ctx); err != nil {
		return err
	}
	if _, err := r.awaitDiary(ctx, "they have worked a little", func(d diary) bool { return len(d.with(wordTick)) >= 20 }); err != nil {
		return err
	}
	r.step(trainDriver, "giving way")
	if _, err := r.planner.api.Steer(ctx, httpapi.VerbRequeue, httpapi.SteerRequest{Namespace: api.DefaultNamespace, Job: trainDriver, Reason: "the scenario says so"}); err != nil {
		return fmt.Errorf("requeue %s: %w", trainDriver, err)
	}
	d, err := r.awaitDiary(ctx, "all members have started again", func(d diary) bool { return len(d.with(wordStart)) == 2*trainDriverMembers })
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkStartTogether(d, trainDriverMembers), checkNothingLost(d))
	return r.waitWhole(ctx, trainDriver)
}

// playElastic makes a gang larger and smaller while it runs.
func (r *run) playElastic(ctx context.Context) error {
	d, err := r.startDriven(ctx, elastic(trainDriverMembers))
	if err != nil {
		return err
	}
	old := d.with(wordStart)
	r.job(trainDriver).most = trainDriverMembers + 1
	for _, size := range []int{3, trainDriverMembers} {
		r.step(trainDriver, fmt.Sprintf("to have %d members", size))
		if _, _, err := r.planner.nomad.Jobs().Scale(trainDriver, "trainer", &size, "the scenario says so", false, nil, nil); err != nil {
			return fmt.Errorf("scale %s to %d: %w", trainDriver, size, err)
		}
		d, err = r.awaitDiary(ctx, fmt.Sprintf("the first members know that they are %d", size), func(d diary) bool {
			for _, s := range old {
				if told := d.of(s.alloc).with(wordResized); len(told) == 0 || told[len(told)-1].number("world") != size {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		if size > trainDriverMembers && len(d.with(wordStart)) != size {
			if d, err = r.awaitDiary(ctx, "the new member has started", func(d diary) bool { return len(d.with(wordStart)) == size }); err != nil {
				return err
			}
		}
	}
	last, err := r.awaitDiary(ctx, "the first members go on", func(later diary) bool { return len(later) > len(d)+2*trainDriverMembers })
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkSurvived(last, old))
	return nil
}

// playAgentRestart kills the client of a member and starts it again.
func (r *run) playAgentRestart(ctx context.Context) error {
	d, err := r.startDriven(ctx)
	if err != nil {
		return err
	}
	old := d.with(wordStart)
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	name := r.nodes[seen.members(trainDriver)[0].node]
	r.step(name, "killing its client")
	if err := r.cluster.StopNode(name); err != nil {
		return err
	}
	if _, err := r.awaitDiary(ctx, "the members go on without it", func(later diary) bool {
		return !slices.ContainsFunc(old, func(s entry) bool { return len(later.of(s.alloc)) < len(d.of(s.alloc))+5 })
	}); err != nil {
		return err
	}
	r.step(name, "starting its client again")
	if err := r.cluster.StartNode(name); err != nil {
		return err
	}
	if err := r.cluster.WaitReady(ctx); err != nil {
		return err
	}
	// What the members did meanwhile is not lost: their ends and exit codes.
	if err := os.WriteFile(filepath.Join(r.diaryDir(), "finish"), nil, 0o644); err != nil {
		return fmt.Errorf("end the training: %w", err)
	}
	if _, err := r.watch.await(ctx, "all members are complete", func(t timeline) bool {
		done := 0
		for _, a := range t.last(trainDriver) {
			if a.completed() {
				done++
			}
		}
		return done == trainDriverMembers
	}); err != nil {
		return r.because(trainDriver, err)
	}
	last, err := readDiary(r.diaryDir())
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkSurvived(last, old))
	return nil
}

// playMemberCrash lets one member's code fail.
func (r *run) playMemberCrash(ctx context.Context) error {
	d, err := r.startDriven(ctx)
	if err != nil {
		return err
	}
	r.step(trainDriver, "rank 1 fails")
	if err := os.WriteFile(filepath.Join(r.diaryDir(), "crash-1"), nil, 0o644); err != nil {
		return fmt.Errorf("make a member fail: %w", err)
	}
	d, err = r.awaitDiary(ctx, "all members have started again", func(d diary) bool { return len(d.with(wordStart)) == 2*trainDriverMembers })
	if err != nil {
		return err
	}
	first := d.with(wordStart)
	survivor := first[slices.IndexFunc(first, func(e entry) bool { return e.values["rank"] == "0" })].alloc
	events, err := r.events(ctx, survivor)
	if err != nil {
		return err
	}
	var faults []string
	if !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "rank 1") && strings.Contains(e, "7") }) {
		faults = append(faults, "the other member was not told who failed and how: "+strings.Join(events, "; "))
	}
	r.report.Checks = append(r.report.Checks, checkStartTogether(d, trainDriverMembers), checkSameAllocs(d), result("failure-told:"+trainDriver, faults, "the other member's events name rank 1 and its exit code 7"))
	return nil
}

// fenceSlack is how much later than fenceAfter a member's code may end: the
// agent is asked every few seconds, and answers slowly while it is cut off.
const fenceSlack = 50 * time.Second

// playPartition cuts a member's node off, and joins it again when the gang runs
// elsewhere.
func (r *run) playPartition(ctx context.Context) error {
	d, err := r.startDriven(ctx)
	if err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	victim := seen.members(trainDriver)[0]
	name := r.nodes[victim.node]
	r.step(name, "cutting it off from the servers and the planner")
	cut := time.Now()
	if err := r.cluster.Cut(name); err != nil {
		return err
	}
	d, err = r.awaitDiary(ctx, "the gang has started elsewhere", func(d diary) bool { return len(d.with(wordStart)) == 2*trainDriverMembers })
	if err != nil {
		return err
	}
	r.step(name, "joining it again")
	if err := r.cluster.Heal(name); err != nil {
		return err
	}
	if err := r.cluster.WaitReady(ctx); err != nil {
		return err
	}
	if d, err = r.awaitDiary(ctx, "the gang goes on", func(later diary) bool { return len(later) > len(d)+40 }); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkFenced(d, victim.id, cut), checkNeverTwice(d), checkStartTogether(d, trainDriverMembers))
	return nil
}
