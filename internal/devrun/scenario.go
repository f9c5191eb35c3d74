package devrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/jobspecs"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// The scenarios.
const (
	// ScenarioGang: a gang of two whole nodes starts in one rack.
	ScenarioGang = "gang"
	// ScenarioRace: someone else takes a GPU between the decision and the pins;
	// the gang is rolled back and starts elsewhere.
	ScenarioRace = "race"
	// ScenarioFull: a gang that does not fit waits whole, and starts when it can.
	ScenarioFull = "full"
	// ScenarioResubmit: the same file submitted again changes nothing.
	ScenarioResubmit = "resubmit"
	// ScenarioSingle: one-GPU jobs are gated and packed, and split no pair.
	ScenarioSingle = "single"
	// ScenarioACL: with ACLs on and the shipped policies, a user's gang starts,
	// and a token that lacks a right is told which.
	ScenarioACL = "acl"
	// ScenarioDrain: a member's node is drained; the gang moves whole.
	ScenarioDrain = "drain"
	// ScenarioNodeLoss: a member's node dies; the gang starts elsewhere, whole.
	ScenarioNodeLoss = "node-loss"
	// ScenarioSickGPU: a member's GPU falls ill; the gang moves whole.
	ScenarioSickGPU = "sick-gpu"
	// ScenarioServiceUpdate: a new release of a service's gang replaces the old
	// one whole.
	ScenarioServiceUpdate = "service-update"
	// ScenarioCanary: a new release of replicas is tried with one more, which
	// is promoted; one that fails so is taken back.
	ScenarioCanary = "canary"
	// ScenarioDispatch: gangs dispatched from a parameterized job start whole,
	// or wait whole.
	ScenarioDispatch = "dispatch"
	// ScenarioPreemption: while Nomad's own preemption is on no gang is admitted.
	ScenarioPreemption = "nomad-preemption"
	// ScenarioBarrier: the members of a gang start at the same moment, also when
	// one is late.
	ScenarioBarrier = "barrier"
	// ScenarioPreempt: a gang gives way and goes on later, without losing a step.
	ScenarioPreempt = "preempt"
	// ScenarioPreemptDomain: a gang that needs a rack displaces the cheapest one in
	// it, which goes on later.
	ScenarioPreemptDomain = "preempt-domain"
	// ScenarioDefrag: a gang that runs is moved, so that a job fits for which
	// enough is free, but not on one node.
	ScenarioDefrag = "defrag"
	// ScenarioMIG: an idle GPU is divided for a gang that waits for halves of one.
	ScenarioMIG = "mig"
	// ScenarioShare: on a cluster that is full notebooks start at once on a GPU that
	// they share, and nobody else does.
	ScenarioShare = "share"
	// ScenarioQuota: a team borrows what another leaves idle, which gets its
	// guarantee back before the borrower's next job starts.
	ScenarioQuota = "quota"
	// ScenarioReclaim: what is borrowed gives way as soon as its owner asks, and
	// goes on when he has done.
	ScenarioReclaim = "reclaim"
	// ScenarioBackfill: a gang is told when it starts; what ends before then is
	// placed where it will be, and what does not waits.
	ScenarioBackfill = "backfill"
	// ScenarioElastic: a gang grows and shrinks; its other members run on.
	ScenarioElastic = "elastic"
	// ScenarioGrow: an elastic gang grows into what is idle by itself, and gives it
	// back when a job comes that needs it.
	ScenarioGrow = "grow"
	// ScenarioShort: an elastic gang starts with fewer members than it asks for, and
	// gets the others when there is room.
	ScenarioShort = "start-short"
	// ScenarioGoOn: a member of an elastic gang fails, and then for good; the
	// others run on, and it comes back.
	ScenarioGoOn = "elastic-failure"
	// ScenarioAgentRestart: a Nomad client is killed and comes back; its tasks run
	// on.
	ScenarioAgentRestart = "agent-restart"
	// ScenarioMemberCrash: one member fails; all start again together.
	ScenarioMemberCrash = "member-crash"
	// ScenarioFederation: a gang for which the region has no room where it is
	// submitted is sent to another, and is left alone there while that region is
	// away.
	ScenarioFederation = "federation"
	// ScenarioBurst: nodes are bought for a gang that cannot wait for those that
	// there are, by the real autoscaler and Terraform, and given back.
	ScenarioBurst = "burst"
	// ScenarioPartition: a member's node is cut off from everybody; its code stops
	// before its successor starts.
	ScenarioPartition = "partition"
)

