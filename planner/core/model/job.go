package model

import "time"

// Job is one managed Nomad job.
type Job struct {
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"id"`
	// Type is Nomad's: "service" or "batch".
	Type  string `json:"type,omitempty"`
	State State  `json:"state"`
	// Hold says why the job must not be decided on (an unreadable meta value,
	// Nomad's own preemption is on, …); empty means that it may. The text
	// tells a person what to do.
	Hold      string    `json:"hold,omitempty"`
	Submitted time.Time `json:"submitted"`
	// RetryAfter is set after a failed admission: not to be admitted before.
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// RetryFor says what is waited for until then ("the fence of node-7"); empty
	// is a failed admission.
	RetryFor string `json:"retry_for,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// PriorityClass is one of the names that its queue gives numbers; then that
	// number is its priority.
	PriorityClass string `json:"priority_class,omitempty"`
	Queue         string `json:"queue,omitempty"`
	// Region, Datacenters and Pool limit the nodes; "" and empty mean any, and
	// a datacenter may be a glob ("dc*"). Pool "all" means any. Region is
	// compared with the nodes' level of that name, where they have one;
	// "global", Nomad's name for the region that nobody named, means any.
	Region      string       `json:"region,omitempty"`
	Datacenters []string     `json:"datacenters,omitempty"`
	Pool        string       `json:"pool,omitempty"`
	Constraints []Constraint `json:"constraints,omitempty"`
	// Gang says what starts together: GangJob, GangGroup or GangNone.
	Gang     Gang     `json:"gang,omitempty"`
	Topology Topology `json:"topology,omitzero"`
	// Regions are those that the job may run in; empty is all. A gang never spans
	// regions.
	Regions []string `json:"regions,omitempty"`
	// Data names the data sets that it reads, as the regions' Data do.
	Data []string `json:"data,omitempty"`
	// Collective is what a member's GPUs do most with each other, by which they are
	// chosen: CollectiveRing or CollectiveAllToAll; "" means CollectiveRing.
	Collective string `json:"collective,omitempty"`
	// Models are the GPU models that its device requests may be served from, with
	// how fast the job runs on each; empty is any, and nothing is known of speeds.
	// A gang runs on one of them throughout unless MixModels is set, since the
	// slowest member sets the pace; where none is named, if one has room for all.
	Models []ModelSpeed `json:"models,omitempty"`
	// MixModels lets members of one gang run on different Models.
	MixModels bool        `json:"mix_models,omitempty"`
	Groups    []TaskGroup `json:"groups"`
	// Members are the placements decided earlier and still in force, for
	// admitted and running jobs.
	Members []Member `json:"members,omitempty"`

	// Duration is how long its author says that it runs, and Estimate how long
	// others like it have run; 0 is unknown.
	Duration time.Duration `json:"duration_ns,omitempty"`
	Estimate time.Duration `json:"estimate_ns,omitempty"`
	// EstimateSpread is how far half of those EstimateRuns runs were off at most.
	EstimateSpread time.Duration `json:"estimate_spread_ns,omitempty"`
	EstimateRuns   int           `json:"estimate_runs,omitempty"`
	Deadline       time.Time     `json:"deadline,omitzero"`
	// Promised is set where an earlier plan has promised the Deadline. Those that were
	// promised theirs before go first when deadlines are promised.
	Promised *Promised `json:"promised,omitempty"`
	// Preempt says what a preemption may cost: PreemptCheckpoint, PreemptAlways
	// or PreemptNever; "" means PreemptCheckpoint.
	Preempt string `json:"preempt,omitempty"`
	// Saves: what it has done outlasts a stop, since its tasks make a checkpoint when
	// they are to end, or its author says that it makes them.
	Saves bool `json:"saves,omitempty"`
	// CheckpointStorage names the storage that its gangs save their checkpoints to;
	// "" is the one that all others share. CheckpointGiB is how large one gang's
	// checkpoint is; 0 is unknown.
	CheckpointStorage string `json:"checkpoint_storage,omitempty"`
	CheckpointGiB     int    `json:"checkpoint_gib,omitempty"`
	// Started is when the members in force were admitted; left out, it is when
	// the job was submitted.
	Started time.Time `json:"started,omitzero"`
	// Backfilled is set on one whose members in force were placed where another
	// job is to start, since they were expected to have ended by then.
	Backfilled *Backfill `json:"backfilled,omitempty"`
	// Preempted is when the job gave way to others, the latest last.
	Preempted []Preempted `json:"preempted,omitempty"`

	// AttainedGPUs is how many GPU-seconds the job has had, and Ran how long it
	// has run, in all of its runs up to Accounted. From then on, or from Started
	// if that is later, what its members in force hold counts.
	AttainedGPUs float64       `json:"attained_gpu_s,omitempty"`
	Ran          time.Duration `json:"ran_ns,omitempty"`
	Accounted    time.Time     `json:"accounted,omitzero"`
	// RanByModel is what of Ran it was on which GPU model, as far as that was noted.
	RanByModel map[string]time.Duration `json:"ran_by_model_ns,omitempty"`
	// Resized is when Caravan gave gangs of the job another size, the latest last.
	Resized []time.Time `json:"resized,omitempty"`
	// KeepSize says why the job's gangs keep their size for now ("it is being
	// updated"); empty means that they may be resized.
	KeepSize string `json:"keep_size,omitempty"`
	// ResizeRestarts is set where all members start anew when their gang gets
	// another size, rather than being told of it.
	ResizeRestarts bool `json:"resize_restarts,omitempty"`
	// Replace is about gangs of the job that were stopped because of the nodes of
	// some of their members; left out, there are none.
	Replace *Replacement `json:"replace,omitempty"`
	// Speed is what is known of how fast the job works by its size; left out,
	// nothing is.
	Speed *Speed `json:"speed,omitempty"`
	// Usage is what is known of how much the job uses of a shared GPU; left out,
	// nothing is, and each of its slices counts as an equal part.
	Usage *Usage `json:"usage,omitempty"`
	// ForgottenGPUs and ForgottenRan are what of AttainedGPUs and Ran an order by
	// past service does not hold against it any more.
	ForgottenGPUs float64       `json:"forgotten_gpu_s,omitempty"`
	ForgottenRan  time.Duration `json:"forgotten_ran_ns,omitempty"`
	// Move is "" or MoveNever: whether the job's gangs may be moved so that others
	// fit.
	Move string `json:"move,omitempty"`
	// Moving are the places that are kept for gangs of the job that were stopped
	// to start again there.
	Moving []Moving `json:"moving,omitempty"`

	// Burst is one of the Burst constants; "" is as its queue says, or the policy.
	// MixSites: its gangs may be on bought nodes and others at once.
	Burst    string `json:"burst,omitempty"`
	MixSites bool   `json:"mix_sites,omitempty"`
	// Budget is the most money that nodes bought for it may cost; 0 is no limit.
	Budget float64 `json:"budget,omitempty"`
	// Checkpoint is how often it makes one; 0 is unknown.
	Checkpoint time.Duration `json:"checkpoint_ns,omitempty"`
	// OutputGB is how much it brings home from where it runs.
	OutputGB float64 `json:"output_gb,omitempty"`
}

