package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// authorizer asks Nomad what a caller's token may do, by a small request of
// that kind with the token. Without ACLs Nomad allows everything. The client
// has no token of its own, so that a caller without one is nobody.
type authorizer struct{ client *api.Client }

// maySubmit asks Nomad to plan a job of no members, which needs submit-job and
// changes nothing. What else Nomad has to say about it does not matter.
func (a authorizer) maySubmit(namespace string, q *api.QueryOptions) error {
	task := &api.Task{Name: "rights", Driver: "caravan"}
	group := &api.TaskGroup{Name: new("rights"), Count: new(0), Tasks: []*api.Task{task}}
	job := &api.Job{
		ID: new("caravan-rights"), Name: new("caravan-rights"), Namespace: &namespace, Type: new(api.JobTypeBatch),
		Datacenters: []string{"*"}, TaskGroups: []*api.TaskGroup{group},
	}
	w := (&api.WriteOptions{Namespace: namespace, AuthToken: q.AuthToken}).WithContext(q.Context())
	_, _, err := a.client.Jobs().Plan(job, false, w)
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) && answer.StatusCode() != http.StatusForbidden && answer.StatusCode() != http.StatusUnauthorized && answer.StatusCode()/100 != 5 {
		return nil
	}
	return err
}

func (a authorizer) check(ctx context.Context, token string, right httpapi.Right, namespace string) error {
	q := (&api.QueryOptions{Namespace: namespace, PerPage: 1, AuthToken: token}).WithContext(ctx)
	var err error
	switch right {
	case httpapi.RightReadJob:
		_, _, err = a.client.Allocations().List(q)
	case httpapi.RightSubmitJob:
		err = a.maySubmit(namespace, q)
	case httpapi.RightReadNode:
		_, _, err = a.client.Nodes().List(q)
	case httpapi.RightReadOperator:
		_, _, err = a.client.Operator().SchedulerGetConfiguration(q)
	default:
		_, _, err = a.client.ACLTokens().List(q)
	}
	var answer api.UnexpectedResponseError
	code := 0
	if errors.As(err, &answer) {
		code = answer.StatusCode()
	}
	switch {
	case err == nil:
		return nil
	case code == http.StatusBadRequest && right == httpapi.RightManage:
		// So Nomad answers where ACLs are off.
		return nil
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		e := &httpapi.Error{Status: http.StatusForbidden, Message: fmt.Sprintf("the token does not have %s", right),
			Do: "send a Nomad ACL token that has it in the header " + httpapi.TokenHeader + " (NOMAD_TOKEN for the caravan command)"}
		if namespace != "" && namespace != "*" {
			e.Message += " in namespace " + namespace
		}
		return e
	}
	return &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "Nomad cannot be asked what the token may do: " + err.Error(), Do: "try again when Nomad answers"}
}
