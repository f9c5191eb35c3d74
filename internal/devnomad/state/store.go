// Package state is the stand-in's state store: jobs, nodes, allocations,
// evaluations, deployments and variables under one growing index, as in
// Nomad. It has no clock, no scheduler and no network.
//
// Everything stored is immutable: a change is a shallow copy that replaces
// what was there. So whatever a reader got under the lock stays valid
// afterwards and may be encoded without it.
package state

import (
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Table names a kind of object; each has the index of its last change.
type Table int

// The tables.
const (
	Jobs Table = iota
	Nodes
	Allocs
	Evals
	Deployments
	Variables
	Config
	Namespaces
	Pools
	numTables
)

// Key is a namespaced name: a job's, or a variable's path.
type Key struct {
	Namespace string
	ID        string
}

// Node is a client with the computed class that Nomad keeps of it.
type Node struct {
	*api.Node
	ComputedClass string
}

// Ready says whether new work may be placed on the node.
func (n *Node) Ready() bool {
	return n.Status == api.NodeStatusReady && n.DrainStrategy == nil &&
		n.SchedulingEligibility == api.NodeSchedulingEligible
}

// Store holds the state. Use View to read and Update to write.
type Store struct {
	mu      sync.RWMutex
	changed chan struct{}
	data
}

// Ended is what is remembered of an allocation that was collected.
type Ended struct{ Group, ClientStatus string }

type data struct {
	index  uint64
	tables [numTables]uint64

	jobs        map[Key]*api.Job
	versions    map[Key][]*api.Job // newest first
	submissions map[Key]map[uint64]*api.JobSubmission
	// deadChildren counts the children of a job that were purged or collected.
	deadChildren map[Key]int64
	// collected counts a job's allocations that were collected.
	collected   map[Key]map[Ended]int
	nodes       map[string]*Node
	allocs      map[string]*api.Allocation
	jobAllocs   map[Key]map[string]struct{}
	nodeAllocs  map[string]map[string]struct{}
	evals       map[string]*api.Evaluation
	jobEvals    map[Key]map[string]struct{}
	evalsBy     map[string]map[string]struct{} // by status: pending and blocked ones
	deployments map[string]*api.Deployment
	variables   map[Key]*api.Variable
	namespaces  map[string]*api.Namespace
	pools       map[string]*api.NodePool
	config      *api.SchedulerConfiguration
	events      eventLog
}

// New returns an empty store with Nomad's default scheduler configuration.
func New() *Store {
	return &Store{
		changed: make(chan struct{}),
		data: data{
			index:        1,
			jobs:         map[Key]*api.Job{},
			versions:     map[Key][]*api.Job{},
			submissions:  map[Key]map[uint64]*api.JobSubmission{},
			deadChildren: map[Key]int64{},
			collected:    map[Key]map[Ended]int{},
			nodes:        map[string]*Node{},
			allocs:       map[string]*api.Allocation{},
			jobAllocs:    map[Key]map[string]struct{}{},
			nodeAllocs:   map[string]map[string]struct{}{},
			evals:        map[string]*api.Evaluation{},
			jobEvals:     map[Key]map[string]struct{}{},
			evalsBy:      map[string]map[string]struct{}{},
			deployments:  map[string]*api.Deployment{},
			variables:    map[Key]*api.Variable{},
			namespaces: map[string]*api.Namespace{
				api.DefaultNamespace: {Name: api.DefaultNamespace, Description: "Default shared namespace", CreateIndex: 1, ModifyIndex: 1},
			},
			pools: map[string]*api.NodePool{
				api.NodePoolAll:     {Name: api.NodePoolAll, Description: "Node pool with all nodes in the cluster.", CreateIndex: 1, ModifyIndex: 1},
				api.NodePoolDefault: {Name: api.NodePoolDefault, Description: "Default node pool.", CreateIndex: 1, ModifyIndex: 1},
			},
			config: &api.SchedulerConfiguration{
				SchedulerAlgorithm:            api.SchedulerAlgorithmBinpack,
				PreemptionConfig:              api.PreemptionConfig{SystemSchedulerEnabled: true},
				NodeLimitForFeasibilityChecks: 100,
				CreateIndex:                   1,
				ModifyIndex:                   1,
			},
		},
	}
}

// View calls f with the state as it is at one moment. The *View must not be
// used after f returned; what it handed out may be.
func (s *Store) View(f func(v *View)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f(&View{&s.data})
}

// Changed returns a channel that is closed by the next change.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Update calls f with a transaction. All that f writes gets one index and
// events of one type (one of the Event… names), and watchers wake when f
// returns. f must have checked everything before its first write: there is no
// undo. now stamps what is written.
func (s *Store) Update(eventType string, now time.Time, f func(tx *Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{View: View{&s.data}, Index: s.index + 1, Now: now, eventType: eventType}
	err := f(tx)
	if tx.wrote {
		s.index = tx.Index
		s.events.add(tx.Index, tx.pending)
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return err
}

// Tx is a transaction: it reads like a View, its own writes included.
type Tx struct {
	View
	// Index is what everything written in this transaction is stamped with.
	Index uint64
	// Now is the transaction's time.
	Now       time.Time
	eventType string
	wrote     bool
	pending   []Event
}

func (tx *Tx) touch(t Table) {
	tx.wrote = true
	tx.d.tables[t] = tx.Index
}

func addTo[K comparable](m map[K]map[string]struct{}, k K, id string) {
	if m[k] == nil {
		m[k] = map[string]struct{}{}
	}
	m[k][id] = struct{}{}
}