// What the GPUs of a member do most with each other.
const (
	// CollectiveRing: each sends to the next one, as in a ring all-reduce.
	CollectiveRing = "ring"
	// CollectiveAllToAll: each sends to each other one at once, as in expert
	// parallelism.
	CollectiveAllToAll = "alltoall"
)

// ModelSpeed is a GPU model that a job accepts.
type ModelSpeed struct {
	// Name is a GPU's Model: "NVIDIA H100 80GB HBM3".
	Name string `json:"name"`
	// Speed is how much the job gets done per GPU and time, by the same measure
	// for all Models of one job: above 0, and 1 on the model that it is told in.
	Speed float64 `json:"speed"`
}

// MaxModels bounds the Models of one job.
const MaxModels = 32

// What a preemption may cost.
const (
	// PreemptCheckpoint: the work since the last checkpoint is lost, all of it
	// where none is known.
	PreemptCheckpoint = "checkpoint"
	// PreemptAlways: no work is lost by a stop.
	PreemptAlways = "always"
	// PreemptNever: the job gives way to nobody.
	PreemptNever = "never"
)

// SavesWork reports whether what a job has done outlasts a stop as far as is known: it
// is said to, or how often it makes a checkpoint, or one of its members in force has told
// of one.
func (j *Job) SavesWork() bool {
	if j.Saves || j.Checkpoint > 0 || j.Preempt == PreemptAlways {
		return true
	}
	for i := range j.Members {
		if j.Members[i].SinceCheckpoint != nil {
			return true
		}
	}
	return false
}