// scenario is what is played, and what the cluster is like for it.
type scenario struct {
	play func(*run, context.Context) error
	// pairs: the GPUs are bridged in pairs, and not joined by switches.
	pairs bool
	// race: somebody is faster between the decision and the pins.
	race bool
	// acl: ACLs are on, with the shipped policies.
	acl bool
	// faults: the GPUs can be made ill.
	faults bool
	// driver: the task driver is needed.
	driver bool
	// configure changes the planner's configuration; nil leaves it.
	configure func(*config.Config)
	// divides: the device plugins divide GPUs as the planner says.
	divides bool
	// federated: there is another Nomad region, with nodes of its own.
	federated bool
	// shares: the last GPU of the last node is shared by sharedBy tasks.
	shares bool
	// networks: nodes have networks of their own, which can be cut.
	networks bool
}

var scenarios = map[string]scenario{
	ScenarioGang:          {play: (*run).playGang},
	ScenarioRace:          {play: (*run).playRace, race: true, configure: racesSoon},
	ScenarioFull:          {play: (*run).playFull},
	ScenarioResubmit:      {play: (*run).playResubmit},
	ScenarioSingle:        {play: (*run).playSingle, pairs: true},
	ScenarioACL:           {play: (*run).playACL, acl: true},
	ScenarioDispatch:      {play: (*run).playDispatch},
	ScenarioDrain:         {play: (*run).playDrain},
	ScenarioNodeLoss:      {play: (*run).playNodeLoss},
	ScenarioSickGPU:       {play: (*run).playSickGPU, faults: true},
	ScenarioServiceUpdate: {play: (*run).playServiceUpdate},
	ScenarioCanary:        {play: (*run).playCanary},
	ScenarioPreemption:    {play: (*run).playPreemption},
	ScenarioBarrier:       {play: (*run).playBarrier, driver: true},
	ScenarioPreempt:       {play: (*run).playPreempt, driver: true},
	ScenarioPreemptDomain: {play: (*run).playPreemptDomain, driver: true, configure: givesWay},
	ScenarioDefrag:        {play: (*run).playDefrag, driver: true, configure: moves},
	ScenarioMIG:           {play: (*run).playMIG, faults: true, divides: true},
	ScenarioShare:         {play: (*run).playShare, shares: true},
	ScenarioQuota:         {play: (*run).playQuota, configure: twoTeams},
	ScenarioReclaim:       {play: (*run).playReclaim, configure: reclaims},
	ScenarioBackfill:      {play: (*run).playBackfill, configure: backfills},
	ScenarioElastic:       {play: (*run).playElastic, driver: true},
	ScenarioGrow:          {play: (*run).playGrow, driver: true, configure: growsSoon},
	ScenarioShort:         {play: (*run).playShort, driver: true},
	ScenarioGoOn:          {play: (*run).playGoOn, driver: true},
	ScenarioAgentRestart:  {play: (*run).playAgentRestart, driver: true},
	ScenarioMemberCrash:   {play: (*run).playMemberCrash, driver: true},
	ScenarioFederation:    {play: (*run).playFederation, driver: true, federated: true, configure: federates},
	ScenarioBurst:         {play: (*run).playBurst, configure: bursts},
	ScenarioPartition:     {play: (*run).playPartition, driver: true, networks: true},
}

// Scenarios lists the scenarios' names, sorted.
func Scenarios() []string { return slices.Sorted(maps.Keys(scenarios)) }

// trainGang is the job of jobspecs/train-gang.hcl: two members, eight GPUs each.
const (
	trainGang        = "train-gang"
	trainGangFile    = "train-gang.hcl"
	trainGangMembers = 2
	singleFile       = "single-gpu.hcl"
)

// long keeps jobs running for as long as any scenario looks at them.
var long = map[string]string{"steps": "3600"}

// edit changes a parsed job before it is submitted.
type edit func(*api.Job)

// named gives the job another ID, so that one file can be submitted several
// times.
func named(id string) edit {
	return func(j *api.Job) { j.ID, j.Name = new(id), new(id) }
}

