package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// The parts of Nomad's state that a View is made of. Each has an index of its
// own that grows with every change.
type part int

const (
	partJobs part = iota
	partNodes
	partAllocs
	partRecords
	partNamespaces
	parts
)

var partNames = [parts]string{"jobs", "nodes", "allocations", "variables", "namespaces"}

// watchTime is how long a blocking query waits before it answers that nothing
// changed.
const watchTime = 5 * time.Minute

// Records is where the records of managed jobs are read from; record.Store is
// one.
type Records interface {
	// List returns all records. Where some are damaged, the error wraps
	// record.ErrDamaged, and the others are returned with it.
	List(ctx context.Context) ([]*record.Record, error)
}

// nomad reads Nomad's API. All reads are answered by the leader, so that a
// View has everything that was written before it was made.
type nomad struct {
	client         *api.Client
	stateNamespace string
}

// index asks for a part's index, in an answer of one element. With an index
// above zero it waits until the part's index has passed it.
func (n nomad) index(ctx context.Context, p part, after uint64) (uint64, error) {
	q := &api.QueryOptions{Namespace: api.AllNamespacesNamespace, PerPage: 1, WaitIndex: after}
	if after > 0 {
		q.WaitTime = watchTime
	}
	q = q.WithContext(ctx)
	var meta *api.QueryMeta
	var err error
	switch p {
	case partJobs:
		_, meta, err = n.client.Jobs().List(q)
	case partNodes:
		_, meta, err = n.client.Nodes().List(q)
	case partAllocs:
		_, meta, err = n.client.Allocations().List(q)
	case partRecords:
		q.Namespace = n.stateNamespace
		_, meta, err = n.client.Variables().List(q)
	case partNamespaces:
		q.Namespace = ""
		_, meta, err = n.client.Namespaces().List(q)
	}
	if err != nil {
		return 0, readError(partNames[p], err)
	}
	return indexOf(meta), nil
}

// indexOf is an answer's index, 0 if it has none. Nomad gives a part that never
// held anything the index 0; it counts as 1.
func indexOf(meta *api.QueryMeta) uint64 {
	if meta.LastIndex == 0 && meta.KnownLeader {
		return 1
	}
	return meta.LastIndex
}

func (n nomad) jobs(ctx context.Context) ([]*api.JobListStub, uint64, error) {
	q := &api.QueryOptions{Namespace: api.AllNamespacesNamespace}
	list, meta, err := n.client.Jobs().List(q.WithContext(ctx))
	if err != nil {
		return nil, 0, readError("jobs", err)
	}
	return list, indexOf(meta), nil
}

func (n nomad) nodes(ctx context.Context) ([]*api.NodeListStub, uint64, error) {
	list, meta, err := n.client.Nodes().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, 0, readError("nodes", err)
	}
	return list, indexOf(meta), nil
}

// node returns nil when the node is gone.
func (n nomad) node(ctx context.Context, id string) (*api.Node, error) {
	node, _, err := n.client.Nodes().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, readError("node "+id, err)
	}
	return node, nil
}

// job returns nil when the job is gone.
func (n nomad) job(ctx context.Context, namespace, id string) (*api.Job, error) {
	q := &api.QueryOptions{Namespace: namespace}
	job, _, err := n.client.Jobs().Info(id, q.WithContext(ctx))
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, readError("job "+id, err)
	}
	return job, nil
}

func (n nomad) scheduler(ctx context.Context) (*api.SchedulerConfiguration, error) {
	r, _, err := n.client.Operator().SchedulerGetConfiguration((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, readError("scheduler configuration", err)
	}
	if r.SchedulerConfig == nil {
		return nil, readError("scheduler configuration", errors.New("the answer has none"))
	}
	return r.SchedulerConfig, nil
}

// ErrDenied is in the chain when Nomad refuses the planner's token.
var ErrDenied = errors.New("Nomad refuses the planner's token")

// needs are the ACL rules that reading each part takes.
var needs = map[string]string{
	"jobs":                    `namespace "*" { capabilities = ["list-jobs", "read-job"] }`,
	"allocations":             `namespace "*" { capabilities = ["read-job"] }`,
	"nodes":                   `node { policy = "read" }`,
	"variables":               `variables { path "caravan/*" { capabilities = ["read", "write", "destroy"] } } in the state namespace`,
	"scheduler configuration": `operator { policy = "read" }`,
}

func readError(what string, err error) error {
	if err == nil {
		return nil
	}
	if code := statusCode(err); code == http.StatusForbidden || code == http.StatusUnauthorized {
		if need := needs[what]; need != "" {
			return fmt.Errorf("read %s: %w: give its ACL policy %s: %w", what, ErrDenied, need, err)
		}
		return fmt.Errorf("read %s: %w: %w", what, ErrDenied, err)
	}
	return fmt.Errorf("read %s: %w", what, err)
}

// statusCode is the HTTP status that Nomad answered with, 0 if it did not.
func statusCode(err error) int {
	var unexpected api.UnexpectedResponseError
	if errors.As(err, &unexpected) {
		return unexpected.StatusCode()
	}
	return 0
}

func notFound(err error) bool { return statusCode(err) == http.StatusNotFound }