// Preempted is one time that a job gave way.
type Preempted struct {
	At time.Time `json:"at"`
	// Namespace and By name the job that it gave way to.
	Namespace string `json:"namespace,omitempty"`
	By        string `json:"by"`
	// ByGroup is the group of that job that it gave way to, "" where that is one gang
	// or it is not known.
	ByGroup string `json:"by_group,omitempty"`
	// Group is the gang that it was where groups are gangs; Group and Index name
	// the member where members start one by one.
	Group string `json:"group,omitempty"`
	Index int    `json:"index,omitempty"`
	// Returned: it only gave back members beyond its count, which it had for as
	// long as nobody else needed them. That counts for no limit.
	Returned bool `json:"returned,omitempty"`
	// Moved: it was to start again elsewhere at once.
	Moved bool `json:"moved,omitempty"`
}

// State is where a job is in its life.
type State string

const (
	// StateQueued: gated, waiting for a decision.
	StateQueued State = "queued"
	// StateAdmitted: a placement is decided and being carried out.
	StateAdmitted State = "admitted"
	// StateRunning: every member is placed. A job with Gang group or none may
	// be running and still have members to place.
	StateRunning State = "running"
	// StateStopping: being stopped; holds what its allocations hold.
	StateStopping State = "stopping"
)

// Gang says which members must start together.
type Gang string

const (
	GangJob   Gang = "job"   // all groups together
	GangGroup Gang = "group" // each group by itself
	GangNone  Gang = "none"  // each member by itself
)

// Topology is how close a gang's members must be.
type Topology struct {
	// Mode is TopologyRequire or TopologyPrefer; "" means prefer.
	Mode string `json:"mode,omitempty"`
	// Level is a level's name. For prefer, "" means the tightest that fits.
	Level string `json:"level,omitempty"`
}

const (
	TopologyRequire = "require"
	TopologyPrefer  = "prefer"
)

// TaskGroup is one group of equal members.
type TaskGroup struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	// Slice says that the members come in slices that have to be near.
	Slice       Slice        `json:"slice,omitzero"`
	Min         int          `json:"min,omitempty"`
	Max         int          `json:"max,omitempty"`
	Constraints []Constraint `json:"constraints,omitempty"`
	// Resources is what one member asks for, all its tasks together.
	Resources Resources `json:"resources"`
	// Ports are static host ports: two members with one port share no node.
	Ports []int `json:"ports,omitempty"`
	// Devices are the device requests of one member, each of one task.
	Devices []DeviceAsk `json:"devices,omitempty"`
}

// Slice says that every Size members of a group, by rank, have to be in one
// domain of a level, while the group may be in several: data parallelism between
// NVLink domains, tensor parallelism inside.
type Slice struct {
	// Size divides the group's count; 0 means that there are no slices.
	Size int `json:"size"`
	// Level is a level's name, the node's or one above it.
	Level string `json:"level"`
}

// DeviceAsk is one device block of a task.
type DeviceAsk struct {
	Task string `json:"task,omitempty"`
	// Name is Nomad's: "gpu", "nvidia/gpu" or "nvidia/gpu/MODEL".
	Name        string       `json:"name"`
	Count       int          `json:"count"`
	Constraints []Constraint `json:"constraints,omitempty"`
	// Shared says whether a time slice of a shared GPU may serve it: SharedAllow,
	// SharedOnly, or "", not. A request for several is never served by slices.
	Shared string `json:"shared,omitempty"`
}

// Constraint is Nomad's: Left and Right may hold "${…}" interpolations.
// Operand is one of = == is != not > >= < <= version semver regexp
// set_contains set_contains_all set_contains_any distinct_hosts
// distinct_property is_set is_not_set.
type Constraint struct {
	Left    string `json:"left,omitempty"`
	Operand string `json:"operand"`
	Right   string `json:"right,omitempty"`
}