// submit sends a job file through the gateway, as `nomad job run` would.
func (r *run) submit(file string, edits ...edit) (*api.JobRegisterResponse, error) {
	job, src, err := read(file, edits...)
	if err != nil {
		return nil, err
	}
	name := *job.ID
	r.expect(name, job)
	r.step(name, "submitting jobspecs/"+file)
	resp, _, err := r.planner.nomad.Jobs().RegisterOpts(job, &api.RegisterOptions{
		Submission: &api.JobSubmission{Source: string(src), Format: "hcl2", VariableFlags: long},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("submit %s: %w", name, err)
	}
	if resp.Warnings != "" {
		r.step(name, "answer: "+resp.Warnings)
	}
	return resp, nil
}

// startWhole submits a job of a name, and waits until it runs whole.
func (r *run) startWhole(ctx context.Context, name, file string, edits ...edit) error {
	if _, err := r.submit(file, append(edits, named(name))...); err != nil {
		return err
	}
	return r.waitWhole(ctx, name)
}

// enqueue submits a job of a name, and waits until the planner has decided that it
// waits.
func (r *run) enqueue(ctx context.Context, name, file string, edits ...edit) error {
	if _, err := r.submit(file, append(edits, named(name))...); err != nil {
		return err
	}
	return r.waitDecided(ctx, name)
}

// read parses a job file of jobspecs.
func read(file string, edits ...edit) (job *api.Job, src []byte, err error) {
	if src, err = jobspecs.Files.ReadFile(file); err != nil {
		return nil, nil, fmt.Errorf("read job file: %w", err)
	}
	if job, err = jobhcl.Parse(src, file, long); err != nil {
		return nil, nil, fmt.Errorf("parse job file: %w", err)
	}
	for _, e := range edits {
		e(job)
	}
	return job, src, nil
}

// expect has a job of that name judged at the end.
func (r *run) expect(name string, job *api.Job) {
	if slices.ContainsFunc(r.jobs, func(s *submitted) bool { return s.name == name }) {
		return
	}
	members := 0
	for _, g := range job.TaskGroups {
		if g.Count == nil {
			members++
		} else {
			members += *g.Count
		}
	}
	r.jobs = append(r.jobs, &submitted{name: name, members: members, at: time.Since(r.began)})
}

// waitWhole waits until all members run and the planner has noticed.
func (r *run) waitWhole(ctx context.Context, job string) error {
	members := r.job(job).members
	_, err := r.watch.await(ctx, fmt.Sprintf("all %d members of %s run", members, job), func(t timeline) bool {
		return t.runningMembers(job) == members
	})
	if err != nil {
		return r.because(job, err)
	}
	return poll(ctx, fmt.Sprintf("the planner knows that %s runs", job), func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, job)
		if err == nil && e.State != model.StateRunning {
			err = fmt.Errorf("it is %s", e.State)
		}
		return err == nil, err
	})
}

// because adds to an error what the planner says about the job.
func (r *run) because(job string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e, explainErr := r.planner.api.Explain(ctx, api.DefaultNamespace, job)
	if explainErr != nil {
		return errors.Join(err, explainErr)
	}
	return fmt.Errorf("%w; the planner says: %s: %s", err, e.State, e.Reason)
}

func (r *run) job(name string) *submitted {
	return r.jobs[slices.IndexFunc(r.jobs, func(s *submitted) bool { return s.name == name })]
}

func (r *run) playGang(ctx context.Context) error {
	if err := r.startWhole(ctx, trainGang, trainGangFile); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkOneRack(seen, trainGang, func(node string) string { return racks[r.nodes[node]] }))
	return nil
}

func (r *run) playRace(ctx context.Context) error {
	if err := r.startWhole(ctx, trainGang, trainGangFile); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkRolledBack(seen, trainGang), checkUndisturbed(seen, "intruder"))
	return nil
}

func (r *run) playFull(ctx context.Context) error {
	if err := r.startWhole(ctx, "first-gang", trainGangFile); err != nil {
		return err
	}
	if err := r.enqueue(ctx, "second-gang", trainGangFile); err != nil {
		return err
	}
	if err := r.judgeNow(ctx, "first-gang"); err != nil {
		return err
	}
	if err := r.stopJob("first-gang"); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, "second-gang"); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkWaitedWhole(seen, "second-gang", seen.heldUntil("first-gang")))
	return nil
}

func (r *run) playResubmit(ctx context.Context) error {
	if err := r.playGang(ctx); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	index := seen.index()
	if _, err := r.submit(trainGangFile); err != nil {
		return err
	}
	// A job after it shows that the planner has been through everything that
	// the resubmission may have caused.
	if err := r.startWhole(ctx, "single-gpu", singleFile); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkUnchangedSince(seen, trainGang, index))
	return nil
}

// pair makes a one-GPU job one of two GPUs of one island.
func pair(j *api.Job) {
	j.SetMeta("caravan_topology", "require:island")
	j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(2))
}

// playSingle has four one-GPU jobs and, between them, one of two GPUs: six GPUs
// that fill three pairs if no pair is split.
func (r *run) playSingle(ctx context.Context) error {
	list := []struct {
		id    string
		edits []edit
	}{
		{id: "single-1"}, {id: "single-2"}, {id: "single-3"}, {id: "pair", edits: []edit{pair}}, {id: "single-4"},
	}
	var names []string
	for _, j := range list {
		names = append(names, j.id)
		if err := r.startWhole(ctx, j.id, singleFile, j.edits...); err != nil {
			return err
		}
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkPacked(seen, names, gpusPerNode, r.islands)...)
	return nil
}
